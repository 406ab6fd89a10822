"""A tree's nodes as stretches of numbered units, and the units of a path."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Nodes(NamedTuple):
    """Nodes that own a unit at least; node `k` owns units ``first[k] .. first[k] + end[k] - begin[k] - 1``.

    `parent` is the nearest such node above, -1 at the root; `begin` and `end` are depths in units.
    """

    parent: Int64s
    first: Int64s
    begin: Int64s
    end: Int64s


@kernel
def skip_empty(parent: Int64s, size: Int64s) -> Int64s:
    """Of every node, itself if it owns a unit, else the nearest ancestor that does, -1 if none; (nodes,)."""
    found = np.empty(parent.size, np.int64)
    for node in range(parent.size):
        if size[node] > 0:
            found[node] = node
        elif parent[node] < 0:
            found[node] = -1
        else:
            found[node] = found[parent[node]]
    return found


@kernel
def list_units(nodes: Nodes, node: int, n_units: int, units: Int64s) -> None:
    """Fill ``units[:n_units]`` with the path that ends with `node`, from the head to the tail."""
    at = n_units
    while node >= 0:
        for unit in range(nodes.first[node] + nodes.end[node] - nodes.begin[node] - 1, nodes.first[node] - 1, -1):
            at -= 1
            units[at] = unit
        node = nodes.parent[node]
