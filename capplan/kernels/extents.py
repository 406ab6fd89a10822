"""A recency list of extents: stretches of a node's units that lie together in the list.

An extent covers units ``begin .. end - 1`` of one node, all resident, next to each other in recency: its head
is its newest unit, or its oldest where `is_head_older`. Extents are split where a touch ends inside one, and
joined again where neighbours come together, so that a step costs the nodes of a path, not its units. Item 0 is
the sentinel: what is newer than it is the oldest, what is older the newest. Within a node extents are linked
from the head to the tail.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel
from capplan.kernels.paths import Nodes
from capplan.kernels.recency import EVICTED, FIFO, INSERTED, MRU, RESIDENT

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

FREE = 3  # place in `totals`: items on the free stack


class Extents(NamedTuple):
    """The state of one tier; see the module.

    `before` and `after` are neighbours in a node, `first` and `last` a node's ends (-1 none), `held` how many it
    has, `free` the stack of unused items. `totals` holds resident, inserted and evicted units, and the number of free items.
    """

    begin: Int64s
    end: Int64s
    newer: Int32s
    older: Int32s
    before: Int32s
    after: Int32s
    node: Int32s
    is_head_older: NDArray[np.bool_]
    first: Int32s
    last: Int32s
    held: Int32s
    free: Int32s
    totals: Int64s
    policy: int


class Path(NamedTuple):
    """A path as nodes from the head to the tail, and stretches of depths; scratch with the counts in `sizes`.

    `stop` is the depth where the path leaves a node.
    """

    nodes: Int64s
    stop: Int64s
    stretch_begin: Int64s
    stretch_end: Int64s
    sizes: Int64s


def open_extents(n_nodes: int, n_items: int, policy: int) -> Extents:
    """An empty tier with room for `n_items` extents."""
    n = n_items + 1
    zeros = np.zeros(n, np.int32)
    totals = np.array([0, 0, 0, n_items], np.int64)
    return Extents(
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        zeros.copy(),
        zeros.copy(),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        zeros.copy(),
        np.zeros(n, np.bool_),
        np.full(n_nodes, -1, np.int32),
        np.full(n_nodes, -1, np.int32),
        np.zeros(n_nodes, np.int32),
        np.arange(n_items, 0, -1, dtype=np.int32),
        totals,
        policy,
    )


def open_path(longest: int, n_items: int) -> Path:
    """Scratch for paths of so many nodes."""
    stretches = np.zeros((2, n_items + longest + 2), np.int64)
    return Path(
        np.zeros(longest, np.int64), np.zeros(longest, np.int64), stretches[0], stretches[1], np.zeros(2, np.int64)
    )


@kernel
def list_nodes(nodes: Nodes, node: int, n_units: int, path: Path) -> None:
    """Fill `path` with the nodes from the root to `node`, in which a path of `n_units` units ends."""
    count = 0
    k = node
    while k >= 0:
        count += 1
        k = nodes.parent[k]
    path.sizes[0] = count
    k = node
    stop = n_units
    for at in range(count - 1, -1, -1):
        path.nodes[at] = k
        path.stop[at] = stop
        stop = nodes.begin[k]
        k = nodes.parent[k]


@kernel
def count_spare(extents: Extents, path: Path) -> int:
    """Free items that suffice for any step along a path: what is held twice over, and some a node."""
    needed = 0
    for k in range(path.sizes[0]):
        needed += 2 * extents.held[path.nodes[k]] + 2
    return int(needed)


@kernel
def unlink(extents: Extents, item: int) -> None:
    """Take an extent out of the recency list."""
    newer = extents.newer[item]
    older = extents.older[item]
    extents.older[newer] = older
    extents.newer[older] = newer


@kernel
def link_after(extents: Extents, item: int, older: int) -> None:
    """Put an extent right behind `older` on the way to the newest; behind the sentinel's older it is the newest."""
    newer = extents.newer[older]
    extents.older[item] = older
    extents.newer[item] = newer
    extents.newer[older] = item
    extents.older[newer] = item


@kernel
def add_item(extents: Extents, node: int, before: int, begin: int, end: int) -> int:
    """A new extent of a node, right behind the extent `before` (-1: the first), in no recency list."""
    extents.totals[FREE] -= 1
    item = extents.free[extents.totals[FREE]]
    after = extents.after[before] if before >= 0 else extents.first[node]
    extents.held[node] += 1
    extents.begin[item] = begin
    extents.end[item] = end
    extents.node[item] = node
    extents.before[item] = before
    extents.after[item] = after
    if before >= 0:
        extents.after[before] = item
    else:
        extents.first[node] = item
    if after >= 0:
        extents.before[after] = item
    else:
        extents.last[node] = item
    return int(item)


@kernel
def drop_item(extents: Extents, item: int) -> None:
    """Forget an extent that is in no recency list."""
    node = extents.node[item]
    before = extents.before[item]
    after = extents.after[item]
    if before >= 0:
        extents.after[before] = after
    else:
        extents.first[node] = after
    if after >= 0:
        extents.before[after] = before
    else:
        extents.last[node] = before
    extents.held[node] -= 1
    extents.free[extents.totals[FREE]] = item
    extents.totals[FREE] += 1


@kernel
def split(extents: Extents, item: int, at: int) -> int:
    """Cut an extent before unit `at`; the new extent is its tail."""
    tail = add_item(extents, extents.node[item], item, at, extents.end[item])
    extents.end[item] = at
    extents.is_head_older[tail] = extents.is_head_older[item]
    link_after(extents, tail, item if extents.is_head_older[item] else extents.older[item])
    return tail


@kernel
def join_neighbour(extents: Extents, item: int) -> None:
    """Join the newest extent with the next older one where they are one stretch in both orders."""
    other = extents.older[item]
    if other == 0 or extents.node[other] != extents.node[item]:
        return
    is_head_older = extents.is_head_older[item]
    if extents.is_head_older[other] != is_head_older:
        return
    if not is_head_older and extents.end[item] == extents.begin[other]:
        extents.end[item] = extents.end[other]
    elif is_head_older and extents.end[other] == extents.begin[item]:
        extents.begin[item] = extents.begin[other]
    else:
        return
    unlink(extents, other)
    drop_item(extents, other)


@kernel
def touch_range(extents: Extents, nodes: Nodes, path: Path, begin: int, end: int) -> None:
    """Make the resident units of depths ``begin .. end - 1`` most recent, the tail first: the head ends newest."""
    if extents.policy == FIFO:
        return
    for k in range(path.sizes[0] - 1, -1, -1):
        node = path.nodes[k]
        if path.stop[k] <= begin:
            break
        base = nodes.first[node] - nodes.begin[node]
        low = base + max(begin, nodes.begin[node])
        high = base + min(end, path.stop[k])
        item = int(extents.last[node])
        while item >= 0 and extents.end[item] > low:
            if extents.begin[item] < high:
                if extents.end[item] > high:
                    split(extents, item, high)
                if extents.begin[item] < low:
                    item = split(extents, item, low)
                unlink(extents, item)
                extents.is_head_older[item] = False
                link_after(extents, item, extents.older[0])
                join_neighbour(extents, item)
            item = int(extents.before[item])


@kernel
def find_leading_end(extents: Extents, nodes: Nodes, path: Path, begin: int, end: int) -> int:
    """Depth where the run of resident units that starts at depth `begin` ends, at most `end`."""
    depth = begin
    for k in range(path.sizes[0]):
        node = path.nodes[k]
        stop = min(end, path.stop[k])
        if stop <= depth:
            continue
        base = nodes.first[node] - nodes.begin[node]
        item = extents.first[node]
        while item >= 0 and depth < stop:
            if extents.begin[item] > base + depth:
                return depth
            if extents.end[item] > base + depth:
                depth = extents.end[item] - base
            item = extents.after[item]
        if depth < stop:
            return depth
        depth = stop
    return depth


@kernel
def list_absent(extents: Extents, nodes: Nodes, path: Path, begin: int, end: int) -> int:
    """List the stretches of absent units of depths ``begin .. end - 1`` in `path`; units in them."""
    count = 0
    total = 0
    for k in range(path.sizes[0]):
        node = path.nodes[k]
        if path.stop[k] <= begin:
            continue
        if nodes.begin[node] >= end:
            break
        base = nodes.first[node] - nodes.begin[node]
        depth = max(begin, nodes.begin[node])
        stop = min(end, path.stop[k])
        item = extents.first[node]
        while depth < stop:
            until = stop if item < 0 else min(stop, max(depth, extents.begin[item] - base))
            if until > depth:
                if count > 0 and path.stretch_end[count - 1] == depth:
                    path.stretch_end[count - 1] = until
                else:
                    path.stretch_begin[count] = depth
                    path.stretch_end[count] = until
                    count += 1
                total += until - depth
            if item < 0:
                break
            depth = max(until, extents.end[item] - base)
            item = extents.after[item]
    path.sizes[1] = count
    return total


@kernel
def insert_range(extents: Extents, nodes: Nodes, path: Path, begin: int, end: int, tail_first: bool) -> int:
    """Make the absent units of depths ``begin .. end - 1`` resident, as the newest; how many.

    The first inserted ends up older: the tail, or the head.
    """
    inserted = 0
    for step in range(path.sizes[0]):
        k = path.sizes[0] - 1 - step if tail_first else step
        node = path.nodes[k]
        if path.stop[k] <= begin or nodes.begin[node] >= end:
            continue
        base = nodes.first[node] - nodes.begin[node]
        low = base + max(begin, nodes.begin[node])
        high = base + min(end, path.stop[k])
        inserted += fill_gaps(extents, node, low, high, tail_first)
    extents.totals[RESIDENT] += inserted
    extents.totals[INSERTED] += inserted
    return inserted


@kernel
def fill_gaps(extents: Extents, node: int, low: int, high: int, tail_first: bool) -> int:
    """Insert the absent ones of a node's units ``low .. high - 1``; how many."""
    inserted = 0
    if tail_first:
        item = int(extents.last[node])
        top = high
        while True:
            while item >= 0 and extents.begin[item] >= top:
                item = int(extents.before[item])
            if item >= 0 and extents.end[item] >= top:
                top = extents.begin[item]
                item = int(extents.before[item])
                if top <= low:
                    return inserted
                continue
            bottom = low if item < 0 else max(low, extents.end[item])
            if bottom >= top:
                return inserted
            inserted += top - bottom
            put(extents, node, item, bottom, top, False)
            top = bottom
            if top <= low:
                return inserted
            item = find_at_or_before(extents, node, top)
    bottom = low
    item = int(extents.first[node])
    while bottom < high:
        while item >= 0 and extents.end[item] <= bottom:
            item = int(extents.after[item])
        top = high if item < 0 else min(high, max(bottom, extents.begin[item]))
        if top > bottom:
            before = int(extents.last[node]) if item < 0 else int(extents.before[item])
            inserted += top - bottom
            put(extents, node, before, bottom, top, True)
        if item < 0:
            break
        bottom = max(bottom, extents.end[item])
    return inserted


@kernel
def find_at_or_before(extents: Extents, node: int, unit: int) -> int:
    """The last extent of a node that begins below a unit; -1 where none does."""
    item = int(extents.last[node])
    while item >= 0 and extents.begin[item] >= unit:
        item = int(extents.before[item])
    return item


@kernel
def put(extents: Extents, node: int, before: int, begin: int, end: int, is_head_older: bool) -> None:
    """A new extent, the newest."""
    item = add_item(extents, node, before, begin, end)
    extents.is_head_older[item] = is_head_older
    link_after(extents, item, extents.older[0])
    join_neighbour(extents, item)


@kernel
def evict_units(extents: Extents, n_units: int) -> None:
    """Drop so many units, in the order of the policy; as many must be resident."""
    left = n_units
    while left > 0:
        if extents.policy == MRU:
            item = int(extents.older[0])
            from_head = not extents.is_head_older[item]
        else:
            item = int(extents.newer[0])
            from_head = extents.is_head_older[item]
        n = min(left, extents.end[item] - extents.begin[item])
        if from_head:
            extents.begin[item] += n
        else:
            extents.end[item] -= n
        if extents.begin[item] == extents.end[item]:
            unlink(extents, item)
            drop_item(extents, item)
        left -= n
    extents.totals[RESIDENT] -= n_units
    extents.totals[EVICTED] += n_units
