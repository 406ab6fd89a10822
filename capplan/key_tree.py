"""The prefix tree that linking grows: every key once, and a table that leads from a key to its place."""

from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import key_table

Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
T = TypeVar("T", bound=np.generic)

FIRST_SLOTS = 1 << 16
MANY_SLOTS = 1 << 24
MOST_SLOTS = 1 << 32
MOST_KEYS = 3 << 30  # what fits in so many


@dataclass(slots=True)
class KeyTree:
    """Segments of the prefix tree and the table of their places; grows as paths are added.

    Attributes
    ----------
    table : (slots,) uint32
        Places of keys in `segments`, as `key_table.make_entry` writes them; 0 is empty. At most three
        quarters full: 5 to 8 bytes a key where there are many. No slots while it is not needed.
    segments : uint64
        Keys of every row's own part of the tree, row after row.
    starts : int64
        Where each row's part begins; the last one, where the next row's would.
    parent, shared : int64
        Links of the rows, in blocks.
    """

    table: UInt32s
    segments: UInt64s
    starts: Int64s
    parent: Int64s
    shared: Int64s
    n_rows: int = 0

    @classmethod
    def empty(cls) -> Self:
        """A tree without rows."""
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(1, np.int64), nothing, nothing)

    @classmethod
    def rebuild(cls, segments: UInt64s, starts: Int64s, parent: Int64s, shared: Int64s) -> Self:
        """The tree of linked rows whose keys are known; copies what it is given."""
        nothing = np.zeros(0, np.uint32)
        return cls(nothing, segments.copy(), starts.copy(), parent.copy(), shared.copy(), parent.size)

    @property
    def n_keys(self) -> int:
        """Keys in use."""
        return int(self.starts[self.n_rows])

    @property
    def room(self) -> int:
        """Keys that fit without enlarging."""
        return count_room(self.table.size)

    @property
    def places(self) -> np.uint64:
        """The bits of a slot that hold a place."""
        return np.uint64((1 << self.room.bit_length()) - 1)

    def add_rows(self, n_rows: int) -> None:
        """Make room for `n_rows` more rows."""
        needed = self.n_rows + n_rows
        if needed > self.parent.size:
            size = max(needed, 2 * self.parent.size)
            self.parent = _enlarge(self.parent, size)
            self.shared = _enlarge(self.shared, size)
            self.starts = _enlarge(self.starts, size + 1)

    def add_room(self, n_used: int, n_more: int) -> None:
        """Keep the first `n_used` keys and make room for `n_more`, and some to spare.

        The table is made anew from the segments; the old one is gone before, so that it never takes
        memory beside another, or beside two copies of the segments.

        Raises
        ------
        TraceError
            More keys than a table of 32-bit numbers can tell apart.
        """
        if n_used + n_more > MOST_KEYS:
            raise TraceError(f"more than {MOST_KEYS:,} distinct blocks; link the parts of the trace apart")
        n_slots = max(FIRST_SLOTS, enlarge_table(self.table.size))
        while count_room(n_slots) < n_used + n_more:
            n_slots = enlarge_table(n_slots)
        n_slots = min(n_slots, MOST_SLOTS)
        self.drop_table()
        self.segments = _enlarge(self.segments, count_room(n_slots))
        self.table = np.zeros(n_slots, np.uint32)
        with np.errstate(over="ignore"):
            key_table.fill_table(self.table, self.places, self.segments, n_used)

    def drop_table(self) -> None:
        """Give up the table; `add_room` makes it anew."""
        self.table = np.zeros(0, np.uint32)


def enlarge_table(n_slots: int) -> int:
    """Slots of the next larger table: twice as many, half as many more where they take memory."""
    return n_slots + (n_slots if n_slots < MANY_SLOTS else n_slots // 2)


def count_room(n_slots: int) -> int:
    """Keys that a table of so many slots takes: a search for a free one is long in a fuller one."""
    return n_slots // 4 * 3


def _enlarge(array: NDArray[T], size: int) -> NDArray[T]:
    """A copy with zeros behind it, which take no memory until they are written over."""
    larger = np.zeros(max(size, array.size), array.dtype)
    larger[: array.size] = array
    return larger
