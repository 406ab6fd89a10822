"""What is known of one model: dimensions, parameters, and what its attention computes.

What is modelled: decoders whose layers keep the KV of every token, as grouped-query attention (GQA, which
covers MHA and MQA) or as the latent of multi-head latent attention (MLA), with the index of sparse attention
beside it; and hybrids, whose layers come in groups (`capplan.models.layer_groups`).
What is not: caches that do not grow token by token, draft layers. Bytes are those of `capplan.models.model_spec`.
"""

from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from capplan.errors import SpecError
from capplan.models.layer_groups import Count, CountOrZero, LayerGroup, check_group

Text = Annotated[str, Meta(min_length=1)]
WeightDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "int4-g32", "mxfp4", "nvfp4"]


class ModelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model: dimensions and parameters.

    `active_params` are those one token uses, embedding and lm_head included; `linear_params` (N_lin) those
    outside embedding and lm_head; `moe_linear_params` the part of N_lin in routed and shared experts.
    GQA needs `kv_heads` and `head_dim`; MLA `kv_lora_rank`, `qk_rope_head_dim`, `qk_head_dim`, `v_head_dim`;
    a dimension the attention does not have is 0. `groups` are the layers of a hybrid; without them every
    layer is full attention. The `index_` fields are those of sparse attention over an MLA cache.
    `weight_dtype` is that of the published checkpoint, `nonexpert_weight_dtype` that outside its experts
    where it differs, `kv_dtype` the type of KV the checkpoint asks for. `unconfirmed` dimensions were not
    seen in the published config. `sources` says for each group of numbers where it comes from.
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
    weight_dtype: WeightDtype
    nonexpert_weight_dtype: WeightDtype | None = None
    kv_dtype: Literal["bf16", "fp16", "fp8", "nvfp4", "fp8_ds_mla"] | None = None
    kv_heads: CountOrZero = 0
    head_dim: CountOrZero = 0
    kv_lora_rank: CountOrZero = 0
    qk_rope_head_dim: CountOrZero = 0
    qk_head_dim: CountOrZero = 0
    v_head_dim: CountOrZero = 0
    groups: tuple[LayerGroup, ...] = ()
    index_layers: CountOrZero = 0
    index_heads: CountOrZero = 0
    index_head_dim: CountOrZero = 0
    index_topk: CountOrZero = 0
    unconfirmed: bool = False
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The layers that keep something, by what they keep."""
        return self.groups or (LayerGroup(kind="full", layers=self.layers),)

    @property
    def attention_flops(self) -> int:
        """c_att, FLOPs of one token per attended position, all ranks: the sum of 2 L H_q (d_qk + d_v).

        docs/model.md section 5; PaLM (arXiv 2204.02311, appendix B), forward only. MLA is prefilled as MHA,
        or over the latent where an index selects; the index itself is counted. Layers that keep a state are not.
        `attention_windows` says which part of it stops growing.
        """
        return sum(flops for flops, _ in self._attention_parts())

    @property
    def full_attention_flops(self) -> int:
        """The part of `attention_flops` in layers that attend to every position."""
        return sum(flops for flops, window in self._attention_parts() if not window)

    @property
    def attention_windows(self) -> tuple[tuple[float, int], ...]:
        """Shares of `attention_flops` that attend to no more than so many positions; empty for full attention.

        Where all heads are alike, a share of the FLOPs is that share of the attention layers.
        """
        total = self.attention_flops
        return tuple((flops / total, window) for flops, window in self._attention_parts() if window)

    @property
    def key_dim(self) -> int:
        """Numbers of one query or key head in prefill."""
        return self.qk_head_dim or self.head_dim

    @property
    def value_dim(self) -> int:
        """Numbers of one value head in prefill."""
        return self.v_head_dim or self.head_dim

    @property
    def has_windows(self) -> bool:
        """Whether layers look back a window only."""
        return any(group.is_windowed for group in self.groups)

    @property
    def has_state(self) -> bool:
        """Whether layers keep a state instead of KV."""
        return any(group.has_state for group in self.groups)

    @property
    def approximation(self) -> str | None:
        """What a plan for this model does not get right, in one sentence; None where nothing."""
        mixing = sum(group.layers for group in self.groups)
        if self.has_state:
            stateful = [group for group in self.groups if group.has_state]
            return (
                f"{self.title}: {sum(group.layers for group in stateful)} of {mixing} layers keep a state instead of "
                "KV, and a prefix is reused only where a state was stored at its exact end; hits token by token are "
                f"an upper bound, and states ({sum(group.state_bytes(1) for group in stateful):,} B per stored "
                "boundary, all ranks) come on top of the KV"
            )
        if self.has_windows:
            windowed = [group for group in self.groups if group.is_windowed]
            spans = " or ".join(f"{tokens:,}" for tokens in dict.fromkeys(group.window_tokens for group in windowed))
            return (
                f"{self.title}: {sum(group.layers for group in windowed)} of {mixing} attention layers look back "
                f"{spans} tokens only; KV counts them for every token, as LMCache stores them, and an engine that "
                "drops what lies before the window needs less"
            )
        return None

    def heads_of(self, group: LayerGroup) -> tuple[int, int, int]:
        """KV heads of a group's layers, and numbers of a key and of a value head."""
        own_dim = group.head_dim
        value_dim = group.v_head_dim or own_dim or self.value_dim
        return group.kv_heads or self.kv_heads, own_dim or self.key_dim, value_dim

    def _attention_parts(self) -> list[tuple[int, int]]:
        """FLOPs per attended position, and the positions they stop at (0: they do not)."""
        per_head = 2 * self.attention_heads
        if self.index_layers:
            index = 2 * self.index_layers * self.index_heads * self.index_head_dim
            over_latent = 2 * self.kv_lora_rank + self.qk_rope_head_dim
            return [(per_head * self.layers * over_latent, self.index_topk), (index, 0)]
        attending = [group for group in self.layer_groups if not group.has_state]
        return [(per_head * g.layers * sum(self.heads_of(g)[1:]), g.attended_tokens) for g in attending]


_NEEDED = {
    "gqa": ("kv_heads", "head_dim"),
    "mla": ("kv_lora_rank", "qk_rope_head_dim", "qk_head_dim", "v_head_dim"),
}
_INDEX = ("index_layers", "index_heads", "index_head_dim", "index_topk")
_DESCENDING = ("total_params", "active_params", "linear_params", "moe_linear_params")


def check_model(spec: ModelSpec, where: str) -> None:
    """Check that the numbers of a model fit each other.

    Raises
    ------
    SpecError
        A dimension is missing for the kind of attention, or numbers contradict each other.
    """
    for name in (*_NEEDED[spec.attention], *(_INDEX if spec.index_layers else ())):
        if getattr(spec, name) == 0:
            raise SpecError(f"{where}: {name}: missing; accepted: a whole number from 1 (attention '{spec.attention}')")
    for larger, smaller in pairwise(_DESCENDING):
        if getattr(spec, larger) < getattr(spec, smaller):
            limit = f"at most {larger} {getattr(spec, larger)}"
            raise SpecError(f"{where}: {smaller}: {getattr(spec, smaller)}; accepted: {limit}")
    if (spec.kind == "moe") != (spec.moe_linear_params > 0):
        raise SpecError(f"{where}: moe_linear_params: {spec.moe_linear_params}; accepted: 0 if dense, above 0 if moe")
    if spec.attention != "mla" and spec.index_layers:
        raise SpecError(f"{where}: index_layers: {spec.index_layers}; accepted: 0 (attention '{spec.attention}')")
    _check_layers(spec, where)


def _check_layers(spec: ModelSpec, where: str) -> None:
    if spec.groups and spec.attention != "gqa":
        raise SpecError(f"{where}: groups: given; accepted: none (attention '{spec.attention}')")
    for k, group in enumerate(spec.groups):
        check_group(group, f"{where}: groups[{k}]")
    limit = f"at most layers {spec.layers}"
    for name, given in (("groups", sum(g.layers for g in spec.groups)), ("index_layers", spec.index_layers)):
        if given > spec.layers:
            raise SpecError(f"{where}: {name}: {given} layers; accepted: {limit}")
    if spec.attention == "gqa":
        for group in spec.layer_groups:
            if not group.has_state and spec.attention_heads % spec.heads_of(group)[0]:
                accepted = f"a divisor of attention_heads {spec.attention_heads}"
                raise SpecError(f"{where}: kv_heads: {spec.heads_of(group)[0]}; accepted: {accepted}")
