"""Spread what runs are worth over capacities: difference arrays, prefix-summed by the caller.

A run's chunks stand at consecutive stack positions (`slope` 1) or all at one (`slope` 0).
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]


@kernel
def add_range(difference: Int64s, base: int, slope: int, skip: int, count: int, weight: int) -> None:
    """Add `weight` for each of `count` chunks, the first one `skip` chunks into the run."""
    if count <= 0:
        return
    if slope == 1:
        difference[base + skip] += weight
        difference[base + skip + count] -= weight
    else:
        difference[base] += weight * count
        difference[base + 1] -= weight * count


@kernel
def count_at_positions(difference: Int64s, length: Int64s, base: Int64s, slope: int) -> None:
    """Count chunks by stack position in a difference array of zeros, one longer than there are slots."""
    for k in range(length.size):
        add_range(difference, base[k], slope, 0, length[k], 1)


@kernel
def sum_twice(difference: Int64s) -> None:
    """Turn a difference array over positions, in place, into totals over positions below each index."""
    at_position = 0
    below = 0
    for k in range(difference.size):
        change = difference[k]
        difference[k] = below
        at_position += change
        below += at_position


@kernel
def cover_requests(offsets: Int64s, length: Int64s, base: Int64s, slope: int, n_slots: int) -> Int64s:
    """Leading chunks of every request that a tier of `n_slots` slots holds at its lookup, (n,)."""
    covered = np.zeros(offsets.size - 1, np.int64)
    for r in range(offsets.size - 1):
        for k in range(offsets[r], offsets[r + 1]):
            if slope == 1:
                covered[r] += min(max(n_slots - base[k], 0), length[k])
            elif base[k] < n_slots:
                covered[r] += length[k]
    return covered


@kernel
def add_saving(
    saved: Int64s, forced: Int64s, is_whole: bool, base: int, slope: int, skip: int, count: int, weight: int
) -> None:
    """Tokens saved by chunks of a run; of a prompt the GPU tier holds whole, they were computed by force alone."""
    add_range(saved, base, slope, skip, count, weight)
    if is_whole:
        add_range(forced, base, slope, skip, count, -weight)


@kernel
def spread_restores(
    offsets: Int64s,
    start: Int64s,
    length: Int64s,
    base: Int64s,
    slope: int,
    chunk_tokens: int,
    n_tokens: Int64s,
    gpu_tokens: Int64s,
    gpu_forced: Int64s,
    first_request: int,
    n_slots: int,
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Tokens saved, chunks moved, loads begun and last tokens recomputed, by the chunk's position.

    Chunk `i` of a request with `n` tokens, `g` of them served by the GPU tier, saves
    ``min((i + 1) b, n - 1) - max(g, i b)`` tokens where that is positive; it is moved whole; the
    first one that saves anything begins the load (docs/model.md section 4). A run that `g` or
    ``n - 1`` cuts becomes up to three segments. A host tier that holds a whole prompt leaves one token to
    compute; of the `gpu_forced` tokens that a whole hit in the GPU tier leaves, what the host tier saves
    is computed no more. Requests before `first_request` count for nothing.

    Returns
    -------
    saved, moved, loads, forced : (n_slots + 1,) int64
        Difference arrays over stack positions: tokens, chunks, requests, and the change in tokens
        computed only because one token always is.
    """
    saved = np.zeros(n_slots + 1, np.int64)
    moved = np.zeros(n_slots + 1, np.int64)
    loads = np.zeros(n_slots + 1, np.int64)
    forced = np.zeros(n_slots + 1, np.int64)
    b = chunk_tokens
    for r in range(first_request, offsets.size - 1):
        g = gpu_tokens[r]
        limit = n_tokens[r] - 1
        if g >= limit:
            continue
        head = g // b
        is_whole = gpu_forced[r] > 0
        for k in range(offsets[r], offsets[r + 1]):
            begin = max(start[k], head)
            end = start[k] + length[k]
            if begin >= end:
                continue
            add_range(moved, base[k], slope, begin - start[k], end - begin, 1)
            full_end = end
            if end * b > limit:
                full_end = end - 1
                last_weight = limit - max(g, full_end * b)
                add_saving(saved, forced, is_whole, base[k], slope, full_end - start[k], 1, last_weight)
                if not is_whole:
                    add_range(forced, base[k], slope, full_end - start[k], 1, 1)
            full_begin = begin
            if begin == head:
                add_range(loads, base[k], slope, begin - start[k], 1, 1)
                if full_begin < full_end and g > begin * b:
                    full_begin = begin + 1
                    add_saving(saved, forced, is_whole, base[k], slope, begin - start[k], 1, full_begin * b - g)
            add_saving(saved, forced, is_whole, base[k], slope, full_begin - start[k], full_end - full_begin, b)
    return saved, moved, loads, forced
