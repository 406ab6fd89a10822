"""Belady's tier with bypass on a stream of prefixes: the most hits any policy of that size can have.

Of what a tier holds and a request touches it keeps the chunks used again soonest, ties from the head, so
that it holds whole prefixes. Whatever uses a chunk uses its ancestors, so chunks whose next use is request
`N` are one stretch of N's path, ``begin[N] .. end[N] - 1``: the state is a stretch per future request, and
the victim the tail of the latest one (L. A. Belady, "A study of replacement algorithms", 1966).
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@kernel
def push(heap: Int64s, size: int, value: int) -> None:
    """Add a value to a heap of `size` values whose root is the largest."""
    k = size
    while k > 0 and heap[(k - 1) // 2] < value:
        heap[k] = heap[(k - 1) // 2]
        k = (k - 1) // 2
    heap[k] = value


@kernel
def pop(heap: Int64s, size: int) -> None:
    """Remove the root of a heap of `size` values."""
    value = heap[size - 1]
    k = 0
    while 2 * k + 1 < size - 1:
        child = 2 * k + 1
        if child + 1 < size - 1 and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = value


@kernel
def shrink(begin: Int64s, end: Int64s, heap: Int64s, is_listed: NDArray[np.bool_], size: int, excess: int) -> int:
    """Drop `excess` chunks, those used again last first; the heap's new size."""
    while excess > 0:
        latest = heap[0]
        n = min(excess, end[latest] - begin[latest])
        end[latest] -= n
        excess -= n
        if end[latest] <= begin[latest]:
            pop(heap, size)
            size -= 1
            is_listed[latest] = False
    return size


@kernel
def run_tier(
    offsets: Int64s,
    start: Int64s,
    length: Int64s,
    next_use: Int64s,
    n_slots: int,
    covered: Int32s,
    written: Int32s,
    evicted: Int32s,
) -> None:
    """Run a stream through an empty tier of `n_slots` slots.

    Parameters
    ----------
    offsets : (n + 1,) int64
        Runs of request `c` are ``offsets[c]:offsets[c + 1]``, head to tail.
    start, length, next_use : (runs,) int64
        First chunk and chunks of each run, and the later request that uses them next.
    covered, written, evicted : (n,) int32
        Filled: chunks found, chunks stored and kept, chunks dropped for them.
    """
    n = offsets.size - 1
    begin = np.zeros(n, np.int64)
    end = np.zeros(n, np.int64)
    heap = np.empty(n + 1, np.int64)
    is_listed = np.zeros(n, np.bool_)
    size = 0
    resident = 0
    for c in range(n):
        found = end[c]
        covered[c] = found
        before = resident
        resident -= found
        begin[c] = found  # its stretch is used up; a heap entry of it goes when it comes up
        kept = 0
        for k in range(offsets[c], offsets[c + 1]):
            later = next_use[k]
            begin[later] = start[k]
            end[later] = max(end[later], start[k] + length[k])
            kept += length[k]
            if not is_listed[later]:
                push(heap, size, later)
                is_listed[later] = True
                size += 1
        resident += kept
        if resident > n_slots:
            size = shrink(begin, end, heap, is_listed, size, resident - n_slots)
            resident = n_slots
        for k in range(offsets[c], offsets[c + 1]):
            stop = min(end[next_use[k]], start[k] + length[k])
            written[c] += max(0, stop - max(start[k], found))
        evicted[c] = before + written[c] - resident
