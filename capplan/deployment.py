"""Deployment: one model on one GPU type at one tensor-parallel size, and the room it leaves for KV."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from capplan.engines import load_engine
from capplan.errors import SpecError
from capplan.hardware.gpu_spec import GpuSpec
from capplan.models.model_spec import (
    ModelSpec,
    host_copies,
    keeps_windows,
    kv_bytes_per_token,
    tp_divides,
    weight_bytes_per_rank,
)
from capplan.units import GIB, bytes_to_gib, format_number, gib_to_bytes

TP_SIZES = (1, 2, 4, 8)
RESERVE_GIB = 3.0
# Engines, and the tier of each whose KV layout is meant.
HOST_TIERS = {
    "lmcache": "lmcache",
    "vllm": "vllm-offload",
    "sglang": "sglang-hicache",
    "trtllm": "trtllm-host",
    "dynamo": "dynamo-kvbm",
    "mooncake": "mooncake-store",
}
DEFAULT_GPU_MEM_UTIL = 0.9


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """How the size of the GPU's KV tier is set; at most one of the overrides.

    Attributes
    ----------
    gpu_mem_util : float
        Share of GPU memory the engine may use.
    kv_tokens, kv_gib : int, float or None
        KV room of one rank, in tokens or GiB, in place of what memory leaves.
    is_used : bool
        False switches the GPU tier off.
    """

    gpu_mem_util: float = DEFAULT_GPU_MEM_UTIL
    kv_tokens: int | None = None
    kv_gib: float | None = None
    is_used: bool = True

    @property
    def is_given(self) -> bool:
        """Whether the room is given rather than computed."""
        return self.kv_tokens is not None or self.kv_gib is not None


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a prediction needs of hardware and model.

    Attributes
    ----------
    kv_bytes_per_token : int
        `beta`, bytes per token and tensor-parallel rank.
    weight_bytes : float
        Weights on one rank.
    gpu_slots, gpu_block_tokens : int
        Blocks `K_G` of the GPU tier and tokens in each; 0 slots without a tier.
    host_copies : int
        Host copies of the cache in a node: per-rank capacity times this is the node's.
    notes : tuple of str
        What was chosen or assumed, in words.
    """

    gpu: GpuSpec
    model: ModelSpec
    tp: int
    kv_dtype: str
    weight_dtype: str
    kv_bytes_per_token: int
    weight_bytes: float
    gpu_slots: int
    gpu_block_tokens: int
    host_copies: int
    notes: tuple[str, ...]

    @property
    def gpu_kv_tokens(self) -> int:
        """Tokens the GPU tier holds."""
        return self.gpu_slots * self.gpu_block_tokens


def deploy(
    gpu: GpuSpec,
    model: ModelSpec,
    *,
    longest_tokens: int,
    block_tokens: int,
    tp: int | None = None,
    kv_dtype: str = "bf16",
    weight_dtype: str | None = None,
    room: GpuRoom | None = None,
    copies: int | None = None,
    engine: str = "lmcache",
) -> Deployment:
    """Place a model on a GPU type; without `tp`, at the smallest size whose memory has room for every request.

    Parameters
    ----------
    longest_tokens : int
        Prompt and output of the longest request: the GPU tier must hold it.
    block_tokens : int
        Tokens per block of the GPU tier.
    tp : int, optional
        Tensor-parallel size; default the smallest of 1, 2, 4, 8 that divides the heads and has room, the
        largest of them where none has.
    engine : str
        Whose layout of the KV counts: what it keeps of layers with a window or a state.

    Raises
    ------
    SpecError
        The GPU tier has no room for the longest request, or the model cannot be split that way.
    """
    room = GpuRoom() if room is None else room
    weights = weight_dtype or model.weight_dtype
    if engine not in HOST_TIERS:
        raise SpecError(f"engine '{engine}': accepted: {', '.join(HOST_TIERS)}")
    beta = partial(kv_bytes_per_token, model, kv_dtype=kv_dtype, engine=HOST_TIERS[engine])
    needed = -(-longest_tokens // block_tokens)
    if tp is None:
        size, why = _choose_tp(gpu, model, beta, weights, block_tokens, needed, room)
    elif tp_divides(model, tp):
        size, why = tp, ()
    else:
        raise SpecError(
            f"--tp {tp}: {model.name} has {model.attention_heads} attention heads"
            f"{f' and {model.kv_heads} KV heads' if model.kv_heads else ''}; a divisor is accepted"
        )
    slots = count_gpu_slots(gpu, model, size, beta(size), weights, block_tokens, room) if room.is_used else 0
    if room.is_used and slots < needed:
        more = "more of it" if room.is_given else "a larger --tp, another --gpu, --kv-dtype fp8"
        raise SpecError(
            f"{gpu.name} with {model.name} at TP{size}: the longest request needs {longest_tokens:,} tokens of GPU "
            f"KV, there is room for {max(slots, 0) * block_tokens:,}; accepted: {more}, or --no-gpu-tier"
        )
    return Deployment(
        gpu=gpu,
        model=model,
        tp=size,
        kv_dtype=kv_dtype,
        weight_dtype=weights,
        kv_bytes_per_token=beta(size),
        weight_bytes=weight_bytes_per_rank(model, size, weights),
        gpu_slots=slots,
        gpu_block_tokens=block_tokens,
        host_copies=count_host_copies(model, size, engine) if copies is None else copies,
        notes=(
            *why,
            *_describe(gpu, model, size, kv_dtype, weights, room, slots, block_tokens),
            *_caution(model, engine),
        ),
    )


def _choose_tp(
    gpu: GpuSpec,
    model: ModelSpec,
    beta: Callable[[int], int],
    weights: str,
    block_tokens: int,
    needed: int,
    room: GpuRoom,
) -> tuple[int, tuple[str, ...]]:
    """Smallest size at which memory holds weights and the longest request, and why; whatever room is given."""
    memory = GpuRoom(room.gpu_mem_util)
    sizes = [size for size in TP_SIZES if tp_divides(model, size)]
    for size in sizes:
        if count_gpu_slots(gpu, model, size, beta(size), weights, block_tokens, memory) >= needed:
            return size, (f"TP{size} is the smallest size that leaves room for the longest request",)
    return sizes[-1], (f"TP{sizes[-1]} taken: no size up to it leaves room for the longest request",)


def count_gpu_slots(
    gpu: GpuSpec, model: ModelSpec, tp: int, beta: int, weight_dtype: str, block_tokens: int, room: GpuRoom
) -> int:
    """Blocks `K_G` of a rank: (memory x share - weights - reserve) / block bytes, less the engine's null block.

    docs/model.md section 4. Negative where the weights alone do not fit.
    """
    if room.kv_tokens is not None:
        return room.kv_tokens // block_tokens
    block_bytes = block_tokens * beta
    if room.kv_gib is not None:
        return gib_to_bytes(room.kv_gib) // block_bytes
    free = (gpu.hbm_gib * room.gpu_mem_util - RESERVE_GIB) * GIB - weight_bytes_per_rank(model, tp, weight_dtype)
    return int(free // block_bytes) - 1


def _describe(
    gpu: GpuSpec,
    model: ModelSpec,
    tp: int,
    kv_dtype: str,
    weight_dtype: str,
    room: GpuRoom,
    slots: int,
    block_tokens: int,
) -> tuple[str, ...]:
    notes = []
    if tp > gpu.gpus_per_node:
        notes.append(f"TP{tp} exceeds the GPUs of a node ({gpu.gpus_per_node})")
    if not room.is_used:
        notes.append("no GPU tier: every reuse is left to the host tier")
    elif room.is_given:
        notes.append(f"GPU KV room given: {slots * block_tokens:,} tokens per rank")
    else:
        weights_gib = bytes_to_gib(weight_bytes_per_rank(model, tp, weight_dtype))
        notes.append(
            f"GPU KV room {slots * block_tokens:,} tokens per rank = {format_number(gpu.hbm_gib)} GiB x "
            f"{room.gpu_mem_util:g} - {format_number(weights_gib)} GiB {weight_dtype} weights - "
            f"{RESERVE_GIB:g} GiB reserve, {kv_dtype} KV"
        )
    if block_tokens > 16:
        notes.append(f"GPU tier in blocks of {block_tokens} tokens, the trace's resolution (engines use 16)")
    return tuple(notes)


def count_host_copies(model: ModelSpec, tp: int, engine: str) -> int:
    """Copies of the KV a node's host tier holds: one per rank, or one where an engine stores a latent once."""
    if model.attention == "mla" and load_engine(HOST_TIERS[engine]).mla == "per-rank":
        return tp
    return host_copies(model, tp)


def _caution(model: ModelSpec, engine: str) -> tuple[str, ...]:
    """What is not certain of the model's KV."""
    notes = [f"approximate: {model.approximation}"] if model.approximation else []
    if model.has_windows and keeps_windows(HOST_TIERS[engine]):
        notes = ["approximate: layers with a window are kept for their window only and left out of the bytes per token"]
    if model.unconfirmed:
        notes.append(f"unconfirmed: the figures of {model.title} are not checked against its published config")
    return tuple(notes)
