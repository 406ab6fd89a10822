"""Published dimensions of every shipped model, read as a ``config.json``; and what must be refused."""

import json

import pytest

from capplan.errors import SpecError
from capplan.models import (
    kv_bytes_per_token,
    list_models,
    load_model,
    state_bytes_per_boundary,
    weight_bytes_per_rank,
    window_bytes_per_token,
)

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
MISTRAL = LLAMA | {
    "model_type": "mistral",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "head_dim": 128,
    "vocab_size": 131072,
    "sliding_window": None,
}
DSA = {"model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048}
GPT_OSS = {
    "model_type": "gpt_oss",
    "quantization_config": {"quant_method": "mxfp4"},
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
GEMMA3 = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
    },
}
GEMMA4 = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "dtype": "bfloat16",
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_size": 2816,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 2112,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 704,
        "num_attention_heads": 16,
        "num_experts": 128,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "num_kv_shared_layers": 0,
        "sliding_window": 1024,
        "tie_word_embeddings": True,
        "top_k_experts": 8,
        "vocab_size": 262144,
    },
}
LLAMA4 = {
    "model_type": "llama4",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "hidden_size": 5120,
        "interleave_moe_layer_step": 1,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "vocab_size": 202048,
    },
}
QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
QWEN35 = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "mlp_only_layers": [],
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "vocab_size": 248320,
    },
    "tie_word_embeddings": False,
}
NEMOTRON = {
    "model_type": "nemotron_h",
    "torch_dtype": "bfloat16",
    "conv_kernel": 4,
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "mamba_head_dim": 64,
    "mamba_num_heads": 64,
    "mamba_ssm_cache_dtype": "float32",
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_groups": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "sliding_window": None,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "vocab_size": 131072,
}
MIMO_V2 = {
    "model_type": "mimo_v2_flash",
    "quantization_config": {"quant_method": "fp8"},
    "attention_chunk_size": 128,
    "head_dim": 192,
    "v_head_dim": 128,
    "hidden_size": 4096,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, *([0] + [1] * 5) * 7, 0],
    "intermediate_size": 16384,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": [0] + [1] * 47,
    "n_routed_experts": 256,
    "n_shared_experts": None,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "sliding_window": 128,
    "swa_head_dim": 192,
    "swa_num_key_value_heads": 8,
    "swa_v_head_dim": 128,
    "tie_word_embeddings": False,
    "vocab_size": 152576,
}


def inner(config, **changes):
    return config | {"text_config": config["text_config"] | changes}


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
    "glm-4.6": GLM,
    "qwen2.5-7b": LLAMA
    | {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "sliding_window": 131072,
        "max_window_layers": 28,
        "use_sliding_window": False,
    },
    "mistral-nemo-12b": MISTRAL,
    "mistral-small-24b": MISTRAL | {"intermediate_size": 32768},
    "kimi-k2.5": {
        "model_type": "kimi_k25",
        "dtype": "bfloat16",
        "text_config": {
            **DEEPSEEK,
            "model_type": "kimi_k2",
            "dtype": "bfloat16",
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "n_routed_experts": 384,
            "first_k_dense_replace": 1,
            "vocab_size": 163840,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
                "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
                "kv_cache_scheme": None,
            },
        },
    },
    "glm-4.7-flash": DEEPSEEK
    | {
        "model_type": "glm4_moe_lite",
        "quantization_config": None,
        "torch_dtype": "bfloat16",
        "hidden_size": 2048,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "vocab_size": 154880,
    },
    "deepseek-v3.2": DEEPSEEK | DSA,
    "glm-5": DEEPSEEK
    | DSA
    | {
        "model_type": "glm_moe_dsa",
        "quantization_config": None,
        "dtype": "bfloat16",
        "head_dim": 64,
        "hidden_size": 6144,
        "index_n_heads": 32,
        "intermediate_size": 12288,
        "num_hidden_layers": 78,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "q_lora_rank": 2048,
        "qk_head_dim": 256,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "vocab_size": 154880,
    },
    "gpt-oss-120b": GPT_OSS,
    "gpt-oss-20b": GPT_OSS
    | {
        "num_hidden_layers": 24,
        "num_local_experts": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
    "gemma-3-27b": GEMMA3,
    "gemma-3-12b": {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "sliding_window": 1024,
        },
    },
    "gemma-4-26b-a4b": GEMMA4,
    "llama-4-scout": LLAMA4,
    "llama-4-maverick": inner(LLAMA4, interleave_moe_layer_step=2, num_local_experts=128),
    "qwen3-next-80b-a3b": QWEN3_NEXT,
    "qwen3.5-27b": QWEN35,
    "qwen3.5-35b-a3b": QWEN35
    | {
        "model_type": "qwen3_5_moe",
        "text_config": {
            **{key: value for key, value in QWEN35["text_config"].items() if key != "intermediate_size"},
            "model_type": "qwen3_5_moe_text",
            "hidden_size": 2048,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
            "linear_num_value_heads": 32,
            "moe_intermediate_size": 512,
            "num_attention_heads": 16,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 40,
            "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 512,
        },
    },
    "qwen3.5-397b-a17b": QWEN35
    | {
        "model_type": "qwen3_5_moe",
        "text_config": {
            **{key: value for key, value in QWEN35["text_config"].items() if key != "intermediate_size"},
            "model_type": "qwen3_5_moe_text",
            "hidden_size": 4096,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15,
            "linear_num_value_heads": 64,
            "moe_intermediate_size": 1024,
            "num_attention_heads": 32,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "num_hidden_layers": 60,
            "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 1024,
        },
    },
    "nemotron-3-nano-30b-a3b": NEMOTRON,
    "nemotron-3-super-120b-a12b": NEMOTRON
    | {
        "hidden_size": 4096,
        "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
        "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
        "intermediate_size": 2688,
        "mamba_num_heads": 128,
        "moe_intermediate_size": 2688,
        "moe_latent_size": 1024,
        "moe_shared_expert_intermediate_size": 5376,
        "n_routed_experts": 512,
        "num_experts_per_tok": 22,
        "num_hidden_layers": 88,
    },
    "mimo-v2-flash": MIMO_V2,
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
    words = ("name", "title", "aliases", "notes", "sources", "unconfirmed")
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


def compressed(bits, kind):
    groups = {"group_0": {"weights": {"num_bits": bits, "type": kind, "group_size": 128}}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"torch_dtype": "float16"}, "fp16"),
        ({"torch_dtype": None, "dtype": "float32"}, "fp32"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "int4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "int8"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}, "int4-g32"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_algo": "FP8"}}, "fp8"),
        ({"quantization_config": compressed(8, "float")}, "fp8"),
        ({"quantization_config": compressed(8, "int")}, "int8"),
        ({"quantization_config": compressed(4, "float")}, "nvfp4"),
        ({"quantization_config": compressed(4, "int")}, "int4"),
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
        {"sliding_window": 131072, "max_position_embeddings": 131072},
        {"layer_types": ["sliding_attention"] * 32, "sliding_window": 4096, "use_sliding_window": False},
        {"num_nextn_predict_layers": 1},
    ],
)
def test_fields_that_change_nothing(fields, written):
    assert numbers(load_model(written(LLAMA | fields))) == numbers(load_model("llama-3.1-8b"))


def kinds(model):
    return [(group.kind, group.layers) for group in model.layer_groups]


@pytest.mark.parametrize(
    ("config", "fields", "expected", "window"),
    [
        (LLAMA, {"sliding_window": 4096}, [("sliding", 32)], 4096),
        (LLAMA, {"sliding_window": 9, "use_sliding_window": True}, [("sliding", 32)], 9),
        (
            LLAMA,
            {"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": True, "max_window_layers": 28},
            [("full", 28), ("sliding", 4)],
            9,
        ),
        (LLAMA, {"model_type": "qwen2", "sliding_window": 9, "max_window_layers": 28}, [("full", 32)], None),
        (LLAMA, {"sliding_window": 9, "sliding_window_pattern": 6}, [("sliding", 27), ("full", 5)], 9),
        (LLAMA, {"sliding_window": 9, "sliding_window_pattern": "LLLG"}, [("sliding", 24), ("full", 8)], 9),
        (LLAMA, {"sliding_window": 9, "sliding_window_pattern": 1}, [("full", 32)], None),
        (LLAMA, {"model_type": "gemma2", "sliding_window": 4096}, [("sliding", 16), ("full", 16)], 4096),
        (LLAMA, {"model_type": "cohere2", "sliding_window": 4096}, [("sliding", 24), ("full", 8)], 4096),
        (GPT_OSS, {"layer_types": None}, [("sliding", 18), ("full", 18)], 128),
        (LLAMA4["text_config"], {"torch_dtype": "bfloat16"}, [("chunked", 36), ("full", 12)], 8192),
        (
            LLAMA4["text_config"],
            {"torch_dtype": "bfloat16", "no_rope_layers": [1, 0] * 24, "attention_chunk_size": 4096},
            [("chunked", 24), ("full", 24)],
            4096,
        ),
        (
            LLAMA4["text_config"],
            {"torch_dtype": "bfloat16", "layer_types": ["chunked_attention", "full_attention"] * 24},
            [("chunked", 24), ("full", 24)],
            8192,
        ),
        (LLAMA4["text_config"], {"torch_dtype": "bfloat16", "attention_chunk_size": None}, [("full", 48)], None),
    ],
)
def test_windowed_layers(config, fields, expected, window, written):
    model = load_model(written(config | fields))
    assert kinds(model) == expected
    assert [group.window_tokens for group in model.groups if group.is_windowed] == ([window] if window else [])
    assert (model.approximation is None) is (window is None)


@pytest.mark.parametrize(
    ("config", "fields", "expected"),
    [
        (QWEN3_NEXT, {}, [("linear", 36), ("full", 12)]),
        (QWEN3_NEXT, {"full_attention_interval": 6}, [("linear", 40), ("full", 8)]),
        (
            QWEN3_NEXT,
            {"full_attention_interval": None, "layer_types": ["linear_attention", "full_attention"] * 24},
            [("linear", 24), ("full", 24)],
        ),
        (NEMOTRON, {}, [("mamba", 23), ("full", 6)]),
        (NEMOTRON, {"num_hidden_layers": 5, "hybrid_override_pattern": "M-M*E"}, [("mamba", 2), ("full", 1)]),
        (
            NEMOTRON,
            {
                "num_hidden_layers": None,
                "hybrid_override_pattern": None,
                "layers_block_type": ["mamba", "moe", "attention", "mlp", "linear_attention", "full_attention"],
            },
            [("mamba", 1), ("full", 2), ("linear", 1)],
        ),
    ],
)
def test_layers_with_a_state(config, fields, expected, written):
    if ("linear", 1) in expected:
        fields = fields | {name: value for name, value in QWEN3_NEXT.items() if name.startswith("linear_")}
    model = load_model(written(config | fields))
    assert kinds(model) == expected
    assert "upper bound" in model.approximation


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_type_of_the_state(dtype, itemsize, written):
    model = load_model(written(QWEN3_NEXT | {"mamba_ssm_dtype": dtype}))
    assert state_bytes_per_boundary(model, 1) == 36 * (3 * 8192 * 2 + 32 * 128 * 128 * itemsize)


def test_layers_that_share_kv_at_the_end(written):
    """Gemma 3n: the last 15 of 35 layers, 3 full and 12 windowed ones, keep nothing."""
    model = load_model(
        written(
            {
                "model_type": "gemma3n_text",
                "dtype": "bfloat16",
                "hidden_size": 2048,
                "intermediate_size": [16384] * 35,
                "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
                "num_hidden_layers": 35,
                "num_kv_shared_layers": 15,
                "num_attention_heads": 8,
                "num_key_value_heads": 2,
                "head_dim": 256,
                "sliding_window": 512,
                "vocab_size": 262400,
            }
        )
    )
    assert kinds(model) == [("sliding", 28), ("full", 7)]
    assert kv_bytes_per_token(model, 1) == 2 * 20 * 2 * 256 * 2
    assert window_bytes_per_token(model, 1) == ((512, 2 * 16 * 2 * 256 * 2),)
    assert model.total_params / 1e9 == pytest.approx(6.87, rel=0.02)  # the text part of the 4B of the card


def test_full_layers_with_heads_of_their_own(written):
    text = GEMMA4["text_config"]
    one_kv = load_model(written(inner(GEMMA4, num_global_key_value_heads=1)))
    assert kv_bytes_per_token(one_kv, 1, engine="vllm") == 5 * 2 * 512 * 2
    apart = load_model(written(inner(GEMMA4, attention_k_eq_v=False)))
    assert kv_bytes_per_token(apart, 1, engine="vllm") == 5 * 8 * 2 * 512 * 2
    assert text["num_key_value_heads"] == 8


def test_keys_and_values_of_different_width(written):
    model = load_model(written(LLAMA | {"head_dim": 192, "v_head_dim": 128}))
    assert kv_bytes_per_token(model, 2) == 32 * 4 * (192 + 128) * 2
    assert model.attention_flops == 2 * 32 * 32 * 320


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({}, 61),
        ({"indexer_types": ["full"] * 21 + ["shared"] * 40}, 21),
        ({"index_topk_pattern": "F" * 10 + "S" * 51}, 10),
        ({"index_topk_freq": 4}, 16),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 17),
    ],
)
def test_layers_that_share_an_index(fields, layers, written):
    model = load_model(written(DEEPSEEK | DSA | fields))
    assert model.index_layers == layers
    assert kv_bytes_per_token(model, 8) == 61 * 576 * 2 + layers * 132


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "fp8", "kv_cache_scheme": None}, None),
    ],
)
def test_type_of_kv_the_checkpoint_asks_for(stated, dtype, written):
    assert load_model(written(LLAMA | {"quantization_config": stated})).kv_dtype == dtype


def test_quantization_beside_the_config(written, tmp_path):
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    model = load_model(written(LLAMA))
    assert (model.weight_dtype, model.kv_dtype) == ("fp8", "fp8")


def test_weights_outside_experts(written):
    model = load_model(written(GPT_OSS))
    assert (model.weight_dtype, model.nonexpert_weight_dtype) == ("mxfp4", "bf16")
    outside = model.active_params - model.moe_linear_params
    experts = model.total_params - outside
    assert weight_bytes_per_rank(model, 1) == experts * (0.5 + 1 / 32) + outside * 2


UNKNOWN_LAYER = "capplan does not know what such a layer keeps"
STATE = "such layers keep a state capplan has no formula for"
STRAY = "no layer is said to keep the state it describes"
UNEVEN = "layers differ in what they keep per token"
SPARSE = "an index of its own is kept beside the KV"
NOT_LINEAR = "its cache does not grow by the same bytes with every token"
FULL = "accepted: layers of full, windowed, linear or Mamba2 attention, or a .toml spec of your own"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        (
            {"layer_types": ["lightning_attention"] * 32},
            f"layer_types: 'lightning_attention' is not modelled: {UNKNOWN_LAYER}",
        ),
        ({"hybrid_override_pattern": "M*X-"}, f"hybrid_override_pattern: 'X' is not modelled: {UNKNOWN_LAYER}"),
        ({"hybrid_layer_pattern": [0, 2]}, f"hybrid_layer_pattern: 2 is not modelled: {UNKNOWN_LAYER}"),
        (
            {"sliding_window": 9, "sliding_window_pattern": "LLX"},
            f"sliding_window_pattern: 'X' is not modelled: {UNKNOWN_LAYER}",
        ),
        ({"linear_num_key_heads": 16}, f"linear_num_key_heads: 16 is not modelled: {STRAY}"),
        ({"mamba_num_heads": 64}, f"mamba_num_heads: 64 is not modelled: {STRAY}"),
        ({"mamba_d_state": 64}, f"mamba_d_state: 64 is not modelled: {STATE}"),
        ({"attn_layer_period": 8}, f"attn_layer_period: 8 is not modelled: {STATE}"),
        (
            {"linear_attn_config": {"head_dim": 128}},
            f"linear_attn_config: {{'head_dim': 128}} is not modelled: {STATE}",
        ),
        ({"attn_type_list": [1, 0]}, f"attn_type_list: 0 is not modelled: {STATE}"),
        ({"compress_ratios": [0, 4]}, f"compress_ratios: [0, 4] is not modelled: {NOT_LINEAR}"),
        ({"index_topk": 2048}, f"index_topk: 2048 is not modelled: {SPARSE}"),
        (
            {"sparse_attention_config": {"sparse_index_dim": 128}},
            f"sparse_attention_config: {{'sparse_index_dim': 128}} is not modelled: {SPARSE}",
        ),
        ({"cross_attention_layers": [3]}, f"cross_attention_layers: [3] is not modelled: {UNEVEN}"),
        (
            {"is_encoder_decoder": True},
            "is_encoder_decoder: True is not modelled: the encoder's KV is kept beside the decoder's",
        ),
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
    "RefinedWeb, RefinedWebModel, baichuan, chatglm, cohere2, deepseek_v2, deepseek_v3, deepseek_v32, exaone4, falcon, "
    "gemma, gemma2, gemma3, gemma3_text, gemma3n_text, gemma4, gemma4_text, glm4_moe, glm4_moe_lite, glm_moe_dsa, "
    "gpt_oss, granite, internlm2, kimi_k2, llama, llama4_text, mimo, mimo_v2_flash, minimax_m2, ministral, mistral, "
    "mixtral, nemotron_h, olmo3, phi3, qwen2, qwen2_5_vl, qwen2_5_vl_text, qwen2_moe, qwen2_vl, qwen2_vl_text, qwen3, "
    "qwen3_5, qwen3_5_moe, qwen3_5_moe_text, qwen3_5_text, qwen3_moe, qwen3_next, qwen3_vl_moe_text, qwen3_vl_text, "
    "seed_oss"
)
COUNT = "accepted: a whole number from 1"
QUANTIZED = (
    "accepted: fp8, mxfp4, awq or gptq with 4 or 8 bits, compressed-tensors or modelopt in FP8, INT8, INT4 or NVFP4, "
    "none at all, or a .toml spec of your own"
)


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
            {"layer_types": ["full_attention"]},
            "num_hidden_layers: 32, but layers are listed one by one and there are 1; accepted: 1",
        ),
        ({"layer_types": ["sliding_attention"] * 32}, f"sliding_window: missing; {COUNT}"),
        ({"layer_types": ["linear_attention"] * 32}, f"linear_num_value_heads: missing; {COUNT}"),
        (
            {"layer_types": ["mamba"] * 32, "mamba_ssm_dtype": "float8"},
            "mamba_ssm_dtype: 'float8'; accepted: float32, bfloat16, float16",
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
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8"}},
            f"quantization_config: quant_method 'modelopt', quant_algo 'W4A8'; {QUANTIZED}",
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors"}},
            f"quantization_config: quant_method 'compressed-tensors'; {QUANTIZED}",
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
    assert error_of(path) == f"{path}: quantization_config: quant_method 'modelopt'; {QUANTIZED}"


def test_files_that_are_no_config(written, tmp_path):
    path = written("{")
    assert error_of(path).startswith(f"{path}: not a JSON file: ")
    path = written("[1]")
    assert error_of(path) == f"{path}: expected one JSON object; accepted: a Hugging Face config.json"
    absent = str(tmp_path / "absent.json")
    assert error_of(absent) == f"{absent}: cannot be read: No such file or directory"
