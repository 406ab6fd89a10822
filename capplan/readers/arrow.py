"""Arrow IPC through polars: files and streams, with the functions of `parquet`.

A file's rows are read some at a time. A stream has no index, so its wanted columns are read at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capplan.readers import files, parquet

if TYPE_CHECKING:
    import polars as pl

FORMAT = "Arrow"
FILE_MAGIC = b"ARROW1"
STREAM_MAGIC = b"\xff\xff\xff\xff"  # stands before the length of a stream's first message


def is_arrow(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an Arrow file or stream."""
    return head.startswith((FILE_MAGIC, STREAM_MAGIC))


def read_header(path: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Column types by name, and no metadata; raises TraceError as `read_columns`."""
    import polars as pl

    with parquet.readable(path, FORMAT):
        place = files.locate_plain(path).absolute()
        return dict(pl.read_ipc_stream(place, n_rows=0).schema if _is_stream(path) else pl.read_ipc_schema(place)), {}


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """The named columns as a polars frame.

    Raises
    ------
    TraceError
        The file cannot be opened, or is not complete.
    """
    with parquet.readable(path, FORMAT):
        return _scan(path, names).collect()


def read_batches(path: Path, names: Sequence[str]) -> "Iterator[pl.DataFrame]":
    """The named columns, some rows at a time, in order; none of them empty. Raises TraceError as `read_columns`."""
    import polars as pl

    with parquet.readable(path, FORMAT):
        rows, n_bytes = _scan(path, names), files.find_size(path)
        n_rows = int(rows.select(pl.len()).collect().item()) if names else 0
        first, step = 0, parquet.FIRST_ROWS
        while first < n_rows:
            frame = rows.slice(first, step).collect()
            files.count_read(n_bytes * (first + frame.height) // n_rows - n_bytes * first // n_rows)
            yield frame
            first += frame.height
            step = parquet.MOST_ROWS if not frame.estimated_size() else _fit_rows(frame)


def _fit_rows(frame: "pl.DataFrame") -> int:
    return max(1, min(parquet.MOST_ROWS, parquet.BATCH_BYTES * frame.height // int(frame.estimated_size())))


def _scan(path: Path, names: Sequence[str]) -> "pl.LazyFrame":
    import polars as pl

    place = files.locate_plain(path).absolute()
    if _is_stream(path):
        return pl.read_ipc_stream(place, columns=list(names)).lazy()
    return pl.scan_ipc(place, glob=False, hive_partitioning=False).select(names)


def _is_stream(path: Path) -> bool:
    with files.locate_plain(path).open("rb") as file:
        return file.read(len(STREAM_MAGIC)) == STREAM_MAGIC
