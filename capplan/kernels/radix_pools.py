"""The two pools behind a radix tree: copies to the host, evictions from either, whole radix nodes at a time."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel
from capplan.kernels.leaves import find_oldest, remove
from capplan.kernels.radix_tree import (
    LEAVING,
    ON_DEVICE,
    ON_HOST,
    PEAK_DEVICE,
    PEAK_HOST,
    RUNNING,
    Tree,
    count_pages,
    find_parent,
    find_tail,
    mark_device_leaf,
    mark_host_leaf,
    remove_radix_node,
)

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Rules(NamedTuple):
    """Sizes in pages, and when a radix node is copied: from its `min_hits`-th hit on, or when the device drops it."""

    device_pages: int
    host_pages: int
    page_tokens: int
    min_hits: int
    writes_back: bool
    counts_own_finish: bool
    min_load_tokens: int


class Tally(NamedTuple):
    """What happened to each request, (n,) each, in pages.

    `device_end` and `loaded_end` are depths that the device held, and that a load reached (0: none).
    `repeats` says whether the page behind them was held and is computed again. `written`, `evicted` and
    `refused` are of the host; `device_used` and `host_used` are what the pools hold when it ends.
    """

    device_end: Int64s
    loaded_end: Int64s
    repeats: Bools
    written: Int32s
    evicted: Int32s
    refused: Int32s
    device_used: Int64s
    host_used: Int64s


def open_tally(n_requests: int) -> Tally:
    """Room for the tally of a stream."""
    ends = np.zeros((4, n_requests), np.int64)
    counts = np.zeros((3, n_requests), np.int32)
    return Tally(ends[0], ends[1], np.zeros(n_requests, np.bool_), counts[0], counts[1], counts[2], ends[2], ends[3])


@kernel
def count_free(tree: Tree, rules: Rules) -> int:
    """Free pages of the device."""
    return int(rules.device_pages - tree.totals[ON_DEVICE] - tree.totals[RUNNING])


@kernel
def take_device(tree: Tree, n_pages: int) -> None:
    """Give the running request pages of the device."""
    tree.totals[RUNNING] += n_pages
    note_peak(tree)


@kernel
def note_peak(tree: Tree) -> None:
    """Note how full the device is."""
    tree.totals[PEAK_DEVICE] = max(tree.totals[PEAK_DEVICE], tree.totals[ON_DEVICE] + tree.totals[RUNNING])


@kernel
def enter_device(tree: Tree, node: int) -> None:
    """Let the device hold a radix node; its parent lies there already."""
    tree.on_device[node] = True
    tree.totals[ON_DEVICE] += count_pages(tree, node)
    remove(tree.host_leaves, tree.accessed, node)
    parent = find_parent(tree, node)
    tree.device_children[parent] += 1
    remove(tree.device_leaves, tree.accessed, parent)


@kernel
def leave_device(tree: Tree, node: int) -> None:
    """Free a radix node's pages of the device; `device_children` above it no longer counts it."""
    tree.on_device[node] = False
    tree.totals[ON_DEVICE] -= count_pages(tree, node)
    mark_host_leaf(tree, node)


@kernel
def drop_node(tree: Tree, node: int, tally: Tally, c: int) -> None:
    """Free all pages of a radix node, and take it out of the tree."""
    n_pages = count_pages(tree, node)
    if tree.on_device[node]:
        tree.on_device[node] = False
        tree.totals[ON_DEVICE] -= n_pages
    if tree.on_host[node]:
        tree.on_host[node] = False
        tree.totals[ON_HOST] -= n_pages
        tally.evicted[c] += n_pages
    remove_radix_node(tree, node)


@kernel
def find_child(tree: Tree, node: int) -> int:
    """A radix node below; -1 from a leaf."""
    if tree.children[node] == 0:
        return -1
    child = tree.child[node]
    while not tree.held[child]:
        child = tree.sibling[child]
    return find_tail(tree, child)


@kernel
def drop_subtree(tree: Tree, node: int, tally: Tally, c: int) -> None:
    """Drop a radix node and all below it, deepest first."""
    at = node
    while True:
        child = find_child(tree, at)
        if child >= 0:
            at = child
            continue
        parent = find_parent(tree, at)
        drop_node(tree, at, tally, c)
        if at == node:
            return
        at = parent


@kernel
def evict_host(tree: Tree, n_pages: int, tally: Tally, c: int) -> None:
    """Free so many pages of the host or more, of leaves that only the host holds."""
    freed = 0
    node = find_oldest(tree.host_leaves)
    while freed < n_pages and node >= 0:
        parent = find_parent(tree, node)
        freed += count_pages(tree, node)
        drop_node(tree, node, tally, c)
        mark_host_leaf(tree, parent)
        node = find_oldest(tree.host_leaves)


@kernel
def back_up(tree: Tree, rules: Rules, node: int, tally: Tally, c: int) -> bool:
    """Copy a radix node to the host, if room can be made."""
    n_pages = count_pages(tree, node)
    if rules.host_pages - tree.totals[ON_HOST] < n_pages:
        evict_host(tree, n_pages, tally, c)
    if rules.host_pages - tree.totals[ON_HOST] < n_pages:
        tally.refused[c] += n_pages
        return False
    tree.on_host[node] = True
    tree.totals[ON_HOST] += n_pages
    tree.totals[PEAK_HOST] = max(tree.totals[PEAK_HOST], tree.totals[ON_HOST])
    tally.written[c] += n_pages
    return True


@kernel
def evict_device(tree: Tree, rules: Rules, n_pages: int, tally: Tally, c: int) -> None:
    """Free so many pages of the device or more; nodes copied for it leave once all are chosen."""
    freed = 0
    tree.totals[LEAVING] = 0
    node = find_oldest(tree.device_leaves)
    while freed < n_pages and node >= 0:
        parent = find_parent(tree, node)
        freed += count_pages(tree, node)
        remove(tree.device_leaves, tree.accessed, node)
        tree.device_children[parent] -= 1
        if tree.on_host[node]:
            leave_device(tree, node)
        elif rules.writes_back and back_up(tree, rules, node, tally, c):
            tree.leaving[tree.totals[LEAVING]] = node
            tree.totals[LEAVING] += 1
        else:
            drop_subtree(tree, node, tally, c)
        mark_device_leaf(tree, parent)
        node = find_oldest(tree.device_leaves)
    for k in range(tree.totals[LEAVING]):
        if tree.on_device[tree.leaving[k]]:
            leave_device(tree, tree.leaving[k])
