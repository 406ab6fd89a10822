"""Footprint: the bytes of a model's KV per token, block, chunk and context, on a rank and in a node.

A node holds one rank's bytes per rank in GPU memory, and per host copy in host memory. For hybrids there are two
layouts: every attention layer for every token, and no more than the last window of windowed layers. States are
counted once per chunk and once per context: a chunk that can be resumed from ends with a stored state.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capplan.errors import SpecError
from capplan.models.model_spec import (
    ModelSpec,
    context_bytes,
    host_copies,
    kv_bytes_per_token,
    list_kv_dtypes,
    state_bytes_per_boundary,
    tp_divides,
)

TP_SIZES = (1, 2, 4, 8)
BLOCK_TOKENS = 16
CONTEXT_TOKENS = 100_000
ALL_LAYERS, LAST_WINDOWS = "all layers", "last windows"
_ENGINES = {ALL_LAYERS: "lmcache", LAST_WINDOWS: "vllm"}


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on one rank of one model at one tensor-parallel size, in one type and layout.

    Attributes
    ----------
    layout : str
        What is kept of windowed layers: all layers, or last windows.
    token_bytes, block_bytes, chunk_bytes : int
        KV of a token, of a GPU block and of a host chunk; a chunk includes the state at its end.
    context_bytes : int
        Bytes from which a context can be resumed.
    state_bytes : int
        States at one boundary.
    host_copies : int
        Ranks whose bytes a node's host memory holds.
    """

    model: ModelSpec
    layout: str
    kv_dtype: str
    tp: int
    token_bytes: int
    block_bytes: int
    chunk_bytes: int
    context_bytes: int
    state_bytes: int
    host_copies: int

    @property
    def gpu_context_bytes(self) -> int:
        """Bytes of a context in the GPU memory of all ranks."""
        return self.context_bytes * self.tp

    @property
    def host_context_bytes(self) -> int:
        """Bytes of a context in a node's host memory."""
        return self.context_bytes * self.host_copies

    @property
    def host_chunk_bytes(self) -> int:
        """Bytes of a chunk in a node's host memory."""
        return self.chunk_bytes * self.host_copies


def choose_tps(model: ModelSpec, tp: int | None = None) -> tuple[int, ...]:
    """Return the tensor-parallel sizes to show: the given one, or those of 1, 2, 4, 8 that divide the model.

    Raises
    ------
    SpecError
        The model cannot be split over `tp` ranks.
    """
    if tp is None:
        return tuple(size for size in TP_SIZES if tp_divides(model, size))
    if not tp_divides(model, tp):
        kv_heads = f" and {model.kv_heads} KV heads" if model.kv_heads else ""
        heads = f"{model.attention_heads} attention heads{kv_heads}"
        raise SpecError(f"--tp {tp}: {model.title} has {heads}; a divisor is accepted")
    return (tp,)


def list_layouts(model: ModelSpec) -> tuple[str, ...]:
    """Return what engines may keep of a model's windowed layers; one layout for models without them."""
    return (ALL_LAYERS, LAST_WINDOWS) if model.has_windows else (ALL_LAYERS,)


def measure_footprints(
    model: ModelSpec,
    tps: Iterable[int],
    kv_dtypes: Sequence[str] = (),
    chunk_tokens: int = 1024,
    context_tokens: int = CONTEXT_TOKENS,
) -> list[Footprint]:
    """Return the footprints of a model, by layout, type and tensor-parallel size.

    Parameters
    ----------
    kv_dtypes : types of KV; all the model can be kept in where none is given

    Raises
    ------
    SpecError
        A size or type is not possible for the model.
    """
    sizes = tuple(tps)
    return [
        _measure(model, layout, dtype, tp, chunk_tokens, context_tokens)
        for layout in list_layouts(model)
        for dtype in kv_dtypes or list_kv_dtypes(model)
        for tp in sizes
    ]


def _measure(
    model: ModelSpec, layout: str, kv_dtype: str, tp: int, chunk_tokens: int, context_tokens: int
) -> Footprint:
    engine = _ENGINES[layout]
    token_bytes = kv_bytes_per_token(model, tp, kv_dtype, engine)
    state_bytes = state_bytes_per_boundary(model, tp)
    return Footprint(
        model=model,
        layout=layout,
        kv_dtype=kv_dtype,
        tp=tp,
        token_bytes=token_bytes,
        block_bytes=BLOCK_TOKENS * token_bytes,
        chunk_bytes=chunk_tokens * token_bytes + state_bytes,
        context_bytes=context_bytes(model, context_tokens, tp, kv_dtype, engine),
        state_bytes=state_bytes,
        host_copies=host_copies(model, tp),
    )
