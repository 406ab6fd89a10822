"""Prefixes that requests share with earlier ones of their own group, such as a session."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]


@kernel
def share_in_groups(
    rows: Int64s, group: Int64s, prompt_node: Int64s, path_node: Int64s, node_parent: Int64s, node_end: Int64s
) -> Int64s:
    """Depth of the longest prefix every prompt shares with an earlier path of its group.

    Parameters
    ----------
    rows : (m,) int64
        Rows of one group after those of another, each group's in ascending order.
    group : (n,) int64
        Group of every row, not negative for those in `rows`.
    prompt_node, path_node : (n,) int64
        Nodes at the end of each row's prompt, and of its whole path; -1 for an empty one.
    node_parent, node_end : (nodes,) int64
        Parent node (-1 root) and depth of every node's end.

    Returns
    -------
    depth : (n,) int64
        0 for rows that are not in `rows`.
    """
    mark = np.full(node_end.size, -1, np.int64)
    depth = np.zeros(group.size, np.int64)
    for row in rows:
        own = group[row]
        node = prompt_node[row]
        while node >= 0 and mark[node] != own:
            node = node_parent[node]
        if node >= 0:
            depth[row] = node_end[node]
        node = path_node[row]
        while node >= 0 and mark[node] != own:
            mark[node] = own
            node = node_parent[node]
    return depth
