"""Fenwick tree over int64 weights: add at one place, sum of a prefix, both in O(log n)."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel


@kernel
def add(tree: NDArray[np.int64], index: int, weight: int) -> None:
    """Add `weight` at `index` (0-based); `tree` has one slot more than there are indices."""
    i = index + 1
    while i < tree.size:
        tree[i] += weight
        i += i & -i


@kernel
def prefix_sum(tree: NDArray[np.int64], index: int) -> int:
    """Sum of the weights at indices 0 .. `index` (0-based, inclusive)."""
    total = 0
    i = index + 1
    while i > 0:
        total += tree[i]
        i &= i - 1
    return total
