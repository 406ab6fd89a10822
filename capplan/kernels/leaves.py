"""The least recent of a changing set of nodes: a binary heap that knows where each node lies in it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Leaves(NamedTuple):
    """Nodes in heap order, where each lies (-1: nowhere), and how many there are, (1,)."""

    items: Int32s
    place: Int32s
    n_items: Int64s


def open_leaves(n_nodes: int) -> Leaves:
    """An empty set of nodes ``0 .. n_nodes - 1``."""
    return Leaves(np.zeros(n_nodes, np.int32), np.full(n_nodes, -1, np.int32), np.zeros(1, np.int64))


@kernel
def find_oldest(leaves: Leaves) -> int:
    """The node accessed first; -1 from an empty set."""
    return leaves.items[0] if leaves.n_items[0] > 0 else -1


@kernel
def rise(leaves: Leaves, accessed: Int64s, node: int) -> None:
    """Move a node up past those accessed after it."""
    at = leaves.place[node]
    while at > 0:
        above = leaves.items[(at - 1) // 2]
        if accessed[above] <= accessed[node]:
            break
        leaves.items[at] = above
        leaves.place[above] = at
        at = (at - 1) // 2
    leaves.items[at] = node
    leaves.place[node] = at


@kernel
def sink(leaves: Leaves, accessed: Int64s, node: int) -> None:
    """Move a node down past those accessed before it."""
    at = leaves.place[node]
    n = leaves.n_items[0]
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and accessed[leaves.items[child + 1]] < accessed[leaves.items[child]]:
            child += 1
        below = leaves.items[child]
        if accessed[node] <= accessed[below]:
            break
        leaves.items[at] = below
        leaves.place[below] = at
        at = child
    leaves.items[at] = node
    leaves.place[node] = at


@kernel
def add(leaves: Leaves, accessed: Int64s, node: int) -> None:
    """Add a node, unless it is there."""
    if leaves.place[node] < 0:
        leaves.place[node] = leaves.n_items[0]
        leaves.n_items[0] += 1
        rise(leaves, accessed, node)


@kernel
def remove(leaves: Leaves, accessed: Int64s, node: int) -> None:
    """Take a node out, if it is there."""
    at = leaves.place[node]
    if at < 0:
        return
    leaves.place[node] = -1
    leaves.n_items[0] -= 1
    last = leaves.items[leaves.n_items[0]]
    if last != node:
        leaves.place[last] = at
        rise(leaves, accessed, last)
        sink(leaves, accessed, last)
