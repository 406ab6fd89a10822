import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan import spec_files
from capplan.errors import SpecError
from capplan.models import (
    WEIGHT_DTYPE_BYTES,
    host_copies,
    kv_bytes_per_token,
    list_models,
    load_model,
    tp_divides,
    weight_bytes_per_rank,
)

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
}
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
}
TP = (1, 2, 4, 8)


@pytest.mark.parametrize(("name", "expected"), KV_BYTES.items())
def test_kv_bytes(name, expected):
    model = load_model(name)
    assert tuple(kv_bytes_per_token(model, tp) for tp in TP) == expected
    assert tuple(kv_bytes_per_token(model, tp, "fp16") for tp in TP) == expected
    assert tuple(kv_bytes_per_token(model, tp, "fp8") * 2 for tp in TP) == expected


def test_tables_above_cover_every_shipped_model():
    assert set(KV_BYTES) == set(CARDS) == set(NAMES)


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
@given(tp=st.sampled_from((1, 2, 4, 8, 16, 32)))
def test_laws_over_tp(model, tp):
    """Ranks together hold at least one copy; a rank never more than all of it; weights likewise."""
    per_rank, whole = kv_bytes_per_token(model, tp), kv_bytes_per_token(model, 1)
    assert per_rank <= whole <= per_rank * host_copies(model, tp) * (tp if model.attention == "mla" else 1)
    weights = weight_bytes_per_rank(model, tp)
    assert weight_bytes_per_rank(model, 1) / tp <= weights <= weight_bytes_per_rank(model, 1)


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
        ("llama", "model 'llama' is ambiguous: it begins llama-3.1-405b, llama-3.1-70b, llama-3.1-8b"),
        ("qwen3-16b", "unknown model 'qwen3-16b': close to qwen3-14b, qwen3-8b, qwen3-32b; `capplan models` lists all"),
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
    assert error_of(kv_bytes_per_token, model, 1, "int4") == "kv_dtype 'int4': accepted: bf16, fp16, fp8"
    message = "weight_dtype 'q4': accepted: fp32, bf16, fp16, fp8, int8, int4, mxfp4, nvfp4"
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


FIELDS = (
    "active_params, aliases, attention, attention_heads, base, head_dim, hidden_size, kind, kv_heads, kv_lora_rank, "
    "layers, linear_params, moe_linear_params, name, notes, qk_head_dim, qk_rope_head_dim, sources, title, "
    "total_params, v_head_dim, weight_dtype"
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
            "weight_dtype: invalid enum value 'q4'; accepted: fp32, bf16, fp16, fp8, int8, int4, mxfp4, nvfp4",
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
