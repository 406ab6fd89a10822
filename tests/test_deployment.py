"""Room for KV on a GPU, computed here from the definition in whole numbers and fractions."""

from fractions import Fraction
from math import floor

import pytest

from capplan.costs.restore_spec import load_restore_tables
from capplan.deployment import HOST_TIERS, TP_SIZES, GpuRoom, deploy
from capplan.engines import load_engine
from capplan.errors import SpecError
from capplan.hardware import load_gpu
from capplan.models import load_model
from capplan.models.model_spec import ENGINE_KEEPS_WINDOWS, kv_bytes_per_token

GIB = 2**30
CODER = "qwen3-coder-30b-a3b"


def place(model=CODER, gpu="h20", **options):
    options = {"longest_tokens": 110_000, "block_tokens": 16, **options}
    return deploy(load_gpu(gpu), load_model(model), **options)


def room_in_blocks(memory_gib, weight_bytes, block_bytes, util=Fraction(9, 10)):
    """floor((GPU memory x share - weights - 3 GiB) / block) - 1."""
    return floor(((memory_gib * util - 3) * GIB - weight_bytes) / Fraction(block_bytes)) - 1


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_room_of_the_default_model_on_an_h20(tp):
    weights = Fraction(2 * load_model(CODER).total_params, tp)
    beta = 98_304 // tp
    made = place(tp=tp)
    assert made.kv_bytes_per_token == beta
    assert made.gpu_slots == room_in_blocks(96, weights, 16 * beta)
    assert made.gpu_kv_tokens == 16 * made.gpu_slots


def test_room_at_tp1_is_about_289_k_tokens():
    assert 288_000 < place(tp=1).gpu_kv_tokens < 290_000


def test_room_at_tp8_is_about_3_3_million_tokens():
    # 4 KV heads on 8 ranks: half of each rank's K and V projection (48 layers, 2,048 x 256) is a copy
    copied = 2 * 48 * 2048 * 128
    weights = Fraction(2 * load_model(CODER).total_params, 8) + copied
    made = place(tp=8)
    assert made.kv_bytes_per_token == 24_576
    assert made.gpu_slots == room_in_blocks(96, weights, 16 * 24_576)
    assert made.gpu_kv_tokens / 1e6 == pytest.approx(3.3, abs=0.05)


def test_share_of_memory_the_engine_may_use():
    weights = 2 * load_model(CODER).total_params
    made = place(room=GpuRoom(0.95))
    assert made.gpu_slots == room_in_blocks(96, weights, 16 * 98_304, Fraction(95, 100))


def test_fp8_kv_and_weights():
    params = load_model(CODER).total_params
    made = place(kv_dtype="fp8", weight_dtype="fp8", tp=1)
    assert (made.kv_bytes_per_token, made.weight_bytes) == (49_152, params)
    assert made.gpu_slots == room_in_blocks(96, params, 16 * 49_152)


def test_blocks_of_a_coarser_trace():
    made = place(block_tokens=512, tp=1)
    assert made.gpu_slots == room_in_blocks(96, 2 * load_model(CODER).total_params, 512 * 98_304)
    assert made.notes[-1] == "GPU tier in blocks of 512 tokens, the trace's resolution (engines use 16)"


@pytest.mark.parametrize(
    ("model", "longest"),
    [(CODER, 110_000), (CODER, 400_000), ("llama-3.1-70b", 30_000), ("llama-3.1-70b", 300_000), ("qwen3-32b", 1)],
)
def test_default_tp_is_the_smallest_with_room(model, longest):
    def has_room(tp):
        try:
            place(model, longest_tokens=longest, tp=tp)
        except SpecError:
            return False
        return True

    made = place(model, longest_tokens=longest)
    assert made.tp == next(tp for tp in TP_SIZES if has_room(tp))
    assert made.notes[0] == f"TP{made.tp} is the smallest size that leaves room for the longest request"


def test_one_token_more_than_fits_takes_the_next_tp():
    room = place(tp=1).gpu_kv_tokens
    assert place(longest_tokens=room).tp == 1
    assert place(longest_tokens=room + 1).tp == 2


def test_default_tp_divides_the_heads(tmp_path):
    own = tmp_path / "six.toml"
    own.write_text('base = "llama-3.1-70b"\nattention_heads = 60\nkv_heads = 4\n')
    assert place(str(own), longest_tokens=500_000).tp == 4  # 8 does not divide 60


def test_mla_keeps_one_host_copy_and_the_same_bytes_on_every_rank():
    model = load_model("deepseek-v3")
    assert [kv_bytes_per_token(model, tp) for tp in TP_SIZES] == [70_272] * 4
    made = place("deepseek-v3", "h200", longest_tokens=50_000)
    assert (made.tp, made.kv_bytes_per_token, made.host_copies, made.weight_dtype) == (8, 70_272, 1, "fp8")


def test_host_copies():
    assert [place(tp=tp).host_copies for tp in TP_SIZES] == [1, 2, 4, 8]
    assert place(tp=8, copies=2).host_copies == 2


@pytest.mark.parametrize("engine", HOST_TIERS)
@pytest.mark.parametrize("model", [CODER, "gemma-3-27b", "gpt-oss-120b", "deepseek-v3"])
def test_kv_bytes_are_those_of_the_engine(model, engine):
    made = place(model, longest_tokens=1000, tp=2, engine=engine, room=GpuRoom(kv_tokens=2000))
    tier = HOST_TIERS[engine]
    assert made.kv_bytes_per_token == kv_bytes_per_token(load_model(model), 2, engine=tier)
    is_less = made.kv_bytes_per_token < kv_bytes_per_token(load_model(model), 2)
    assert is_less == (ENGINE_KEEPS_WINDOWS[tier] and load_model(model).has_windows)


@pytest.mark.parametrize("engine", HOST_TIERS)
def test_copies_of_a_latent_are_those_of_the_engine(engine):
    made = place("deepseek-v3", "h200", longest_tokens=1000, tp=8, engine=engine)
    assert made.host_copies == (8 if load_engine(HOST_TIERS[engine]).mla == "per-rank" else 1)
    assert place(tp=8, engine=engine).host_copies == 8
    assert place("deepseek-v3", "h200", longest_tokens=1000, tp=8, engine=engine, copies=3).host_copies == 3


def test_windows_an_engine_keeps_are_noted():
    notes = {e: " ".join(place("gemma-3-27b", longest_tokens=1000, tp=2, engine=e).notes) for e in ("lmcache", "vllm")}
    assert "are kept for their window only and left out of the bytes per token" in notes["vllm"]
    assert "are kept for their window only" not in notes["lmcache"]
    assert "approximate: " in notes["lmcache"]


def test_every_engine_has_a_way_of_copying_and_a_tier():
    assert set(HOST_TIERS) == set(load_restore_tables().engines)
    assert set(HOST_TIERS.values()) <= set(ENGINE_KEEPS_WINDOWS)


def test_given_room_is_taken_as_it_is():
    assert place(room=GpuRoom(kv_tokens=300_007)).gpu_kv_tokens == 300_000
    assert place(room=GpuRoom(kv_gib=11)).gpu_slots == 11 * GIB // (16 * 98_304)
    made = place(tp=8, room=GpuRoom(kv_tokens=300_000))
    assert made.notes == ("GPU KV room given: 300,000 tokens per rank",)


@pytest.mark.parametrize("room", [GpuRoom(kv_tokens=300_000), GpuRoom(is_used=False)])
def test_default_tp_has_memory_for_the_weights_whatever_room_is_given(room):
    assert place("llama-3.1-70b", room=room).tp == place("llama-3.1-70b").tp == 2


def test_no_gpu_tier():
    made = place(tp=1, room=GpuRoom(is_used=False))
    assert (made.gpu_slots, made.gpu_kv_tokens) == (0, 0)
    assert made.notes == ("no GPU tier: every reuse is left to the host tier",)


def test_without_a_gpu_tier_nothing_has_to_fit():
    assert place("llama-3.1-70b", "rtx4090", tp=1, room=GpuRoom(is_used=False)).tp == 1
    made = place("llama-3.1-405b", "rtx4090", room=GpuRoom(is_used=False))
    assert made.notes[0] == "TP8 taken: no size up to it leaves room for the longest request"


def test_note_says_how_the_room_comes_about():
    assert place(tp=1).notes == (
        "GPU KV room 289,760 tokens per rank = 96.0 GiB x 0.9 - 56.9 GiB bf16 weights - 3 GiB reserve, bf16 KV",
    )


def test_tp_over_a_node_is_noted():
    assert place(gpu="gh200", tp=2).notes[0] == "TP2 exceeds the GPUs of a node (1)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tp": 1, "longest_tokens": 1_000_000},
            "h20 with qwen3-coder-30b-a3b at TP1: the longest request needs 1,000,000 tokens of GPU KV, there is room "
            "for 289,760; accepted: a larger --tp, another --gpu, --kv-dtype fp8, or --no-gpu-tier",
        ),
        (
            {"model": "llama-3.1-405b", "gpu": "l4"},
            "l4 with llama-3.1-405b at TP8: the longest request needs 110,000 tokens of GPU KV, there is room "
            "for 0; accepted: a larger --tp, another --gpu, --kv-dtype fp8, or --no-gpu-tier",
        ),
        (
            {"room": GpuRoom(kv_tokens=109_999)},
            "h20 with qwen3-coder-30b-a3b at TP1: the longest request needs 110,000 tokens of GPU KV, there is room "
            "for 109,984; accepted: more of it, or --no-gpu-tier",
        ),
        (
            {"engine": "tgi"},
            "engine 'tgi': accepted: lmcache, vllm, sglang, trtllm, dynamo, mooncake",
        ),
        ({"tp": 3}, "--tp 3: qwen3-coder-30b-a3b has 32 attention heads and 4 KV heads; a divisor is accepted"),
        ({"model": "deepseek-v3", "tp": 3}, "--tp 3: deepseek-v3 has 128 attention heads; a divisor is accepted"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(SpecError) as caught:
        place(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("engine", "copies"), [("lmcache", 1), ("vllm", 1), ("mooncake", 1), ("sglang", 8), ("trtllm", 8)]
)
def test_host_copies_of_a_latent_are_those_the_engine_keeps(engine, copies):
    placed = deploy(load_gpu("h200"), load_model("deepseek-v3"), longest_tokens=1, block_tokens=16, tp=8, engine=engine)
    assert placed.host_copies == copies


def test_layers_with_a_window_are_counted_as_the_engine_keeps_them():
    whole, windowed = (
        deploy(load_gpu("h200"), load_model("gpt-oss-120b"), longest_tokens=1, block_tokens=16, tp=2, engine=engine)
        for engine in ("lmcache", "vllm")
    )
    assert (whole.kv_bytes_per_token, windowed.kv_bytes_per_token) == (36_864, 18_432)
    assert any("left out of the bytes per token" in note for note in windowed.notes)
    assert not any("left out" in note for note in whole.notes)
