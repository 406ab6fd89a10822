"""Published dimensions of every shipped model, read as a ``config.json``; and what must be refused."""

import json

import pytest

from capplan.errors import SpecError
from capplan.models import kv_bytes_per_token, list_models, load_model

LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
QWEN3 = {
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "use_sliding_window": False,
}
QWEN3_MOE = QWEN3 | {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1,
}
GLM = {
    "model_type": "glm4_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 92,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "vocab_size": 151552,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "qwen3-coder-30b-a3b": QWEN3_MOE,
    "qwen3-30b-a3b": QWEN3_MOE,
    "qwen2.5-coder-32b": LLAMA
    | {
        "model_type": "qwen2",
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "vocab_size": 152064,
        "sliding_window": 131072,
        "use_sliding_window": False,
    },
    "qwen3-8b": QWEN3,
    "qwen3-14b": QWEN3
    | {"hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 40, "num_attention_heads": 40},
    "qwen3-32b": QWEN3
    | {"hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64},
    "qwen3-235b-a22b": QWEN3_MOE
    | {"hidden_size": 4096, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 64},
    "qwen3-coder-480b-a35b": QWEN3_MOE
    | {
        "hidden_size": 6144,
        "moe_intermediate_size": 2560,
        "num_hidden_layers": 62,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "num_experts": 160,
    },
    "llama-3.1-8b": LLAMA,
    "llama-3.1-70b": LLAMA
    | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "llama-3.1-405b": LLAMA
    | {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128},
    "mixtral-8x7b": LLAMA
    | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000},
    "deepseek-v3": DEEPSEEK,
    "kimi-k2": DEEPSEEK
    | {
        "model_type": "kimi_k2",
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "n_routed_experts": 384,
        "first_k_dense_replace": 1,
        "vocab_size": 163840,
    },
    "glm-4.5": GLM,
    "glm-4.5-air": GLM
    | {
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 46,
        "n_routed_experts": 128,
        "first_k_dense_replace": 1,
    },
    "minimax-m2": {
        "model_type": "minimax_m2",
        "quantization_config": {"quant_method": "fp8"},
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 200064,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "attn_type_list": [1] * 62,
        "shared_intermediate_size": 0,
        "tie_word_embeddings": False,
    },
}


@pytest.fixture
def written(tmp_path):
    def write(config):
        path = tmp_path / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return str(path)

    return write


def error_of(path):
    with pytest.raises(SpecError) as caught:
        load_model(path)
    return str(caught.value)


def numbers(model):
    words = ("name", "title", "aliases", "notes", "sources")
    return {field: getattr(model, field) for field in model.__struct_fields__ if field not in words}


def test_every_shipped_model_is_checked():
    assert set(CONFIGS) == {model.name for model in list_models()}


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_numbers_follow_from_published_dimensions(name, written):
    assert numbers(load_model(written(CONFIGS[name]))) == numbers(load_model(name))


def test_name_and_sources_come_from_the_path(tmp_path):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    model = load_model(folder)
    assert model == load_model(str(folder / "config.json"))
    assert model.name == "My-Model"
    assert model.sources["dimensions"] == f"{folder / 'config.json'} (llama)"


def test_parameters_by_hand(written):
    tiny = {
        **LLAMA,
        "hidden_size": 8,
        "intermediate_size": 10,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
    }
    layer = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 10
    dense = load_model(written(tiny))
    assert (dense.linear_params, dense.total_params) == (3 * layer, 3 * layer + 2 * 800)
    assert load_model(written(tiny | {"tie_word_embeddings": True})).total_params == 3 * layer + 800
    experts = {"model_type": "qwen2_moe", "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 5}
    moe = load_model(written(tiny | experts | {"shared_expert_intermediate_size": 7, "mlp_only_layers": [1]}))
    assert moe.moe_linear_params == 2 * 3 * 8 * (2 * 5 + 7)
    assert moe.total_params - moe.active_params == 2 * 3 * 8 * 4 * 5
    assert moe.linear_params == 3 * (layer - 240) + 240 + 2 * 8 * 6 + moe.moe_linear_params


@pytest.mark.parametrize(
    ("fields", "moe_layers"),
    [
        ({"decoder_sparse_step": 2}, 24),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, 23),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 5]}, 46),
        ({"decoder_sparse_step": None, "first_k_dense_replace": 1, "moe_layer_freq": 1}, 47),
        ({"decoder_sparse_step": None, "first_k_dense_replace": 1, "moe_layer_freq": 2}, 23),
    ],
)
def test_which_layers_have_experts(fields, moe_layers, written):
    model = load_model(written(QWEN3_MOE | fields))
    assert model.moe_linear_params == moe_layers * 3 * 2048 * 8 * 768


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"num_key_value_heads": None}, 32),
        ({"num_key_value_heads": None, "n_head_kv": 4}, 4),
        ({"num_key_value_heads": None, "num_kv_heads": 2}, 2),
        ({"num_key_value_heads": None, "multi_query_group_num": 2}, 2),
        ({"num_key_value_heads": None, "multi_query_group_num": 2, "multi_query_attention": False}, 32),
        ({"num_key_value_heads": None, "multi_query": True}, 1),
        ({"num_key_value_heads": None, "multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"num_key_value_heads": 1}, 1),
    ],
)
def test_variants_of_the_kv_head_field(fields, kv_heads, written):
    model = load_model(written(LLAMA | fields))
    assert model.kv_heads == kv_heads
    assert kv_bytes_per_token(model, 1) == 2 * 32 * kv_heads * 128 * 2


def test_head_dim_wins_over_the_quotient(written):
    assert load_model(written(QWEN3 | {"head_dim": 256})).head_dim == 256
    assert load_model(written(QWEN3 | {"head_dim": None})).head_dim == 128


@pytest.mark.parametrize("nest", ["text_config", "llm_config"])
def test_nested_language_model(nest, written):
    inner = {key: value for key, value in QWEN3.items() if key != "torch_dtype"} | {"model_type": "qwen3_vl_text"}
    outer = {"model_type": "qwen3_vl", "torch_dtype": "bfloat16", "hidden_size": 1, nest: inner}
    assert numbers(load_model(written(outer))) == numbers(load_model("qwen3-8b"))


def test_falcon_has_two_matrices_and_ties_its_embedding(written):
    falcon = {
        "model_type": "falcon",
        "torch_dtype": "bfloat16",
        "hidden_size": 8192,
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
        "multi_query": True,
        "vocab_size": 65024,
    }
    assert load_model(written(falcon)).total_params / 1e9 == pytest.approx(41.3, rel=0.02)


def test_mla_with_a_query_projection_in_one_step(written):
    lite = DEEPSEEK | {
        "model_type": "deepseek_v2",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "q_lora_rank": None,
        "vocab_size": 102400,
    }
    model = load_model(written(lite))
    assert model.total_params / 1e9 == pytest.approx(15.7, rel=0.01)  # the card says 15.7B, 2.4B active
    assert kv_bytes_per_token(model, 8) == 27 * 576 * 2


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"torch_dtype": "float16"}, "fp16"),
        ({"torch_dtype": None, "dtype": "float32"}, "fp32"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "int4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "int8"),
    ],
)
def test_weight_types(fields, dtype, written):
    assert load_model(written(LLAMA | fields)).weight_dtype == dtype


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"layer_types": ["full_attention"] * 32},
        {"num_kv_shared_layers": 0},
        {"attention_chunk_size": None},
    ],
)
def test_fields_that_change_nothing(fields, written):
    assert numbers(load_model(written(LLAMA | fields))) == numbers(load_model("llama-3.1-8b"))


WINDOW = "such layers keep only the last tokens of a sequence"
STATE = "such layers keep a state per sequence instead of KV per token"
UNEVEN = "layers differ in what they keep per token"
SPARSE = "an index of its own is kept beside the KV"
FULL = "accepted: full attention over all tokens in every layer, or a .toml spec of your own"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"sliding_window": 4096}, f"sliding_window: 4096 in use is not modelled: {WINDOW}"),
        ({"sliding_window": 9, "use_sliding_window": True}, f"sliding_window: 9 in use is not modelled: {WINDOW}"),
        ({"sliding_window_pattern": 6}, f"sliding_window_pattern: 6 is not modelled: {WINDOW}"),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            f"layer_types: 'sliding_attention' is not modelled: {UNEVEN}",
        ),
        ({"layer_types": ["linear_attention"]}, f"layer_types: 'linear_attention' is not modelled: {UNEVEN}"),
        ({"attention_chunk_size": 8192}, f"attention_chunk_size: 8192 is not modelled: {WINDOW}"),
        ({"full_attention_interval": 4}, f"full_attention_interval: 4 is not modelled: {STATE}"),
        ({"linear_num_key_heads": 16}, f"linear_num_key_heads: 16 is not modelled: {STATE}"),
        ({"hybrid_override_pattern": "M*M-"}, f"hybrid_override_pattern: 'M*M-' is not modelled: {STATE}"),
        ({"mamba_num_heads": 64}, f"mamba_num_heads: 64 is not modelled: {STATE}"),
        ({"attn_type_list": [1, 0]}, f"attn_type_list: 0 is not modelled: {STATE}"),
        ({"num_kv_shared_layers": 15}, f"num_kv_shared_layers: 15 is not modelled: {UNEVEN}"),
        ({"compress_ratios": [0, 4]}, f"compress_ratios: [0, 4] is not modelled: {UNEVEN}"),
        ({"index_topk": 2048}, f"index_topk: 2048 is not modelled: {SPARSE}"),
        (
            {"block_configs": [{"attention": {"n_heads_in_group": 8, "no_op": False}}]},
            f"block_configs: [{{'attention': {{'n_heads_in_group': 8... is not modelled: {UNEVEN}",
        ),
    ],
)
def test_refused_by_name(fields, refused, written):
    path = written(LLAMA | fields)
    assert error_of(path) == f"{path}: {refused}; {FULL}"


TYPES = (
    "RefinedWeb, RefinedWebModel, baichuan, chatglm, deepseek_v2, deepseek_v3, falcon, gemma, glm4_moe, "
    "glm4_moe_lite, granite, internlm2, kimi_k2, llama, mimo, minimax_m2, mistral, mixtral, phi3, qwen2, "
    "qwen2_5_vl, qwen2_5_vl_text, qwen2_moe, qwen2_vl, qwen2_vl_text, qwen3, qwen3_moe, qwen3_vl_moe_text, "
    "qwen3_vl_text, seed_oss"
)
COUNT = "accepted: a whole number from 1"
QUANTIZED = "accepted: fp8, awq or gptq with 4 or 8 bits, none at all, or a .toml spec of your own"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"model_type": "rwkv"},
            f"model_type: 'rwkv' is not known to capplan; accepted: {TYPES}, or a .toml spec of your own",
        ),
        ({"model_type": None}, "model_type: missing; accepted: text"),
        ({"num_hidden_layers": None}, f"num_hidden_layers or num_layers or n_layer: missing; {COUNT}"),
        ({"num_hidden_layers": "32"}, f"num_hidden_layers: '32'; {COUNT}"),
        ({"hidden_size": 0}, f"hidden_size: 0; {COUNT}"),
        ({"num_attention_heads": True}, f"num_attention_heads: True; {COUNT}"),
        ({"num_key_value_heads": None, "num_kv_heads": -1}, f"num_kv_heads: -1; {COUNT}"),
        ({"num_key_value_heads": 5}, "kv_heads: 5; accepted: a divisor of attention_heads 32"),
        (
            {"hidden_size": 4100},
            f"head_dim: missing, and hidden_size 4100 is no multiple of the 32 heads; {COUNT}",
        ),
        (
            {"v_head_dim": 64},
            "v_head_dim: 64 is not modelled: it differs from head_dim 128; accepted: values as wide as keys",
        ),
        ({"kv_lora_rank": 512}, f"qk_rope_head_dim: missing; {COUNT}"),
        ({"vocab_size": None}, f"vocab_size or padded_vocab_size: missing; {COUNT}"),
        ({"layer_types": "full"}, "layer_types: 'full'; accepted: a list"),
        ({"torch_dtype": None}, "torch_dtype or dtype: missing; accepted: text"),
        ({"torch_dtype": "int8"}, "torch_dtype: 'int8'; accepted: bfloat16, float16, float32"),
        (
            {"quantization_config": {"quant_method": "modelopt"}},
            f"quantization_config: quant_method 'modelopt'; {QUANTIZED}",
        ),
        (
            {"num_experts": 4, "num_experts_per_tok": 8},
            "num_experts_per_tok: 8; accepted: at most the 4 experts",
        ),
    ],
)
def test_config_errors(fields, message, written):
    path = written(LLAMA | fields)
    assert error_of(path) == f"{path}: {message}"


def test_quantization_beside_the_config_is_not_overlooked(written, tmp_path):
    (tmp_path / "hf_quant_config.json").write_text("{}")
    path = written(LLAMA)
    assert error_of(path) == f"{path}: quantization_config: quant_method 'of hf_quant_config.json'; {QUANTIZED}"


def test_files_that_are_no_config(written, tmp_path):
    path = written("{")
    assert error_of(path).startswith(f"{path}: not a JSON file: ")
    path = written("[1]")
    assert error_of(path) == f"{path}: expected one JSON object; accepted: a Hugging Face config.json"
    absent = str(tmp_path / "absent.json")
    assert error_of(absent) == f"{absent}: cannot be read: No such file or directory"
