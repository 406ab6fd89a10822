"""What is known of one model, and what its KV cache, weights and attention cost.

What is modelled: decoders in which every layer keeps the KV of every token, as grouped-query attention (GQA,
which covers MHA and MQA) or as the latent of multi-head latent attention (MLA), under tensor parallelism.
What is not: sliding-window, linear, state-space and sparse attention, pipeline parallelism, draft layers.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from capplan.errors import SpecError

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]

KV_DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
# 4-bit types carry scales: one BF16 scale in 128 weights (int4), one byte in 32 (mxfp4) or in 16 (nvfp4).
WEIGHT_DTYPE_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2 / 128,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}


class ModelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model: dimensions and parameters.

    `active_params` are those one token uses, embedding and lm_head included; `linear_params` (N_lin) those
    outside embedding and lm_head; `moe_linear_params` the part of N_lin in routed and shared experts.
    GQA needs `kv_heads` and `head_dim`; MLA `kv_lora_rank`, `qk_rope_head_dim`, `qk_head_dim`, `v_head_dim`;
    a dimension the attention does not have is 0. `weight_dtype` is that of the published checkpoint,
    `sources` says for each group of numbers where it comes from.
    """

    name: Text
    title: Text
    kind: Literal["dense", "moe"]
    attention: Literal["gqa", "mla"]
    layers: Count
    hidden_size: Count
    attention_heads: Count
    total_params: Count
    active_params: Count
    linear_params: Count
    moe_linear_params: CountOrZero
    weight_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
    kv_heads: CountOrZero = 0
    head_dim: CountOrZero = 0
    kv_lora_rank: CountOrZero = 0
    qk_rope_head_dim: CountOrZero = 0
    qk_head_dim: CountOrZero = 0
    v_head_dim: CountOrZero = 0
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def attention_flops(self) -> int:
        """c_att, FLOPs of one token per attended position, all ranks: 2 L H_q (d_qk + d_v).

        docs/model.md section 5; PaLM (arXiv 2204.02311, appendix B), forward only. MLA is prefilled as MHA.
        """
        return 2 * self.layers * self.attention_heads * (self.key_dim + self.value_dim)

    @property
    def key_dim(self) -> int:
        """Numbers of one query or key head in prefill."""
        return self.qk_head_dim or self.head_dim

    @property
    def value_dim(self) -> int:
        """Numbers of one value head in prefill."""
        return self.v_head_dim or self.head_dim


_NEEDED = {
    "gqa": ("kv_heads", "head_dim"),
    "mla": ("kv_lora_rank", "qk_rope_head_dim", "qk_head_dim", "v_head_dim"),
}
_DESCENDING = ("total_params", "active_params", "linear_params", "moe_linear_params")


def check_model(spec: ModelSpec, where: str) -> None:
    """Check that the numbers of a model fit each other.

    Raises
    ------
    SpecError
        A dimension is missing for the kind of attention, or numbers contradict each other.
    """
    for name in _NEEDED[spec.attention]:
        if getattr(spec, name) == 0:
            raise SpecError(f"{where}: {name}: missing; accepted: a whole number from 1 (attention '{spec.attention}')")
    if spec.kv_heads and spec.attention_heads % spec.kv_heads:
        limit = f"a divisor of attention_heads {spec.attention_heads}"
        raise SpecError(f"{where}: kv_heads: {spec.kv_heads}; accepted: {limit}")
    for larger, smaller in pairwise(_DESCENDING):
        if getattr(spec, larger) < getattr(spec, smaller):
            limit = f"at most {larger} {getattr(spec, larger)}"
            raise SpecError(f"{where}: {smaller}: {getattr(spec, smaller)}; accepted: {limit}")
    if (spec.kind == "moe") != (spec.moe_linear_params > 0):
        raise SpecError(f"{where}: moe_linear_params: {spec.moe_linear_params}; accepted: 0 if dense, above 0 if moe")


def kv_bytes_per_token(model: ModelSpec, tp: int, kv_dtype: str = "bf16") -> int:
    """Return beta, the KV bytes of one token on one tensor-parallel rank (docs/model.md section 1).

    GQA: L * max(1, H_kv // TP) * (d_k + d_v) * itemsize, KV heads being copied once TP exceeds them.
    MLA: L * (kv_lora_rank + qk_rope_head_dim) * itemsize on every rank.

    Parameters
    ----------
    tp : tensor-parallel size
    kv_dtype : ``"bf16"``, ``"fp16"`` or ``"fp8"``

    Raises
    ------
    SpecError
        `tp` is below 1 or `kv_dtype` is none of these.
    """
    _check_tp(tp)
    itemsize = _bytes_of("kv_dtype", kv_dtype, KV_DTYPE_BYTES)
    return model.layers * _kv_numbers(model, tp) * int(itemsize)


def _kv_numbers(model: ModelSpec, tp: int) -> int:
    """Return the numbers one layer keeps of one token on one rank."""
    if model.attention == "mla":
        return model.kv_lora_rank + model.qk_rope_head_dim
    return max(1, model.kv_heads // tp) * (model.key_dim + model.value_dim)


def weight_bytes_per_rank(model: ModelSpec, tp: int, weight_dtype: str | None = None) -> float:
    """Return the bytes of weights on one tensor-parallel rank.

    Total parameters over TP, plus what ranks copy instead of split: the K and V projections of copied heads
    (GQA), the projection to the latent (MLA). Layers a checkpoint keeps in a wider type are not told apart.

    Parameters
    ----------
    weight_dtype : a key of `WEIGHT_DTYPE_BYTES`; that of the published checkpoint if None

    Raises
    ------
    SpecError
        `tp` is below 1 or `weight_dtype` is unknown.
    """
    _check_tp(tp)
    itemsize = _bytes_of("weight_dtype", weight_dtype or model.weight_dtype, WEIGHT_DTYPE_BYTES)
    projections = model.layers * model.hidden_size
    copied = projections * (_kv_numbers(model, tp) - _kv_numbers(model, 1) / tp)
    return (model.total_params / tp + max(0.0, copied)) * itemsize


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
    return model.kv_heads % tp == 0 or tp % model.kv_heads == 0


def _check_tp(tp: int) -> None:
    if tp < 1:
        raise SpecError(f"tp {tp}: accepted: a whole number from 1")


def _bytes_of(field_name: str, dtype: str, known: Mapping[str, float]) -> float:
    if dtype not in known:
        raise SpecError(f"{field_name} '{dtype}': accepted: {', '.join(known)}")
    return known[dtype]
