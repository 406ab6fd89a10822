"""Batches of generic Parquet, Arrow and JSONL tables as columns, one reader for all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from capplan.readers import arrow, files, jsonl, parquet
from capplan.readers.id_lists import NULL
from capplan.readers.sample import PARQUET_MAGIC

MAGIC_BYTES = 8


class Row(msgspec.Struct, gc=False):
    """What a row may say of its request beside ids and lengths; seconds for all times."""

    request_id: str | int | msgspec.UnsetType = msgspec.UNSET
    session_id: str | int | msgspec.UnsetType | None = msgspec.UNSET
    task_id: str | int | msgspec.UnsetType | None = msgspec.UNSET
    arrival_s: float | msgspec.UnsetType | None = msgspec.UNSET
    timestamp: float | msgspec.UnsetType | None = msgspec.UNSET
    start_s: float | msgspec.UnsetType | None = msgspec.UNSET
    gap_s: float | msgspec.UnsetType | None = msgspec.UNSET
    service_s: float | msgspec.UnsetType | None = msgspec.UNSET
    tail_gap_s: float | msgspec.UnsetType | None = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows of a source.

    Attributes
    ----------
    path : Path
    unit : "line" or "row"
        How messages call a row: lines of JSONL are counted from 1, rows of Parquet and Arrow from 0.
    numbers : sequence of int
        Number of every row.
    columns : dict
        Only fields the source has. Lists of plain values, nulls as None; columns of ids are a polars
        series from Parquet, and from JSONL an `IdList` a row.
    """

    path: Path
    unit: Literal["line", "row"]
    numbers: Sequence[int]
    columns: dict[str, Any]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def where(self, row: int) -> str:
        """File and number of a row, for messages."""
        return f"{self.path}, {self.unit} {self.numbers[row]}"

    def find_name(self, names: Sequence[str]) -> str | None:
        """The first of `names` that is a column."""
        return next((name for name in names if name in self.columns), None)


def find_columnar(path: Path) -> ModuleType | None:
    """The module that reads a file of columns: `parquet` or `arrow`; None where it is text."""
    with files.open_bytes(path) as file:
        head = file.read(MAGIC_BYTES)
    if head.startswith(PARQUET_MAGIC):
        return parquet
    return arrow if arrow.is_arrow(head) else None


def read_batches(path: Path, shape: type[msgspec.Struct], lists: Sequence[str]) -> Iterator[Batch]:
    """Batches of at least one row with the fields of `shape`; those in `lists` hold ids."""
    source = find_columnar(path)
    if source is not None:
        yield from _read_columnar(source, path, shape, lists)
    else:
        for batch in jsonl.read_batches(path, shape):
            yield Batch(path, "line", batch.numbers, _to_columns(batch.rows, shape, lists))


def _to_columns(
    rows: Sequence[msgspec.Struct], shape: type[msgspec.Struct], lists: Sequence[str]
) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {}
    for name in shape.__struct_fields__:
        values = list(map(attrgetter(name), rows))
        if values[0] is msgspec.UNSET and values.count(msgspec.UNSET) == len(values):
            continue
        if msgspec.UnsetType in set(map(type, values)):
            missing = NULL if name in lists else None
            values = [missing if value is msgspec.UNSET else value for value in values]
        columns[name] = values
    return columns


def _read_columnar(
    source: ModuleType, path: Path, shape: type[msgspec.Struct], lists: Sequence[str]
) -> Iterator[Batch]:
    types, _ = source.read_header(path)
    kept = [name for name in shape.__struct_fields__ if name in types]
    first = 0
    for frame in source.read_batches(path, kept):
        columns = {name: frame[name] if name in lists else frame[name].to_list() for name in kept}
        yield Batch(path, "row", range(first, first + frame.height), columns)
        first += frame.height


def is_parquet_series(column: Sequence[Any] | Any) -> bool:
    """Whether a column came from Parquet."""
    return not isinstance(column, list)
