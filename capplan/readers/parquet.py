"""Parquet through polars: one file, no glob patterns, and every failure a TraceError of one line."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capplan.errors import TraceError


def read_header(path: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Column types by name, and the file's own metadata; raises TraceError as `read_columns`."""
    import polars as pl

    with readable(path):
        types = dict(pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False).collect_schema())
        return types, pl.read_parquet_metadata(path.absolute())


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """The named columns as a polars frame.

    Raises
    ------
    TraceError
        The file cannot be opened, or is not a complete Parquet file.
    """
    import polars as pl

    with readable(path):
        return pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False).select(names).collect()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn failures of the operating system and of polars, its panics included, into a TraceError."""
    import polars as pl

    try:
        path.open("rb").close()
        yield
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable file is needed") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise TraceError(f"{path}: not readable as Parquet ({first_line(error)}); a complete file is needed") from error


def first_line(error: BaseException) -> str:
    """An error's message cut to its first line."""
    return str(error).strip().split("\n", 1)[0]
