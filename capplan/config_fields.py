"""Fields of a Hugging Face ``config.json``: typed access, and the ones capplan must refuse."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capplan.errors import SpecError

# Decoders whose weights follow from the dimensions: gated MLP or experts, no state but KV.
GATED_TYPES = frozenset(
    [
        "baichuan",
        "chatglm",
        "deepseek_v2",
        "deepseek_v3",
        "gemma",
        "glm4_moe",
        "glm4_moe_lite",
        "granite",
        "internlm2",
        "kimi_k2",
        "llama",
        "mimo",
        "minimax_m2",
        "mistral",
        "mixtral",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "qwen3",
        "qwen3_moe",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
        "seed_oss",
    ]
)
UNGATED_TYPES = frozenset(("falcon", "RefinedWeb", "RefinedWebModel"))
KNOWN_TYPES = GATED_TYPES | UNGATED_TYPES

_WINDOW = "such layers keep only the last tokens of a sequence"
_STATE = "such layers keep a state per sequence instead of KV per token"
_UNEVEN = "layers differ in what they keep per token"
_SPARSE = "an index of its own is kept beside the KV"
_UNMODELLED = {
    "sliding_window_pattern": _WINDOW,
    "attention_chunk_size": _WINDOW,
    "hybrid_layer_pattern": _WINDOW,
    "full_attention_interval": _STATE,
    "linear_attn_config": _STATE,
    "linear_num_key_heads": _STATE,
    "hybrid_override_pattern": _STATE,
    "layers_block_type": _STATE,
    "attn_layer_period": _STATE,
    "mamba_num_heads": _STATE,
    "mamba_d_state": _STATE,
    "ssm_state_size": _STATE,
    "num_kv_shared_layers": _UNEVEN,
    "num_global_key_value_heads": _UNEVEN,
    "global_head_dim": _UNEVEN,
    "block_configs": _UNEVEN,
    "compress_ratios": _UNEVEN,
    "cross_attention_layers": _UNEVEN,
    "index_topk": _SPARSE,
    "index_head_dim": _SPARSE,
    "sparse_attention_config": _SPARSE,
    "is_encoder_decoder": "the encoder's KV is kept beside the decoder's",
}
_ACCEPTED = "full attention over all tokens in every layer, or a .toml spec of your own"


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of one ``config.json`` (those of the language model over those around it) and its path."""

    fields: Mapping[str, Any]
    where: str

    def get(self, *names: str) -> Any:
        """Return the first field that is there and not null, else None."""
        return next((self.fields[name] for name in names if self.fields.get(name) is not None), None)

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return the first of the fields as a whole number from `least`; `default` where none is given.

        Raises
        ------
        SpecError
            No field is given and there is no default, or the value is not such a number.
        """
        value = self.get(*names)
        if value is None and default is not None:
            return default
        accepted = f"a whole number from {least}"
        if value is None:
            raise SpecError(f"{self.where}: {' or '.join(names)}: missing; accepted: {accepted}")
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            given = next(name for name in names if self.fields.get(name) is not None)
            raise SpecError(f"{self.where}: {given}: {value!r}; accepted: {accepted}")
        return value

    def text(self, *names: str) -> str:
        """Return the first of the fields as text.

        Raises
        ------
        SpecError
            No field is given, or its value is not text.
        """
        value = self.get(*names)
        if not isinstance(value, str):
            got = "missing" if value is None else repr(value)
            raise SpecError(f"{self.where}: {' or '.join(names)}: {got}; accepted: text")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a field that is a list; empty where it is not given.

        Raises
        ------
        SpecError
            The value is not a list.
        """
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise SpecError(f"{self.where}: {name}: {value!r}; accepted: a list")
        return value or []


def refuse_unmodelled(config: Config) -> None:
    """Refuse a model that keeps anything but the KV of every token in every layer.

    Raises
    ------
    SpecError
        Naming the field that says so, and why it cannot be planned for.
    """
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window") is not False:
        raise _refusal(config, "sliding_window", f"{window} in use", _WINDOW)
    for kind in config.items("layer_types"):
        if kind != "full_attention":
            raise _refusal(config, "layer_types", repr(kind), _UNEVEN)
    for kind in config.items("attn_type_list"):
        if kind != 1:
            raise _refusal(config, "attn_type_list", repr(kind), _STATE)
    for name, reason in _UNMODELLED.items():
        if value := config.get(name):
            raise _refusal(config, name, _short(value), reason)
    if (model_type := config.text("model_type")) not in KNOWN_TYPES:
        raise SpecError(
            f"{config.where}: model_type: '{model_type}' is not known to capplan; "
            f"accepted: {', '.join(sorted(KNOWN_TYPES))}, or a .toml spec of your own"
        )


def _refusal(config: Config, name: str, value: str, reason: str) -> SpecError:
    return SpecError(f"{config.where}: {name}: {value} is not modelled: {reason}; accepted: {_ACCEPTED}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
