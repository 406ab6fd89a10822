"""Restore rates against public measurements, the worked table of benefit ratios, and the laws of any table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan import spec_files
from capplan.costs.copy_rate import effective_rates
from capplan.costs.fragment import fragment_bytes, fragments_per_block, fragments_per_token
from capplan.costs.prefill import build_prefill, seconds
from capplan.costs.restore import estimate_rate
from capplan.costs.restore_spec import LAYOUTS, METHODS, load_restore_tables
from capplan.economics import load_overhead_seconds, obr_ttft
from capplan.errors import SpecError
from capplan.hardware import GpuSpec, list_gpus, load_gpu
from capplan.models import load_model

TABLES = load_restore_tables()
GPUS = {gpu.name: gpu for gpu in list_gpus() if isinstance(gpu, GpuSpec)}
ANCHOR = load_model("qwen3-coder-30b-a3b")
BETA = 24_576  # at TP8
GB, KIB = 1e9, 1024
ENGINES = ("lmcache", "vllm", "sglang", "trtllm", "dynamo", "mooncake")
H100_LINK = (51.5 * GB,) * 3

methods = st.sampled_from(METHODS)
sizes = st.floats(64, 2**26)


@pytest.mark.parametrize(
    ("model", "tp", "block", "layout", "expected"),
    [
        ("llama-3.1-8b", 1, 16, "paged", 32 * KIB),
        ("llama-3.1-70b", 8, 16, "paged", 4 * KIB),
        ("qwen3-coder-30b-a3b", 8, 16, "paged", 4 * KIB),
        ("qwen3-coder-30b-a3b", 8, 16, "paged-kv", 8 * KIB),
        ("qwen3-coder-30b-a3b", 8, 64, "paged", 16 * KIB),
        ("qwen3-coder-30b-a3b", 8, 16, "joined", 16 * BETA),
        ("llama-3.1-8b", 1, 16, "joined", 2048 * KIB),
        ("deepseek-v3", 8, 16, "paged", 18 * KIB),
        ("deepseek-v3", 1, 16, "paged-kv", 18 * KIB),
    ],
)
def test_published_fragment_sizes(model, tp, block, layout, expected):
    assert fragment_bytes(load_model(model), tp, "bf16", block, layout) == expected


def test_fragments_of_a_token():
    assert fragments_per_token(ANCHOR) == 6
    assert fragments_per_block(load_model("deepseek-v3")) == 61
    assert fragment_bytes(ANCHOR, 8, "fp8") == 2 * KIB


@given(
    st.sampled_from(["llama-3.1-8b", "deepseek-v3"]), st.integers(1, 8), st.integers(1, 256), st.sampled_from(LAYOUTS)
)
def test_fragments_hold_the_tokens_bytes(name, tp, block, layout):
    from capplan.models.model_spec import kv_bytes_per_token

    model = load_model(name)
    held = fragment_bytes(model, tp, "bf16", block, layout) * fragments_per_token(model, block, layout)
    assert held == pytest.approx(kv_bytes_per_token(model, tp))


# vLLM's post on its offloading connector: H100, GB/s by fragment size (chart), and a batched call (vLLM PR 42212).
MEASURED = {
    "per-fragment": {
        4: 1.1,
        8: 2.3,
        16: 4.3,
        32: 7.5,
        64: 14.5,
        128: 22.8,
        256: 31.8,
        512: 39.5,
        1024: 44.4,
        2048: 47.7,
    }
    | {4096: 49.8, 16_384: 51.2},
    "kernel": {4: 12.5, 8: 24.4, 16: 30.6, 32: 35.8, 64: 41.9, 128: 44, 256: 46.1, 512: 46.8, 1024: 47.3, 16_384: 47.8},
    "batched": {4: 5.5, 16: 5.5, 24: 5.5, 28: 42, 64: 52},
}


@pytest.mark.parametrize("method", MEASURED)
def test_measured_rates(method):
    link = {"per-fragment": 51.5, "kernel": 47.8 / 0.934, "batched": 52}[method] * GB
    for size, rate in MEASURED[method].items():
        low, typical, high = effective_rates(method, size * KIB, (link,) * 3, TABLES)
        assert typical / GB == pytest.approx(rate, rel=0.025)
        assert low <= typical <= high


def test_the_fit_holds_from_64_kib_only():
    """Single copies: 3.3 us + s / 51.5 GB/s; at 4 KiB it would give 1.21 instead of 1.1 GB/s."""
    for size in (64, 100, 3000):
        fit = size * KIB / (3.3e-6 + size * KIB / 51.5e9)
        assert effective_rates("per-fragment", size * KIB, H100_LINK, TABLES)[1] == pytest.approx(fit)
    assert effective_rates("per-fragment", 4 * KIB, H100_LINK, TABLES)[1] == pytest.approx(1.1 * GB)
    middle = effective_rates("per-fragment", 4 * KIB * 2**0.5, H100_LINK, TABLES)[1]
    assert middle == pytest.approx((1.1 * 2.3) ** 0.5 * GB)


@given(methods, st.sampled_from(["", "NVIDIA", "AMD"]), sizes, st.floats(1, 100), st.floats(1, 500))
def test_larger_fragments_are_never_slower_nor_faster_than_the_link(method, vendor, size, factor, link):
    contiguous = (link * GB, 1.1 * link * GB, 1.2 * link * GB)
    small, large = (effective_rates(method, s, contiguous, TABLES, vendor) for s in (size, size * factor))
    for one, other, limit in zip(small, large, contiguous, strict=True):
        assert 0 < one <= other * (1 + 1e-12)
        assert other <= limit * (1 + 1e-12)
    assert list(small) == sorted(small)


@given(methods, sizes, st.floats(1, 500), st.floats(1, 10))
def test_a_faster_link_helps_but_does_not_shorten_a_call(method, size, link, factor):
    slow, fast = (effective_rates(method, size, (x * GB,) * 3, TABLES) for x in (link, link * factor))
    for one, other in zip(slow, fast, strict=True):
        assert one <= other * (1 + 1e-12)
        assert other <= one * factor * (1 + 1e-12)


def test_a_call_costs_the_same_behind_a_faster_link():
    """4 KiB fragments over NVLink-C2C: bound by calls, as over PCIe."""
    rate = estimate_rate(load_gpu("gh200-96"), ANCHOR, 8, method="per-fragment").typical
    assert rate < 1.15 * GB


# Qwen3-Coder-30B-A3B at TP8, six 4 KiB fragments per token; prefill time per token in us given by column.
COLUMNS = [("h20", 67.9), ("h100", 18.0), ("h100", 8.5), ("h200", 8.1), ("b200", 6.1), ("rtx-pro-6000", 44)]
WORKED = {
    "per-fragment": [0.67, -0.24, -1.63, -1.76, -2.66, 0.49],
    "batched": [0.93, 0.75, 0.47, 0.45, 0.27, 0.90],
    "kernel": [0.97, 0.89, 0.77, 0.76, 0.68, 0.96],
    "contiguous": [0.99, 0.97, 0.94, 0.94, 0.92, 0.99],
}


@pytest.mark.parametrize("method", WORKED)
@pytest.mark.parametrize("column", range(6))
def test_worked_benefit_ratios(method, column):
    gpu, us_per_token = COLUMNS[column]
    rate = estimate_rate(load_gpu(gpu), ANCHOR, 8, method=method)
    assert rate.fragment_bytes == 4096
    assert 1 - BETA / rate.typical / (us_per_token * 1e-6) == pytest.approx(WORKED[method][column], abs=0.02)


@pytest.mark.parametrize("position", [16_384, 32_768, 65_536])
def test_single_copies_flip_the_sign_between_h20_and_h800_and_contiguous_ones_do_not(position):
    def ratio(gpu, method):
        prefill = build_prefill(load_gpu(gpu), ANCHOR, 8).typical
        t_pf = float(seconds(prefill, position, position + 8192)) / 8192
        return 1 - BETA / estimate_rate(load_gpu(gpu), ANCHOR, 8, method=method).typical / t_pf

    assert ratio("h20", "per-fragment") > 0 > ratio("h800", "per-fragment")
    assert min(ratio("h20", "contiguous"), ratio("h800", "contiguous")) > 0.9


@pytest.mark.parametrize(("tokens", "measured"), [(10_000, 0.855), (50_000, 0.931), (100_000, 0.955)])
def test_measured_restores_of_an_h100(tokens, measured):
    """Llama-3.1-8B, vLLM's connector with joined layers; its machine copies at 51.2 GB/s, the high end here.

    An intercept of 8 ms holds this engine's floor, so none is added.
    """
    gpu, model = load_gpu("h100"), load_model("llama-3.1-8b")
    rate = estimate_rate(gpu, model, 1, engine="vllm")
    assert (rate.method, rate.layout, rate.fragment_bytes) == ("batched", "joined", 2048 * KIB)
    t_rec = float(seconds(build_prefill(gpu, model, 1).typical, 0, tokens))
    found = [obr_ttft(t_rec, tokens * 131_072 / r + load_overhead_seconds(tokens), 0.0) for r in rate.ends]
    assert found[2] == pytest.approx(measured, abs=0.03)
    assert found[1] == pytest.approx(measured, abs=0.035)


@pytest.mark.parametrize(("tokens", "measured", "tolerance"), [(1024, 0.27, 0.08), (65_536, 0.98, 0.02)])
def test_measured_restores_of_an_h20(tokens, measured, tolerance):
    """Qwen3-Coder-30B-A3B at TP1, floor 42 ms (gitea.gahow.org/gahow/agentic-kvc)."""
    gpu = load_gpu("h20")
    rate = estimate_rate(gpu, ANCHOR, 1, engine="vllm")
    t_rec = float(seconds(build_prefill(gpu, ANCHOR, 1).typical, 0, tokens))
    t_load = tokens * 98_304 / rate.typical + load_overhead_seconds(tokens)
    assert obr_ttft(t_rec, t_load) == pytest.approx(measured, abs=tolerance)


def test_measured_lmcache_restore():
    """10,010 tokens, 1.3747 GB at 41.1 GB/s (LMCache PR 1740); the GPU is not named, an H100 is assumed."""
    low, _, high = (rate / GB for rate in estimate_rate(load_gpu("h100"), load_model("llama-3.1-8b"), 1).ends)
    assert low < 41.1 < 1.1 * high


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", GPUS)
def test_every_engine_on_every_gpu(engine, name):
    for model, tp in ((ANCHOR, 8), (load_model("deepseek-v3"), 8), (load_model("llama-3.1-8b"), 1)):
        rate = estimate_rate(GPUS[name], model, tp, engine=engine)
        for found, limit in zip(rate.ends, rate.contiguous, strict=True):
            assert 0 < found <= limit * (1 + 1e-12)
        assert rate.low <= rate.typical <= rate.high
        assert all(rate.notes)
        for method in METHODS:
            other = estimate_rate(GPUS[name], model, tp, method=method, engine=engine)
            assert other.typical <= rate.contiguous[1] * (1 + 1e-12)


def test_engines_have_a_reason_and_a_source():
    assert set(TABLES.engines) == set(ENGINES)
    for habit in TABLES.engines.values():
        assert len(habit.basis) > 20
        assert habit.source.startswith("https://")
    vllm = TABLES.engine("vllm")
    assert (vllm.method_for(4 * KIB), vllm.method_for(28 * KIB)) == ("kernel", "batched")
    paged = estimate_rate(load_gpu("h20"), ANCHOR, 8, engine="vllm", layout="paged")
    assert (paged.method, paged.fragment_bytes) == ("kernel", 4096)


def test_every_measurement_has_a_source():
    for table in (*TABLES.copies, *TABLES.store_loss, *TABLES.host_dram):
        assert len(table.basis) > 20
        assert table.source.startswith("https://")


def test_stores_count_at_the_end_asked_for():
    gpu = load_gpu("h20")
    rates = {
        stores: estimate_rate(gpu, ANCHOR, 1, method="contiguous", stores=stores).ends for stores in ("none", "low")
    }
    assert rates["none"] == (52e9, 53.45e9, 54.9e9)
    assert rates["low"] == pytest.approx((54.9e9 * 0.85, 53.45e9, 54.9e9))
    every = estimate_rate(gpu, ANCHOR, 1, method="contiguous", stores="all").ends
    assert every == pytest.approx((54.9e9 * 0.85, 53.45e9 * 0.875, 54.9e9 * 0.9))
    assert "stores at the same time count at the low end, x 0.85" in estimate_rate(gpu, ANCHOR, 1).notes


def test_a_low_end_measured_with_copies_both_ways_is_not_reduced_twice():
    for name, low in (("a100-80", 11), ("rtx4090", 26.4 * 0.45), ("h100", 35.2), ("gh200-96", 342)):
        rate = estimate_rate(load_gpu(name), ANCHOR, 1, method="contiguous")
        assert rate.low == pytest.approx(low * GB)


def test_ranks_share_the_memory_of_their_node():
    gpu, model = load_gpu("h200"), load_model("llama-3.1-70b")
    one, eight = (estimate_rate(gpu, model, tp, method="contiguous") for tp in (1, 8))
    assert one.typical == 55.4e9
    assert eight.ends == pytest.approx((213e9 / 8, 430e9 / 8, 55.4e9))
    assert estimate_rate(gpu, model, 2, method="contiguous", ranks=8).ends == eight.ends
    assert estimate_rate(gpu, model, 8, method="contiguous", dram_gb_per_s=160).ends == (20e9, 20e9, 20e9)
    assert estimate_rate(gpu, model, 8, method="contiguous", dram_gb_per_s=(80, 160, 320)).ends == (10e9, 20e9, 40e9)
    assert estimate_rate(gpu, model, 16, method="contiguous").typical == eight.typical  # eight to a node
    assert "host memory 213 / 430 / 700 GB/s over 8 readers" in eight.notes[-1]
    grace = estimate_rate(load_gpu("gb200"), model, 4, method="contiguous")
    assert grace.typical == 190e9
    assert grace.notes[-1] == "no ceiling of host memory apart from the link's own rate"


def test_every_rank_reads_a_latent_unless_one_sends_it_on():
    gpu, model = load_gpu("h200"), load_model("deepseek-v3")
    apart = estimate_rate(gpu, model, 8, method="contiguous", engine="vllm")
    sent = estimate_rate(gpu, model, 8, method="contiguous", engine="lmcache")
    assert apart.low == pytest.approx(213e9 / 8)
    assert sent.low == pytest.approx(55.4e9 * 0.85)
    assert estimate_rate(gpu, model, 8, method="contiguous", broadcasts=False).ends == apart.ends
    assert "every rank restores the same latent" in sent.notes


def test_another_vendors_kernel_is_said_to_be_unmeasured():
    notes = estimate_rate(load_gpu("mi300x"), ANCHOR, 8).notes
    assert notes[1].startswith("rates by size (no figure for AMD): ")
    assert estimate_rate(load_gpu("mi300x"), ANCHOR, 8, method="batched").typical == pytest.approx(1.6e9, rel=0.01)


def error_of(call, *arguments, **options):
    with pytest.raises(SpecError) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "restore method 'magic': accepted: per-fragment, batched, kernel, contiguous"),
        ({"engine": "x"}, "engine 'x': accepted: dynamo, lmcache, mooncake, sglang, trtllm, vllm"),
        ({"layout": "x"}, "layout 'x': accepted: paged, paged-kv, joined"),
        ({"block_tokens": 0}, "block_tokens 0: accepted: a whole number from 1"),
        ({"ranks": 0}, "ranks 0: accepted: a whole number from 1"),
        ({"stores": "x"}, "stores 'x': accepted: none, low, all"),
        ({"dram_gb_per_s": 0}, "dram_gb_per_s 0: accepted: GB/s above 0, low <= typical <= high"),
        ({"dram_gb_per_s": (3, 2, 4)}, "dram_gb_per_s (3, 2, 4): accepted: GB/s above 0, low <= typical <= high"),
    ],
)
def test_errors(options, message):
    assert error_of(estimate_rate, load_gpu("h20"), ANCHOR, 8, **options) == message


def test_a_fragment_has_bytes():
    assert error_of(effective_rates, "kernel", 0, H100_LINK, TABLES) == "fragment of 0 bytes: accepted: more than 0"


OWN = """[[copies]]
method = "kernel"
bytes = [4096]
low = [20]
typical = [25]
high = [30]
limit_gb_per_s = 50
beyond_bytes = 65536
beyond_us = { low = 0, typical = 0, high = 0 }
basis = "own bench"
source = "own"

[[host_dram]]
link = "PCIe5"
low = 90
typical = 100
high = 110
basis = "own stream"
source = "own"

[engines.house]
method = "kernel"
layout = "joined"
block_tokens = 128
broadcasts_latent = false
basis = "own"
source = "own"
"""


@pytest.fixture
def own(tmp_path):
    def write(text):
        path = tmp_path / "rates.toml"
        path.write_text(text)
        return str(path)

    return write


def test_own_tables_go_first(own):
    tables = load_restore_tables(own(OWN))
    rate = estimate_rate(load_gpu("h20"), ANCHOR, 8, tables=tables)
    assert rate.contiguous == (90e9 / 8, 100e9 / 8, 110e9 / 8)
    assert effective_rates("kernel", 4096, (50e9,) * 3, tables) == pytest.approx((20e9, 25e9, 30e9))
    assert estimate_rate(load_gpu("h20"), ANCHOR, 8, engine="house", tables=tables).fragment_bytes == 128 * BETA
    assert tables.engine("vllm") == TABLES.engine("vllm")


COPIES = (
    "tables of method, bytes, low, typical, high (GB/s), limit_gb_per_s, beyond_bytes, beyond_us, basis, source, "
    "contiguous_share, vendor"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bytes = [4096]", "bytes = [4096, 8192]", f"copies[0]: 2 sizes, 1, 1, 1 rates; accepted: {COPIES}"),
        ("bytes = [4096]", "bytes = [99999]", f"copies[0]: sizes do not ascend; accepted: {COPIES}"),
        (
            "low = [20]",
            "low = [26]",
            f"copies[0]: low, typical, high and limit_gb_per_s are out of order; accepted: {COPIES}",
        ),
        (
            'method = "kernel"\nbytes',
            'method = "x"\nbytes',
            f"copies[0].method: invalid enum value 'x'; accepted: {COPIES}",
        ),
        (
            "[engines.house]",
            "[engine.house]",
            "engine: unknown field; accepted: base, copies, engines, host_dram, store_loss",
        ),
        (
            "[[copies]]",
            'base = "x"\n[[copies]]',
            "base: unknown field; accepted: copies, engines, host_dram, store_loss",
        ),
    ],
)
def test_own_table_errors(own, old, new, message):
    assert old in OWN
    path = own(OWN.replace(old, new, 1))
    assert error_of(load_restore_tables, path) == f"{path}: {message}"


def test_a_rate_must_not_fall_with_the_size(own):
    text = OWN.replace("bytes = [4096]", "bytes = [4096, 8192]").replace("low = [20]", "low = [20, 19]")
    path = own(text.replace("typical = [25]", "typical = [25, 25]").replace("high = [30]", "high = [30, 30]"))
    assert error_of(load_restore_tables, path).startswith(f"{path}: copies[0]: a rate falls with the size; ")


def test_shipped_tables_are_read_once():
    assert load_restore_tables() is TABLES
    assert spec_files.shipped("gpus")  # the tables stand beside the folders of specs, not in one
