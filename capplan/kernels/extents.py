"""A recency list of extents: stretches of a node's units that lie together in the list.

An extent covers the units of depths ``begin .. end - 1`` of one node, all resident, next to each other in
recency: its head is its newest unit, or its oldest where `IS_HEAD_OLDER`. Extents are split where a touch ends
inside one, and joined again where neighbours come together, so that a step costs the nodes of a path, not its
units. Item 0 is the sentinel: what is newer than it is the oldest, what is older the newest. Within a node
extents are linked from the head to the tail.

The state lies in few arrays, with named columns: a call counts a reference to every array it is given.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel
from capplan.kernels.paths import Nodes
from capplan.kernels.recency import EVICTED, MRU, RESIDENT

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

# Columns of `items`: depths, neighbours in recency, neighbours in the node, the node, the order in recency.
BEGIN, END, NEWER, OLDER, BEFORE, AFTER, NODE, IS_HEAD_OLDER = range(8)
# Columns of `nodes`: the node above and the depth of the first unit; the ends of the list and its length.
PARENT, TOP, FIRST, LAST, HELD = range(5)
# Columns of `path`: a node and the depth where the path leaves it; a stretch of depths.
STEP_NODE, STOP, STRETCH_BEGIN, STRETCH_END = range(4)
# Places in `totals`, behind those of `recency`: duplicates and refused units, unused items and the first of
# them, rows of `path` that hold nodes and stretches.
DUPLICATES, REFUSED, FREE, NEXT_FREE, N_STEPS, N_STRETCHES = range(3, 9)


class Extents(NamedTuple):
    """The state of one tier, and the path of the request at hand.

    Attributes
    ----------
    items : (n, 8) int32
        Extents. Unused ones are linked by `NEWER`.
    nodes : (nodes, 5) int32
        -1 stands for no node and no item.
    path : (rows, 4) int32
        A path as nodes from the head to the tail, and listed stretches of it.
    totals : (9,) int64
        Counts of units, items and rows.
    policy : int
        LRU, FIFO or MRU.
    """

    items: Int32s
    nodes: Int32s
    path: Int32s
    totals: Int64s
    policy: int


def open_extents(nodes: Nodes, longest: int, n_items: int, policy: int) -> Extents:
    """An empty tier with room for `n_items` extents, and for paths of `longest` nodes."""
    items = np.zeros((n_items + 1, 8), np.int32)
    items[1:, NEWER] = np.arange(2, n_items + 2)
    table = np.full((nodes.parent.size, 5), -1, np.int32)
    table[:, PARENT] = nodes.parent
    table[:, TOP] = nodes.begin
    table[:, HELD] = 0
    totals = np.zeros(9, np.int64)
    totals[FREE] = n_items
    totals[NEXT_FREE] = 1
    return Extents(items, table, np.zeros((n_items + longest + 2, 4), np.int32), totals, policy)


@kernel
def unlink(items: Int32s, item: int) -> None:
    """Take an extent out of the recency list."""
    newer = items[item, NEWER]
    older = items[item, OLDER]
    items[newer, OLDER] = older
    items[older, NEWER] = newer


@kernel
def link_after(items: Int32s, item: int, older: int) -> None:
    """Put an extent right behind `older` on the way to the newest; behind the sentinel's older it is the newest."""
    newer = items[older, NEWER]
    items[item, OLDER] = older
    items[item, NEWER] = newer
    items[older, NEWER] = item
    items[newer, OLDER] = item


@kernel
def add_item(extents: Extents, node: int, before: int, begin: int, end: int) -> int:
    """A new extent of a node, right behind the extent `before` (-1: the first), in no recency list."""
    items, nodes, totals = extents.items, extents.nodes, extents.totals
    item = totals[NEXT_FREE]
    totals[NEXT_FREE] = items[item, NEWER]
    totals[FREE] -= 1
    after = items[before, AFTER] if before >= 0 else nodes[node, FIRST]
    nodes[node, HELD] += 1
    items[item, BEGIN] = begin
    items[item, END] = end
    items[item, NODE] = node
    items[item, BEFORE] = before
    items[item, AFTER] = after
    if before >= 0:
        items[before, AFTER] = item
    else:
        nodes[node, FIRST] = item
    if after >= 0:
        items[after, BEFORE] = item
    else:
        nodes[node, LAST] = item
    return int(item)


@kernel
def drop_item(extents: Extents, item: int) -> None:
    """Forget an extent that is in no recency list."""
    items, nodes, totals = extents.items, extents.nodes, extents.totals
    node = items[item, NODE]
    before = items[item, BEFORE]
    after = items[item, AFTER]
    if before >= 0:
        items[before, AFTER] = after
    else:
        nodes[node, FIRST] = after
    if after >= 0:
        items[after, BEFORE] = before
    else:
        nodes[node, LAST] = before
    nodes[node, HELD] -= 1
    items[item, NEWER] = totals[NEXT_FREE]
    totals[NEXT_FREE] = item
    totals[FREE] += 1


@kernel
def split(extents: Extents, item: int, at: int) -> int:
    """Cut an extent before depth `at`; the new extent is its tail."""
    items = extents.items
    tail = add_item(extents, items[item, NODE], item, at, items[item, END])
    items[item, END] = at
    items[tail, IS_HEAD_OLDER] = items[item, IS_HEAD_OLDER]
    link_after(items, tail, item if items[item, IS_HEAD_OLDER] else items[item, OLDER])
    return tail


@kernel
def join_neighbour(extents: Extents, item: int) -> None:
    """Join the newest extent with the next older one where they are one stretch in both orders."""
    items = extents.items
    other = items[item, OLDER]
    if other == 0 or items[other, NODE] != items[item, NODE]:
        return
    is_head_older = items[item, IS_HEAD_OLDER]
    if items[other, IS_HEAD_OLDER] != is_head_older:
        return
    if not is_head_older and items[item, END] == items[other, BEGIN]:
        items[item, END] = items[other, END]
    elif is_head_older and items[other, END] == items[item, BEGIN]:
        items[item, BEGIN] = items[other, BEGIN]
    else:
        return
    unlink(items, other)
    drop_item(extents, other)


@kernel
def put(extents: Extents, node: int, before: int, begin: int, end: int, is_head_older: bool) -> None:
    """A new extent, the newest."""
    items = extents.items
    item = add_item(extents, node, before, begin, end)
    items[item, IS_HEAD_OLDER] = is_head_older
    link_after(items, item, items[0, OLDER])
    join_neighbour(extents, item)


@kernel
def evict_units(extents: Extents, n_units: int) -> None:
    """Drop so many units, in the order of the policy; as many must be resident."""
    items = extents.items
    left = n_units
    while left > 0:
        if extents.policy == MRU:
            item = int(items[0, OLDER])
            from_head = items[item, IS_HEAD_OLDER] == 0
        else:
            item = int(items[0, NEWER])
            from_head = items[item, IS_HEAD_OLDER] != 0
        n = min(left, int(items[item, END] - items[item, BEGIN]))
        if from_head:
            items[item, BEGIN] += n
        else:
            items[item, END] -= n
        if items[item, BEGIN] == items[item, END]:
            unlink(items, item)
            drop_item(extents, item)
        left -= n
    extents.totals[RESIDENT] -= n_units
    extents.totals[EVICTED] += n_units
