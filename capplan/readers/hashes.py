"""Block hashes as sources write them: integers of any sign or strings, up to 64 bits, never floats.

A string is hexadecimal, also one of decimal digits only, since among hexadecimal hashes some have no
letter. One of 17 to 20 decimal digits is decimal: that is how long 64-bit hashes are written so.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError

MASK = (1 << 64) - 1
DECIMAL_DIGITS = range(17, 21)


def to_keys(values: list[int] | list[str] | list[int | str], where: str) -> NDArray[np.uint64]:
    """Hashes as uint64: negative ones wrap, hex strings keep their low 64 bits.

    Raises
    ------
    TraceError
        An integer beyond 64 bits, or a string that is not a hexadecimal or decimal number.
    """
    try:
        if str not in set(map(type, values)):
            return np.array(values, np.uint64)
    except (OverflowError, ValueError, TypeError):
        pass
    return np.array([_to_key(value, k, where) for k, value in enumerate(values)], np.uint64)


def flatten_keys(
    lists: Sequence[list[int] | list[int | str]], locate: Callable[[int], str]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of many requests, flat, and their (n + 1,) offsets; `locate(k)` names request `k` in errors."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    try:
        if str not in set(map(type, chain.from_iterable(lists))):
            return np.fromiter(chain.from_iterable(lists), np.uint64, int(offsets[-1])), offsets
    except (OverflowError, ValueError, TypeError):
        pass
    keys = [to_keys(list(ids), locate(k)) for k, ids in enumerate(lists)]
    return np.concatenate(keys), offsets


def read_hex(values: list[int | str], where: str) -> list[int]:
    """Hashes whose strings are all hexadecimal, of longer ones the low 64 bits; raises TraceError as `to_keys`."""
    try:
        return [(int(value, 16) if isinstance(value, str) else value) & MASK for value in values]
    except ValueError:
        return [int(key) for key in to_keys(values, where)]


def _to_key(value: int | str, index: int, where: str) -> int:
    if isinstance(value, str):
        try:
            is_decimal = len(value) in DECIMAL_DIGITS and value.isdecimal()
            return int(value, 10 if is_decimal else 16) & MASK
        except ValueError:
            raise TraceError(
                f"{where}: block hash {index} is {value[:40]!r}; accepted: an integer or a hexadecimal string"
            ) from None
    if not -(1 << 63) <= value <= MASK:
        raise TraceError(f"{where}: block hash {index} is {value}; 64-bit integers are accepted")
    return value & MASK


def count_full_blocks(n_tokens: int, n_ids: int, block_tokens: int, where: str) -> int:
    """Ids of full blocks: the last one may stand for a partial block.

    Raises
    ------
    TraceError
        More ids than the prompt has blocks, or fewer than it has full ones.
    """
    full = n_tokens // block_tokens
    if not full <= n_ids <= -(-n_tokens // block_tokens):
        raise TraceError(
            f"{where}: {n_ids} block hashes for {n_tokens} tokens; accepted: {full} to "
            f"{-(-n_tokens // block_tokens)} of {block_tokens} tokens each"
        )
    return full


def keep_full_blocks(
    ids: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    n_tokens: NDArray[np.int64],
    block_tokens: int,
    locate: Callable[[int], str],
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Ids of full blocks, flat, and their (n + 1,) offsets: the last id of a prompt may stand for a partial one.

    Raises
    ------
    TraceError
        As `count_full_blocks`, for the first such prompt.
    """
    counts = np.diff(offsets)
    full = n_tokens // block_tokens
    surplus = counts - full
    wrong = (surplus < 0) | (surplus > (n_tokens % block_tokens > 0))
    if wrong.any():
        k = int(wrong.argmax())
        count_full_blocks(int(n_tokens[k]), int(counts[k]), block_tokens, locate(k))
    if not surplus.any():
        return ids, offsets
    is_kept = np.ones(ids.size, bool)
    is_kept[offsets[1:][surplus > 0] - 1] = False
    kept = np.zeros(offsets.size, np.int64)
    np.cumsum(full, out=kept[1:])
    return ids[is_kept], kept
