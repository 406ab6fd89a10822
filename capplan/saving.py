"""Prefill time that a host tier saves, exact at every capacity for any cost of a suffix.

The time saved by coverage `c` over GPU-served `g` is ``T(g) - T(c)``, T(x) the time to compute tokens
x .. n. Over chunk boundaries it is a sum, each term at its chunk's stack position (docs/model.md
section 4), so one pass gives every capacity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.costs import PrefillCost, Triple
from capplan.costs.prefill import PrefillModel
from capplan.kernels import timing
from capplan.runs import Distance, Runs, Touch

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SuffixTimes:
    """T(x) of every request of a stream, in the form kernels read.

    Attributes
    ----------
    suffix_s : (longest + 1,) float64
        Seconds that depend on the suffix length alone.
    attention_s : (n, kinds) float64
        Seconds per attended position, by request and kind of layer.
    windows : (kinds,) float64
        Positions a kind of layer attends to at most; 0 is no limit.
    """

    suffix_s: Float64s
    attention_s: Float64s
    windows: Float64s

    def scaled(self, factor: float) -> "SuffixTimes":
        """All times multiplied by `factor`."""
        return SuffixTimes(factor * self.suffix_s, factor * self.attention_s, self.windows)

    def seconds_from(self, begin: Int64s, n_input: Int64s) -> Float64s:
        """T(begin) of every request, (n,)."""
        return timing.time_requests(begin, n_input, self.suffix_s, self.attention_s, self.windows)


def tabulate_times(model: PrefillModel, n_input: Int64s, scale: float = 1.0) -> SuffixTimes:
    """Tables of a prefill model for the prompts of a stream, all times multiplied by `scale`."""
    suffix = np.arange(int(n_input.max(initial=0)) + 1, dtype=np.float64)
    rows = np.log2(np.maximum(suffix, 1))
    seconds = model.dense_s * suffix / np.interp(rows, *model.dense) + model.moe_s * suffix / np.interp(
        rows, *model.moe
    )
    seconds += model.allreduce_s * suffix + model.launch_s
    seconds[0] = 0.0
    share, windows = np.ascontiguousarray(model.windows.T)
    context = np.where(windows == 0, n_input[:, None], np.minimum(n_input[:, None], windows))
    reached = np.interp(np.log2(np.maximum(context, 1)), *model.attention)
    attention = model.attention_s * share / reached
    return SuffixTimes(scale * seconds, np.ascontiguousarray(scale * attention), windows)


def linear_times(seconds_per_token: float, n_input: Int64s) -> SuffixTimes:
    """Tables of a prefill that costs the same for every token."""
    suffix = seconds_per_token * np.arange(int(n_input.max(initial=0)) + 1, dtype=np.float64)
    return SuffixTimes(suffix, np.zeros((n_input.size, 1)), np.zeros(1))


def sum_saved_seconds(
    runs: Runs,
    n_input: Int64s,
    gpu_tokens: Int64s,
    times: SuffixTimes,
    touch: Touch = "leaf-first",
    distance: Distance = "lookup",
    first_request: int = 0,
) -> Float64s:
    """Seconds of prefill saved at `K` = 0 .. D host slots, (D + 1,), in stream order."""
    return sum_saved_ends(runs, n_input, gpu_tokens, [times], touch, distance, first_request)[0]


def sum_saved_ends(
    runs: Runs,
    n_input: Int64s,
    gpu_tokens: Int64s,
    tables: Sequence[SuffixTimes],
    touch: Touch = "leaf-first",
    distance: Distance = "lookup",
    first_request: int = 0,
) -> list[Float64s]:
    """`sum_saved_seconds` of several tables of one model's windows, in one pass."""
    base, slope = runs.positions(touch, distance)
    saved = np.zeros((runs.n_distinct + 1, len(tables)), np.float64)
    timing.spread_seconds(
        runs.offsets, runs.start, runs.length, base, slope, runs.chunk_tokens, n_input, gpu_tokens,
        np.stack([table.suffix_s for table in tables], axis=1),
        np.stack([table.attention_s for table in tables], axis=2),
        tables[0].windows, first_request, saved,
    )  # fmt: skip
    below = np.zeros_like(saved)
    np.cumsum(saved[:-1], axis=0, out=below[1:])
    return [np.ascontiguousarray(column) for column in below.T]


@dataclass(frozen=True, slots=True)
class Savings:
    """Prefill time at the low, typical and high end of what is plausible.

    Attributes
    ----------
    saved_s : three of (D + 1,) float64
        Seconds a host tier of `K` = 0 .. D slots saves.
    without_s : Triple
        Seconds of prefill without a host tier.
    mean_s_per_token : Triple
        Mean time of the tokens an unlimited host tier restores; of all computed ones where it
        restores none.
    ends : three of SuffixTimes
        T(x) of every request at each end.
    """

    saved_s: tuple[Float64s, Float64s, Float64s]
    without_s: Triple
    mean_s_per_token: Triple
    ends: tuple[SuffixTimes, SuffixTimes, SuffixTimes]

    @property
    def times(self) -> SuffixTimes:
        """T(x) of every request, typical."""
        return self.ends[1]

    def seconds_saved(self, gpu_tokens: Int64s, known_tokens: Int64s, n_input: Int64s, first_request: int) -> Triple:
        """Prefill time saved where prompts are known up to `known_tokens` rather than `gpu_tokens`; (n,) each."""
        counted = slice(first_request, None)
        low, typical, high = (
            float((times.seconds_from(gpu_tokens, n_input) - times.seconds_from(known_tokens, n_input))[counted].sum())
            for times in self.ends
        )
        return Triple(min(low, typical), typical, max(high, typical))


def measure_savings(
    runs: Runs,
    n_input: Int64s,
    gpu_tokens: Int64s,
    cost: PrefillCost,
    restorable_tokens: int,
    touch: Touch = "leaf-first",
    distance: Distance = "lookup",
    first_request: int = 0,
) -> Savings:
    """Prefill time saved at every host capacity, at the three ends of a prefill cost.

    Parameters
    ----------
    runs : Runs
        Host runs of the prompts, in stream order.
    n_input, gpu_tokens : (n,) int64
        Prompt and GPU-served tokens in stream order.
    cost : PrefillCost
    restorable_tokens : int
        Tokens an unlimited host tier restores.
    """
    counted = slice(first_request, None)
    computed = int((n_input - gpu_tokens)[counted].sum())

    if cost.models is None:
        tables = [linear_times(cost.known_s_per_token or 0.0, n_input)]
    elif cost.origin == "measured":
        tables = [tabulate_times(cost.models[1], n_input, cost.scale_at())]
    else:
        tables = [tabulate_times(model, n_input) for model in cost.models]
    saved_ends = sum_saved_ends(runs, n_input, gpu_tokens, tables, touch, distance, first_request)
    ends = [
        (saved, float(times.seconds_from(gpu_tokens, n_input)[counted].sum()))
        for saved, times in zip(saved_ends, tables, strict=True)
    ]
    if len(ends) == 1:
        ends, tables = ends * 3, tables * 3
    means = [
        saved[-1] / restorable_tokens if restorable_tokens else without / max(1, computed) for saved, without in ends
    ]
    factors = [*cost.band]
    if cost.models is not None and cost.known_s_per_token is not None and cost.known_position is None and means[1]:
        factors = [factor * cost.known_s_per_token / means[1] for factor in factors]
    low, typical, high = (
        saved if factor == 1 else factor * saved for (saved, _), factor in zip(ends, factors, strict=True)
    )
    return Savings(
        saved_s=(np.minimum(low, typical), typical, np.maximum(high, typical)),
        without_s=Triple(*(factor * without for (_, without), factor in zip(ends, factors, strict=True))),
        mean_s_per_token=_ordered(*(factor * mean for mean, factor in zip(means, factors, strict=True))),
        ends=(tables[0].scaled(factors[0]), tables[1].scaled(factors[1]), tables[2].scaled(factors[2])),
    )


def _ordered(low: float, typical: float, high: float) -> Triple:
    """Ends that do not cross: T is ordered, and differences of T over a short stretch need not be."""
    return Triple(min(low, typical), typical, max(high, typical))
