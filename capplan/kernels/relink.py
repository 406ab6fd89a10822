"""Links of a prefix tree in any order of its requests (docs/model.md section 3)."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]


@kernel
def find_segment_rows(parent: Int64s, shared: Int64s, rows: Int64s, depths: Int64s) -> Int64s:
    """Row whose own part of the tree (deeper than its `shared`) holds each row's path at a depth.

    Climbs from ``rows[i]`` along `parent` until ``depths[i] > shared``; -1 where the depth is 0.
    """
    found = np.full(rows.size, -1, np.int64)
    for i in range(rows.size):
        if depths[i] > 0:
            row = rows[i]
            while depths[i] <= shared[row]:
                row = parent[row]
            found[i] = row
    return found


@kernel
def relink(order: Int64s, end_node: Int64s, node_parent: Int64s, node_end: Int64s) -> tuple[Int64s, Int64s]:
    """Longest prefix every request shares with an earlier one in a new order.

    Parameters
    ----------
    order : (n,) int64
        Request rows in stream order.
    end_node : (rows,) int64
        Deepest node each request touches; -1 for an empty path.
    node_parent, node_end : (nodes,) int64
        Parent node (-1 root) and depth of every node's end.

    Returns
    -------
    previous, depth : (n,) int64
        Earlier stream position (-1 none) and the depth shared with it. Every node is marked once.
    """
    mark = np.full(node_end.size, -1, np.int64)
    previous = np.full(order.size, -1, np.int64)
    depth = np.zeros(order.size, np.int64)
    for c in range(order.size):
        node = end_node[order[c]]
        while node >= 0 and mark[node] < 0:
            mark[node] = c
            node = node_parent[node]
        if node >= 0:
            previous[c] = mark[node]
            depth[c] = node_end[node]
            mark[node] = c
    return previous, depth
