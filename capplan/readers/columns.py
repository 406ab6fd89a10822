"""Request columns that generic Parquet and JSONL sources may carry, under the names they use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, Requests
from capplan.readers.sample import Account

INPUT_NAMES = ("input_tokens", "input_length")
OUTPUT_NAMES = ("output_tokens", "output_length")
TIMES = ("gap_s", "service_s", "start_s", "tail_gap_s")


def make_requests(
    table: dict[str, Sequence[Any]],
    n_input: NDArray[np.int64],
    n_output: NDArray[np.int64] | None,
    path: Path,
    account: Account,
    first_s: list[float],
) -> Requests:
    """Request columns from a table of lists.

    Parameters
    ----------
    table : dict of lists
        Any of the optional columns, nulls as None.
    first_s : list of float
        Holds the trace's first arrival once one was met, across batches.
    """
    n = n_input.size
    session = _labels(table, "session_id")
    task = _labels(table, "task_id")
    if task is None and session is not None:
        task = session
        account.assume("no task_id: every session is a task of its own")
    if n_output is None:
        n_output = _first_column(table, OUTPUT_NAMES, path, account.n_read)
    arrival = _arrivals(table, path, account, first_s)
    names = table.get("request_id")
    requests = Requests.of(
        n_input,
        output_tokens=n_output,
        request_ids=[str(account.n_read + k) for k in range(n)] if names is None else [str(name) for name in names],
        session=session,
        task=task,
        arrival_s=arrival,
        **{name: _seconds(table[name], name, path, account.n_read) for name in TIMES if name in table},
    )
    account.n_read += n
    return requests


def find_input_tokens(table: dict[str, Sequence[Any]], path: Path, first_row: int) -> NDArray[np.int64] | None:
    """Prompt lengths where the source states them."""
    return _first_column(table, INPUT_NAMES, path, first_row)


def _first_column(
    table: dict[str, Sequence[Any]], names: tuple[str, ...], path: Path, first_row: int
) -> NDArray[np.int64] | None:
    for name in names:
        if name in table:
            for k, value in enumerate(table[name]):
                if not isinstance(value, int) or isinstance(value, bool):
                    raise TraceError(f"{path}, row {first_row + k}: {name} is {value!r}; a whole number is accepted")
            return np.array(table[name], np.int64)
    return None


def _labels(table: dict[str, Sequence[Any]], name: str) -> Labels | None:
    if name not in table:
        return None
    return Labels.encode(None if value is None else str(value) for value in table[name])


def _seconds(values: Sequence[Any], name: str, path: Path, first_row: int) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    except (TypeError, ValueError):
        row = next(k for k, value in enumerate(values) if not isinstance(value, int | float | None))
        raise TraceError(
            f"{path}, row {first_row + row}: {name} is {values[row]!r}; seconds as a number are accepted"
        ) from None


def _arrivals(
    table: dict[str, Sequence[Any]], path: Path, account: Account, first_s: list[float]
) -> NDArray[np.float64] | None:
    name = next((name for name in ("arrival_s", "timestamp") if name in table), None)
    if name is None:
        return None
    values = list(table[name])
    known = next((value for value in values if value is not None), None)
    if hasattr(known, "timestamp"):
        values = [None if value is None else value.timestamp() for value in values]
    elif name == "timestamp":
        account.assume("timestamp is read as seconds")
    seconds = _seconds(values, name, path, account.n_read)
    if not first_s:
        first_s.extend(seconds[~np.isnan(seconds)][:1].tolist())
    return seconds - first_s[0] if first_s else seconds
