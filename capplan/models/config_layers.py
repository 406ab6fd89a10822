"""Which layers of a ``config.json`` are full, windowed, linear or Mamba2 attention, and what each keeps.

Architectures say it in many ways: a list of types, a pattern, an interval, a window that starts at some layer.
A window no prompt can outgrow is full attention.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from capplan.errors import SpecError
from capplan.models.config_fields import Config
from capplan.models.layer_groups import LayerGroup

_TYPES = {
    "full_attention": "full",
    "indexed_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "mamba",
    "moe": "moe",
    "mlp": "mlp",
}
_PATTERN = {"*": "full", "M": "mamba", "E": "moe", "-": "mlp"}
_LOCAL = {"L": "sliding", "G": "full"}
_STATE_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
_UNKNOWN_LAYER = "capplan does not know what such a layer keeps"
_STATEFUL = ("linear", "mamba")
_STATE_FIELDS = ("linear_num_key_heads", "linear_num_value_heads", "mamba_num_heads", "ssm_state_size")


def read_layers(config: Config) -> tuple[str, ...]:
    """Return the kind of every layer: full, sliding, chunked, linear, mamba, or moe and mlp without attention.

    Raises
    ------
    SpecError
        A layer is of a kind capplan does not know, or the fields contradict each other.
    """
    layers = _listed(config)
    if layers is None:
        count = config.count("num_hidden_layers", "num_layers", "n_layer")
        layers = _stateful(config, count) or _chunked(config, count) or _sliding(config, count)
    if config.get("use_sliding_window") is False or _never_binds(config):
        layers = tuple("full" if kind == "sliding" else kind for kind in layers)
    if not set(layers) & set(_STATEFUL):
        for name in filter(config.get, _STATE_FIELDS):
            raise config.refusal(name, repr(config.get(name)), "no layer is said to keep the state it describes")
    return layers


def group_layers(config: Config, layers: Sequence[str]) -> tuple[LayerGroup, ...]:
    """Return the groups of a hybrid's layers; none where every layer keeps the KV of every token.

    Raises
    ------
    SpecError
        A field a kind of layer needs is missing.
    """
    last = config.count("num_kv_shared_layers", default=0, least=0)
    if not last and set(layers) == {"full"}:
        return ()
    shared = Counter(layers[len(layers) - last :])
    kinds = [kind for kind in dict.fromkeys(layers) if kind not in ("moe", "mlp")]
    return tuple(_group(config, kind, list(layers).count(kind), shared[kind]) for kind in kinds)


def _group(config: Config, kind: str, count: int, shared: int) -> LayerGroup:
    fields: dict[str, Any] = {"kind": kind, "layers": count, "shared_layers": shared}
    if kind in _STATEFUL:
        fields |= _state(config, kind) | {"shared_layers": 0}
    elif kind == "sliding":
        fields |= {"window_tokens": config.count("sliding_window"), **_heads(config, "swa_num_key_value_heads", "swa_")}
    elif kind == "chunked":
        fields["window_tokens"] = config.count("attention_chunk_size")
    else:
        fields |= _global_heads(config)
    return LayerGroup(**fields)


def _heads(config: Config, kv_heads: str, prefix: str) -> dict[str, int]:
    """Heads of a kind of layer where they differ from the model's."""
    return {
        "kv_heads": config.count(kv_heads, default=0, least=0),
        "head_dim": config.count(f"{prefix}head_dim", default=0, least=0),
        "v_head_dim": config.count(f"{prefix}v_head_dim", default=0, least=0),
    }


def _global_heads(config: Config) -> dict[str, int]:
    """Heads of full layers beside windowed ones (Gemma 4): the global KV heads hold where K and V are one."""
    heads = _heads(config, "num_global_key_value_heads", "global_")
    return heads if config.get("attention_k_eq_v") else heads | {"kv_heads": 0}


def _state(config: Config, kind: str) -> dict[str, Any]:
    if kind == "linear":
        names = {
            "state_heads": "linear_num_value_heads",
            "state_head_dim": "linear_value_head_dim",
            "state_size": "linear_key_head_dim",
            "state_groups": "linear_num_key_heads",
            "conv_kernel": "linear_conv_kernel_dim",
        }
    else:
        names = {
            "state_heads": "mamba_num_heads",
            "state_head_dim": "mamba_head_dim",
            "state_size": "ssm_state_size",
            "state_groups": "n_groups",
            "conv_kernel": "conv_kernel",
        }
    dtype = config.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype") or "float32"
    if dtype not in _STATE_DTYPES:
        raise SpecError(f"{config.where}: mamba_ssm_dtype: {dtype!r}; accepted: {', '.join(_STATE_DTYPES)}")
    return {ours: config.count(theirs) for ours, theirs in names.items()} | {"state_itemsize": _STATE_DTYPES[dtype]}


def _listed(config: Config) -> tuple[str, ...] | None:
    """Layers where the config lists them one by one, as many as it says there are."""
    layers = _spelled_out(config)
    count = config.count("num_hidden_layers", "num_layers", "n_layer", default=len(layers or ()))
    if layers is not None and len(layers) != count:
        problem = f"{count}, but layers are listed one by one and there are {len(layers)}"
        raise SpecError(f"{config.where}: num_hidden_layers: {problem}; accepted: {len(layers)}")
    return layers


def _spelled_out(config: Config) -> tuple[str, ...] | None:
    if pattern := config.get("hybrid_override_pattern"):
        return tuple(_known(config, "hybrid_override_pattern", letter, _PATTERN) for letter in str(pattern))
    for name in ("layer_types", "layers_block_type"):
        if listed := config.items(name):
            return tuple(_known(config, name, kind, _TYPES) for kind in listed)
    if listed := config.items("hybrid_layer_pattern"):
        return tuple(_known(config, "hybrid_layer_pattern", kind, {0: "full", 1: "sliding"}) for kind in listed)
    return None


def _known(config: Config, name: str, given: Any, kinds: dict[Any, str]) -> str:
    if given not in kinds:
        raise config.refusal(name, repr(given), _UNKNOWN_LAYER)
    return kinds[given]


def _stateful(config: Config, count: int) -> tuple[str, ...]:
    interval = config.count("full_attention_interval", default=0, least=0)
    return _every(interval, count, "linear") if interval else ()


def _chunked(config: Config, count: int) -> tuple[str, ...]:
    """Layers with rotary embeddings look back a chunk, those without (Llama 4) everything."""
    if not config.get("attention_chunk_size"):
        return ()
    if rotary := config.items("no_rope_layers"):
        return tuple("chunked" if layer else "full" for layer in rotary[:count])
    return _every(config.count("no_rope_layer_interval", default=0, least=0), count, "chunked")


def _sliding(config: Config, count: int) -> tuple[str, ...]:
    if not config.get("sliding_window"):
        return ("full",) * count
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str):
        letters = [_known(config, "sliding_window_pattern", letter, _LOCAL) for letter in pattern]
        return tuple(letters[k % len(letters)] for k in range(count))
    if pattern:
        return _every(config.count("sliding_window_pattern"), count, "sliding")
    first = config.count("max_window_layers", default=0, least=0) if config.get("use_sliding_window") else 0
    return ("full",) * min(first, count) + ("sliding",) * max(0, count - first)


def _every(interval: int, count: int, between: str) -> tuple[str, ...]:
    """Full attention in every `interval`-th layer, another kind between; 0 for nowhere."""
    return tuple("full" if interval and (k + 1) % interval == 0 else between for k in range(count))


def _never_binds(config: Config) -> bool:
    longest, window = config.get("max_position_embeddings"), config.get("sliding_window")
    return isinstance(longest, int) and isinstance(window, int) and window >= longest
