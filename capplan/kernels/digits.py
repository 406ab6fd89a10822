"""Lists of whole numbers and of hexadecimal strings as JSON text, read without making an object of every one."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Int64s = NDArray[np.int64]
UInt8s = NDArray[np.uint8]
UInt64s = NDArray[np.uint64]
Ids = NDArray[np.uint32] | UInt64s

OPEN, CLOSE, COMMA, ZERO, NINE = 91, 93, 44, 48, 57
SPACE, TAB, LINE, RETURN = 32, 9, 10, 13
QUOTE, SMALL_X, LARGE_X = 34, 120, 88
TEN, SIXTEEN = np.uint64(10), np.uint64(16)
FEWEST_DECIMALS, MOST_DECIMALS = 17, 20  # so long 64-bit numbers are; shorter strings of digits are hexadecimal
LARGEST_SMALL = np.uint64(0xFFFFFFFF)
UNUSUAL = -1
LEAST_DECIMALS, MOST_DECIMALS = 17, 20
NO_DIGIT = 255
VALUES = np.full(256, NO_DIGIT, np.uint8)
VALUES[ZERO : NINE + 1] = range(10)
VALUES[65:71] = VALUES[97:103] = range(10, 16)


@kernel
def skip_space(text: UInt8s, at: int, end: int) -> int:
    """First place from `at` on that is no JSON white space."""
    while at < end and (text[at] == SPACE or text[at] == LINE or text[at] == RETURN or text[at] == TAB):
        at += 1
    return at


@kernel
def parse_number(text: UInt8s, at: int, end: int, n_safe: int, largest: np.uint64) -> tuple[int, np.uint64]:
    """The whole number at `at`: where it ends, or `UNUSUAL`, and itself.

    Any number of `n_safe` digits is at most `largest`; only where there are more, each is checked.
    """
    first = at
    number = np.uint64(0)
    safe_end = min(end, at + n_safe)
    while at < safe_end and ZERO <= text[at] <= NINE:
        number = number * TEN + np.uint64(text[at] - ZERO)
        at += 1
    if at == safe_end:
        while at < end and ZERO <= text[at] <= NINE:
            digit = np.uint64(text[at] - ZERO)
            if number > largest // TEN or number * TEN > largest - digit:
                return UNUSUAL, number
            number = number * TEN + digit
            at += 1
    if at == first or (text[first] == ZERO and at > first + 1):
        return UNUSUAL, number
    return at, number


@kernel
def parse_list(text: UInt8s, begin: int, end: int, ids: Ids, n_ids: int, largest: np.uint64) -> int:
    """Write the numbers of the list ``text[begin:end]`` into `ids` from `n_ids` on; where they end.

    `UNUSUAL` where it is anything but ``[``, whole numbers from 0 to `largest` between commas, ``]``.
    """
    n_safe = 9 if largest <= LARGEST_SMALL else 19
    if begin >= end or text[begin] != OPEN:
        return UNUSUAL
    at = skip_space(text, begin + 1, end)
    if at < end and text[at] == CLOSE:
        return n_ids if at + 1 == end else UNUSUAL
    while at < end:
        at, ids[n_ids] = parse_number(text, at, end, n_safe, largest)
        if at == UNUSUAL:
            return UNUSUAL
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


@kernel
def parse_string(text: UInt8s, at: int, end: int, has_decimals: bool) -> tuple[int, np.uint64]:
    """The number in the string whose quote stands at `at`: where the string ends, or `UNUSUAL`, and the low 64 bits.

    Hexadecimal with or without ``0x``; with `has_decimals`, decimal where there are 17 to 20 such digits.
    """
    at += 1
    is_decimal = has_decimals
    if at + 1 < end and text[at] == ZERO and (text[at + 1] == SMALL_X or text[at + 1] == LARGE_X):
        at += 2
        is_decimal = False
    first = at
    number = decimal = np.uint64(0)
    while at < end and VALUES[text[at]] != NO_DIGIT:
        digit = np.uint64(VALUES[text[at]])
        number = number * SIXTEEN + digit
        if is_decimal:
            is_decimal = bool(digit < TEN)
            decimal = decimal * TEN + digit
        at += 1
    if at == first or at >= end or text[at] != QUOTE:
        return UNUSUAL, number
    return at + 1, decimal if is_decimal and FEWEST_DECIMALS <= at - first <= MOST_DECIMALS else number


@kernel
def parse_string_list(text: UInt8s, begin: int, end: int, ids: UInt64s, n_ids: int, has_decimals: bool) -> int:
    """As `parse_list`, for a list of strings."""
    if begin >= end or text[begin] != OPEN:
        return UNUSUAL
    at = skip_space(text, begin + 1, end)
    if at < end and text[at] == CLOSE:
        return n_ids if at + 1 == end else UNUSUAL
    while at < end and text[at] == QUOTE:
        at, ids[n_ids] = parse_string(text, at, end, has_decimals)
        if at == UNUSUAL:
            return UNUSUAL
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
def parse_string_lists(text: UInt8s, ends: Int64s, ids: UInt64s, offsets: Int64s, has_decimals: bool) -> int:
    """As `parse_lists`, for lists of strings; `ids` has room for one number per four bytes."""
    n_ids = 0
    begin = 0
    offsets[0] = 0
    for k in range(ends.size):
        n_ids = parse_string_list(text, begin, ends[k], ids, n_ids, has_decimals)
        if n_ids == UNUSUAL:
            return k
        offsets[k + 1] = n_ids
        begin = ends[k]
    return ends.size
