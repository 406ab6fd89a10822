import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan import spec_files
from capplan.errors import SpecError
from capplan.models import (
    KV_DTYPES,
    WEIGHT_DTYPE_BYTES,
    ModelSpec,
    context_bytes,
    host_copies,
    kv_bytes_per_token,
    list_kv_dtypes,
    list_models,
    list_refused,
    load_model,
    state_bytes_per_boundary,
    tp_divides,
    weight_bytes_per_rank,
    window_bytes_per_token,
)
from capplan.models.layer_groups import LayerGroup
from capplan.models.model_spec import ENGINE_KEEPS_WINDOWS

MODELS = list_models()
NAMES = [model.name for model in MODELS]

# bytes per token and rank, BF16, TP 1 / 2 / 4 / 8
KV_BYTES = {
    "qwen3-coder-30b-a3b": (98_304, 49_152, 24_576, 24_576),
    "qwen3-30b-a3b": (98_304, 49_152, 24_576, 24_576),
    "qwen2.5-coder-32b": (262_144, 131_072, 65_536, 32_768),
    "qwen3-8b": (147_456, 73_728, 36_864, 18_432),
    "qwen3-14b": (163_840, 81_920, 40_960, 20_480),
    "qwen3-32b": (262_144, 131_072, 65_536, 32_768),
    "qwen3-235b-a22b": (192_512, 96_256, 48_128, 48_128),
    "qwen3-coder-480b-a35b": (253_952, 126_976, 63_488, 31_744),
    "minimax-m2": (253_952, 126_976, 63_488, 31_744),
    "glm-4.5": (376_832, 188_416, 94_208, 47_104),
    "glm-4.5-air": (188_416, 94_208, 47_104, 23_552),
    "llama-3.1-8b": (131_072, 65_536, 32_768, 16_384),
    "mixtral-8x7b": (131_072, 65_536, 32_768, 16_384),
    "llama-3.1-70b": (327_680, 163_840, 81_920, 40_960),
    "llama-3.1-405b": (516_096, 258_048, 129_024, 64_512),
    "deepseek-v3": (70_272, 70_272, 70_272, 70_272),
    "kimi-k2": (70_272, 70_272, 70_272, 70_272),
    "kimi-k2.5": (70_272, 70_272, 70_272, 70_272),
    "qwen2.5-7b": (57_344, 28_672, 14_336, 14_336),
    "glm-4.6": (376_832, 188_416, 94_208, 47_104),
    "mistral-nemo-12b": (163_840, 81_920, 40_960, 20_480),
    "mistral-small-24b": (163_840, 81_920, 40_960, 20_480),
    "glm-4.7-flash": (54_144, 54_144, 54_144, 54_144),
    "deepseek-v3.2": (78_324, 78_324, 78_324, 78_324),
    "glm-5": (100_152, 100_152, 100_152, 100_152),
    "gpt-oss-120b": (73_728, 36_864, 18_432, 9_216),
    "gpt-oss-20b": (49_152, 24_576, 12_288, 6_144),
    "gemma-3-27b": (507_904, 253_952, 126_976, 63_488),
    "gemma-3-12b": (393_216, 196_608, 98_304, 49_152),
    "gemma-4-26b-a4b": (225_280, 112_640, 61_440, 35_840),
    "llama-4-scout": (196_608, 98_304, 49_152, 24_576),
    "llama-4-maverick": (196_608, 98_304, 49_152, 24_576),
    "qwen3-next-80b-a3b": (24_576, 12_288, 12_288, 12_288),
    "qwen3.5-35b-a3b": (20_480, 10_240, 10_240, 10_240),
    "qwen3.5-27b": (65_536, 32_768, 16_384, 16_384),
    "qwen3.5-397b-a17b": (30_720, 15_360, 15_360, 15_360),
    "nemotron-3-nano-30b-a3b": (6_144, 3_072, 3_072, 3_072),
    "nemotron-3-super-120b-a12b": (8_192, 4_096, 4_096, 4_096),
    # 9 full layers of 4 KV heads and 39 windowed ones of 8, keys of 192 and values of 128 numbers
    "mimo-v2-flash": (222_720, 111_360, 55_680, 30_720),
}
# hybrids with windows: bytes of the full layers alone, of the windowed layers alone, and the window
WINDOWED = {
    "gpt-oss-120b": ((36_864, 18_432, 9_216, 4_608), (36_864, 18_432, 9_216, 4_608), 128),
    "gpt-oss-20b": ((24_576, 12_288, 6_144, 3_072), (24_576, 12_288, 6_144, 3_072), 128),
    "gemma-3-27b": ((81_920, 40_960, 20_480, 10_240), (425_984, 212_992, 106_496, 53_248), 1024),
    "gemma-3-12b": ((65_536, 32_768, 16_384, 8_192), (327_680, 163_840, 81_920, 40_960), 1024),
    "gemma-4-26b-a4b": ((20_480, 10_240, 10_240, 10_240), (204_800, 102_400, 51_200, 25_600), 1024),
    "llama-4-scout": ((49_152, 24_576, 12_288, 6_144), (147_456, 73_728, 36_864, 18_432), 8192),
    "llama-4-maverick": ((49_152, 24_576, 12_288, 6_144), (147_456, 73_728, 36_864, 18_432), 8192),
    "mimo-v2-flash": ((23_040, 11_520, 5_760, 5_760), (199_680, 99_840, 49_920, 24_960), 128),
}
# hybrids with states: bytes of one stored boundary
STATEFUL = {
    "qwen3-next-80b-a3b": (77_266_944, 38_633_472, 19_316_736, 9_658_368),
    "qwen3.5-35b-a3b": (64_389_120, 32_194_560, 16_097_280, 8_048_640),
    "qwen3.5-27b": (153_944_064, 76_972_032, 38_486_016, 19_243_008),
    "qwen3.5-397b-a17b": (192_061_440, 96_030_720, 48_015_360, 24_007_680),
    "nemotron-3-nano-30b-a3b": (49_082_368, 24_541_184, 12_270_592, 6_135_296),
    "nemotron-3-super-120b-a12b": (170_229_760, 85_114_880, 42_557_440, 21_278_720),
}
UNCONFIRMED = {"glm-4.6", "mistral-small-24b", "qwen3-14b"}
INDEXED = {"deepseek-v3.2": 48_068, "glm-5": 61_464}
# billions on the model card: in total, active
CARDS = {
    "qwen3-coder-30b-a3b": (30.5, 3.3),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen2.5-coder-32b": (32.5, 32.5),
    "qwen3-8b": (8.2, 8.2),
    "qwen3-14b": (14.8, 14.8),
    "qwen3-32b": (32.8, 32.8),
    "qwen3-235b-a22b": (235, 22),
    "qwen3-coder-480b-a35b": (480, 35),
    "llama-3.1-8b": (8.0, 8.0),
    "llama-3.1-70b": (70.6, 70.6),
    "llama-3.1-405b": (405, 405),
    "mixtral-8x7b": (46.7, 12.9),
    "deepseek-v3": (671, 37),
    "kimi-k2": (1000, 32),
    "glm-4.5": (355, 32),
    "glm-4.5-air": (106, 12),
    "minimax-m2": (230, 10),
    "kimi-k2.5": (1000, 32),
    "qwen2.5-7b": (7.6, 7.6),
    "glm-4.6": (355, 32),
    "mistral-nemo-12b": (12.2, 12.2),
    "mistral-small-24b": (24, 24),
    "glm-4.7-flash": (30, 3.6),
    "deepseek-v3.2": (671, 37),
    "glm-5": (744, 40),
    # the card's 5.1 and 3.6 leave the embedding out
    "gpt-oss-120b": (117, 5.1 + 0.58),
    "gpt-oss-20b": (21, 3.6 + 0.58),
    "gemma-3-27b": (27, 27),
    "gemma-3-12b": (12, 12),
    "gemma-4-26b-a4b": (25.2, 3.8),
    "llama-4-scout": (109, 17),
    "llama-4-maverick": (400, 17),
    "qwen3-next-80b-a3b": (80, 3.9),
    "qwen3.5-35b-a3b": (35, 3.3),
    "qwen3.5-27b": (27, 27),
    "qwen3.5-397b-a17b": (397, 17),
    "nemotron-3-nano-30b-a3b": (31.6, 3.6),
    "nemotron-3-super-120b-a12b": (120, 12),
    "mimo-v2-flash": (309, 15),
}
TP = (1, 2, 4, 8)


@pytest.mark.parametrize(("name", "expected"), KV_BYTES.items())
def test_kv_bytes(name, expected):
    model = load_model(name)
    assert tuple(kv_bytes_per_token(model, tp) for tp in TP) == expected
    assert tuple(kv_bytes_per_token(model, tp, "fp16") for tp in TP) == expected
    if name not in INDEXED:
        assert tuple(kv_bytes_per_token(model, tp, "fp8") * 2 for tp in TP) == expected


def test_tables_above_cover_every_shipped_model():
    assert set(KV_BYTES) == set(CARDS) == set(NAMES)
    assert set(WINDOWED) == {model.name for model in MODELS if model.has_windows}
    assert set(STATEFUL) == {model.name for model in MODELS if model.has_state}
    assert set(INDEXED) == {model.name for model in MODELS if model.index_layers}
    assert {model.name for model in MODELS if model.unconfirmed} == UNCONFIRMED


@pytest.mark.parametrize("name", WINDOWED)
def test_windowed_layers_by_engine(name):
    model, (full, windowed, window) = load_model(name), WINDOWED[name]
    assert tuple(kv_bytes_per_token(model, tp, engine="vllm") for tp in TP) == full
    assert [window_bytes_per_token(model, tp) for tp in TP] == [((window, size),) for size in windowed]
    assert tuple(a + b for a, b in zip(full, windowed, strict=True)) == KV_BYTES[name]
    for engine, keeps in ENGINE_KEEPS_WINDOWS.items():
        assert kv_bytes_per_token(model, 2, engine=engine) == (full if keeps else KV_BYTES[name])[1]
    assert context_bytes(model, 100_000, 1) == 100_000 * KV_BYTES[name][0]
    assert context_bytes(model, 100_000, 1, engine="vllm") == 100_000 * full[0] + window * windowed[0]
    assert context_bytes(model, 100, 1, engine="vllm") == 100 * KV_BYTES[name][0]


@pytest.mark.parametrize("name", STATEFUL)
def test_states(name):
    model = load_model(name)
    assert tuple(state_bytes_per_boundary(model, tp) for tp in TP) == STATEFUL[name]
    assert window_bytes_per_token(model, 1) == ()
    assert context_bytes(model, 1000, 1, states=3) == 1000 * KV_BYTES[name][0] + 3 * STATEFUL[name][0]
    assert kv_bytes_per_token(model, 1, engine="vllm") == kv_bytes_per_token(model, 1)


@pytest.mark.parametrize("name", INDEXED)
def test_index_beside_a_latent(name):
    model = load_model(name)
    assert kv_bytes_per_token(model, 1, "fp8_ds_mla") == model.layers * (656 + 132) == INDEXED[name]
    assert kv_bytes_per_token(model, 8, "fp8") == INDEXED[name]
    assert kv_bytes_per_token(model, 4) == model.layers * (576 * 2 + 132)


def test_latents_in_fp8_with_scales():
    assert kv_bytes_per_token(load_model("deepseek-v3"), 8, "fp8_ds_mla") == 61 * 656


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", 2 * 32 * 8 * (64 + 8)),  # 0.5625 B per number
        ("gpt-oss-120b", 2 * 36 * 8 * (32 + 4)),
        ("mimo-v2-flash", (9 * 4 + 39 * 8) * (96 + 12 + 64 + 8)),
        ("deepseek-v3", 61 * (288 + 36)),
    ],
)
def test_nvfp4(name, expected):
    assert kv_bytes_per_token(load_model(name), 1, "nvfp4") == expected


def test_types_of_kv():
    assert list_kv_dtypes(load_model("qwen3-8b")) == ("bf16", "fp16", "fp8", "nvfp4")
    assert list_kv_dtypes(load_model("deepseek-v3")) == KV_DTYPES
    assert list_kv_dtypes(load_model("glm-5")) == ("bf16", "fp16", "fp8", "fp8_ds_mla")


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_approximation_is_said(model):
    said = model.approximation
    if model.name in STATEFUL:
        assert f"({STATEFUL[model.name][0]:,} B per stored boundary" in said
        assert "upper bound" in said
    elif model.name in WINDOWED:
        assert f" look back {WINDOWED[model.name][2]:,} tokens only" in said
    else:
        assert said is None


def test_approximation_counts_layers():
    assert load_model("gpt-oss-120b").approximation.startswith("gpt-oss-120b: 18 of 36 attention layers look back")
    assert load_model("nemotron-3-nano").approximation.startswith("Nemotron-3-Nano-30B-A3B: 23 of 29 layers keep")


@pytest.mark.parametrize(
    ("name", "flops", "windows"),
    [
        ("llama-3.1-8b", 524_288, ()),
        ("gpt-oss-120b", 2 * 36 * 64 * 128, ((0.5, 128),)),
        ("gemma-3-27b", 2 * 62 * 32 * 256, ((52 / 62, 1024),)),
        # heads of full layers are twice as wide: 5 of 30 layers, 2 of 7 FLOPs
        ("gemma-4-26b-a4b", 2 * 16 * (25 * 512 + 5 * 1024), ((5 / 7, 1024),)),
        ("llama-4-scout", 2 * 48 * 40 * 256, ((0.75, 4096),)),  # a chunk of 8,192 is half full on average
        ("qwen3-next-80b-a3b", 2 * 12 * 16 * 512, ()),
        ("nemotron-3-nano-30b-a3b", 2 * 6 * 32 * 256, ()),
        ("mimo-v2-flash", 2 * 48 * 64 * 320, ((39 / 48, 128),)),
        # 128 heads over the latent, 2,048 positions at most; 64 index heads over all of them
        ("deepseek-v3.2", 2 * 61 * (128 * 1088 + 64 * 128), ((17 / 18, 2048),)),
    ],
)
def test_attention_of_hybrids(name, flops, windows):
    model = load_model(name)
    assert model.attention_flops == flops
    assert [tokens for _, tokens in model.attention_windows] == [tokens for _, tokens in windows]
    assert [share for share, _ in model.attention_windows] == pytest.approx([share for share, _ in windows])
    assert model.full_attention_flops == pytest.approx(flops * (1 - sum(share for share, _ in windows)))


def test_published_attention_of_full_layers():
    assert load_model("gpt-oss-120b").full_attention_flops == 294_912


def test_refused_by_name():
    refused = {model.name: model for model in list_refused()}
    assert set(refused) == {"deepseek-v4-flash", "minimax-m3"}
    assert not set(refused) & set(NAMES)
    for asked in ("DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Pro"):
        assert error_of(load_model, asked) == (
            f"model 'deepseek-v4-flash': DeepSeek-V4 is not modelled: {refused['deepseek-v4-flash'].reason}; "
            "accepted: a .toml spec of your own"
        )
    assert "does not grow by the same bytes with every token" in refused["deepseek-v4-flash"].reason


def test_engine_errors():
    message = f"engine 'tgi': accepted: {', '.join(ENGINE_KEEPS_WINDOWS)}"
    assert error_of(kv_bytes_per_token, load_model("qwen3-8b"), 1, "bf16", "tgi") == message
    assert error_of(context_bytes, load_model("glm-5"), 1, 1, "bf16", "tgi") == message


def test_weights_of_experts_in_fewer_bits():
    """Published sizes: about 61 and 13 GiB, attention and embeddings in BF16."""
    large, small, kimi = load_model("gpt-oss-120b"), load_model("gpt-oss-20b"), load_model("kimi-k2.5")
    assert weight_bytes_per_rank(large, 1) / 2**30 == pytest.approx(61, rel=0.01)
    assert weight_bytes_per_rank(small, 1) / 2**30 == pytest.approx(12.9, rel=0.02)
    assert weight_bytes_per_rank(kimi, 1) / 1e9 == pytest.approx(595, rel=0.02)
    assert weight_bytes_per_rank(large, 1, "bf16") == 2 * large.total_params


def test_a_name_reads_one_file_an_alias_all(monkeypatch):
    opened = []
    parse = spec_files.parse_toml
    monkeypatch.setattr(spec_files, "parse_toml", lambda text, where: opened.append(where) or parse(text, where))
    load_model("Qwen3-Coder-30B-A3B")
    assert opened == ["qwen3-coder-30b-a3b.toml"]
    opened.clear()
    load_model("deepseek-r1")
    assert len(opened) == len(set(opened)) == len(spec_files.shipped("models"))


def test_anchor_of_the_published_replay():
    beta = kv_bytes_per_token(load_model("qwen3-coder-30b-a3b"), 8)
    assert beta == 24_576
    assert 1024 * beta == 24 * 2**20
    assert 20 * 2**30 // (1024 * beta) == 853


def test_copied_heads_cost_bytes_on_every_rank():
    model = load_model("qwen3-30b-a3b")
    assert 8 * kv_bytes_per_token(model, 8) == 196_608 == 2 * kv_bytes_per_token(model, 1)


@pytest.mark.parametrize(
    ("name", "linear", "moe", "attention_flops"),
    [
        ("llama-3.1-8b", 6.98e9, 0, 524_288),
        ("llama-3.1-70b", 68.5e9, 0, 2.62e6),
        ("qwen3-32b", 31.2e9, 0, 2.10e6),
        ("qwen2.5-coder-32b", 31.2e9, 0, 1.31e6),
        ("qwen3-30b-a3b", 2.73e9, 1.81e9, 786_432),
        ("qwen3-coder-30b-a3b", 2.73e9, 1.81e9, 786_432),
        ("qwen3-235b-a22b", 20.9e9, 14.2e9, 3.08e6),
        ("deepseek-v3", 36e9, 23e9, 5.00e6),
    ],
)
def test_published_flop_columns(name, linear, moe, attention_flops):
    model = load_model(name)
    assert model.linear_params == pytest.approx(linear, rel=0.01)
    assert model.moe_linear_params == pytest.approx(moe, rel=0.01)
    assert model.attention_flops == pytest.approx(attention_flops, rel=0.003)


@pytest.mark.parametrize(("name", "card"), CARDS.items())
def test_parameters_agree_with_the_card(name, card):
    model = load_model(name)
    assert model.total_params / 1e9 == pytest.approx(card[0], rel=0.03)
    assert model.active_params / 1e9 == pytest.approx(card[1], rel=0.12)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_every_number_has_a_source(model):
    assert set(model.sources) == {"dimensions", "parameters", "weight_dtype"}
    assert all(re.search("https://huggingface.co/", source) for source in model.sources.values())


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(tp=st.sampled_from((1, 2, 4, 8, 16, 32)), engine=st.sampled_from(sorted(ENGINE_KEEPS_WINDOWS)))
def test_laws_over_tp(model, tp, engine):
    """Ranks together hold at least one copy; a rank never more than all of it; weights and states likewise."""
    for dtype in list_kv_dtypes(model):
        per_rank, whole = kv_bytes_per_token(model, tp, dtype, engine), kv_bytes_per_token(model, 1, dtype, engine)
        assert per_rank <= whole <= per_rank * tp
        assert kv_bytes_per_token(model, 2 * tp, dtype, engine) <= per_rank
    state = state_bytes_per_boundary(model, tp)
    assert state <= state_bytes_per_boundary(model, 1) <= state * tp
    weights = weight_bytes_per_rank(model, tp)
    # equal up to rounding where nothing is copied
    assert weight_bytes_per_rank(model, 1) / tp <= weights * (1 + 1e-12)
    assert weights <= weight_bytes_per_rank(model, 1)


SHAPES = st.builds(
    dict,
    layers=st.integers(1, 200),
    kv_heads=st.sampled_from((1, 2, 4, 8)),
    head_dim=st.sampled_from((16, 64, 128, 256)),
)


@given(shape=SHAPES, more=st.integers(1, 50), tp=st.sampled_from(TP))
def test_laws_of_plain_layers(shape, more, tp):
    model, deeper = made(**shape), made(**shape | {"layers": shape["layers"] + more})
    for dtype in list_kv_dtypes(model):
        assert kv_bytes_per_token(model, tp, dtype) < kv_bytes_per_token(deeper, tp, dtype)
    assert 2 * kv_bytes_per_token(model, tp, "fp8") == kv_bytes_per_token(model, tp)
    assert 16 * kv_bytes_per_token(model, tp, "nvfp4") == 9 * kv_bytes_per_token(model, tp, "fp8")


GROUPS = st.lists(
    st.one_of(
        st.builds(LayerGroup, kind=st.just("full"), layers=st.integers(1, 9), kv_heads=st.sampled_from((0, 2, 8))),
        st.builds(
            LayerGroup,
            kind=st.sampled_from(("sliding", "chunked")),
            layers=st.integers(1, 9),
            window_tokens=st.integers(1, 5000),
        ),
        st.builds(
            LayerGroup,
            kind=st.sampled_from(("linear", "mamba")),
            layers=st.integers(1, 9),
            state_heads=st.sampled_from((8, 32)),
            state_head_dim=st.just(64),
            state_size=st.just(128),
            state_groups=st.just(8),
            conv_kernel=st.integers(1, 4),
        ),
    ),
    min_size=1,
    max_size=5,
)


@given(groups=GROUPS, tokens=st.integers(0, 10_000), tp=st.sampled_from(TP), dtype=st.sampled_from(("bf16", "nvfp4")))
def test_laws_of_groups(groups, tokens, tp, dtype):
    """Keeping windows never costs more, and nothing less below the smallest window; layers add up in any order."""
    model = made(layers=50, kv_heads=4, head_dim=64, groups=tuple(groups))
    kept, full = (context_bytes(model, tokens, tp, dtype, engine) for engine in ("vllm", "lmcache"))
    assert kept <= full
    assert kept == full or tokens > min(group.window_tokens for group in groups if group.is_windowed)
    turned = made(layers=50, kv_heads=4, head_dim=64, groups=tuple(reversed(groups)))
    assert context_bytes(turned, tokens, tp, dtype, "vllm") == kept
    assert sum(share for share, _ in model.attention_windows) <= 1 + 1e-9
    windows = dict(window_bytes_per_token(model, tp, dtype))
    whole = kv_bytes_per_token(model, tp, dtype)
    assert kv_bytes_per_token(model, tp, dtype, "vllm") + sum(windows.values()) == whole


def made(**fields):
    params = {"total_params": 9, "active_params": 9, "linear_params": 9, "moe_linear_params": 0}
    plain = {"name": "made", "title": "made", "kind": "dense", "attention": "gqa", "hidden_size": 8}
    return ModelSpec(**{**plain, **params, "attention_heads": 8, "weight_dtype": "bf16", **fields})


def test_weight_bytes():
    qwen, deepseek = load_model("qwen3-coder-30b-a3b"), load_model("deepseek-v3")
    assert weight_bytes_per_rank(qwen, 1) == qwen.total_params * 2
    assert weight_bytes_per_rank(qwen, 4) == qwen.total_params * 2 / 4
    # at TP8 a rank holds one of four KV heads, not half of one: half a K and half a V projection more
    copied = 48 * 2048 * 128 * 2 / 2
    assert weight_bytes_per_rank(qwen, 8) == qwen.total_params * 2 / 8 + copied * 2
    assert weight_bytes_per_rank(qwen, 1, "int4") == qwen.total_params * WEIGHT_DTYPE_BYTES["int4"]
    assert weight_bytes_per_rank(deepseek, 1) == deepseek.total_params
    assert weight_bytes_per_rank(deepseek, 8) == deepseek.total_params / 8 + 61 * 7168 * 576 * 7 / 8


def test_host_copies():
    assert host_copies(load_model("llama-3.1-70b"), 8) == 8
    assert host_copies(load_model("deepseek-v3"), 8) == 1


@pytest.mark.parametrize(
    ("name", "tp", "fits"),
    [
        ("qwen3-30b-a3b", 8, True),
        ("qwen3-30b-a3b", 6, False),
        ("qwen3-14b", 5, False),  # 40 query heads split, 8 KV heads neither split nor copied
        ("qwen3-14b", 8, True),
        ("llama-3.1-8b", 32, True),
        ("llama-3.1-8b", 64, False),
        ("kimi-k2", 64, True),
        ("kimi-k2", 3, False),
        ("glm-4.7-flash", 8, False),
        ("gemma-4-26b-a4b", 8, True),
        ("qwen3.5-27b", 8, True),
        ("qwen3.5-27b", 3, False),
        ("nemotron-3-nano-30b-a3b", 16, True),
    ],
)
def test_tp_divides(name, tp, fits):
    assert tp_divides(load_model(name), tp) is fits


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("Qwen3-Coder-30B-A3B", "qwen3-coder-30b-a3b"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder-30b-a3b"),
        ("deepseek-r1", "deepseek-v3"),
        ("DeepSeek V3.1", "deepseek-v3"),
        ("llama-3.3-70b", "llama-3.1-70b"),
        ("GLM-4.5", "glm-4.5"),
        ("minimax_m2.5", "minimax-m2"),
        ("glm-4.7", "glm-4.5"),
        ("Qwen/Qwen3-Coder-Next", "qwen3-next-80b-a3b"),
        ("qwen3.6-27b", "qwen3.5-27b"),
        ("devstral-24b", "mistral-small-24b"),
    ],
)
def test_names(asked, name):
    assert load_model(asked).name == name


def test_no_two_models_share_a_spelling():
    raw = spec_files.read_shipped("models")
    owners = {}
    for name, fields in raw.items():
        for text in (name, *fields["aliases"]):
            assert owners.setdefault(spec_files.normalised(text), name) == name


def error_of(call, *arguments):
    with pytest.raises(SpecError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "llama",
            "model 'llama' is ambiguous: it begins llama-3.1-405b, llama-3.1-70b, llama-3.1-8b, "
            "llama-4-maverick, llama-4-scout",
        ),
        (
            "qwen3-16b",
            "unknown model 'qwen3-16b': close to qwen3-14b, qwen3-8b, qwen3.5-35b-a3b; `capplan models` lists all",
        ),
        ("gpt-6", "unknown model 'gpt-6': `capplan models` lists all"),
    ],
)
def test_name_errors(asked, message):
    assert error_of(load_model, asked) == message


def test_argument_errors():
    model = load_model("qwen3-8b")
    assert error_of(kv_bytes_per_token, model, 0) == "tp 0: accepted: a whole number from 1"
    assert error_of(host_copies, model, -1) == "tp -1: accepted: a whole number from 1"
    assert error_of(tp_divides, model, 0) == "tp 0: accepted: a whole number from 1"
    assert error_of(kv_bytes_per_token, model, 1, "int4") == "kv_dtype 'int4': accepted: bf16, fp16, fp8, nvfp4"
    assert error_of(kv_bytes_per_token, load_model("glm-5"), 1, "nvfp4").endswith(": bf16, fp16, fp8, fp8_ds_mla")
    assert error_of(state_bytes_per_boundary, model, 0) == "tp 0: accepted: a whole number from 1"
    message = "weight_dtype 'q4': accepted: fp32, bf16, fp16, fp8, int8, int4, int4-g32, mxfp4, nvfp4"
    assert error_of(weight_bytes_per_rank, model, 1, "q4") == message


TOML = """\
kind = "dense"
attention = "gqa"
layers = 2
hidden_size = 64
attention_heads = 8
kv_heads = 2
head_dim = 8
total_params = 1000
active_params = 900
linear_params = 800
moe_linear_params = 0
weight_dtype = "bf16"
"""


@pytest.fixture
def own(tmp_path):
    def write(text):
        path = tmp_path / "tiny.toml"
        path.write_text(text)
        return str(path)

    return write


def test_own_file(own):
    model = load_model(own(TOML))
    assert (model.name, model.title) == ("tiny", "tiny")
    assert kv_bytes_per_token(model, 1) == 2 * 2 * 2 * 8 * 2
    assert model.attention_flops == 2 * 2 * 8 * (8 + 8)


def test_values_narrower_than_keys(own):
    model = load_model(own(TOML + "v_head_dim = 4\n"))
    assert kv_bytes_per_token(model, 1) == 2 * 2 * (8 + 4) * 2
    assert model.attention_flops == 2 * 2 * 8 * (8 + 4)


def test_own_file_over_a_base(own):
    model = load_model(own('base = "Qwen3-32B"\nlayers = 32\n'))
    assert (model.name, model.layers, model.head_dim) == ("tiny", 32, 128)
    assert kv_bytes_per_token(model, 1) == 131_072


SLIDING = '[[groups]]\nkind = "sliding"\nlayers = 1\nwindow_tokens = 64\n'
LINEAR = """\
[[groups]]
kind = "linear"
layers = 1
state_heads = 4
state_head_dim = 8
state_size = 16
state_groups = 2
conv_kernel = 4
"""


def test_own_groups(own):
    model = load_model(own(TOML + SLIDING + LINEAR))
    assert kv_bytes_per_token(model, 1) == 2 * 2 * 8 * 2
    assert kv_bytes_per_token(model, 1, engine="vllm") == 0
    assert state_bytes_per_boundary(model, 2) == 3 * (2 * 8 + 2 * 16) * 2 + 2 * 8 * 16 * 4
    assert model.attention_windows == ((1.0, 64),)
    shorter = load_model(own(TOML + LINEAR + "state_itemsize = 2\n"))
    assert state_bytes_per_boundary(shorter, 1) == 3 * (4 * 8 + 4 * 16) * 2 + 4 * 8 * 16 * 2


def test_layers_that_reuse_the_kv_of_another(own):
    model = load_model(own(TOML + '[[groups]]\nkind = "full"\nlayers = 2\nshared_layers = 1\n'))
    assert kv_bytes_per_token(model, 1) == 2 * 2 * 8 * 2
    assert model.attention_flops == 2 * 2 * 8 * (8 + 8)
    assert model.approximation is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (SLIDING.replace("layers = 1", "layers = 3"), "groups: 3 layers; accepted: at most layers 2"),
        (
            SLIDING.replace("window_tokens = 64", ""),
            "groups[0]: window_tokens: missing; accepted: a whole number from 1 (kind 'sliding')",
        ),
        (SLIDING + "state_size = 8\n", "groups[0]: state_size: 8; accepted: none (kind 'sliding')"),
        (SLIDING + "kv_heads = 3\n", "kv_heads: 3; accepted: a divisor of attention_heads 8"),
        (SLIDING + "shared_layers = 2\n", "groups[0]: shared_layers: 2; accepted: at most layers 1"),
        (SLIDING + LINEAR + "kv_heads = 2\n", "groups[1]: kv_heads: 2; accepted: none (kind 'linear')"),
        ("index_layers = 2\n", "index_heads: missing; accepted: a whole number from 1 (attention 'gqa')"),
    ],
)
def test_own_group_errors(own, more, message):
    path = own(TOML + more)
    assert error_of(load_model, path) == f"{path}: {message}"


def test_own_group_of_an_unknown_kind(own):
    path = own(TOML + SLIDING.replace('"sliding"', '"ring"'))
    assert error_of(load_model, path) == (
        f"{path}: groups[0].kind: invalid enum value 'ring'; accepted: a list of "
        "{kind = full, sliding, chunked, linear or mamba, layers, and the fields of that kind}"
    )


def test_groups_and_index_need_their_attention(own):
    latent = (
        TOML.replace('"gqa"', '"mla"') + "kv_lora_rank = 8\nqk_rope_head_dim = 2\nqk_head_dim = 4\nv_head_dim = 4\n"
    )
    path = own(latent + SLIDING)
    assert error_of(load_model, path) == f"{path}: groups: given; accepted: none (attention 'mla')"
    index = "index_layers = 1\nindex_heads = 2\nindex_head_dim = 8\nindex_topk = 64\n"
    path = own(TOML + index)
    assert error_of(load_model, path) == f"{path}: index_layers: 1; accepted: 0 (attention 'gqa')"
    assert kv_bytes_per_token(load_model(own(latent + index)), 1) == 2 * 10 * 2 + 12


FIELDS = (
    "active_params, aliases, attention, attention_heads, base, groups, head_dim, hidden_size, index_head_dim, "
    "index_heads, index_layers, index_topk, kind, kv_dtype, kv_heads, kv_lora_rank, layers, linear_params, "
    "moe_linear_params, name, nonexpert_weight_dtype, notes, qk_head_dim, qk_rope_head_dim, sources, title, "
    "total_params, unconfirmed, v_head_dim, weight_dtype"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layers = 2", "layers = 0", "layers: expected a whole number >= 1; accepted: a whole number from 1"),
        (
            "layers = 2",
            "layers = 2.5",
            "layers: expected a whole number, got a number; accepted: a whole number from 1",
        ),
        ("layers = 2", "", "layers: missing; accepted: a whole number from 1"),
        ("layers = 2", "layers = 2\ndepth = 2", f"depth: unknown field; accepted: {FIELDS}"),
        ('"gqa"', '"swa"', "attention: invalid enum value 'swa'; accepted: gqa, mla"),
        ('"gqa"', '"mla"', "kv_lora_rank: missing; accepted: a whole number from 1 (attention 'mla')"),
        ("kv_heads = 2", "kv_heads = 0", "kv_heads: missing; accepted: a whole number from 1 (attention 'gqa')"),
        ("kv_heads = 2", "kv_heads = 3", "kv_heads: 3; accepted: a divisor of attention_heads 8"),
        ("= 800", "= 901", "linear_params: 901; accepted: at most active_params 900"),
        ("= 1000", "= 899", "active_params: 900; accepted: at most total_params 899"),
        ('"dense"', '"moe"', "moe_linear_params: 0; accepted: 0 if dense, above 0 if moe"),
        (
            '"bf16"',
            '"q4"',
            f"weight_dtype: invalid enum value 'q4'; accepted: {', '.join(WEIGHT_DTYPE_BYTES)}",
        ),
        ("kind", 'base = "qwen3-9"\nkind', None),
    ],
)
def test_own_file_errors(own, old, new, message):
    path = own(TOML.replace(old, new, 1))
    expected = (
        message
        or "base: unknown model 'qwen3-9': close to qwen3-8b, qwen3-32b, qwen3-30b-a3b; `capplan models` lists all"
    )
    assert error_of(load_model, path) == f"{path}: {expected}"


def test_absent_own_file(tmp_path):
    absent = str(tmp_path / "absent.toml")
    assert error_of(load_model, absent) == f"{absent}: cannot be read: No such file or directory"
