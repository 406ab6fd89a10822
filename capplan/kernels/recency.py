"""Recency lists over numbered units: doubly linked, circular, one sentinel each.

Unit `x` is resident where ``newer[x] >= 0``. List `k` has the sentinel ``n_units + k``: what is newer
than the sentinel is the list's oldest unit, what is older is its newest. A policy that counts uses
keeps one list a count; every other policy uses list 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

LRU, FIFO, MRU, LFU = 0, 1, 2, 3
RESIDENT, INSERTED, EVICTED, LOWEST = 0, 1, 2, 3  # places in `totals`


class Store(NamedTuple):
    """The state of one tier.

    `uses` counts touches since insertion, and `mark` holds the last request that protects a unit;
    both are empty where no rule asks. `totals` holds resident, inserted and evicted units, and the
    lowest list that may hold any.
    """

    newer: Int32s
    older: Int32s
    uses: Int32s
    totals: Int64s
    n_units: int
    policy: int


def open_store(n_units: int, policy: int, n_lists: int) -> Store:
    """An empty tier for units ``0 .. n_units - 1``."""
    newer = np.full(n_units + n_lists, -1, np.int32)
    older = np.full(n_units + n_lists, -1, np.int32)
    sentinels = np.arange(n_units, n_units + n_lists, dtype=np.int32)
    newer[n_units:] = sentinels
    older[n_units:] = sentinels
    uses = np.zeros(n_units if policy == LFU else 0, np.int32)
    return Store(newer, older, uses, np.zeros(4, np.int64), n_units, policy)


@kernel
def is_resident(store: Store, unit: int) -> bool:
    """Whether the tier holds a unit."""
    return bool(store.newer[unit] >= 0)


@kernel
def unlink(store: Store, unit: int) -> None:
    """Take a unit out of its list."""
    newer = store.newer[unit]
    older = store.older[unit]
    store.older[newer] = older
    store.newer[older] = newer
    store.newer[unit] = -1


@kernel
def link_newest(store: Store, unit: int) -> None:
    """Put a unit that is in no list at the newest end of its own."""
    sentinel = store.n_units
    if store.policy == LFU:
        sentinel += store.uses[unit]
    newest = store.older[sentinel]
    store.newer[unit] = sentinel
    store.older[unit] = newest
    store.newer[newest] = unit
    store.older[sentinel] = unit


@kernel
def insert(store: Store, unit: int) -> None:
    """Make an absent unit resident, as the newest."""
    if store.policy == LFU:
        store.uses[unit] = 0
        store.totals[LOWEST] = 0
    link_newest(store, unit)
    store.totals[RESIDENT] += 1
    store.totals[INSERTED] += 1


@kernel
def touch(store: Store, unit: int) -> None:
    """Note the use of a resident unit, as the policy does."""
    if store.policy == FIFO:
        return
    unlink(store, unit)
    if store.policy == LFU:
        store.uses[unit] = min(store.uses[unit] + 1, store.newer.size - store.n_units - 1)
    link_newest(store, unit)


@kernel
def evict(store: Store, unit: int) -> None:
    """Drop a resident unit."""
    unlink(store, unit)
    store.totals[RESIDENT] -= 1
    store.totals[EVICTED] += 1


@kernel
def find_victim(store: Store) -> int:
    """The unit the policy drops next; -1 from an empty tier."""
    if store.totals[RESIDENT] == 0:
        return -1
    if store.policy == MRU:
        return int(store.older[store.n_units])
    if store.policy == LFU:
        while store.newer[store.n_units + store.totals[LOWEST]] >= store.n_units:
            store.totals[LOWEST] += 1
    return int(store.newer[store.n_units + store.totals[LOWEST]])


@kernel
def find_next_victim(store: Store, unit: int) -> int:
    """The unit dropped after `unit` were it kept; -1 where there is none."""
    if store.policy == MRU:
        before = int(store.older[unit])
        return before if before < store.n_units else -1
    after = int(store.newer[unit])
    while after >= store.n_units:
        if after + 1 >= store.newer.size:
            return -1
        after = int(store.newer[after + 1])
    return after


@kernel
def touch_path(store: Store, units: Int64s, begin: int, end: int, tail_first: bool) -> None:
    """Touch the resident ones of ``units[begin:end]``; the first touched ends up older."""
    for k in range(begin, end):
        unit = units[end - 1 - (k - begin)] if tail_first else units[k]
        if is_resident(store, unit):
            touch(store, unit)


@kernel
def count_leading(store: Store, units: Int64s, begin: int, end: int) -> int:
    """Where the run of resident units that starts at `begin` ends."""
    k = begin
    while k < end and is_resident(store, units[k]):
        k += 1
    return k
