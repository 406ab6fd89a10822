"""Prefill: seconds to compute a stretch of a prompt whose beginning is in GPU memory.

What is modelled (docs/model.md section 5): FLOPs of plain products, expert products and attention, each at the
share of the peak its kernels sustain at that size; two all-reduces a layer under tensor parallelism; what an
engine loses between kernels. T(x) = `seconds` from x to the prompt's end; the time a restore saves is the
difference of two T, and differences over chunk boundaries add up to it whatever the tables say.
What is not: other requests in the same step, which raise the rows of a product and so the share it reaches;
the embedding and the lm_head; all-reduces hidden behind compute; the index of sparse attention apart.
Where a GPU has no table for a kind of work, its whole-model range stands in, and the record says so.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capplan.costs.prefill_curve import BEST, TYPICAL, WORST, Curve, Curves, find_curves
from capplan.errors import SpecError
from capplan.hardware.gpu_spec import GpuSpec, Rate
from capplan.models.model_record import ModelSpec
from capplan.units import GB

Float64s = NDArray[np.float64]
Windows = tuple[tuple[float, float], ...]
KernelArguments = tuple[Float64s, Float64s, Float64s, Float64s, Float64s, Float64s, Float64s, Float64s]

ALL_REDUCES_PER_LAYER = 2
ACTIVATION_BYTES = 2
# By end: the fastest link goes with the least time.
_LINK_ENDS = ("high", "typical", "low")


@dataclass(frozen=True, slots=True, eq=False)
class PrefillModel:
    """Prefill time of one model on one tensor-parallel group, at one end of what is plausible.

    Attributes
    ----------
    dense_s, moe_s : float
        Seconds per token of plain and of expert products if every GPU reached its peak.
    attention_s : float
        Seconds per token and attended position, likewise.
    allreduce_s : float
        Seconds of all-reduce per token.
    launch_s : float
        Seconds any prefill takes once.
    dense, moe, attention : Curve
        Shares of the peak, by rows of the suffix (attention: by attended context).
    windows : (k, 2) float64
        Share of the attention, and the positions it looks back at most (0: all).
    estimated : bool
        Whether a share is not a measured operator table of this GPU.
    notes : tuple of str
        Where the shares come from, in words.
    """

    dense_s: float
    moe_s: float
    attention_s: float
    allreduce_s: float
    launch_s: float
    dense: Curve
    moe: Curve
    attention: Curve
    windows: Float64s
    estimated: bool
    notes: tuple[str, ...]

    def kernel_arguments(self) -> KernelArguments:
        """Leading arguments of the functions of `capplan.kernels.prefill`."""
        costs = np.array([self.dense_s, self.moe_s, self.attention_s, self.allreduce_s, self.launch_s])
        return costs, *self.dense, *self.moe, *self.attention, self.windows


class PrefillRange(NamedTuple):
    """The least, the likely and the most time that is plausible."""

    low: PrefillModel
    typical: PrefillModel
    high: PrefillModel


def build_prefill(
    gpu: GpuSpec,
    model: ModelSpec,
    tp: int,
    weight_dtype: str | None = None,
    windows: Windows | None = None,
    launch_s: float = 0.0,
) -> PrefillRange:
    """Return the prefill time of a model on `tp` GPUs: optimistic, typical and pessimistic.

    Parameters
    ----------
    weight_dtype : type of the weights; that of the published checkpoint if None
    windows : shares of the attention FLOPs and the positions these look back at most; the model's own if None
    launch_s : seconds any prefill takes once (docs/model.md section 5); public operator tables include it

    Raises
    ------
    SpecError
        `tp` is below 1, or the windows' shares are not shares.
    """
    if tp < 1:
        raise SpecError(f"tp {tp}: accepted: a whole number from 1")
    limits = _complete(model.attention_windows if windows is None else windows)
    dtype = gpu.compute_dtype(weight_dtype or model.weight_dtype)
    curves = find_curves(gpu, model.kind, tp, dtype)
    ends = (_build(gpu, model, tp, dtype, curves, end, limits, launch_s) for end in (BEST, TYPICAL, WORST))
    return PrefillRange(*ends)


def _complete(windows: Windows) -> Float64s:
    """Windows and, first, the share without one; window 0 means none."""
    limited = sum(share for share, _ in windows)
    if not (all(share >= 0 and tokens >= 1 for share, tokens in windows) and limited <= 1 + 1e-9):
        raise SpecError(f"windows {windows}: accepted: (share, tokens) pairs, tokens from 1, shares 1 at most in all")
    full = [(max(0.0, 1 - limited), 0.0)] if limited < 1 - 1e-9 else []
    return np.array([*full, *windows], np.float64).reshape(-1, 2)


def _build(
    gpu: GpuSpec,
    model: ModelSpec,
    tp: int,
    dtype: str,
    curves: Curves,
    end: int,
    windows: Float64s,
    launch_s: float,
) -> PrefillModel:
    of_products = tp * gpu.peak_flops(dtype)
    link = getattr(_allreduce_rate(gpu), _LINK_ENDS[end]) * GB
    return PrefillModel(
        dense_s=2 * (model.linear_params - model.moe_linear_params) / of_products,
        moe_s=2 * model.moe_linear_params / of_products,
        attention_s=model.attention_flops / (tp * gpu.peak_flops("bf16")),
        allreduce_s=0.0 if curves.holds_allreduce else allreduce_bytes_per_token(model, tp) / link,
        launch_s=launch_s,
        dense=curves.dense[end],
        moe=curves.moe[end],
        attention=curves.attention[end],
        windows=windows,
        estimated=curves.estimated,
        notes=curves.notes if tp == 1 or curves.holds_allreduce else (*curves.notes, _describe_allreduce(gpu)),
    )


def _allreduce_rate(gpu: GpuSpec) -> Rate:
    """Rate of all-reduces, GB/s; that of the host link where a profile has none."""
    return gpu.allreduce_gb_per_s or gpu.h2d_gb_per_s


def _describe_allreduce(gpu: GpuSpec) -> str:
    rate = _allreduce_rate(gpu)
    basis = rate.basis if gpu.allreduce_gb_per_s else "no rate known, that of the host link"
    return f"all-reduces at {rate.low:g} / {rate.typical:g} / {rate.high:g} GB/s: {basis}"


def allreduce_bytes_per_token(model: ModelSpec, tp: int) -> float:
    """Return the bytes one rank sends per token: two all-reduces of the hidden state a layer, as a ring.

    2 L h 2 B * 2 (TP - 1) / TP (docs/model.md section 5).
    """
    return ALL_REDUCES_PER_LAYER * model.layers * model.hidden_size * ACTIVATION_BYTES * 2 * (tp - 1) / tp


def seconds(model: PrefillModel, begin: ArrayLike, end: ArrayLike) -> Float64s:
    """Return the seconds to compute tokens `begin` .. `end` of a prompt; 0 where there are none.

    Parameters
    ----------
    begin, end : array_like
        Tokens in GPU memory before, and the prompt's tokens after; broadcast against each other.
    """
    first, last = np.asarray(begin, np.float64), np.asarray(end, np.float64)
    n = last - first
    rows = np.log2(np.maximum(n, 1))
    total = model.dense_s * n / np.interp(rows, *model.dense) + model.moe_s * n / np.interp(rows, *model.moe)
    for share, window in model.windows:
        context = last if window == 0 else np.minimum(last, window)
        reached = np.interp(np.log2(np.maximum(context, 1)), *model.attention)
        total = total + model.attention_s * share * _attended(first, last, window) / reached
    total = total + model.allreduce_s * n + model.launch_s
    return np.where(n > 0, total, 0.0)


def _attended(begin: Float64s, end: Float64s, window: float) -> Float64s:
    """Sum of the positions that tokens `begin` .. `end` attend to, up to `window` each (0: no limit)."""
    if window == 0:
        return (end - begin) * (end + begin) / 2
    inside_begin, inside_end = np.minimum(begin, window), np.minimum(end, window)
    growing = (inside_end - inside_begin) * (inside_end + inside_begin) / 2
    return np.asarray(growing + (end - begin - (inside_end - inside_begin)) * window, np.float64)
