"""Parquet through polars: one file, no glob patterns, and every failure a TraceError of one line."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capplan.errors import TraceError
from capplan.readers import files

if TYPE_CHECKING:
    import polars as pl

BATCH_BYTES = 128 << 20
FIRST_ROWS = 256
MOST_ROWS = 1 << 18


def read_header(path: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Column types by name, and the file's own metadata; raises TraceError as `read_columns`."""
    import polars as pl

    with readable(path):
        return dict(_scan(path).collect_schema()), pl.read_parquet_metadata(files.locate_plain(path).absolute())


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """The named columns as a polars frame.

    Raises
    ------
    TraceError
        The file cannot be opened, or is not a complete Parquet file.
    """
    with readable(path):
        return _scan(path).select(names).collect()


def read_batches(path: Path, names: Sequence[str]) -> "Iterator[pl.DataFrame]":
    """The named columns, rows of about `BATCH_BYTES` at a time, in order; none of them empty.

    Rows are asked for by number, which Parquet answers without decoding others, so that memory does not
    depend on how large the file's row groups are.

    Raises
    ------
    TraceError
        As `read_columns`.
    """
    with readable(path):
        n_rows, n_bytes = _count_rows(path), files.find_size(path)
        first, step = 0, FIRST_ROWS
        while first < n_rows and names:
            frame = _scan(path).select(names).slice(first, step).collect()
            files.count_read(n_bytes * (first + frame.height) // n_rows - n_bytes * first // n_rows)
            yield frame
            first += frame.height
            step = max(1, min(MOST_ROWS, BATCH_BYTES * frame.height // max(1, int(frame.estimated_size()))))


def _scan(path: Path) -> "pl.LazyFrame":
    import polars as pl

    return pl.scan_parquet(files.locate_plain(path).absolute(), glob=False, hive_partitioning=False)


def _count_rows(path: Path) -> int:
    import polars as pl

    return int(_scan(path).select(pl.len()).collect().item())


@contextmanager
def readable(path: Path, what: str = "Parquet") -> Iterator[None]:
    """Turn failures of the operating system and of polars, its panics included, into a TraceError."""
    import polars as pl

    try:
        files.locate(path).open("rb").close()
        yield
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable file is needed") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise TraceError(f"{path}: not readable as {what} ({first_line(error)}); a complete file is needed") from error


def first_line(error: BaseException) -> str:
    """An error's message cut to its first line."""
    return str(error).strip().split("\n", 1)[0]
