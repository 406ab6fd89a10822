"""Sizes per token, block, chunk and context, on a rank and in a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import SpecError
from capplan.footprint import ALL_LAYERS, LAST_WINDOWS, choose_tps, list_layouts, measure_footprints
from capplan.models import list_kv_dtypes, list_models, load_model, tp_divides

MODELS = list_models()
NAMES = [model.name for model in MODELS]


def test_anchor():
    (anchor,) = measure_footprints(load_model("qwen3-coder-30b-a3b"), (8,), ("bf16",))
    assert (anchor.layout, anchor.kv_dtype, anchor.tp) == (ALL_LAYERS, "bf16", 8)
    assert anchor.token_bytes == 24_576
    assert anchor.block_bytes == 16 * 24_576
    assert anchor.chunk_bytes == 24 * 2**20
    assert anchor.context_bytes == 2_457_600_000
    assert anchor.gpu_context_bytes == anchor.host_context_bytes == 8 * 2_457_600_000
    assert anchor.host_chunk_bytes == 192 * 2**20
    assert (anchor.host_copies, anchor.state_bytes) == (8, 0)


def test_latents_are_copied_on_gpus_and_once_on_the_host():
    (latent,) = measure_footprints(load_model("deepseek-v3"), (8,), ("bf16",))
    assert latent.gpu_context_bytes == 100_000 * 562_176
    assert latent.host_context_bytes == 100_000 * 70_272
    assert latent.host_copies == 1


def test_layouts_of_windowed_layers():
    model = load_model("gpt-oss-120b")
    every, last = measure_footprints(model, (1,), ("bf16",), chunk_tokens=256, context_tokens=50_000)
    assert (every.layout, last.layout) == (ALL_LAYERS, LAST_WINDOWS) == list_layouts(model)
    assert (every.token_bytes, last.token_bytes) == (73_728, 36_864)
    assert (every.chunk_bytes, last.chunk_bytes) == (256 * 73_728, 256 * 36_864)
    assert every.context_bytes == 50_000 * 73_728
    assert last.context_bytes == 50_000 * 36_864 + 128 * 36_864


def test_a_chunk_and_a_context_end_with_a_state():
    (hybrid,) = measure_footprints(load_model("qwen3-next-80b-a3b"), (2,), ("bf16",))
    assert hybrid.state_bytes == 38_633_472
    assert hybrid.block_bytes == 16 * 12_288
    assert hybrid.chunk_bytes == 1024 * 12_288 + 38_633_472
    assert hybrid.context_bytes == 100_000 * 12_288 + 38_633_472


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_every_type_and_size_by_default(model):
    sizes = choose_tps(model)
    assert sizes == tuple(tp for tp in (1, 2, 4, 8) if tp_divides(model, tp))
    shown = [(each.layout, each.kv_dtype, each.tp) for each in measure_footprints(model, sizes)]
    expected = [
        (layout, dtype, tp) for layout in list_layouts(model) for dtype in list_kv_dtypes(model) for tp in sizes
    ]
    assert shown == expected


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(chunk=st.integers(1, 4096), context=st.integers(0, 10**6), tp=st.sampled_from((1, 2, 4, 8)))
def test_laws(model, chunk, context, tp):
    """A node holds as many rank's bytes as copies; more tokens never weigh less; windows never cost."""
    footprints = measure_footprints(model, (tp,), (), chunk, context)
    for each in footprints:
        assert each.gpu_context_bytes == tp * each.context_bytes
        assert each.host_context_bytes == each.host_copies * each.context_bytes
        assert each.host_chunk_bytes == each.host_copies * each.chunk_bytes
        assert each.host_copies in (1, tp)
        assert each.chunk_bytes - each.state_bytes == chunk * each.token_bytes
        assert each.context_bytes - each.state_bytes >= context * each.token_bytes
    longer = measure_footprints(model, (tp,), (), chunk, context + 1)
    assert all(a.context_bytes <= b.context_bytes for a, b in zip(footprints, longer, strict=True))
    every = {each.kv_dtype: each for each in footprints if each.layout == ALL_LAYERS}
    for each in footprints:
        assert each.context_bytes <= every[each.kv_dtype].context_bytes


@pytest.mark.parametrize(
    ("name", "tp", "heads"),
    [("qwen3-8b", 3, "32 attention heads and 8 KV heads"), ("glm-4.7-flash", 8, "20 attention heads")],
)
def test_sizes_that_do_not_divide(name, tp, heads):
    model = load_model(name)
    with pytest.raises(SpecError) as caught:
        choose_tps(model, tp)
    assert str(caught.value) == f"--tp {tp}: {model.title} has {heads}; a divisor is accepted"
    assert choose_tps(model, 4) == (4,)


def test_types_a_model_does_not_have():
    with pytest.raises(SpecError, match=r"^kv_dtype 'fp8_ds_mla': accepted: bf16, fp16, fp8, nvfp4$"):
        measure_footprints(load_model("qwen3-8b"), (1,), ("fp8_ds_mla",))
