"""Lists of ids in JSON rows: declared as `IdList`, they stay text until all of a batch are read at once."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import digits
from capplan.readers import hashes

IdList = msgspec.Raw

T = TypeVar("T", np.uint32, np.uint64)
V = TypeVar("V")

NULL = msgspec.Raw(b"null")
LARGEST_SMALL = (1 << 32) - 1

_any_ids = msgspec.json.Decoder(list[int | str])
_integers = msgspec.json.Decoder(list[int])


def is_null(ids: IdList) -> bool:
    """Whether a row has null for a list."""
    return len(ids) == len(NULL) and bytes(ids) == bytes(NULL)


def parse_ids(
    lists: Sequence[IdList], name: str, locate: Callable[[int], str], needed: str = ""
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Ids of all rows, flat, and their (n + 1,) offsets.

    Parameters
    ----------
    lists : sequence of IdList
        One a row, JSON as it stands in the file.
    name : str
        Of the field, for errors.
    locate : callable
        Names a row in errors.
    needed : str
        What a row with null is told to have.

    Raises
    ------
    TraceError
        Something that is no list of whole numbers and strings, or a value that is no 64-bit number.
    """
    ids, offsets, n_usual = _parse(lists, np.uint64)
    if n_usual < len(lists):
        ids, offsets, n_usual = _parse_strings(lists, has_decimals=True)
    if n_usual == len(lists):
        return ids, offsets
    return hashes.flatten_keys(_decode_all(_any_ids, lists, name, locate, needed), locate)


def parse_hex_ids(
    lists: Sequence[IdList], name: str, locate: Callable[[int], str]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """As `parse_ids`, but strings are hexadecimal even where they have decimal digits only."""
    ids, offsets, n_usual = _parse_strings(lists, has_decimals=False)
    if n_usual == len(lists):
        return ids, offsets
    decoded = _decode_all(_any_ids, lists, name, locate, "")
    return hashes.flatten_keys([hashes.read_hex(keys, locate(k)) for k, keys in enumerate(decoded)], locate)


def parse_small_ids(
    lists: Sequence[IdList], name: str, locate: Callable[[int], str], needed: str = ""
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """As `parse_ids`, for ids from 0 to 2^32 - 1; flat, and how many every row has."""
    ids, offsets, n_usual = _parse(lists, np.uint32)
    if n_usual == len(lists):
        return ids, np.diff(offsets)
    decoded = _decode_all(_integers, lists, name, locate, needed)
    for k, numbers in enumerate(decoded):
        if any(not 0 <= number <= LARGEST_SMALL for number in numbers):
            raise TraceError(f"{locate(k)}: {name} holds an id outside 0 to {LARGEST_SMALL}")
    return np.array(list(chain.from_iterable(decoded)), np.uint32), np.array([len(numbers) for numbers in decoded])


def _parse(lists: Sequence[IdList], dtype: type[T]) -> tuple[NDArray[T], NDArray[np.int64], int]:
    """Ids, offsets, and how many lists were plain numbers of the type."""
    text, ends = _join(lists)
    ids = np.empty(text.size // 2 + 1, dtype)
    offsets = np.zeros(len(lists) + 1, np.int64)
    n_usual = digits.parse_lists(text, ends, ids, offsets, np.uint64(np.iinfo(dtype).max))
    return ids[: offsets[n_usual]].copy(), offsets, n_usual


def _parse_strings(lists: Sequence[IdList], *, has_decimals: bool) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
    """As `_parse`, of lists of strings."""
    text, ends = _join(lists)
    ids = np.empty(text.size // 4 + 1, np.uint64)
    offsets = np.zeros(len(lists) + 1, np.int64)
    with np.errstate(over="ignore"):
        n_usual = digits.parse_string_lists(text, ends, ids, offsets, has_decimals)
    return ids[: offsets[n_usual]].copy(), offsets, n_usual


def _join(lists: Sequence[IdList]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The text of all lists, and where each of them ends."""
    return np.frombuffer(b"".join(lists), np.uint8), np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))


def _decode_all(
    decoder: msgspec.json.Decoder[list[V]],
    lists: Sequence[IdList],
    name: str,
    locate: Callable[[int], str],
    needed: str,
) -> list[list[V]]:
    """All lists by the JSON parser, for what is unusual and for what is wrong."""
    for k, ids in enumerate(lists):
        if needed and is_null(ids):
            raise TraceError(f"{locate(k)}: {name} is null; {needed} on every row is accepted")
    return [_decode(decoder, ids, name, locate(k)) for k, ids in enumerate(lists)]


def _decode(decoder: msgspec.json.Decoder[list[V]], raw: IdList, name: str, where: str) -> list[V]:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", f"`$.{name}", 1)
        raise TraceError(f"{where}: {text}" + ("" if " - at " in text else f" - at `$.{name}`")) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: not JSON ({error}); a complete object is needed") from error
