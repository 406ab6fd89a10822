"""A radix tree shared by a device and a host pool, on top of the nodes that a trace's paths can ever have.

A radix node is a chain of fixed nodes, each the only child of the one above that it has in the tree, and
goes by the number of its deepest one: a split leaves the number with the tail. What belongs to a radix node
is read at that number. The root is number `n`, one past the fixed nodes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel
from capplan.kernels.leaves import Leaves, add, open_leaves, remove, sink
from capplan.kernels.paths import Nodes

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

CLOCK, ON_DEVICE, ON_HOST, RUNNING, REQUEST, LOCKED_END, LEAVING, PEAK_DEVICE, PEAK_HOST = range(9)  # in `totals`


class Tree(NamedTuple):
    """The state of both pools.

    Fixed, of every node: `parent` (the root's number below it), `begin` and `end` in pages, the first of
    its children and its next `sibling` (-1 none).

    In the tree: whether a node is `held`; the next node `below` in its radix node (-1 at the end). Of radix
    nodes: their `top` node, in which pools they lie, how often they were hit and when accessed, their children,
    and how many of those lie on the device and stay there. `on_path` is the last request whose path a node
    lies on. `leaving` lists nodes copied to the host by the eviction under way, and `totals` holds sums.
    """

    parent: Int32s
    begin: Int64s
    end: Int64s
    child: Int32s
    sibling: Int32s
    held: Bools
    below: Int32s
    top: Int32s
    on_device: Bools
    on_host: Bools
    hits: Int32s
    accessed: Int64s
    children: Int32s
    device_children: Int32s
    on_path: Int32s
    leaving: Int32s
    device_leaves: Leaves
    host_leaves: Leaves
    totals: Int64s


def open_tree(nodes: Nodes) -> Tree:
    """An empty tree for the paths of `nodes`, whose units are pages."""
    n = nodes.parent.size
    parent = np.where(nodes.parent >= 0, nodes.parent, n).astype(np.int32)
    child, sibling = np.full((2, n + 1), -1, np.int32)
    link_children(parent, nodes.end - nodes.begin, child, sibling)
    below, top, on_path, hits, children, device_children = np.zeros((6, n + 1), np.int32)
    held, on_device, on_host = np.zeros((3, n + 1), np.bool_)
    on_device[n] = True
    below[:] = -1
    on_path[:] = -1
    return Tree(
        parent, nodes.begin, nodes.end, child, sibling, held, below, top, on_device, on_host, hits,
        np.zeros(n + 1, np.int64), children, device_children, on_path, np.zeros(n + 1, np.int32),
        open_leaves(n + 1), open_leaves(n + 1), np.zeros(9, np.int64),
    )  # fmt: skip


@kernel
def link_children(parent: Int32s, size: Int64s, child: Int32s, sibling: Int32s) -> None:
    """Fill the lists of children of all nodes that own a page."""
    for node in range(parent.size):
        if size[node] > 0:
            sibling[node] = child[parent[node]]
            child[parent[node]] = node


@kernel
def list_path(tree: Tree, node: int, request: int, buffer: Int32s) -> int:
    """Write the path that ends with `node` (-1: none) to the end of `buffer`, and mark it; where it begins."""
    parent, on_path = tree.parent, tree.on_path
    at = buffer.size
    while 0 <= node < parent.size:
        at -= 1
        buffer[at] = node
        on_path[node] = request
        node = parent[node]
    return at


@kernel
def count_pages(tree: Tree, node: int) -> int:
    """Pages of a radix node."""
    return int(tree.end[node] - tree.begin[tree.top[node]])


@kernel
def find_parent(tree: Tree, node: int) -> int:
    """The radix node above."""
    return int(tree.parent[tree.top[node]])


@kernel
def is_locked(tree: Tree, node: int) -> bool:
    """Whether the running request holds a radix node, or is loading it."""
    root = tree.parent.size
    return node == root or (tree.on_path[node] == tree.totals[REQUEST] and tree.end[node] <= tree.totals[LOCKED_END])


@kernel
def mark_device_leaf(tree: Tree, node: int) -> None:
    """Make a radix node a candidate for eviction from the device, if it is one."""
    if tree.on_device[node] and tree.device_children[node] == 0 and not is_locked(tree, node):
        add(tree.device_leaves, tree.accessed, node)


@kernel
def mark_host_leaf(tree: Tree, node: int) -> None:
    """Make a radix node a candidate for eviction from the host, if it is one."""
    if not tree.on_device[node] and tree.children[node] == 0 and not is_locked(tree, node):
        add(tree.host_leaves, tree.accessed, node)


@kernel
def refresh(tree: Tree, node: int) -> None:
    """Note an access to a radix node."""
    tree.totals[CLOCK] += 1
    tree.accessed[node] = tree.totals[CLOCK]
    if tree.device_leaves.place[node] >= 0:
        sink(tree.device_leaves, tree.accessed, node)
    if tree.host_leaves.place[node] >= 0:
        sink(tree.host_leaves, tree.accessed, node)


@kernel
def find_tail(tree: Tree, node: int) -> int:
    """The radix node that a held node is part of."""
    while tree.below[node] >= 0:
        node = tree.below[node]
    return node


@kernel
def split(tree: Tree, node: int, tail: int) -> None:
    """Cut the radix node `tail` behind `node`, which becomes one of its own, in the same pools."""
    tree.top[node] = tree.top[tail]
    tree.top[tail] = tree.below[node]
    tree.below[node] = -1
    tree.on_device[node] = tree.on_device[tail]
    tree.on_host[node] = tree.on_host[tail]
    tree.hits[node] = tree.hits[tail]
    tree.children[node] = 1
    tree.device_children[node] = 1 if tree.on_device[tail] else 0


@kernel
def find_last(below: Int32s, path: Int32s, at: int, n_nodes: int) -> int:
    """Index of the last node that a path shares with the radix node that begins at ``path[at]``."""
    while below[path[at]] >= 0 and at + 1 < n_nodes and path[at + 1] == below[path[at]]:
        at += 1
    return at


@kernel
def visit(tree: Tree, path: Int32s, at: int, n_nodes: int) -> int:
    """Access the radix node that begins at ``path[at]``, split where the path leaves it; index of its last node."""
    last = find_last(tree.below, path, at, n_nodes)
    node = path[last]
    if tree.below[node] >= 0:
        tail = find_tail(tree, node)
        refresh(tree, tail)
        split(tree, node, tail)
    refresh(tree, node)
    return last


@kernel
def match(tree: Tree, path: Int32s, n_nodes: int) -> tuple[int, int, int]:
    """Access the part of a path that is in the tree.

    Returns how many leading nodes are held, how many of them the device holds, and how many both pools hold.
    Radix nodes that are neither split nor candidates for eviction, nearly all, are passed without a call.
    """
    held, below, accessed, totals = tree.held, tree.below, tree.accessed, tree.totals
    on_device, on_host = tree.on_device, tree.on_host
    is_device_leaf, is_host_leaf = tree.device_leaves.place, tree.host_leaves.place
    at = n_device = n_both = 0
    while at < n_nodes and held[path[at]]:
        begin, last = at, find_last(below, path, at, n_nodes)
        node = path[last]
        if below[node] < 0 and is_device_leaf[node] < 0 and is_host_leaf[node] < 0:
            totals[CLOCK] += 1
            accessed[node] = totals[CLOCK]
        else:
            visit(tree, path, at, n_nodes)
        at = last + 1
        if n_device == begin and on_device[node]:
            n_device = at
            if n_both == begin and on_host[node]:
                n_both = at
    return at, n_device, n_both


@kernel
def add_radix_node(tree: Tree, path: Int32s, begin: int, end: int) -> None:
    """Put the nodes ``path[begin:end]``, none of them held, into the tree as one radix node in no pool."""
    for k in range(begin, end):
        tree.held[path[k]] = True
        tree.below[path[k]] = path[k + 1] if k + 1 < end else -1
    node = path[end - 1]
    tree.top[node] = path[begin]
    tree.on_device[node] = False
    tree.on_host[node] = False
    tree.hits[node] = 0
    tree.children[node] = 0
    tree.device_children[node] = 0
    tree.children[find_parent(tree, node)] += 1


@kernel
def remove_radix_node(tree: Tree, node: int) -> None:
    """Take a radix node in no pool out of the tree."""
    remove(tree.device_leaves, tree.accessed, node)
    remove(tree.host_leaves, tree.accessed, node)
    tree.children[find_parent(tree, node)] -= 1
    part = tree.top[node]
    while part >= 0:
        tree.held[part] = False
        part = tree.below[part]
