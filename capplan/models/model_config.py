"""Read a Hugging Face ``config.json`` as the fields of a model spec, or refuse it by name.

What is read: decoders whose weights follow from the dimensions and whose layers are full attention (GQA, MHA,
MQA or MLA, with or without the index of sparse attention), windowed attention, linear attention or Mamba2.
Anything that keeps less, more or other state per token is refused with the field that says so: a guess would
make every capacity wrong without a sign. The vision part of a multi-modal model, and draft (multi-token
prediction) layers, are left out.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capplan import spec_files
from capplan.errors import SpecError
from capplan.models.config_fields import Config, refuse_unmodelled, with_defaults
from capplan.models.config_layers import group_layers, read_layers
from capplan.models.config_weights import read_dtypes, read_embeddings, read_feed_forward
from capplan.models.layer_groups import LayerGroup
from capplan.models.parameters import Heads, Latent, count_index, count_params, count_state


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of a model spec from a ``config.json``.

    Raises
    ------
    SpecError
        The file cannot be read, lacks a field, or describes a cache that is not modelled.
    """
    config = _load(path)
    refuse_unmodelled(config)
    layers = read_layers(config)
    groups = group_layers(config, layers)
    hidden = config.count("hidden_size")
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    source = f"{path} ({config.text('model_type')})"
    attention, mixer_params = _read_attention(config, hidden, groups, len(layers))
    return {
        "name": name,
        "title": name,
        **attention,
        **count_params(
            hidden, mixer_params, read_feed_forward(config, layers, hidden), read_embeddings(config, hidden)
        ),
        "layers": len(layers),
        "hidden_size": hidden,
        "attention_heads": config.count("num_attention_heads", "n_head"),
        **read_dtypes(config),
        "groups": groups,
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
            return with_defaults({**outer, **inner}, str(path))
    return with_defaults(outer, str(path))


def _read_attention(
    config: Config, hidden: int, groups: Sequence[LayerGroup], n_layers: int
) -> tuple[dict[str, Any], int]:
    """Return the attention fields of a spec, and the parameters of all mixers."""
    heads = config.count("num_attention_heads", "n_head")
    if config.get("kv_lora_rank"):
        return _read_latent(config, hidden, heads, n_layers)
    fields = _read_heads(config, hidden, heads)
    if not groups:
        groups = (LayerGroup(kind="full", layers=n_layers),)
    return fields, sum(_count_group(config, hidden, heads, fields, group) for group in groups)


def _read_latent(config: Config, hidden: int, heads: int, n_layers: int) -> tuple[dict[str, Any], int]:
    rope = config.count("qk_rope_head_dim")
    fields: dict[str, Any] = {
        "attention": "mla",
        "kv_lora_rank": config.count("kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_head_dim": config.count("qk_nope_head_dim") + rope,
        "v_head_dim": config.count("v_head_dim"),
    }
    latent = Latent(
        heads=heads,
        key_dim=fields["qk_head_dim"],
        value_dim=fields["v_head_dim"],
        rank=fields["kv_lora_rank"],
        rope_dim=rope,
        q_rank=config.count("q_lora_rank", default=0),
    )
    params = n_layers * latent.count(hidden)
    if config.get("index_topk"):
        index = _read_index(config, n_layers)
        fields |= index
        per_layer = count_index(hidden, latent.q_rank, index["index_heads"], index["index_head_dim"])
        params += index["index_layers"] * per_layer
    return fields, params


def _read_index(config: Config, n_layers: int) -> dict[str, int]:
    """Return the index of sparse attention; layers that share the choice of another layer have none."""
    types: Sequence[Any] = config.items("indexer_types") or config.get("index_topk_pattern") or ()
    if types:
        layers = sum(str(kind)[:1].lower() == "f" for kind in types)
    else:
        every = config.count("index_topk_freq", default=1)
        first = config.count("index_skip_topk_offset", default=2, least=0)
        layers = sum(max(k - first + 1, 0) % every == 0 for k in range(n_layers))
    return {
        "index_layers": layers,
        "index_heads": config.count("index_n_heads"),
        "index_head_dim": config.count("index_head_dim"),
        "index_topk": config.count("index_topk"),
    }


def _read_heads(config: Config, hidden: int, heads: int) -> dict[str, Any]:
    if config.get("head_dim", "attention_head_dim", "kv_channels") is None and hidden % heads:
        problem = f"missing, and hidden_size {hidden} is no multiple of the {heads} heads"
        raise SpecError(f"{config.where}: head_dim: {problem}; accepted: a whole number from 1")
    head_dim = config.count("head_dim", "attention_head_dim", "kv_channels", default=hidden // heads)
    value_dim = config.count("v_head_dim", default=head_dim)
    fields = {"attention": "gqa", "kv_heads": _kv_heads(config, heads), "head_dim": head_dim}
    return fields if value_dim == head_dim else fields | {"v_head_dim": value_dim}


def _kv_heads(config: Config, heads: int) -> int:
    """Return the KV heads: a field where one says so, one head for old multi-query models, else all heads."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    names = ["num_key_value_heads", "n_head_kv", "num_kv_heads"]
    if config.get("multi_query_attention") is not False:
        names.append("multi_query_group_num")
    return config.count(*names, default=heads)


def _count_group(config: Config, hidden: int, heads: int, fields: dict[str, Any], group: LayerGroup) -> int:
    """Parameters of the mixers of one group."""
    if group.has_state:
        return group.layers * count_state(hidden, group)
    key_dim = group.head_dim or fields["head_dim"]
    own = Heads(
        heads=heads,
        kv_heads=group.kv_heads or fields["kv_heads"],
        key_dim=key_dim,
        value_dim=group.v_head_dim or group.head_dim or fields.get("v_head_dim", key_dim),
        query_parts=2 if config.get("attn_output_gate") else 1,
        own_values=not (config.get("attention_k_eq_v") and group.kind == "full"),
    )
    shared = Heads(heads=heads, kv_heads=0, key_dim=own.key_dim, value_dim=own.value_dim, query_parts=own.query_parts)
    return (group.layers - group.shared_layers) * own.count(hidden) + group.shared_layers * shared.count(hidden)
