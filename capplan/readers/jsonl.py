"""JSON Lines: decoded to a declared shape some megabytes at a time, with errors that name file and line."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.readers import files
from capplan.readers.files import BYTE_ORDER_MARK
from capplan.readers.sample import DECODE_ERRORS

Row = TypeVar("Row")
Item = TypeVar("Item")

BATCH_ROWS = 4096
BATCH_BYTES = 4 << 20
LINE_FEED = 10


@dataclass(frozen=True, slots=True)
class RowBatch(Generic[Row]):
    """Consecutive rows of a file, at least one, and their line numbers, counted from 1."""

    path: Path
    numbers: Sequence[int]
    rows: Sequence[Row]

    def where(self, k: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.path}, line {self.numbers[k]}"


def read_batches(path: Path, shape: type[Row], plain: type[Row] | None = None) -> Iterator[RowBatch[Row]]:
    """Rows of about `BATCH_BYTES` at a time; blank lines are passed over.

    Parameters
    ----------
    path : Path
    shape : type
        What a line is decoded to.
    plain : type, optional
        A narrower shape that forbids other fields. Batches are decoded to it, which takes less time,
        until one has a row that does not fit.

    Raises
    ------
    TraceError
        A line that is not JSON or not of the shape, or a file that cannot be read.
    """
    decoder = msgspec.json.Decoder(shape)
    quick = decoder if plain is None else msgspec.json.Decoder(plain)
    first = 1
    with files.open_bytes(path) as file:
        for text in _read_whole_lines(file, BATCH_BYTES):
            n_lines = _count_breaks(text) + (not text.endswith(b"\n"))
            rows = _decode_at_once(quick, text)
            if not rows and quick is not decoder:
                quick = decoder
                rows = _decode_at_once(quick, text)
            numbers: Sequence[int] = range(first, first + n_lines)
            if len(rows) != n_lines:
                numbers, rows = _decode_by_line(decoder, text, path, first)
            if rows:
                yield RowBatch(path, numbers, rows)
            first += n_lines


def _read_whole_lines(file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    text = file.read(n_bytes).removeprefix(BYTE_ORDER_MARK)
    while text:
        yield text if text.endswith(b"\n") else text + file.readline()
        text = file.read(n_bytes)


def _count_breaks(text: bytes) -> int:
    """Line feeds; where lines are short, far sooner than by `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == LINE_FEED))


def _decode_at_once(decoder: msgspec.json.Decoder[Row], text: bytes) -> list[Row]:
    """All rows, or none where a line is broken."""
    try:
        return decoder.decode_lines(text)
    except DECODE_ERRORS:
        return []


def _decode_by_line(
    decoder: msgspec.json.Decoder[Row], text: bytes, path: Path, first: int
) -> tuple[list[int], list[Row]]:
    numbers, rows = [], []
    for number, line in enumerate(text.split(b"\n"), first):
        stripped = line.strip()
        if stripped:
            numbers.append(number)
            rows.append(decode_row(decoder, stripped, f"{path}, line {number}"))
    return numbers, rows


def read_lines(path: Path, shape: type[Row]) -> Iterator[tuple[int, Row]]:
    """Line numbers (from 1) and decoded rows, one by one; raises TraceError as `read_batches`."""
    for batch in read_batches(path, shape):
        yield from zip(batch.numbers, batch.rows, strict=True)


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
