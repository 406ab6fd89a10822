"""Spread prefill time over capacities: a chunk's time is a difference of T at its two ends.

T(x), the time to compute tokens x .. n of a prompt of n tokens, has a part that depends on the suffix
``n - x`` alone (a table) and attention, whose efficiency depends on the whole context (one weight per
request and window).
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import prefill
from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@kernel
def time_suffix(x: int, n: int, suffix_s: Float64s, attention_s: Float64s, windows: Float64s) -> float:
    """T(x): seconds to compute tokens `x` .. `n`; `attention_s` and `windows` have one entry per kind of layer."""
    if x >= n:
        return 0.0
    total = suffix_s[n - x]
    for k in range(windows.size):
        total += attention_s[k] * prefill.attend(float(x), float(n), windows[k])
    return float(total)


@kernel
def time_requests(
    begin: Int64s, n_tokens: Int64s, suffix_s: Float64s, attention_s: Float64s, windows: Float64s
) -> Float64s:
    """T(begin) of every request, (n,); `attention_s` is (n, kinds)."""
    seconds = np.empty(n_tokens.size, np.float64)
    for r in range(n_tokens.size):
        seconds[r] = time_suffix(begin[r], n_tokens[r], suffix_s, attention_s[r], windows)
    return seconds


@kernel
def spread_seconds(
    offsets: Int64s,
    start: Int64s,
    length: Int64s,
    base: Int64s,
    slope: int,
    chunk_tokens: int,
    n_tokens: Int64s,
    gpu_tokens: Int64s,
    suffix_s: Float64s,
    attention_s: Float64s,
    windows: Float64s,
    first_request: int,
    seconds: Float64s,
) -> None:
    """Add the seconds of prefill that each stack position saves, to `seconds`, (n_slots + 1, ends).

    A chunk `i` of a request with `g` GPU-served tokens saves ``T(max(g, i b)) - T(min((i + 1) b, n - 1))``
    where that stretch is not empty (docs/model.md section 4), at its own position; chunks of a run
    that stand at one position are taken together. Requests before `first_request` count for nothing.
    `suffix_s` is (longest + 1, ends), `attention_s` (n, kinds, ends).
    """
    n_ends = seconds.shape[1]
    before = np.empty(n_ends, np.float64)
    b = chunk_tokens
    for r in range(first_request, offsets.size - 1):
        g = gpu_tokens[r]
        n = n_tokens[r]
        limit = n - 1
        if g >= limit:
            continue
        for k in range(offsets[r], offsets[r + 1]):
            end = start[k] + length[k]
            if end * b <= g:
                continue
            step = 1 if slope == 1 else length[k]
            first = max(start[k], g // b) if slope == 1 else start[k]
            for boundary in range(first, end + 1, step):
                x = max(g, min(boundary * b, limit))
                position = base[k] + slope * (max(boundary - step, first) - start[k])
                for e in range(n_ends):  # calls that take slices of arrays here cost four times as much
                    time_s = suffix_s[n - x, e]
                    for kind in range(windows.size):
                        time_s += attention_s[r, kind, e] * prefill.attend(float(x), float(n), windows[kind])
                    if boundary > first:
                        seconds[position, e] += before[e] - time_s
                    before[e] = time_s
