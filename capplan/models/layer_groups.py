"""Layers of a hybrid model by what they keep of a sequence, and the bytes of it.

A group is a number of equal layers: full attention keeps the KV of every token; sliding and chunked attention
look back a window; linear attention and Mamba2 keep one state per sequence, whatever its length, which an
engine can reuse only where it stored a copy (a boundary). Layers with neither, plain MLPs, stand in no group.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from capplan.errors import SpecError

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]

KV_DTYPES = ("bf16", "fp16", "fp8", "nvfp4", "fp8_ds_mla")
CONV_ITEMSIZE = 2
_ITEMSIZE = {"bf16": 2, "fp16": 2, "fp8": 1}
_WINDOWED = ("sliding", "chunked")
_STATEFUL = ("linear", "mamba")


class LayerGroup(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Equal layers of a hybrid model; heads that are 0 are those of the model.

    The last `shared_layers` of them reuse the KV of another layer. Windowed groups need `window_tokens`.
    Stateful groups need the `state_` fields: linear attention has value heads of `state_head_dim`, and
    `state_groups` key heads of `state_size`; Mamba2 heads, and groups of B and C of `state_size` each.
    """

    kind: Literal["full", "sliding", "chunked", "linear", "mamba"]
    layers: Count
    shared_layers: CountOrZero = 0
    kv_heads: CountOrZero = 0
    head_dim: CountOrZero = 0
    v_head_dim: CountOrZero = 0
    window_tokens: CountOrZero = 0
    state_heads: CountOrZero = 0
    state_head_dim: CountOrZero = 0
    state_size: CountOrZero = 0
    state_groups: CountOrZero = 0
    conv_kernel: CountOrZero = 0
    state_itemsize: Literal[2, 4] = 4

    @property
    def is_windowed(self) -> bool:
        """Whether its layers look back a window only."""
        return self.kind in _WINDOWED

    @property
    def has_state(self) -> bool:
        """Whether its layers keep a state instead of KV."""
        return self.kind in _STATEFUL

    @property
    def attended_tokens(self) -> int:
        """Positions a token far from the start attends to, on average; 0 without a limit.

        A chunk of local attention is half full on average.
        """
        return self.window_tokens // 2 if self.kind == "chunked" else self.window_tokens

    def state_bytes(self, tp: int) -> int:
        """Bytes of the states of one boundary on one rank: the inputs of the convolution, and the recurrence."""
        heads, groups = -(-self.state_heads // tp), -(-self.state_groups // tp)
        channels = heads * self.state_head_dim + 2 * groups * self.state_size
        recurrent = heads * self.state_head_dim * self.state_size * self.state_itemsize
        return self.layers * ((self.conv_kernel - 1) * channels * CONV_ITEMSIZE + recurrent)


def head_bytes(numbers: int, kv_dtype: str) -> int:
    """Bytes of one key or value head of so many numbers; NVFP4 has one scale byte per 16 numbers."""
    if kv_dtype == "nvfp4":
        return numbers // 2 + numbers // 16
    return numbers * _ITEMSIZE[kv_dtype]


def heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads on one rank: split, and copied once there are more ranks than heads."""
    return max(1, kv_heads // tp)


_NEEDED = {
    "full": (),
    "sliding": ("window_tokens",),
    "chunked": ("window_tokens",),
    "linear": ("state_heads", "state_head_dim", "state_size", "state_groups", "conv_kernel"),
    "mamba": ("state_heads", "state_head_dim", "state_size", "state_groups", "conv_kernel"),
}
_ALWAYS = ("kind", "layers")
_ATTENTION = ("shared_layers", "kv_heads", "head_dim", "v_head_dim")


def check_group(group: LayerGroup, where: str) -> None:
    """Check that a group has the fields of its kind, and no others.

    Raises
    ------
    SpecError
        A field is missing, is meant for another kind, or contradicts another.
    """
    needed = _NEEDED[group.kind]
    for name in needed:
        if not getattr(group, name):
            raise SpecError(f"{where}: {name}: missing; accepted: a whole number from 1 (kind '{group.kind}')")
    known = {*_ALWAYS, *needed, *(("state_itemsize",) if group.has_state else _ATTENTION)}
    for name in group.__struct_fields__:
        if name not in known and name != "state_itemsize" and getattr(group, name):
            raise SpecError(f"{where}: {name}: {getattr(group, name)}; accepted: none (kind '{group.kind}')")
    if group.shared_layers > group.layers:
        raise SpecError(f"{where}: shared_layers: {group.shared_layers}; accepted: at most layers {group.layers}")
