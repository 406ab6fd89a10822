"""Longest known prefix of every path, by chained keys, without visiting its blocks one by one.

The tree is kept as segments: each row owns the part of its path that no earlier row has. A table
(`key_table`) leads from a key to its place in the segments. Keys of a path are known up to some depth
and unknown beyond it, so the depth is found by binary search; only unknown keys are ever inserted.
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import chain
from capplan.kernels._jit import kernel
from capplan.kernels.key_table import find_place, find_slot, make_entry, touch_slots

Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

MATCHED = -1


@kernel
def count_known(
    table: UInt32s, places: np.uint64, segments: UInt64s, keys: UInt64s, begin: int, n_keys: int, known: int
) -> int:
    """Leading keys of ``keys[begin:begin + n_keys]`` in the table, the first `known` of them granted."""
    low = known
    high = n_keys
    while low < high:
        middle = (low + high + 1) // 2
        if find_place(table, places, segments, keys[begin + middle - 1]) >= 0:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def find_row(starts: Int64s, n_rows: int, place: np.int64) -> int:
    """Row whose segment holds `place`: the last one that starts at or before it."""
    low = 0
    high = n_rows - 1
    while low < high:
        middle = (low + high + 1) // 2
        if starts[middle] <= place:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def read_key(segments: UInt64s, starts: Int64s, parent: Int64s, shared: Int64s, row: int, depth: int) -> np.uint64:
    """Key at block `depth` (counted from 1) of a row's path."""
    q = row
    while depth <= shared[q]:
        q = parent[q]
    key: np.uint64 = segments[starts[q] + depth - 1 - shared[q]]
    return key


@kernel
def find_mismatch(
    segments: UInt64s,
    starts: Int64s,
    parent: Int64s,
    shared: Int64s,
    row: int,
    keys: UInt64s,
    begin: int,
    depth: int,
) -> int:
    """Block, 0-based, where ``keys[begin:begin + depth]`` leaves the row's path; `MATCHED` if nowhere."""
    q = row
    high = depth
    while high > 0:
        low = shared[q]
        for k in range(high - 1, low - 1, -1):
            if keys[begin + k] != segments[starts[q] + k - low]:
                return k
        high = min(high, low)
        q = parent[q]
    return MATCHED


@kernel
def append_keys(
    table: UInt32s, places: np.uint64, segments: UInt64s, n_places: int, keys: UInt64s, begin: int, n_keys: int
) -> int:
    """Append keys to the segments and the table; index of the first one already there, else `MATCHED`."""
    if touch_slots(table, keys, begin, n_keys) < 0:
        return 0
    for k in range(n_keys):
        slot = find_slot(table, places, segments, keys[begin + k])
        if table[slot] != 0:
            return k
        segments[n_places + k] = keys[begin + k]
        table[slot] = make_entry(places, keys[begin + k], n_places + k)
    return MATCHED


@kernel
def link_keys(
    keys: UInt64s,
    offsets: Int64s,
    first_row: int,
    first: int,
    table: UInt32s,
    places: np.uint64,
    room: int,
    segments: UInt64s,
    starts: Int64s,
    parent: Int64s,
    shared: Int64s,
) -> tuple[int, int]:
    """Link paths given as block keys, checking that the keys are chained.

    Paths ``first ..`` of the batch become rows ``first_row + first ..``. Stops early where the
    segments or the table may lack room (`room` keys in all), so that the caller can enlarge them.

    Returns
    -------
    next_path, block
        First path not linked, and `MATCHED`; or the path and block where a key has a second
        predecessor or a second position.
    """
    for i in range(first, offsets.size - 1):
        row = first_row + i
        begin = offsets[i]
        depth = offsets[i + 1] - begin
        if starts[row] + depth > room:
            return i, MATCHED
        known = count_known(table, places, segments, keys, begin, depth, 0)
        parent[row] = -1
        if known > 0:
            place = find_place(table, places, segments, keys[begin + known - 1])
            q = find_row(starts, row, place)
            if shared[q] + place - starts[q] != known - 1:
                return i, known - 1
            differing = find_mismatch(segments, starts, parent, shared, q, keys, begin, known)
            if differing != MATCHED:
                return i, differing + 1
            parent[row] = q
        shared[row] = known
        clash = append_keys(table, places, segments, starts[row], keys, begin + known, depth - known)
        if clash != MATCHED:
            return i, known + clash
        starts[row + 1] = starts[row] + depth - known
    return offsets.size - 1, MATCHED


@kernel
def link_ids(
    ids: UInt32s,
    offsets: Int64s,
    block_ids: int,
    candidate: Int64s,
    first_row: int,
    first: int,
    table: UInt32s,
    places: np.uint64,
    room: int,
    segments: UInt64s,
    starts: Int64s,
    parent: Int64s,
    shared: Int64s,
    seeds: UInt64s,
    scratch: UInt64s,
) -> tuple[int, int]:
    """Link paths given as ids: compare with a candidate path first, hash only what is new.

    ``candidate[i]`` is an earlier path of the batch that this one may extend, -1 for none; it saves
    work and never changes the result. ``seeds[i]`` separates namespaces. Returns as `link_keys`.
    """
    for i in range(first, offsets.size - 1):
        row = first_row + i
        begin = offsets[i]
        n_ids = offsets[i + 1] - begin
        depth = n_ids // block_ids
        if starts[row] + depth > room:
            return i, MATCHED
        known = 0
        key = seeds[i]
        c = candidate[i]
        if c >= 0 and seeds[c] == seeds[i]:
            limit = min(n_ids, offsets[c + 1] - offsets[c])
            known = chain.count_common(ids, offsets[c], begin, limit) // block_ids
            if known > 0:
                key = read_key(segments, starts, parent, shared, first_row + c, known)
                scratch[known - 1] = key
        chain.chain_blocks(ids, begin + known * block_ids, block_ids, key, scratch[known:], depth - known)
        known = count_known(table, places, segments, scratch, 0, depth, known)
        parent[row] = -1
        if known > 0:
            parent[row] = find_row(starts, row, find_place(table, places, segments, scratch[known - 1]))
        shared[row] = known
        clash = append_keys(table, places, segments, starts[row], scratch, known, depth - known)
        if clash != MATCHED:
            return i, known + clash
        starts[row + 1] = starts[row] + depth - known
    return offsets.size - 1, MATCHED
