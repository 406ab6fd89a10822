"""The run kernel (docs/model.md section 3): cost per request, not per chunk.

A request's path splits into runs of chunks that the same earlier request touched last. Per stream
position the kernel keeps how many leading chunks later requests have taken over (`taken`), who took
them last (`owner`), and the number of chunks still last touched there, in a Fenwick tree.
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import fenwick
from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]


@kernel
def find_holder(taken: Int64s, owner: Int64s, position: int, depth: int) -> int:
    """Last toucher of chunk `depth - 1` of the path at `position`, halving the chain on the way."""
    q = position
    while taken[q] >= depth:
        step = owner[q]
        if taken[step] >= taken[q]:
            owner[q] = owner[step]
        q = step
    return q


@kernel
def grow(table: Int64s) -> Int64s:
    """Copy of a (rows, columns) table with room for twice the rows."""
    larger = np.empty((2 * table.shape[0], table.shape[1]), np.int64)
    for row in range(table.shape[0]):  # a slice assignment would take seconds to compile
        for column in range(table.shape[1]):
            larger[row, column] = table[row, column]
    return larger


@kernel
def find_runs(n_chunks: Int64s, previous: Int64s, shared: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Run table of a stream.

    Parameters
    ----------
    n_chunks : (n,) int64
        Full chunks of the path at each stream position.
    previous : (n,) int64
        An earlier position whose path shares the longest prefix; -1 where nothing is shared.
    shared : (n,) int64
        Chunks shared with it; at most either path's length.

    Returns
    -------
    offsets : (n + 1,) int64
        Runs of position `c` are rows ``offsets[c]:offsets[c + 1]``, from the head to the tail.
    table : (runs, 4) int64
        Columns: first chunk of the run, chunks in it, `above` = distinct chunks last touched after
        the run's last toucher, `live` = chunks last touched exactly by it.
    holders : (runs,) int64
        Stream position of the run's last toucher.
    """
    n = n_chunks.size
    taken = np.zeros(n, np.int64)
    owner = np.full(n, -1, np.int64)
    weights = np.zeros(n + 1, np.int64)
    offsets = np.zeros(n + 1, np.int64)
    table = np.empty((max(16, 2 * n), 4), np.int64)
    holders = np.empty(table.shape[0], np.int64)
    distinct = 0
    count = 0
    for c in range(n):
        first = count
        depth = shared[c]
        q = previous[c]
        while depth > 0:
            q = find_holder(taken, owner, q, depth)
            if count == table.shape[0]:
                table = grow(table)
                holders = grow(holders.reshape(-1, 1)).reshape(-1)
            start = taken[q]
            table[count, 0] = start
            table[count, 1] = depth - start
            table[count, 2] = distinct - fenwick.prefix_sum(weights, q)
            table[count, 3] = n_chunks[q] - start
            holders[count] = q
            count += 1
            depth = start
        for k in range(first, count):
            q = holders[k]
            fenwick.add(weights, q, -table[k, 1])
            taken[q] = table[k, 0] + table[k, 1]
            owner[q] = c
        fenwick.add(weights, c, n_chunks[c])
        distinct += n_chunks[c] - shared[c]
        reverse(table, first, count)
        reverse(holders.reshape(-1, 1), first, count)
        offsets[c + 1] = count
    return offsets, table[:count].copy(), holders[:count].copy()


@kernel
def reverse(table: Int64s, first: int, stop: int) -> None:
    """Reverse the order of rows ``first:stop`` in place."""
    i = first
    j = stop - 1
    while i < j:
        for column in range(table.shape[1]):
            kept = table[i, column]
            table[i, column] = table[j, column]
            table[j, column] = kept
        i += 1
        j -= 1
