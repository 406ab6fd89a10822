"""Where a key stands in an array of different keys: a hash table that does not hold the keys themselves.

A slot is 32 bits: the place of a key, counted from 1, and in the bits that places leave free some of
the key's own, so that hardly any other key is looked at. A table may have any number of slots; `places`
is the mask of the bits its places need.
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

SPREAD = np.uint64(0x9E3779B97F4A7C15)
LOW_WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@kernel
def choose_slot(n_slots: int, spread: np.uint64) -> np.int64:
    """The slot a spread key belongs to: its upper 32 bits as a share of all slots."""
    return np.int64(((spread >> HALF) * np.uint64(n_slots)) >> HALF)


@kernel
def find_slot(table: UInt32s, places: np.uint64, segments: UInt64s, key: np.uint64) -> np.int64:
    """Slot of `key`: the one that leads to it, else the empty one where it belongs."""
    n_slots = table.shape[0]
    spread = key * SPREAD
    slot = choose_slot(n_slots, spread)
    while table[slot] != 0:
        entry = np.uint64(table[slot])
        if ((entry ^ spread) & LOW_WORD) <= places and segments[np.int64(entry & places) - 1] == key:
            break
        slot += 1
        if slot == n_slots:
            slot = np.int64(0)
    return slot


@kernel
def find_place(table: UInt32s, places: np.uint64, segments: UInt64s, key: np.uint64) -> np.int64:
    """Place of `key` in the segments; -1 where it is unknown."""
    return np.int64(np.uint64(table[find_slot(table, places, segments, key)]) & places) - 1


@kernel
def make_entry(places: np.uint64, key: np.uint64, place: int) -> np.uint32:
    """What a slot holds: the place, counted from 1, and in the bits above it the spread key's own."""
    return np.uint32(((key * SPREAD) & LOW_WORD & ~places) | np.uint64(place + 1))


@kernel
def fill_table(table: UInt32s, places: np.uint64, segments: UInt64s, n_keys: int) -> None:
    """Enter the first `n_keys` segment keys, all different, into an empty table."""
    n_slots = table.shape[0]
    for place in range(n_keys):
        slot = choose_slot(n_slots, segments[place] * SPREAD)
        while table[slot] != 0:
            slot += 1
            if slot == n_slots:
                slot = np.int64(0)
        table[slot] = make_entry(places, segments[place], place)


@kernel
def touch_slots(table: UInt32s, keys: UInt64s, begin: int, n_keys: int) -> int:
    """Read where `n_keys` keys belong, one right after the other: memory answers many reads as soon as one.

    The sum of what stands there, never negative, is returned so that the reads are not left out.
    """
    total = 0
    for k in range(begin, begin + n_keys):
        total += int(table[choose_slot(table.shape[0], keys[k] * SPREAD)])
    return total
