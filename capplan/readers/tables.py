"""Batches of generic Parquet and JSONL tables as columns of plain lists, one reader for both."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.readers import jsonl
from capplan.readers.sample import PARQUET_MAGIC, first_line

Table = dict[str, Sequence[Any]]


def read_tables(path: Path, shape: type[msgspec.Struct], lists: tuple[str, ...]) -> Iterator[tuple[str, int, Table]]:
    """Batches as (unit, number of the first row, columns); columns hold only fields the source has.

    `unit` is "line" for JSONL, where rows are counted from 1, and "row" for Parquet. Columns named in
    `lists` come as they are (lists, or polars list series); others as Python values with None.
    """
    with path.open("rb") as file:
        is_parquet = file.read(4) == PARQUET_MAGIC
    if is_parquet:
        yield from _read_parquet(path, shape, lists)
    else:
        for batch in jsonl.in_batches(jsonl.read_lines(path, shape)):
            yield "line", batch[0][0], _to_columns([row for _, row in batch], shape, path, batch[0][0])


def _to_columns(rows: Sequence[msgspec.Struct], shape: type[msgspec.Struct], path: Path, first: int) -> Table:
    table: Table = {}
    for name in shape.__struct_fields__:
        values = [getattr(row, name) for row in rows]
        present = [value is not msgspec.UNSET for value in values]
        if all(present):
            table[name] = values
        elif any(present):
            table[name] = [value if value is not msgspec.UNSET else None for value in values]
    return table


def _read_parquet(path: Path, shape: type[msgspec.Struct], lists: tuple[str, ...]) -> Iterator[tuple[str, int, Table]]:
    import polars as pl

    try:
        names = set(pl.read_parquet_schema(path))
        kept = [name for name in shape.__struct_fields__ if name in names]
        frame = pl.scan_parquet(path).select(kept).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(f"{path}: not readable as Parquet ({first_line(error)}); a complete file is needed") from error
    if frame.height:
        yield "row", 0, {name: frame[name] if name in lists else frame[name].to_list() for name in kept}


def is_parquet_series(column: Sequence[Any] | Any) -> bool:
    """Whether a column came from Parquet."""
    return not isinstance(column, list)


def present_names(table: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """Those of `names` that the table has."""
    return [name for name in names if name in table]
