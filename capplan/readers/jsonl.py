"""JSON Lines, row by row: decoded to a declared shape, with errors that name file and line."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.readers.sample import BYTE_ORDER_MARK, DECODE_ERRORS

Row = TypeVar("Row")
Item = TypeVar("Item")

BATCH_ROWS = 4096


def read_lines(path: Path, shape: type[Row]) -> Iterator[tuple[int, Row]]:
    """Line numbers (from 1) and decoded rows; blank lines are passed over.

    Raises
    ------
    TraceError
        A line that is not JSON or not of the shape.
    """
    decoder = msgspec.json.Decoder(shape)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                text = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).strip()
                if text:
                    yield number, decode_row(decoder, text, f"{path}, line {number}")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable file is needed") from error


def decode_row(decoder: msgspec.json.Decoder[Row], text: bytes, where: str) -> Row:
    """One row, or a TraceError that says where and what is wrong."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise TraceError(f"{where}: {error}") from error
    except DECODE_ERRORS as error:
        raise TraceError(f"{where}: not JSON ({error}); a complete object is needed") from error


def in_batches(rows: Iterable[Item], size: int = BATCH_ROWS) -> Iterator[list[Item]]:
    """Lists of at most `size` rows, none of them empty."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def flatten(lists: list[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Flat ids and (n + 1,) offsets of per-request arrays."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([ids.size for ids in lists], out=offsets[1:])
    return np.concatenate(lists) if lists else np.zeros(0, np.uint64), offsets
