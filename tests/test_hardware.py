import csv
import io
import math
import re
import tomllib

import pytest

from capplan import spec_files
from capplan.economics import flop_per_link_byte, prefill_seconds_per_token
from capplan.errors import SpecError
from capplan.hardware import GpuSpec, IncompleteGpu, list_gpus, load_gpu
from capplan.models import list_models, load_model

COMPLETE = [gpu for gpu in list_gpus() if isinstance(gpu, GpuSpec)]
INCOMPLETE = [gpu for gpu in list_gpus() if isinstance(gpu, IncompleteGpu)]
SOURCE = re.compile(r"https?://|assumption: |derived: |author-reported")

# name, BF16 TFLOP/s, FP8 TFLOP/s, GiB, HBM GB/s, link GB/s, H2D GB/s low and high where measured
PUBLISHED = """\
rtx3090,71,,24,936,32,,
rtx4090,165.2,330.3,23.5,1010,32,20.8,26.4
rtx5090,209.5,419,31.4,1792,64,50.8,56.4
rtx-pro-6000,503.8,1007.6,95.6,1792,64,,
a10,125,,24,600,32,18.3,19.7
l4,121,242,24,300,32,,
l40s,362,733,45.0,864,32,,
a40,149.7,,48,696,32,,
a100-40,312,,40,1555,32,11,26.0
a100-40-pcie,312,,40,1555,32,,
a100-80,312,,80,2039,32,11,26.0
a100-80-pcie,312,,80,1935,32,,
a800-80,312,,80,2039,32,,
h20,148,296,96,4000,64,52,54.9
h20-141,148,296,141,4800,64,,
h100-pcie,756.5,1513,80,2000,64,,
h100,989,1979,80,3350,64,35.2,51.2
h100-nvl,835.5,1671,94,3900,64,,
h800,989,1979,80,3352,64,,
h200,989,1979,140.4,4800,64,55.4,55.4
gh200-96,989,1979,96,4000,450,342,421
gh200-144,989,1979,141,4800,450,,
b200,2250,4500,178.4,7700,64,,
b300,2250,4500,268.6,7750,64,,
gb200,2500,5000,185.0,8000,225,,
gb300,2500,5000,277.5,8000,225,169,211
mi210,181,,64,1638,32,22.5,28
mi300x,1307.4,2614.9,192,5300,64,,
mi325x,1307.4,2614.9,256,6000,64,,
mi355x,2500,5000,288,8000,64,,
gaudi3,1677,1677,128,3700,64,,
"""


def maybe(text):
    return float(text) if text else None


@pytest.mark.parametrize("row", list(csv.reader(io.StringIO(PUBLISHED))), ids=lambda row: row[0])
def test_published_numbers(row):
    name, bf16, fp8, gib, hbm, link, low, high = row
    gpu = load_gpu(name)
    assert (gpu.name, gpu.bf16_dense_tflops, gpu.fp8_dense_tflops) == (name, float(bf16), maybe(fp8))
    assert (gpu.hbm_gib, gpu.hbm_gb_per_s, gpu.link_gb_per_s) == (float(gib), float(hbm), float(link))
    rate = gpu.h2d_gb_per_s
    if low:
        assert (rate.low, rate.high, rate.estimated) == (float(low), float(high), False)
        assert rate.typical == pytest.approx((rate.low + rate.high) / 2, abs=1e-3)
    else:
        assert rate.estimated


def test_every_row_is_checked():
    assert {gpu.name for gpu in COMPLETE} == {line.split(",")[0] for line in PUBLISHED.splitlines()}


@pytest.mark.parametrize("gpu", COMPLETE, ids=lambda gpu: gpu.name)
def test_every_number_has_a_source(gpu):
    numbers = {"bf16_dense_tflops", "hbm_gib", "hbm_gb_per_s", "link_gb_per_s", "gpus_per_node"}
    assert set(gpu.sources) == numbers | ({"fp8_dense_tflops"} if gpu.fp8_dense_tflops else set())
    limits = (gpu.h2d_gb_per_s, gpu.allreduce_gb_per_s, gpu.efficiency, *gpu.efficiency.cases)
    stated = [*gpu.sources.values(), *(limit.source for limit in limits), *(point.source for point in gpu.measured)]
    if gpu.prefill:
        tables = [table for table in (*gpu.prefill.dense, *gpu.prefill.moe, gpu.prefill.attention) if table]
        stated += [gpu.prefill.source, *(table.source for table in tables if table.source)]
        assert all(len(basis) > 10 for basis in (gpu.prefill.basis, gpu.prefill.scheduling.basis))
        assert (
            all(table.basis for table in tables if table.estimated and not gpu.prefill.estimated) or gpu.name == "h200"
        )
    assert all(SOURCE.match(source) for source in stated), stated
    assert all(len(limit.basis) > 10 for limit in limits)


@pytest.mark.parametrize("gpu", COMPLETE, ids=lambda gpu: gpu.name)
def test_numbers_are_plausible(gpu):
    assert gpu.h2d_gb_per_s.high < gpu.link_gb_per_s
    assert gpu.allreduce_gb_per_s.low > 0
    assert gpu.gpus_per_node == {"gh200-96": 1, "gh200-144": 1, "gb200": 4, "gb300": 4}.get(gpu.name, 8)
    known = {model.name: model for model in list_models()}
    assert {point.model for point in gpu.measured} <= set(known)
    for kind in ("dense", "moe"):
        for tp in (1, 2, 4, 8):
            assert 0 < gpu.efficiency_for(kind, tp).typical <= 1


@pytest.mark.parametrize("gpu", [gpu for gpu in COMPLETE if gpu.fp8_dense_tflops], ids=lambda gpu: gpu.name)
def test_fp8_has_ranges_of_its_own(gpu):
    for kind in ("dense", "moe"):
        assert gpu.efficiency_for(kind, 8, "fp8").weight_dtype == "fp8"


def test_only_end_to_end_runs_count_as_measured_efficiency():
    sure = {gpu.name for gpu in COMPLETE if not gpu.efficiency.estimated}
    assert sure == {"h20", "h100", "rtx3090", "rtx4090"}


def test_rates_never_use_what_sources_got_wrong():
    """No sparse or FP16-accumulate peak, no Gen6 link, no wrong all-reduce table."""
    assert load_gpu("rtx3090").peak_flops() < 142e12
    assert load_gpu("rtx4090").peak_flops("fp8") < 660e12
    assert {load_gpu(name).link_gb_per_s for name in ("b200", "b300")} == {64}
    assert load_gpu("gb200").link_gb_per_s == 225
    assert load_gpu("l40s").efficiency_for("dense", 8).confidence == "none"
    assert load_gpu("l40s").efficiency_for("moe", 8).confidence == "none"
    assert load_gpu("l40s").allreduce_gb_per_s.high <= load_gpu("l40s").link_gb_per_s


def test_allreduce_rates():
    """Measured where a node of that GPU was; elsewhere another's with the same links, flagged."""
    rates = {gpu.name: gpu.allreduce_gb_per_s for gpu in COMPLETE}
    assert {name for name, rate in rates.items() if not rate.estimated} == {"h200", "rtx5090"}
    assert (rates["h800"].typical, rates["h200"].typical, rates["a100-80"].typical) == (160, 360, 200)
    for name, raw in (("h100", 450), ("h20", 450), ("h800", 215), ("a100-80", 300), ("b200", 900), ("mi300x", 448)):
        assert rates[name].high <= raw


def test_shares_of_the_peak():
    shares = load_gpu("h100").prefill
    assert shares.dense_for("bf16").typical == (0.77, 0.82, 0.79)
    assert shares.dense_for("fp8").typical == (0.51, 0.54)
    assert [table.tp for table in shares.moe_for("bf16")] == [1, 8]
    assert shares.attention.at == (2048, 8192, 16384)
    pro = load_gpu("rtx-pro-6000").prefill  # published against the peak of a server card
    assert pro.dense_for("bf16").typical == pytest.approx([x * 467.8 / 503.8 for x in (0.70, 0.81, 0.85)], abs=5e-4)
    assert load_gpu("h100").prefill.moe_for("fp8")[0].tp == 1
    assert load_gpu("h200").prefill.dense_for("int4") is None


@pytest.mark.parametrize(("name", "thousands"), [("rtx3090", 2.2), ("h20", 2.3), ("h800", 15.5)])
def test_published_flop_per_link_byte(name, thousands):
    gpu = load_gpu(name)
    assert flop_per_link_byte(gpu.peak_flops(), gpu.link_bytes_per_s) / 1e3 == pytest.approx(thousands, abs=0.05)


def test_peak_follows_the_type_the_gpu_computes_in():
    h20, a100 = load_gpu("h20"), load_gpu("a100-80")
    assert [h20.peak_flops(dtype) for dtype in ("bf16", "fp8", "int4")] == [148e12, 296e12, 148e12]
    assert a100.peak_flops("fp8") == 312e12
    assert a100.efficiency_for("dense", 1, "fp8") == a100.efficiency_for("dense", 1, "bf16")


def test_efficiency_depends_on_kind_size_and_type():
    h100 = load_gpu("h100")
    assert (h100.efficiency_for("dense", 1).low, h100.efficiency_for("dense", 1).high) == (0.59, 0.69)
    assert (h100.efficiency_for("dense", 8).low, h100.efficiency_for("dense", 8).high) == (0.44, 0.50)
    assert (h100.efficiency_for("moe", 1).low, h100.efficiency_for("moe", 1).high) == (0.28, 0.63)
    assert (h100.efficiency_for("moe", 8).low, h100.efficiency_for("moe", 8).high) == (0.14, 0.45)
    assert h100.efficiency_for("moe", 4).confidence == "low"
    assert h100.efficiency_for("moe", 8, "fp8").high == 0.58
    assert load_gpu("h20").efficiency_for("moe", 1).typical == pytest.approx(0.85)


def predicted_us(gpu, model, point, efficiency):
    peak = gpu.peak_flops(point.weight_dtype)
    work = (model.linear_params, model.attention_flops, point.position)
    return prefill_seconds_per_token(*work, point.tp, peak, efficiency) * 1e6


@pytest.mark.parametrize("position", [2048, 32768])
def test_h20_predicts_its_measured_prefill(position):
    gpu, model = load_gpu("h20"), load_model("qwen3-coder-30b-a3b")
    (point,) = (point for point in gpu.measured_for(model.name, 1) if point.position == position)
    limits = gpu.efficiency_for(model.kind, 1, point.weight_dtype)
    fastest, slowest = (predicted_us(gpu, model, point, share) for share in (limits.high, limits.low))
    assert fastest * 0.995 <= point.us_per_token <= slowest * 1.005
    assert predicted_us(gpu, model, point, limits.typical) == pytest.approx(point.us_per_token, rel=0.1)


@pytest.mark.parametrize(
    ("gpu", "model", "tp", "dtype", "shares"),
    [
        ("h20", "qwen3-coder-30b-a3b", 1, "bf16", [0.52, 0.79, 0.91]),
        ("h20", "qwen3-8b", 1, "fp8", [0.77]),
        ("h20", "deepseek-v3", 8, "fp8", [0.57]),
        ("h100", "llama-3.1-8b", 1, "bf16", [0.64, 0.61, 0.60, 0.59]),
    ],
)
def test_measured_points_give_the_published_efficiency(gpu, model, tp, dtype, shares):
    gpu, model = load_gpu(gpu), load_model(model)
    points = [point for point in gpu.measured_for(model.name, tp) if point.weight_dtype == dtype]
    got = [predicted_us(gpu, model, point, 1) / point.us_per_token for point in points]
    assert got == pytest.approx(shares, abs=0.011)


def test_replay_slope_of_the_h20():
    (point,) = load_gpu("h20").measured_for("qwen3-coder-30b-a3b", 8)
    assert point.us_per_token == pytest.approx((208.91 - 128.05) * 60 / (76.74 - 5.28), abs=0.05)
    assert (point.position, point.position_estimated) == (26_000, True)  # the replay does not report it
    assert "derived" in point.source


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H20", "h20"),
        ("h20-96", "h20"),
        ("H20-3e", "h20-141"),
        ("rtx-3090", "rtx3090"),
        ("RTX 3090", "rtx3090"),
        ("3090", "rtx3090"),
        ("h100_sxm", "h100"),
        ("gh200", "gh200-96"),
        ("A100-80", "a100-80"),
        ("a800", "a800-80"),
        ("gaudi-3", "gaudi3"),
    ],
)
def test_names(asked, name):
    assert load_gpu(asked).name == name


def test_no_two_gpus_share_a_spelling():
    raw = spec_files.read_shipped("gpus")
    spellings = [spec_files.normalised(text) for name, fields in raw.items() for text in (name, *fields["aliases"])]
    assert len(spellings) == len(set(spellings))


def error_of(call, *arguments, **options):
    with pytest.raises(SpecError) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("a100", "gpu 'a100' is ambiguous: it begins a100-40, a100-40-pcie, a100-80, a100-80-pcie"),
        ("TPU", "gpu 'TPU' is ambiguous: it begins tpu-v5e, tpu-v6e"),
        ("h1000", "unknown gpu 'h1000': close to h100, h800, h100-nvl; `capplan gpus` lists all"),
        ("mi300", "unknown gpu 'mi300': close to mi300x; `capplan gpus` lists all"),
        ("quantum", "unknown gpu 'quantum': `capplan gpus` lists all"),
        ("", "unknown gpu '': `capplan gpus` lists all"),
        (
            "tpu-v5e",
            "gpu 'tpu-v5e': no usable link: the host link is not published; no usable link_gb_per_s: the host link is "
            "not published; no usable h2d_gb_per_s: no measured rate; no usable efficiency: no measured prefill; "
            "accepted: a .toml file that gives them",
        ),
    ],
)
def test_name_errors(asked, message):
    assert error_of(load_gpu, asked) == message


def test_incomplete_gpus_name_what_is_missing():
    assert [gpu.name for gpu in INCOMPLETE] == ["ascend-910b", "tpu-v5e", "tpu-v6e"]
    for gpu in INCOMPLETE:
        assert {reason.split(":")[0] for reason in gpu.missing} >= {"h2d_gb_per_s", "efficiency"}
        assert error_of(load_gpu, gpu.name).startswith(f"gpu '{gpu.name}': no usable ")


FULL = """\
title = "Bench card"
bf16_dense_tflops = 100
hbm_gib = 48
hbm_gb_per_s = { value = 900, source = "data sheet" }
link = "PCIe4 x8"
link_gb_per_s = 16
gpus_per_node = 2
h2d_gb_per_s = { low = 10, high = 14 }
allreduce_gb_per_s = 12
efficiency = 0.5
"""


@pytest.fixture
def own(tmp_path):
    def write(text):
        path = tmp_path / "bench.toml"
        path.write_text(text)
        return str(path)

    return write


def test_own_file(own):
    path = own(FULL)
    gpu = load_gpu(path)
    assert (gpu.name, gpu.gpus_per_node, gpu.fp8_dense_tflops) == ("bench", 2, None)
    assert (gpu.h2d_gb_per_s.low, gpu.h2d_gb_per_s.typical, gpu.h2d_gb_per_s.high) == (10, 12, 14)
    assert gpu.efficiency_for("moe", 8).typical == 0.5
    assert gpu.efficiency.confidence == "given"
    assert (gpu.allreduce_gb_per_s.typical, gpu.allreduce_gb_per_s.basis) == (12, "given by the user")
    assert gpu.prefill is None
    assert gpu.sources["hbm_gib"] == f"given in {path}"
    assert gpu.sources["hbm_gb_per_s"] == "data sheet"


def test_own_file_over_a_base(own):
    gpu, base = load_gpu(own('base = "H20-96"\nh2d_gb_per_s = 20\n')), load_gpu("h20")
    assert (gpu.name, gpu.h2d_gb_per_s.typical, gpu.hbm_gib) == ("bench", 20, 96)
    assert (base.aliases, gpu.aliases) == (("h20-96", "h20-96gb", "h20-sxm"), ())
    assert gpu.efficiency == base.efficiency
    assert gpu.measured == base.measured
    assert load_gpu("h20", own("h2d_gb_per_s = 20\n")) == gpu


def test_base_in_the_file_wins_over_the_name(own):
    assert load_gpu("h20", own('base = "h100"\n')).bf16_dense_tflops == 989


def test_own_efficiency_replaces_cases_and_measured_points(own):
    gpu = load_gpu("h20", own("efficiency = { low = 0.4, high = 0.6 }\n"))
    assert gpu.measured == ()
    assert {gpu.efficiency_for(kind, tp).typical for kind in ("dense", "moe") for tp in (1, 8)} == {0.5}
    cases = 'efficiency = { low = 0.4, high = 0.6, cases = [{ kind = "moe", low = 0.1, high = 0.2 }] }\n'
    assert load_gpu("h20", own(cases)).efficiency_for("moe", 8).high == 0.2
    assert gpu.prefill is None


def test_own_shares_in_short(own):
    text = "[prefill]\ndense = 0.8\nmoe = { low = 0.3, high = 0.5 }\nattention = { at = [1, 9], low = [0.1, 0.2], "
    path = own(text + "typical = [0.2, 0.3], high = [0.4, 0.4] }\n")
    gpu = load_gpu("h20", path)
    assert gpu.measured == ()
    assert gpu.efficiency == load_gpu("h20").efficiency
    assert gpu.prefill.source == f"given in {path}"
    assert gpu.prefill.scheduling.ends == (1, 1, 1)
    assert (gpu.prefill.dense_for("bf16").typical, gpu.prefill.moe_for("bf16")[0].typical) == ((0.8,), (0.4,))
    assert gpu.prefill.attention.high == (0.4, 0.4)


def test_own_shares_in_full(own):
    text = """[prefill]
scheduling = { low = 0.8, high = 0.9 }
[[prefill.dense]]
weight_dtype = "fp8"
at = [512, 4096]
low = [0.4, 0.5]
typical = [0.5, 0.6]
high = [0.6, 0.7]
[[prefill.moe]]
tp = 4
low = 0.1
high = 0.2
"""
    shares = load_gpu("h20", own(text)).prefill
    assert shares.scheduling.ends == pytest.approx((0.8, 0.85, 0.9))
    assert shares.dense_for("fp8").at == (512, 4096)
    assert shares.dense_for("bf16") is None
    assert (shares.moe_for("bf16")[0].tp, shares.moe_for("bf16")[0].high) == (4, (0.2,))
    assert shares.attention is None


def test_own_shares_stay_beside_an_own_efficiency(own):
    assert load_gpu("h20", own("efficiency = 0.5\nprefill = { dense = 0.8 }\n")).prefill is not None


def test_own_file_completes_an_incomplete_gpu(own):
    given = "bf16_dense_tflops = 320\nhbm_gb_per_s = 1600\nh2d_gb_per_s = 20\n"
    message = "no usable efficiency: no measured prefill; accepted: a .toml file that gives them"
    path = own(given)
    assert error_of(load_gpu, "ascend-910b", path) == f"{path}: {message}"
    assert load_gpu("ascend-910b", own(given + "efficiency = 0.4\n")).hbm_gib == 64


NUMBER = "a number greater than 0, or {value, source}"
RATE = "GB/s > 0: a number, or {low, high, typical, basis, source, estimated, effective}, low <= typical <= high"
SHARE = (
    "a share of the peak, 0 < share <= 1.2: a number, or {low, high, basis, confidence, source, estimated, cases}, "
    "low <= high, each case the same and {kind, tp_min, tp_max, weight_dtype}"
)
POINTS = "a list of {model, tp, us_per_token, source, position, weight_dtype}"
SHARES = (
    "{dense, moe, attention, scheduling, basis, source, estimated}, each of the first three shares of the peak, "
    "0 < share <= 1.2: a number, {low, high, typical}, or {at, low, typical, high} with lists over ascending tokens; "
    "dense and moe also a list of such with weight_dtype, and tp"
)
FIELDS = (
    "aliases, allreduce_gb_per_s, base, bf16_dense_tflops, efficiency, fp8_dense_tflops, gpus_per_node, h2d_gb_per_s, "
    "hbm_gb_per_s, hbm_gib, link, link_gb_per_s, measured, name, notes, prefill, title, vendor"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('hbm_gib = "x"', f"hbm_gib: expected a number, got text; accepted: {NUMBER}"),
        ("hbm_gib = -1", f"hbm_gib: expected a number > 0.0; accepted: {NUMBER}"),
        ("hbm_gib = nan", f"hbm_gib: expected a number > 0.0; accepted: {NUMBER}"),
        ("hbm_gib = true", f"hbm_gib: expected a number, got true or false; accepted: {NUMBER}"),
        ("hbm_gib = { value = 3 }", f"hbm_gib: expected value and source, got value; accepted: {NUMBER}"),
        (
            "gpus_per_node = 2.5",
            "gpus_per_node: expected a whole number, got a number; accepted: a whole number from 1, or {value, source}",
        ),
        ("hbm = 3", f"hbm: unknown field; accepted: {FIELDS}"),
        ("sources = {}", f"sources: unknown field; accepted: {FIELDS}"),
        ("h2d_gb_per_s = { low = 3 }", f"h2d_gb_per_s.high: missing; accepted: {RATE}"),
        (
            "h2d_gb_per_s = { low = 3, high = 2 }",
            f"h2d_gb_per_s: low 3, typical 2.5, high 2 are out of order; accepted: {RATE}",
        ),
        ("h2d_gb_per_s = { speed = 3 }", f"h2d_gb_per_s.speed: unknown field; accepted: {RATE}"),
        ('efficiency = "half"', f"efficiency: expected a table, got text; accepted: {SHARE}"),
        ("efficiency = 1.3", f"efficiency.low: expected a number <= 1.2; accepted: {SHARE}"),
        ("efficiency = { low = 0.5, high = 0.4 }", f"efficiency: low 0.5 is above high 0.4; accepted: {SHARE}"),
        (
            "efficiency = { low = 0.3, high = 0.4, cases = [{ low = 0.2, high = 0.1 }] }",
            f"efficiency: low 0.2 is above high 0.1; accepted: {SHARE}",
        ),
        (
            "efficiency = { low = 0.3, high = 0.4, cases = 3 }",
            f"efficiency.cases: expected a list, got a whole number; accepted: {SHARE}",
        ),
        ("allreduce_gb_per_s = 0", f"allreduce_gb_per_s.typical: expected a number > 0.0; accepted: {RATE}"),
        (
            "allreduce_gb_per_s = { low = 3, high = 2 }",
            f"allreduce_gb_per_s: low 3, typical 2.5, high 2 are out of order; accepted: {RATE}",
        ),
        ("prefill = 0.5", f"prefill: expected a table; accepted: {SHARES}"),
        ('allreduce_gb_per_s = "fast"', f"allreduce_gb_per_s: expected a table; accepted: {RATE}"),
        ("prefill = { dens = 0.5 }", f"prefill.dens: unknown field; accepted: {SHARES}"),
        ("prefill = { dense = 1.3 }", f"prefill.dense[0].low[0]: expected a number <= 1.2; accepted: {SHARES}"),
        ("prefill = { dense = { low = 0.1 } }", f"prefill.dense[0].high: missing; accepted: {SHARES}"),
        (
            "prefill = { attention = { low = 0.5, high = 0.4 } }",
            f"prefill.attention: at 1: low 0.5, typical 0.45, high 0.4 are out of order; accepted: {SHARES}",
        ),
        (
            "prefill = { moe = { at = [1, 2], low = [0.1], typical = [0.1], high = [0.1] } }",
            f"prefill.moe: 2 sizes, 1 low, 1 typical, 1 high; accepted: {SHARES}",
        ),
        (
            "prefill = { dense = { at = [2, 2], low = [0.1, 0.1], typical = [0.1, 0.1], high = [0.1, 0.1] } }",
            f"prefill.dense: sizes do not ascend; accepted: {SHARES}",
        ),
        (
            "prefill = { scheduling = { low = 0.9, high = 0.8 } }",
            f"prefill.scheduling: low 0.9, typical 0.85, high 0.8 are out of order; accepted: {SHARES}",
        ),
        ("measured = [{ tp = 1 }]", f"measured[0].model: missing; accepted: {POINTS}"),
        ('base = "h2o"', "base: unknown gpu 'h2o': close to h20; `capplan gpus` lists all"),
        ("base = 3", "base: expected the name of a gpu; `capplan gpus` lists all"),
        ('title = "x"', None),
    ],
)
def test_own_file_errors(own, text, message):
    path = own(text)
    arguments = (path,) if text.startswith(("base", "title")) else ("h20", path)
    expected = message or f"bf16_dense_tflops: missing; accepted: {NUMBER}"
    assert error_of(load_gpu, *arguments) == f"{path}: {expected}"


def test_unreadable_files(own, tmp_path):
    path = own("x ==")
    assert error_of(load_gpu, path).startswith(f"{path}: not a TOML file: ")
    absent = str(tmp_path / "absent.toml")
    assert error_of(load_gpu, absent) == f"{absent}: cannot be read: No such file or directory"
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert error_of(load_gpu, str(tmp_path / "bytes.toml")).endswith(": cannot be read: not UTF-8 text")


def test_shipped_files_are_plain_data():
    for entry in spec_files.shipped("gpus").values():
        text = entry.read_text(encoding="utf-8")
        given = [
            field["value"] for field in tomllib.loads(text).values() if isinstance(field, dict) and "value" in field
        ]
        assert given
        assert all(math.isfinite(value) for value in given)
