"""Lists of whole numbers as JSON text, read without making an object of every number."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]
UInt8s = NDArray[np.uint8]
Ids = NDArray[np.uint32] | NDArray[np.uint64]

OPEN, CLOSE, COMMA, ZERO, NINE = 91, 93, 44, 48, 57
SPACE, TAB, LINE, RETURN = 32, 9, 10, 13
TEN = np.uint64(10)
UNUSUAL = -1


@kernel
def skip_space(text: UInt8s, at: int, end: int) -> int:
    """First place from `at` on that is no JSON white space."""
    while at < end and (text[at] == SPACE or text[at] == LINE or text[at] == RETURN or text[at] == TAB):
        at += 1
    return at


@kernel
def parse_list(text: UInt8s, begin: int, end: int, ids: Ids, n_ids: int, largest: np.uint64) -> int:
    """Write the numbers of the list ``text[begin:end]`` into `ids` from `n_ids` on; where they end.

    `UNUSUAL` where it is anything but ``[``, whole numbers from 0 to `largest` between commas, ``]``.
    """
    tenth = largest // TEN
    last = np.int64(largest % TEN)
    if begin >= end or text[begin] != OPEN:
        return UNUSUAL
    at = skip_space(text, begin + 1, end)
    if at < end and text[at] == CLOSE:
        return n_ids if at + 1 == end else UNUSUAL
    while at < end:
        first = at
        number = np.uint64(0)
        while at < end and ZERO <= text[at] <= NINE:
            digit = text[at] - ZERO
            if number >= tenth and (number > tenth or digit > last):
                return UNUSUAL
            number = number * TEN + np.uint64(digit)
            at += 1
        if at == first or (text[first] == ZERO and at > first + 1):
            return UNUSUAL
        ids[n_ids] = number
        n_ids += 1
        at = skip_space(text, at, end)
        if at >= end:
            return UNUSUAL
        if text[at] == CLOSE:
            return n_ids if at + 1 == end else UNUSUAL
        if text[at] != COMMA:
            return UNUSUAL
        at = skip_space(text, at + 1, end)
    return UNUSUAL


@kernel
def parse_lists(text: UInt8s, ends: Int64s, ids: Ids, offsets: Int64s, largest: np.uint64) -> int:
    """Numbers of all lists, one after the other.

    Parameters
    ----------
    text : (bytes,) uint8
        The lists, joined.
    ends : (n,) int64
        Where each of them ends.
    ids : uint32 or uint64
        Room for one number per two bytes.
    offsets : (n + 1,) int64
        Filled: numbers of list `k` are ``ids[offsets[k]:offsets[k + 1]]``.
    largest : uint64
        What the type of `ids` can hold.

    Returns
    -------
    n_lists : int
        Lists parsed; fewer than there are where the next one is unusual.
    """
    n_ids = 0
    begin = 0
    offsets[0] = 0
    for k in range(ends.size):
        n_ids = parse_list(text, begin, ends[k], ids, n_ids, largest)
        if n_ids == UNUSUAL:
            return k
        offsets[k + 1] = n_ids
        begin = ends[k]
    return ends.size
