"""What a model's KV cache and weights cost under tensor parallelism; the record is `capplan.models.model_record`'s.

What a hybrid's KV costs depends on the engine: most store every attention layer for every token, some no more
than the last window of windowed layers. Stored states come on top, one set per boundary.
What is not modelled: pipeline, context and expert parallelism, draft layers.
"""

from collections.abc import Mapping

from capplan.errors import SpecError
from capplan.models.layer_groups import KV_DTYPES, LayerGroup, head_bytes, heads_per_rank
from capplan.models.model_record import ModelSpec, check_model

__all__ = [
    "ENGINE_KEEPS_WINDOWS",
    "KV_DTYPES",
    "WEIGHT_DTYPE_BYTES",
    "ModelSpec",
    "check_model",
    "context_bytes",
    "host_copies",
    "keeps_windows",
    "kv_bytes_per_token",
    "list_kv_dtypes",
    "state_bytes_per_boundary",
    "tp_divides",
    "weight_bytes_per_rank",
    "window_bytes_per_token",
]

# 4-bit types carry scales: one BF16 scale in 128 weights (int4) or 32 (int4-g32), one byte in 32 (mxfp4) or
# in 16 (nvfp4).
WEIGHT_DTYPE_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2 / 128,
    "int4-g32": 0.5 + 2 / 32,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}
# Whether an engine's host tier leaves out what lies before the window of a windowed layer; "vllm" is its GPU tier.
ENGINE_KEEPS_WINDOWS = {
    "lmcache": False,
    "lmcache-mp": False,
    "vllm": True,
    "vllm-offload": True,
    "vllm-offload-0.13": False,
    "sglang-hicache": False,
    "sglang-hicache-0.5.6": False,
    "trtllm-host": False,
    "dynamo-kvbm": False,
    "mooncake-store": False,
}
# One FP8 key of an indexer layer and its scale; a latent as FP8 with FP32 scales per 128, its rope part BF16.
INDEX_SCALE_BYTES = 4
LATENT_SCALE_GROUP, LATENT_SCALE_BYTES, ROPE_ITEMSIZE = 128, 4, 2


def list_kv_dtypes(model: ModelSpec) -> tuple[str, ...]:
    """The types of `KV_DTYPES` in which a model's KV can be kept: 656-byte latents are for MLA alone."""
    if model.index_layers:
        return ("bf16", "fp16", "fp8", "fp8_ds_mla")
    return KV_DTYPES if model.attention == "mla" else KV_DTYPES[:-1]


def kv_bytes_per_token(model: ModelSpec, tp: int, kv_dtype: str = "bf16", engine: str = "lmcache") -> int:
    """Return beta, the KV bytes each further token adds on one tensor-parallel rank (docs/model.md section 1).

    GQA: L * max(1, H_kv // TP) * (d_k + d_v) * itemsize, KV heads being copied once TP exceeds them.
    MLA: L * (kv_lora_rank + qk_rope_head_dim) * itemsize on every rank, and one FP8 index key and scale per
    indexer layer; engines keep ``"fp8"`` latents beside an index as ``"fp8_ds_mla"``. Layers that reuse
    another layer's KV, or keep a state, add nothing.

    Parameters
    ----------
    tp : tensor-parallel size
    kv_dtype : one of `list_kv_dtypes`
    engine : a key of `ENGINE_KEEPS_WINDOWS`; one that keeps windows adds nothing for windowed layers

    Raises
    ------
    SpecError
        `tp` is below 1, or `kv_dtype` or `engine` is none of these.
    """
    _check_kv(model, tp, kv_dtype)
    if model.attention == "mla":
        index = model.index_layers * (model.index_head_dim + INDEX_SCALE_BYTES)
        return model.layers * _latent_bytes(model, kv_dtype) + index
    windows = not keeps_windows(engine)
    return sum(_group_bytes(model, g, tp, kv_dtype) for g in model.layer_groups if windows or not g.is_windowed)


def window_bytes_per_token(model: ModelSpec, tp: int, kv_dtype: str = "bf16") -> tuple[tuple[int, int], ...]:
    """Return the KV bytes of one token on one rank in windowed layers, as (window tokens, bytes), widest first.

    Raises
    ------
    SpecError
        As `kv_bytes_per_token`.
    """
    _check_kv(model, tp, kv_dtype)
    sizes: dict[int, int] = {}
    for group in filter(lambda group: group.is_windowed, model.groups):
        sizes[group.window_tokens] = sizes.get(group.window_tokens, 0) + _group_bytes(model, group, tp, kv_dtype)
    return tuple(sorted(sizes.items(), reverse=True))


def context_bytes(
    model: ModelSpec, tokens: int, tp: int, kv_dtype: str = "bf16", engine: str = "lmcache", states: int = 1
) -> int:
    """Return the bytes on one rank from which a context of so many tokens can be resumed.

    Every token's KV, the last window where the engine keeps windows, and the states of `states` boundaries.

    Raises
    ------
    SpecError
        As `kv_bytes_per_token`.
    """
    held = tokens * kv_bytes_per_token(model, tp, kv_dtype, engine) + states * state_bytes_per_boundary(model, tp)
    if keeps_windows(engine):
        held += sum(min(tokens, window) * size for window, size in window_bytes_per_token(model, tp, kv_dtype))
    return held


def state_bytes_per_boundary(model: ModelSpec, tp: int) -> int:
    """Return the bytes on one rank of the states stored at one boundary; 0 for models without them.

    Raises
    ------
    SpecError
        `tp` is below 1.
    """
    _check_tp(tp)
    return sum(group.state_bytes(tp) for group in model.groups if group.has_state)


def keeps_windows(engine: str) -> bool:
    """Say whether an engine's host tier leaves out what lies before the window of a windowed layer.

    Raises
    ------
    SpecError
        `engine` is unknown.
    """
    if engine not in ENGINE_KEEPS_WINDOWS:
        raise SpecError(f"engine '{engine}': accepted: {', '.join(ENGINE_KEEPS_WINDOWS)}")
    return ENGINE_KEEPS_WINDOWS[engine]


def _group_bytes(model: ModelSpec, group: LayerGroup, tp: int, kv_dtype: str) -> int:
    if group.has_state:
        return 0
    kv_heads, key_dim, value_dim = model.heads_of(group)
    head = head_bytes(key_dim, kv_dtype) + head_bytes(value_dim, kv_dtype)
    return (group.layers - group.shared_layers) * heads_per_rank(kv_heads, tp) * head


def _latent_bytes(model: ModelSpec, kv_dtype: str) -> int:
    rank, rope = model.kv_lora_rank, model.qk_rope_head_dim
    if kv_dtype == "fp8_ds_mla" or (kv_dtype == "fp8" and model.index_layers):
        return rank + -(-rank // LATENT_SCALE_GROUP) * LATENT_SCALE_BYTES + rope * ROPE_ITEMSIZE
    return head_bytes(rank + rope, kv_dtype)


def weight_bytes_per_rank(model: ModelSpec, tp: int, weight_dtype: str | None = None) -> float:
    """Return the bytes of weights on one tensor-parallel rank.

    Total parameters over TP, plus what ranks copy instead of split: the K and V projections of copied heads
    (GQA), the projection to the latent (MLA). Layers a checkpoint keeps in a wider type are told apart only
    where the profile has a `nonexpert_weight_dtype`.

    Parameters
    ----------
    weight_dtype : a key of `WEIGHT_DTYPE_BYTES`, for all weights; those of the published checkpoint if None

    Raises
    ------
    SpecError
        `tp` is below 1 or `weight_dtype` is unknown.
    """
    _check_tp(tp)
    itemsize = _bytes_of("weight_dtype", weight_dtype or model.weight_dtype, WEIGHT_DTYPE_BYTES)
    others = itemsize
    if model.nonexpert_weight_dtype and weight_dtype in (None, model.weight_dtype):
        others = WEIGHT_DTYPE_BYTES[model.nonexpert_weight_dtype]
    outside = model.active_params - model.moe_linear_params
    stored = (model.total_params - outside) * itemsize + outside * others
    return stored / tp + _copied_params(model, tp) * others


def _copied_params(model: ModelSpec, tp: int) -> float:
    """Return how many parameters a rank holds on top of an even share."""
    if model.attention == "mla":
        latent = model.kv_lora_rank + model.qk_rope_head_dim
        return model.layers * model.hidden_size * (latent - latent / tp)
    copied = 0.0
    for group in model.layer_groups:
        if not group.has_state:
            kv_heads, key_dim, value_dim = model.heads_of(group)
            heads = max(0.0, heads_per_rank(kv_heads, tp) - kv_heads / tp)
            copied += (group.layers - group.shared_layers) * model.hidden_size * heads * (key_dim + value_dim)
    return copied


def host_copies(model: ModelSpec, tp: int) -> int:
    """Return how many ranks' KV a host tier holds: TP, or 1 for MLA, whose ranks hold the same bytes.

    Raises
    ------
    SpecError
        `tp` is below 1.
    """
    _check_tp(tp)
    return 1 if model.attention == "mla" else tp


def tp_divides(model: ModelSpec, tp: int) -> bool:
    """Say whether engines can split the model over `tp` ranks: query heads split, KV heads split or copied.

    Raises
    ------
    SpecError
        `tp` is below 1.
    """
    _check_tp(tp)
    if model.attention_heads % tp:
        return False
    if model.attention == "mla":
        return True
    return all(_group_divides(model, group, tp) for group in model.layer_groups)


def _group_divides(model: ModelSpec, group: LayerGroup, tp: int) -> bool:
    if group.has_state:
        return group.state_heads % tp == 0
    kv_heads = model.heads_of(group)[0]
    return kv_heads % tp == 0 or tp % kv_heads == 0


def _check_kv(model: ModelSpec, tp: int, kv_dtype: str) -> None:
    _check_tp(tp)
    if kv_dtype not in list_kv_dtypes(model):
        raise SpecError(f"kv_dtype '{kv_dtype}': accepted: {', '.join(list_kv_dtypes(model))}")


def _check_tp(tp: int) -> None:
    if tp < 1:
        raise SpecError(f"tp {tp}: accepted: a whole number from 1")


def _bytes_of(field_name: str, dtype: str, known: Mapping[str, float]) -> float:
    if dtype not in known:
        raise SpecError(f"{field_name} '{dtype}': accepted: {', '.join(known)}")
    return known[dtype]
