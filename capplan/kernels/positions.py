"""Chunk-level stack positions: one Fenwick update a chunk. Oracle, and engine for unchained ids."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import fenwick
from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]


@kernel
def find_positions(ids: Int64s, offsets: Int64s, leaf_first: bool) -> tuple[Int64s, Int64s]:
    """Stack positions of every chunk reference (docs/model.md section 2).

    Parameters
    ----------
    ids : (references,) int64
        Dense chunk ids 0 .. D-1, request by request, head to tail; no id twice in one request.
    offsets : (n + 1,) int64
        References of request `r` are ``ids[offsets[r]:offsets[r + 1]]``.
    leaf_first : bool
        Touch the deepest chunk first, so that chunk 0 ends most recent; else head first.

    Returns
    -------
    position, sequential : (references,) int64
        `P` at the request's lookup, before anything moves, and `S` at the chunk's own touch;
        -1 on first use.
    """
    n_references = ids.size
    last = np.full(n_references + 1, -1, np.int64)
    live = np.zeros(n_references + 1, np.int64)
    position = np.full(n_references, -1, np.int64)
    sequential = np.full(n_references, -1, np.int64)
    distinct = 0
    clock = 0
    for r in range(offsets.size - 1):
        begin = offsets[r]
        end = offsets[r + 1]
        for k in range(begin, end):
            if last[ids[k]] >= 0:
                position[k] = distinct - fenwick.prefix_sum(live, last[ids[k]])
        for j in range(end - begin):
            k = end - 1 - j if leaf_first else begin + j
            touched = last[ids[k]]
            if touched >= 0:
                sequential[k] = distinct - fenwick.prefix_sum(live, touched)
                fenwick.add(live, touched, -1)
            else:
                distinct += 1
            fenwick.add(live, clock, 1)
            last[ids[k]] = clock
            clock += 1
    return position, sequential
