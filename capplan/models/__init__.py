"""Models by name, from a Hugging Face ``config.json``, or from a user's TOML file.

The record and what it costs are those of `capplan.models.model_spec`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from capplan import spec_files
from capplan.errors import SpecError
from capplan.models.model_spec import (
    KV_DTYPES,
    WEIGHT_DTYPE_BYTES,
    ModelSpec,
    check_model,
    context_bytes,
    host_copies,
    kv_bytes_per_token,
    list_kv_dtypes,
    state_bytes_per_boundary,
    tp_divides,
    weight_bytes_per_rank,
    window_bytes_per_token,
)

__all__ = [
    "KV_DTYPES",
    "WEIGHT_DTYPE_BYTES",
    "ModelSpec",
    "RefusedModel",
    "context_bytes",
    "host_copies",
    "kv_bytes_per_token",
    "list_kv_dtypes",
    "list_models",
    "list_refused",
    "load_model",
    "state_bytes_per_boundary",
    "tp_divides",
    "weight_bytes_per_rank",
    "window_bytes_per_token",
]

_PARAMS = ("total_params", "active_params", "linear_params")
_DIMENSIONS = ("layers", "hidden_size", "attention_heads")
_HEADS = ("kv_heads", "head_dim", "kv_lora_rank", "qk_rope_head_dim", "qk_head_dim", "v_head_dim")
_INDEX = ("index_layers", "index_heads", "index_head_dim", "index_topk")
_ACCEPTED = {
    **dict.fromkeys((*_PARAMS, *_DIMENSIONS), "a whole number from 1"),
    **dict.fromkeys((*_HEADS, *_INDEX, "moe_linear_params"), "a whole number from 0"),
    "kind": "dense, moe",
    "attention": "gqa, mla",
    "groups": "a list of {kind = full, sliding, chunked, linear or mamba, layers, and the fields of that kind}",
    **dict.fromkeys(("weight_dtype", "nonexpert_weight_dtype"), ", ".join(WEIGHT_DTYPE_BYTES)),
    "kv_dtype": ", ".join(KV_DTYPES),
    "unconfirmed": "true or false",
    **dict.fromkeys(("name", "title"), "text"),
    **dict.fromkeys(("aliases", "notes"), "a list of texts"),
    "sources": "a table of texts",
}


class RefusedModel(Struct, frozen=True):
    """A model known by name that cannot be planned for, and why."""

    name: str
    title: str
    reason: str


def load_model(name_or_path: str | Path) -> ModelSpec:
    """Return a model.

    Parameters
    ----------
    name_or_path : canonical name or alias of a shipped model; path of a Hugging Face ``config.json`` (any
        name ending in ``.json``) or of the folder that holds it; path of a user's file ending in ``.toml``

    Raises
    ------
    SpecError
        The name is unknown or ambiguous, the file is wrong, or the model's cache is not modelled.
    """
    wanted = str(name_or_path)
    path = Path(wanted)
    if wanted.lower().endswith(".toml"):
        return _load_own(path)
    if (path / "config.json").is_file():
        path = path / "config.json"
    if path.name.lower().endswith(".json"):
        from capplan.models import model_config  # a shipped model does not need its reader

        return _built(model_config.read_config(path), str(path))
    raw = spec_files.read_shipped("models")
    name = spec_files.resolve(wanted, "model", raw)
    return _built({"name": name, **raw[name]}, f"model '{name}'")


def list_models() -> list[ModelSpec]:
    """Return every model that ships with capplan and can be planned for, by name."""
    raw = spec_files.read_shipped("models")
    return [_built({"name": n, **fields}, f"model '{n}'") for n, fields in raw.items() if "refused" not in fields]


def list_refused() -> list[RefusedModel]:
    """Return the models capplan knows by name and refuses."""
    raw = spec_files.read_shipped("models")
    return [RefusedModel(n, fields["title"], fields["refused"]) for n, fields in raw.items() if "refused" in fields]


def _load_own(path: Path) -> ModelSpec:
    own, base = spec_files.read_own(path, _ACCEPTED)
    fields: dict[str, Any] = {"name": path.stem, "title": path.stem}
    if base is not None:
        raw = spec_files.read_shipped("models")
        fields |= raw[spec_files.resolve_base(base, "model", raw, str(path))] | {"aliases": []}
    return _built({**fields, **own}, str(path))


def _built(fields: Mapping[str, Any], where: str) -> ModelSpec:
    if reason := fields.get("refused"):
        raise SpecError(f"{where}: {fields['title']} is not modelled: {reason}; accepted: a .toml spec of your own")
    spec = spec_files.checked(fields, ModelSpec, where, _ACCEPTED)
    check_model(spec, where)
    return spec
