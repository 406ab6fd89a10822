"""Read a Hugging Face ``config.json`` as the fields of a model spec, or refuse it by name.

What is read: decoders with a gated MLP or experts in every layer and full attention (GQA, MHA, MQA or MLA)
over all tokens, whose weights follow from the dimensions. Anything that keeps less, more or other state per
token is refused with the field that says so: a guess would make every capacity wrong without a sign.
The vision part of a multi-modal model, and draft (multi-token prediction) layers, are left out.
"""

import json
from pathlib import Path
from typing import Any

from capplan import spec_files
from capplan.config_fields import UNGATED_TYPES, Config, refuse_unmodelled
from capplan.errors import SpecError
from capplan.parameters import Dimensions, count_params

_TORCH_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of a model spec from a ``config.json``.

    Raises
    ------
    SpecError
        The file cannot be read, lacks a field, or describes attention that is not modelled.
    """
    config = _load(path)
    refuse_unmodelled(config)
    dimensions = _dimensions(config)
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    source = f"{path} ({config.text('model_type')})"
    return {
        "name": name,
        "title": name,
        **_attention(config, dimensions),
        **count_params(dimensions),
        "layers": dimensions.layers,
        "hidden_size": dimensions.hidden_size,
        "attention_heads": dimensions.attention_heads,
        "weight_dtype": _weight_dtype(config),
        "sources": {"dimensions": source, "parameters": f"summed from the dimensions in {source}"},
    }


def _load(path: Path) -> Config:
    try:
        outer = json.loads(spec_files.read_text(path))
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(outer, dict):
        raise SpecError(f"{path}: expected one JSON object; accepted: a Hugging Face config.json")
    for nest in ("text_config", "llm_config"):
        if isinstance(inner := outer.get(nest), dict):
            return Config({**outer, **inner}, str(path))
    return Config(outer, str(path))


def _attention(config: Config, dimensions: Dimensions) -> dict[str, Any]:
    if dimensions.kv_lora_rank:
        return {
            "attention": "mla",
            "kv_lora_rank": dimensions.kv_lora_rank,
            "qk_rope_head_dim": config.count("qk_rope_head_dim"),
            "qk_head_dim": dimensions.key_dim,
            "v_head_dim": dimensions.value_dim,
        }
    return {"attention": "gqa", "kv_heads": dimensions.kv_heads, "head_dim": dimensions.key_dim}


def _dimensions(config: Config) -> Dimensions:
    heads = config.count("num_attention_heads", "n_head")
    hidden = config.count("hidden_size")
    layers = config.count("num_hidden_layers", "num_layers", "n_layer")
    own = _latent(config) if config.get("kv_lora_rank") else _plain_heads(config, hidden, heads)
    return Dimensions(
        layers=layers,
        hidden_size=hidden,
        vocab_size=config.count("vocab_size", "padded_vocab_size"),
        tied_embeddings=_tied(config),
        attention_heads=heads,
        **{"kv_heads": heads, **own, **_mlp(config, layers, hidden)},
    )


def _latent(config: Config) -> dict[str, int]:
    rope = config.count("qk_rope_head_dim")
    return {
        "key_dim": config.count("qk_nope_head_dim") + rope,
        "value_dim": config.count("v_head_dim"),
        "kv_lora_rank": config.count("kv_lora_rank"),
        "q_lora_rank": config.count("q_lora_rank", default=0),
        "rope_dim": rope,
    }


def _plain_heads(config: Config, hidden: int, heads: int) -> dict[str, int]:
    if config.get("head_dim", "kv_channels") is None and hidden % heads:
        problem = f"missing, and hidden_size {hidden} is no multiple of the {heads} heads"
        raise SpecError(f"{config.where}: head_dim: {problem}; accepted: a whole number from 1")
    head_dim = config.count("head_dim", "kv_channels", default=hidden // heads)
    if config.get("v_head_dim") not in (None, head_dim):
        differing = f"{config.get('v_head_dim')} is not modelled: it differs from head_dim {head_dim}"
        raise SpecError(f"{config.where}: v_head_dim: {differing}; accepted: values as wide as keys")
    return {"kv_heads": _kv_heads(config, heads), "key_dim": head_dim, "value_dim": head_dim}


def _kv_heads(config: Config, heads: int) -> int:
    """Return the KV heads: a field where one says so, one head for old multi-query models, else all heads."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    names = ["num_key_value_heads", "n_head_kv", "num_kv_heads"]
    if config.get("multi_query_attention") is not False:
        names.append("multi_query_group_num")
    return config.count(*names, default=heads)


def _tied(config: Config) -> bool:
    """Say whether embedding and lm_head are one matrix; the default of these two families is yes."""
    tied = config.get("tie_word_embeddings")
    return bool(tied) if tied is not None else config.text("model_type") in UNGATED_TYPES | {"gemma"}


def _mlp(config: Config, layers: int, hidden: int) -> dict[str, int]:
    ungated = config.text("model_type") in UNGATED_TYPES
    experts = config.count("num_experts", "n_routed_experts", "num_local_experts", default=0, least=0)
    dense = _dense_layers(config, layers) if experts else layers
    mlp_size = (
        0
        if not dense
        else config.count("intermediate_size", "ffn_hidden_size", default=4 * hidden if ungated else None)
    )
    plain = {"dense_layers": dense, "mlp_size": mlp_size, "mlp_matrices": 2 if ungated else 3}
    if dense == layers:
        return plain
    return plain | _experts(config, experts)


def _experts(config: Config, experts: int) -> dict[str, int]:
    size = config.count("moe_intermediate_size", "intermediate_size")
    shared = config.count("n_shared_experts", default=0, least=0) * size
    shared += config.count("shared_expert_intermediate_size", "shared_intermediate_size", default=0, least=0)
    per_token = config.count("num_experts_per_tok")
    if per_token > experts:
        raise SpecError(f"{config.where}: num_experts_per_tok: {per_token}; accepted: at most the {experts} experts")
    return {"experts": experts, "experts_per_token": per_token, "expert_size": size, "shared_size": shared}


def _dense_layers(config: Config, layers: int) -> int:
    """Return how many layers of a mixture of experts have a plain MLP instead."""
    first = config.count("first_k_dense_replace", default=0, least=0)
    step = config.count("decoder_sparse_step", "moe_layer_freq", default=1)
    named = config.items("mlp_only_layers")
    # decoder_sparse_step counts layers from one, moe_layer_freq from zero
    shift = 1 if config.get("decoder_sparse_step") else 0
    return sum(i < first or i in named or (i + shift) % step != 0 for i in range(layers))


def _weight_dtype(config: Config) -> str:
    quantization = config.get("quantization_config")
    beside = Path(config.where).with_name("hf_quant_config.json")
    if quantization is None and not beside.exists():
        dtype = config.text("torch_dtype", "dtype")
        if dtype not in _TORCH_DTYPES:
            raise SpecError(f"{config.where}: torch_dtype: '{dtype}'; accepted: {', '.join(_TORCH_DTYPES)}")
        return _TORCH_DTYPES[dtype]
    stated = quantization if isinstance(quantization, dict) else {"quant_method": f"of {beside.name}"}
    method, bits = stated.get("quant_method"), stated.get("bits")
    if method == "fp8":
        return "fp8"
    if method in ("awq", "gptq") and bits in (4, 8):
        return f"int{bits}"
    accepted = "fp8, awq or gptq with 4 or 8 bits, none at all, or a .toml spec of your own"
    raise SpecError(f"{config.where}: quantization_config: quant_method {method!r}; accepted: {accepted}")
