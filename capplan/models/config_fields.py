"""Fields of a Hugging Face ``config.json``: typed access, what it leaves to defaults, and what must be refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capplan.errors import SpecError

# Decoders whose weights follow from the dimensions: gated MLP or experts.
GATED_TYPES = frozenset(
    [
        "baichuan",
        "chatglm",
        "cohere2",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "exaone4",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "gpt_oss",
        "granite",
        "internlm2",
        "kimi_k2",
        "llama",
        "llama4_text",
        "mimo",
        "mimo_v2_flash",
        "minimax_m2",
        "ministral",
        "mistral",
        "mixtral",
        "olmo3",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
        "seed_oss",
    ]
)
UNGATED_TYPES = frozenset(("falcon", "RefinedWeb", "RefinedWebModel", "nemotron_h"))
KNOWN_TYPES = GATED_TYPES | UNGATED_TYPES
TIED_TYPES = frozenset(
    (
        "falcon",
        "RefinedWeb",
        "RefinedWebModel",
        "cohere2",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
    )
)

_GEMMA3 = {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208}
_GEMMA3 |= {"sliding_window": 4096, "sliding_window_pattern": 6}
_GEMMA4 = {"sliding_window_pattern": 6, "global_head_dim": 512}
_GATED_DELTA = {"full_attention_interval": 4, "attn_output_gate": True}
# What the published configs leave out because the architecture's defaults say it.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "cohere2": {"sliding_window_pattern": 4},
    "gemma2": {"sliding_window_pattern": 2},
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n_text": {"sliding_window_pattern": 5, "num_kv_shared_layers": 15, "hidden_size_per_layer_input": 256},
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gpt_oss": {"sliding_window_pattern": 2},
    "llama4_text": {"head_dim": 128, "no_rope_layer_interval": 4, "attention_chunk_size": 8192},
    "nemotron_h": {"mamba_ssm_cache_dtype": "float32"},
    "qwen2": {"use_sliding_window": False},
    "qwen2_moe": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
    "qwen3_5": _GATED_DELTA,
    "qwen3_5_moe": _GATED_DELTA,
    "qwen3_5_moe_text": _GATED_DELTA,
    "qwen3_5_text": _GATED_DELTA,
    "qwen3_moe": {"use_sliding_window": False},
    "qwen3_next": _GATED_DELTA,
}

_STATE = "such layers keep a state capplan has no formula for"
_UNEVEN = "layers differ in what they keep per token"
_SPARSE = "an index of its own is kept beside the KV"
_NOT_LINEAR = "its cache does not grow by the same bytes with every token"
_UNMODELLED = {
    "compress_ratios": _NOT_LINEAR,
    "linear_attn_config": _STATE,
    "attn_layer_period": _STATE,
    "mamba_d_state": _STATE,
    "block_configs": _UNEVEN,
    "cross_attention_layers": _UNEVEN,
    "sparse_attention_config": _SPARSE,
    "is_encoder_decoder": "the encoder's KV is kept beside the decoder's",
}
_ACCEPTED = "layers of full, windowed, linear or Mamba2 attention, or a .toml spec of your own"


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

    def refusal(self, name: str, value: str, reason: str) -> SpecError:
        """Return the error that refuses the model for one field."""
        return SpecError(f"{self.where}: {name}: {value} is not modelled: {reason}; accepted: {_ACCEPTED}")


def with_defaults(fields: Mapping[str, Any], where: str) -> Config:
    """Return the config with what its architecture sets where the file says nothing."""
    return Config({**_DEFAULTS.get(str(fields.get("model_type")), {}), **fields}, where)


def refuse_unmodelled(config: Config) -> None:
    """Refuse a model whose cache or weights do not follow from its dimensions.

    Raises
    ------
    SpecError
        Naming the field that says so, and why it cannot be planned for.
    """
    for kind in config.items("attn_type_list"):
        if kind != 1:
            raise config.refusal("attn_type_list", repr(kind), _STATE)
    for name, reason in _UNMODELLED.items():
        if value := config.get(name):
            raise config.refusal(name, _short(value), reason)
    if config.get("index_topk") and not config.get("kv_lora_rank"):
        raise config.refusal("index_topk", _short(config.get("index_topk")), _SPARSE)
    if (model_type := config.text("model_type")) not in KNOWN_TYPES:
        raise SpecError(
            f"{config.where}: model_type: '{model_type}' is not known to capplan; "
            f"accepted: {', '.join(sorted(KNOWN_TYPES))}, or a .toml spec of your own"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
