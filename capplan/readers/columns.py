"""Request columns that generic Parquet and JSONL sources may carry, under the names they use."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, Requests
from capplan.readers.sample import Account
from capplan.readers.tables import Batch
from capplan.schema import LARGEST_TOKENS

INPUT_NAMES = ("input_tokens", "input_length")
OUTPUT_NAMES = ("output_tokens", "output_length")
ARRIVAL_NAMES = ("arrival_s", "timestamp")
TIMES = ("gap_s", "service_s", "start_s", "tail_gap_s")


def make_requests(
    batch: Batch,
    n_input: NDArray[np.int64],
    n_output: NDArray[np.int64] | None,
    account: Account,
    first_s: list[float],
) -> Requests:
    """Request columns from those a batch has.

    Parameters
    ----------
    batch : Batch
        The columns.
    n_input : (n,) int64
        Prompt lengths.
    n_output : (n,) int64, optional
        Output lengths where the ids give them; else the source's column is taken.
    account : Account
        Counts the rows and keeps what is assumed.
    first_s : list of float
        Holds the trace's first arrival once one was met, across batches.
    """
    session = _labels(batch, "session_id")
    requests = Requests.of(
        n_input,
        output_tokens=find_counts(batch, OUTPUT_NAMES) if n_output is None else n_output,
        request_ids=_names(batch, account),
        session=session,
        task=_tasks(batch, session, account),
        arrival_s=_arrivals(batch, account, first_s),
        **{name: _seconds(batch, name, batch.columns[name]) for name in TIMES if name in batch.columns},
    )
    account.n_read += len(batch)
    return requests


def find_counts(batch: Batch, names: Sequence[str]) -> NDArray[np.int64] | None:
    """Token counts under the first of `names` that the source has."""
    name = batch.find_name(names)
    if name is None:
        return None
    for k, value in enumerate(batch.columns[name]):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_TOKENS:
            raise TraceError(
                f"{batch.where(k)}: {name} is {value!r}; a whole number from 0 to {LARGEST_TOKENS} is accepted"
            )
    return np.array(batch.columns[name], np.int64)


def _names(batch: Batch, account: Account) -> list[str]:
    names = batch.columns.get("request_id")
    if names is None:
        return [str(account.n_read + k) for k in range(len(batch))]
    for k, name in enumerate(names):
        if name is None:
            raise TraceError(f"{batch.where(k)}: request_id is null; a name on every row, or on none, is accepted")
    return [str(name) for name in names]


def _labels(batch: Batch, name: str) -> Labels | None:
    if name not in batch.columns:
        return None
    return Labels.encode(None if value is None else str(value) for value in batch.columns[name])


def _tasks(batch: Batch, session: Labels | None, account: Account) -> Labels | None:
    """Task names; a session without one is a task of its own."""
    task = _labels(batch, "task_id")
    if session is None:
        return task
    names = [None] * len(batch) if task is None else task.decode()
    if any(name is None and code >= 0 for name, code in zip(names, session.codes.tolist(), strict=True)):
        account.assume("sessions without a task_id are tasks of their own")
    return Labels.encode(own if name is None else name for name, own in zip(names, session.decode(), strict=True))


def _seconds(batch: Batch, name: str, values: Sequence[Any]) -> NDArray[np.float64]:
    """Seconds as float64, nulls as NaN."""
    for k, value in enumerate(values):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or math.isinf(value)):
            raise TraceError(f"{batch.where(k)}: {name} is {value!r}; seconds as a number are accepted")
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _arrivals(batch: Batch, account: Account, first_s: list[float]) -> NDArray[np.float64] | None:
    """Seconds since the first arrival of the trace."""
    name = batch.find_name(ARRIVAL_NAMES)
    if name is None:
        return None
    values = batch.columns[name]
    if any(isinstance(value, datetime) for value in values):
        values = [None if value is None else _to_epoch(value) for value in values]
    elif name == "timestamp":
        account.assume("timestamp is read as seconds")
    seconds = _seconds(batch, name, values)
    if not first_s:
        first_s.extend(seconds[~np.isnan(seconds)][:1].tolist())
    with np.errstate(over="ignore"):
        return seconds - first_s[0] if first_s else seconds


def _to_epoch(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
