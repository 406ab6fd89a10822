"""Streams and buffers for the benchmarks, out of seeded synthetic traces."""

import numba
import numpy as np
from numpy.typing import NDArray

from capplan.order import Order
from capplan.prompts import Prompts
from capplan.trace import Trace
from capplan.kernels import relink
from capplan.tree import PrefixTree

Int64s = NDArray[np.int64]


@numba.njit(cache=True)
def expand(n_chunks, previous, shared, offsets, ids):
    """Write every path's dense chunk ids: the shared prefix of an earlier path, then new ones."""
    n_distinct = 0
    for c in range(n_chunks.size):
        begin = offsets[c]
        source = offsets[previous[c]]
        for k in range(shared[c]):
            ids[begin + k] = ids[source + k]
        for k in range(shared[c], n_chunks[c]):
            ids[begin + k] = n_distinct
            n_distinct += 1
    return n_distinct
