"""A tree's nodes as stretches of numbered units, and the units of a path."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Nodes(NamedTuple):
    """Nodes that own a unit at least; node `k` owns units ``first[k] .. first[k] + end[k] - begin[k] - 1``.

    `parent` is the nearest such node above, -1 at the root; `begin` and `end` are depths in units. A path
    leaves a node where the next one begins.
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
    """Fill ``units[:n_units]`` with the path that ends in `node`, from the head to the tail."""
    at = n_units
    while node >= 0:
        begin = nodes.begin[node]
        first = nodes.first[node]
        for depth in range(at - 1, begin - 1, -1):
            units[depth] = first + depth - begin
        at = begin
        node = nodes.parent[node]


@kernel
def find_heavy_children(nodes: Nodes, weight: Int64s) -> Int64s:
    """Of every node the child that most paths go through, ties to the first; -1 none.

    Parameters
    ----------
    nodes : Nodes
        A parent's number is always smaller than its children's.
    weight : (nodes,) int64
        Paths that end at each node; becomes the number of those that go through it.
    """
    heavy = np.full(nodes.parent.size, -1, np.int64)
    for node in range(nodes.parent.size - 1, -1, -1):
        up = nodes.parent[node]
        if up >= 0 and nodes.end[node] > nodes.begin[node]:
            weight[up] += weight[node]
            if heavy[up] < 0 or weight[node] >= weight[heavy[up]]:
                heavy[up] = node
    return heavy


@kernel
def join_nodes(nodes: Nodes, heavy: Int64s) -> tuple[Int64s, Nodes]:
    """Join every node with its heavy child: chains of nodes as nodes with units numbered through.

    A path goes through few chains, however many nodes lie on it; it may leave a chain anywhere.

    Returns
    -------
    chain : (nodes,) int64
        Chain of every node; -1 of one without a unit.
    chains : Nodes
        `begin` is where a chain leaves its parent, `end` the depth of its deepest unit.
    """
    n = nodes.parent.size
    chain = np.full(n, -1, np.int64)
    count = 0
    for node in range(n):
        up = nodes.parent[node]
        if nodes.end[node] == nodes.begin[node]:
            continue
        if up >= 0 and heavy[up] == node:
            chain[node] = chain[up]
        else:
            chain[node] = count
            count += 1
    parent = np.full(count, -1, np.int64)
    begin = np.full(count, -1, np.int64)
    end = np.zeros(count, np.int64)
    for node in range(n):
        k = chain[node]
        if k < 0:
            continue
        if begin[k] < 0:
            begin[k] = nodes.begin[node]
            if nodes.parent[node] >= 0:
                parent[k] = chain[nodes.parent[node]]
        end[k] = nodes.end[node]
    first = np.zeros(count, np.int64)
    total = 0
    for k in range(count):
        first[k] = total
        total += end[k] - begin[k]
    return chain, Nodes(parent, first, begin, end)


@kernel
def count_levels(parent: Int64s) -> int:
    """Nodes on the longest way to a root; parents come before their children."""
    level = np.zeros(parent.size, np.int64)
    deepest = 0
    for node in range(parent.size):
        level[node] = 1 if parent[node] < 0 else level[parent[node]] + 1
        deepest = max(deepest, level[node])
    return int(deepest)
