"""What a path does to extents: its nodes listed, runs found, ranges of depths touched and inserted."""

from capplan.kernels._jit import kernel
from capplan.kernels.extents import (
    AFTER,
    BEFORE,
    BEGIN,
    END,
    FIRST,
    HELD,
    IS_HEAD_OLDER,
    LAST,
    N_STEPS,
    N_STRETCHES,
    OLDER,
    PARENT,
    STEP_NODE,
    STOP,
    STRETCH_BEGIN,
    STRETCH_END,
    TOP,
    Extents,
    join_neighbour,
    link_after,
    put,
    split,
    unlink,
)
from capplan.kernels.recency import FIFO, INSERTED, RESIDENT


@kernel
def list_nodes(extents: Extents, node: int, n_units: int) -> int:
    """List the nodes from the root to `node`, in which a path of `n_units` units ends.

    Returns how many free items suffice for any step along it: what is held twice over, and some a node.
    """
    nodes, path = extents.nodes, extents.path
    count = 0
    needed = 0
    k = node
    while k >= 0:
        count += 1
        needed += 2 * nodes[k, HELD] + 2
        k = int(nodes[k, PARENT])
    extents.totals[N_STEPS] = count
    k = node
    stop = n_units
    for at in range(count - 1, -1, -1):
        path[at, STEP_NODE] = k
        path[at, STOP] = stop
        stop = int(nodes[k, TOP])
        k = int(nodes[k, PARENT])
    return int(needed)


@kernel
def touch_range(extents: Extents, begin: int, end: int) -> None:
    """Make the resident units of depths ``begin .. end - 1`` most recent, the tail first: the head ends newest."""
    if extents.policy == FIFO:
        return
    items, nodes, path = extents.items, extents.nodes, extents.path
    for k in range(extents.totals[N_STEPS] - 1, -1, -1):
        node = path[k, STEP_NODE]
        if path[k, STOP] <= begin:
            break
        low = max(begin, nodes[node, TOP])
        high = min(end, path[k, STOP])
        item = int(nodes[node, LAST])
        while item >= 0 and items[item, END] > low:
            if items[item, BEGIN] < high:
                if items[item, END] > high:
                    split(extents, item, high)
                if items[item, BEGIN] < low:
                    item = split(extents, item, low)
                unlink(items, item)
                items[item, IS_HEAD_OLDER] = 0
                link_after(items, item, items[0, OLDER])
                join_neighbour(extents, item)
            item = int(items[item, BEFORE])


@kernel
def find_leading_end(extents: Extents, begin: int, end: int) -> int:
    """Depth where the run of resident units that starts at depth `begin` ends, at most `end`."""
    items, path = extents.items, extents.path
    depth = begin
    for k in range(extents.totals[N_STEPS]):
        stop = min(end, path[k, STOP])
        if stop <= depth:
            continue
        item = int(extents.nodes[path[k, STEP_NODE], FIRST])
        while item >= 0 and depth < stop:
            if items[item, BEGIN] > depth:
                return depth
            depth = max(depth, int(items[item, END]))
            item = int(items[item, AFTER])
        if depth < stop:
            return depth
        depth = stop
    return depth


@kernel
def list_absent(extents: Extents, begin: int, end: int) -> int:
    """List the stretches of absent units of depths ``begin .. end - 1`` of the path; units in them."""
    items, nodes, path = extents.items, extents.nodes, extents.path
    count = 0
    total = 0
    for k in range(extents.totals[N_STEPS]):
        node = path[k, STEP_NODE]
        if path[k, STOP] <= begin:
            continue
        if nodes[node, TOP] >= end:
            break
        depth = max(begin, int(nodes[node, TOP]))
        stop = min(end, int(path[k, STOP]))
        item = int(nodes[node, FIRST])
        while depth < stop:
            until = stop if item < 0 else min(stop, max(depth, int(items[item, BEGIN])))
            if until > depth:
                if count > 0 and path[count - 1, STRETCH_END] == depth:
                    path[count - 1, STRETCH_END] = until
                else:
                    path[count, STRETCH_BEGIN] = depth
                    path[count, STRETCH_END] = until
                    count += 1
                total += until - depth
            if item < 0:
                break
            depth = max(until, int(items[item, END]))
            item = int(items[item, AFTER])
    extents.totals[N_STRETCHES] = count
    return total


@kernel
def insert_range(extents: Extents, begin: int, end: int, tail_first: bool) -> int:
    """Make the absent units of depths ``begin .. end - 1`` resident, as the newest; how many.

    The first inserted ends up older: the tail, or the head.
    """
    nodes, path, totals = extents.nodes, extents.path, extents.totals
    inserted = 0
    for step in range(totals[N_STEPS]):
        k = totals[N_STEPS] - 1 - step if tail_first else step
        node = path[k, STEP_NODE]
        low = max(begin, int(nodes[node, TOP]))
        high = min(end, int(path[k, STOP]))
        if low < high:
            inserted += fill_gaps(extents, node, low, high, tail_first)
    totals[RESIDENT] += inserted
    totals[INSERTED] += inserted
    return inserted


@kernel
def fill_gaps(extents: Extents, node: int, low: int, high: int, tail_first: bool) -> int:
    """Insert the absent ones of a node's units of depths ``low .. high - 1``; how many."""
    if tail_first:
        return fill_gaps_tail_first(extents, node, low, high)
    items = extents.items
    inserted = 0
    bottom = low
    item = int(extents.nodes[node, FIRST])
    while bottom < high:
        while item >= 0 and items[item, END] <= bottom:
            item = int(items[item, AFTER])
        top = high if item < 0 else min(high, max(bottom, int(items[item, BEGIN])))
        if top > bottom:
            before = int(extents.nodes[node, LAST]) if item < 0 else int(items[item, BEFORE])
            inserted += top - bottom
            put(extents, node, before, bottom, top, True)
        if item < 0:
            break
        bottom = max(bottom, int(items[item, END]))
    return inserted


@kernel
def fill_gaps_tail_first(extents: Extents, node: int, low: int, high: int) -> int:
    """`fill_gaps` from the tail to the head."""
    items = extents.items
    inserted = 0
    top = high
    item = find_before(extents, node, top)
    while top > low:
        if item >= 0 and items[item, END] >= top:
            top = int(items[item, BEGIN])
            item = int(items[item, BEFORE])
            continue
        bottom = low if item < 0 else max(low, int(items[item, END]))
        inserted += top - bottom
        put(extents, node, item, bottom, top, False)
        top = bottom
        item = find_before(extents, node, top)
    return inserted


@kernel
def find_before(extents: Extents, node: int, depth: int) -> int:
    """The last extent of a node that begins above a depth, nearer to the head; -1 where none does."""
    items = extents.items
    item = int(extents.nodes[node, LAST])
    while item >= 0 and items[item, BEGIN] >= depth:
        item = int(items[item, BEFORE])
    return item
