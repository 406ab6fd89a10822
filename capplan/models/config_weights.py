"""Weights of a ``config.json`` besides the mixers: feed-forward parts, embeddings, and the types they are kept in."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capplan import spec_files
from capplan.errors import SpecError
from capplan.models.config_fields import TIED_TYPES, UNGATED_TYPES, Config
from capplan.models.parameters import FeedForward

_TORCH_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_QUANTIZED = {"fp8": "fp8", "mxfp4": "mxfp4"}
_QUANT_ALGOS = {"FP8": "fp8", "NVFP4": "nvfp4"}
_ACCEPTED = (
    "fp8, mxfp4, awq or gptq with 4 or 8 bits, compressed-tensors or modelopt in FP8, INT8, INT4 or NVFP4, "
    "none at all, or a .toml spec of your own"
)
_SMALL_GROUP = 32


def read_embeddings(config: Config, hidden: int) -> int:
    """Parameters of embedding and lm_head, which may be one matrix, and of per-layer embeddings (Gemma 3n, 4)."""
    tied = config.get("tie_word_embeddings")
    tied = bool(tied) if tied is not None else config.text("model_type") in TIED_TYPES
    per_layer = _per_layer_width(config) * config.count("vocab_size_per_layer_input", default=262_144)
    return config.count("vocab_size", "padded_vocab_size") * hidden * (1 if tied else 2) + per_layer


def read_feed_forward(config: Config, layers: Sequence[str], hidden: int) -> FeedForward:
    """Feed-forward parts of all layers.

    Raises
    ------
    SpecError
        A size is missing, or more experts are used than there are.
    """
    ungated = config.text("model_type") in UNGATED_TYPES
    matrices = 2 if ungated else 3
    experts = config.count("num_experts", "n_routed_experts", "num_local_experts", default=0, least=0)
    dense = _dense_layers(config, layers) if experts else layers.count("mlp") or len(layers)
    if "moe" in layers or "mlp" in layers:
        moe_layers, dense = layers.count("moe"), layers.count("mlp")
    else:
        moe_layers = len(layers) - dense if experts else 0
    both = bool(config.get("enable_moe_block"))
    if both:
        dense = moe_layers = len(layers)
    dense_params = matrices * hidden * _mlp_width(config, dense, hidden) + 3 * hidden * _per_layer_width(config)
    if not moe_layers:
        return FeedForward(dense_params=dense_params)
    return FeedForward(
        dense_params=dense_params,
        moe_layers=moe_layers,
        experts=experts,
        expert_matrices=matrices,
        expert_latent=config.count("moe_latent_size", default=0, least=0),
        **_experts(config, experts),
    )


def _per_layer_width(config: Config) -> int:
    width = config.count("hidden_size_per_layer_input", default=0, least=0)
    return width and width * config.count("num_hidden_layers")


def _mlp_width(config: Config, dense: int, hidden: int) -> int:
    """Sum of the widths of all plain MLPs; layers that share KV may be twice as wide (Gemma 4)."""
    if not dense:
        return 0
    if widths := config.get("intermediate_size") if isinstance(config.get("intermediate_size"), list) else None:
        return sum(widths)
    ungated = config.text("model_type") in UNGATED_TYPES
    names = ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "ffn_hidden_size")
    width = config.count(*names, default=4 * hidden if ungated else None)
    wide = config.count("num_kv_shared_layers", default=0, least=0) if config.get("use_double_wide_mlp") else 0
    return width * (dense + wide)


def _experts(config: Config, experts: int) -> dict[str, int]:
    size = config.count("moe_intermediate_size", "intermediate_size")
    shared = config.count("moe_shared_expert_intermediate_size", default=0, least=0)
    shared = shared or config.count("n_shared_experts", default=0, least=0) * size
    shared += config.count("shared_expert_intermediate_size", "shared_intermediate_size", default=0, least=0)
    if config.text("model_type") == "llama4_text":
        shared = size
    per_token = config.count("num_experts_per_tok", "top_k_experts")
    if per_token > experts:
        raise SpecError(f"{config.where}: num_experts_per_tok: {per_token}; accepted: at most the {experts} experts")
    return {"experts_per_token": per_token, "expert_size": size, "shared_size": shared}


def _dense_layers(config: Config, layers: Sequence[str]) -> int:
    """Return how many layers of a mixture of experts have a plain MLP instead."""
    listed = config.items("mlp_layer_types")
    if not listed and isinstance(config.get("moe_layer_freq"), list):
        listed = ["sparse" if with_experts else "dense" for with_experts in config.items("moe_layer_freq")]
    if listed:
        return listed.count("dense")
    if "moe_layers" in config.fields and (chosen := config.items("moe_layers")):
        return len(layers) - len(chosen)
    first = config.count("first_k_dense_replace", default=0, least=0)
    step = config.count("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", default=1)
    named = config.items("mlp_only_layers")
    # decoder_sparse_step and interleave_moe_layer_step count layers from one, moe_layer_freq from zero
    shift = 1 if config.get("decoder_sparse_step", "interleave_moe_layer_step") else 0
    return sum(i < first or i in named or (i + shift) % step != 0 for i in range(len(layers)))


def read_dtypes(config: Config) -> dict[str, str]:
    """Return ``weight_dtype``, and ``nonexpert_weight_dtype`` and ``kv_dtype`` where the config says so.

    Raises
    ------
    SpecError
        The type of the weights is missing or unknown.
    """
    quantization = config.get("quantization_config")
    beside = Path(config.where).with_name("hf_quant_config.json")
    if quantization is None and beside.exists():
        quantization = {"quant_method": "modelopt", **_load_beside(beside)}
    if not isinstance(quantization, dict):
        return {"weight_dtype": _plain_dtype(config)}
    dtypes = {"weight_dtype": _quantized_dtype(config, quantization)}
    ignored = quantization.get("ignore") or quantization.get("modules_to_not_convert") or ()
    if dtypes["weight_dtype"] == "mxfp4" or any("self_attn" in str(name) for name in ignored):
        dtypes["nonexpert_weight_dtype"] = _plain_dtype(config, "bf16")
    return dtypes | _kv_dtype(quantization)


def _load_beside(path: Path) -> dict[str, Any]:
    try:
        stated = json.loads(spec_files.read_text(path))
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: not a JSON file: {error}") from None
    inner = stated.get("quantization") if isinstance(stated, dict) else None
    return inner if isinstance(inner, dict) else {}


def _plain_dtype(config: Config, default: str | None = None) -> str:
    if default and config.get("torch_dtype", "dtype") is None:
        return default
    dtype = config.text("torch_dtype", "dtype")
    if dtype not in _TORCH_DTYPES:
        raise SpecError(f"{config.where}: torch_dtype: '{dtype}'; accepted: {', '.join(_TORCH_DTYPES)}")
    return _TORCH_DTYPES[dtype]


def _quantized_dtype(config: Config, stated: Mapping[str, Any]) -> str:
    method, bits = stated.get("quant_method"), stated.get("bits")
    if method in _QUANTIZED:
        return _QUANTIZED[method]
    if method in ("awq", "gptq") and bits in (4, 8):
        return f"int{bits}" if bits == 8 else _int4(stated.get("group_size"))
    if method in (None, "modelopt") and (dtype := _QUANT_ALGOS.get(str(stated.get("quant_algo")))):
        return dtype
    if method == "compressed-tensors" and (dtype := _compressed(stated)):
        return dtype
    given = f"quant_method {method!r}" + (f", quant_algo {stated['quant_algo']!r}" if "quant_algo" in stated else "")
    raise SpecError(f"{config.where}: quantization_config: {given}; accepted: {_ACCEPTED}")


def _compressed(stated: Mapping[str, Any]) -> str | None:
    groups = stated.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return None
    int4 = _int4(weights.get("group_size"))
    kinds = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (4, "int"): int4}
    return kinds.get((weights.get("num_bits", 0), str(weights.get("type"))))


def _int4(group_size: object) -> str:
    return "int4-g32" if isinstance(group_size, int) and 0 < group_size <= _SMALL_GROUP else "int4"


def _kv_dtype(stated: Mapping[str, Any]) -> dict[str, str]:
    """The type of KV a checkpoint has scales for."""
    if dtype := _QUANT_ALGOS.get(str(stated.get("kv_cache_quant_algo"))):
        return {"kv_dtype": dtype}
    scheme = stated.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return {"kv_dtype": "fp8"}
    return {}
