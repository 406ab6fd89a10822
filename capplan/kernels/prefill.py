"""Prefill time for kernels: the same arithmetic as `capplan.costs.prefill.seconds`, a value or an array at a time."""

import math

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Float64s = NDArray[np.float64]


@kernel
def interpolate(x: float, at: Float64s, share: Float64s) -> float:
    """Value at `x` of the line through ascending points, constant beyond the ends."""
    if x <= at[0]:
        return float(share[0])
    for k in range(1, at.size):
        if x <= at[k]:
            slope = (share[k] - share[k - 1]) / (at[k] - at[k - 1])
            return float(share[k - 1] + slope * (x - at[k - 1]))
    return float(share[at.size - 1])


@kernel
def attend(begin: float, end: float, window: float) -> float:
    """Sum of positions attended by tokens `begin` .. `end`, none of them beyond the last `window` (0: no limit)."""
    if window == 0 or end <= window:
        return (end - begin) * (end + begin) / 2
    if begin >= window:
        return (end - begin) * window
    return (window - begin) * (window + begin) / 2 + (end - window) * window


@kernel
def compute_seconds(
    costs: Float64s,
    dense_at: Float64s,
    dense_share: Float64s,
    moe_at: Float64s,
    moe_share: Float64s,
    attention_at: Float64s,
    attention_share: Float64s,
    windows: Float64s,
    begin: float,
    end: float,
) -> float:
    """Seconds to compute tokens `begin` .. `end` of a prompt (docs/model.md section 5); 0 if there are none.

    Parameters
    ----------
    costs : (5,) float64
        Seconds at the full peak per token of dense and of expert products and per attended position,
        seconds of all-reduce per token, seconds once.
    ..._at, ..._share : float64
        Logarithms (base 2) of sizes in tokens, and shares of the peak there.
    windows : (k, 2) float64
        Share of the attention, and the positions it looks back at most (0: all).
    """
    n = end - begin
    if n <= 0:
        return 0.0
    rows = math.log2(max(n, 1.0))
    total = costs[0] * n / interpolate(rows, dense_at, dense_share)
    total += costs[1] * n / interpolate(rows, moe_at, moe_share)
    for k in range(windows.shape[0]):
        window = windows[k, 1]
        context = end if window == 0 else min(end, window)
        reached = interpolate(math.log2(max(context, 1.0)), attention_at, attention_share)
        total += costs[2] * windows[k, 0] * attend(begin, end, window) / reached
    return float(total + costs[3] * n + costs[4])


@kernel
def compute_each(
    costs: Float64s,
    dense_at: Float64s,
    dense_share: Float64s,
    moe_at: Float64s,
    moe_share: Float64s,
    attention_at: Float64s,
    attention_share: Float64s,
    windows: Float64s,
    begin: Float64s,
    end: Float64s,
) -> Float64s:
    """`compute_seconds` of each pair of `begin` and `end`, (n,)."""
    found = np.empty(begin.size, np.float64)
    for k in range(begin.size):
        found[k] = compute_seconds(
            costs,
            dense_at,
            dense_share,
            moe_at,
            moe_share,
            attention_at,
            attention_share,
            windows,
            begin[k],
            end[k],
        )
    return found
