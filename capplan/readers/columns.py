"""Request columns that generic Parquet and JSONL sources may carry, under the names they use."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, NumberNames, Requests
from capplan.readers.clock import tell_steps_back
from capplan.readers.sample import Account
from capplan.readers.tables import Batch
from capplan.schema import LARGEST_TOKENS

INPUT_NAMES = ("input_tokens", "input_length")
OUTPUT_NAMES = ("output_tokens", "output_length")
ARRIVAL_NAMES = ("arrival_s", "timestamp")
SECONDS_TYPES = {int, float, type(None)}
TIMES = ("gap_s", "service_s", "start_s", "tail_gap_s")


def make_requests(
    batch: Batch,
    n_input: NDArray[np.int64],
    n_output: NDArray[np.int64] | None,
    account: Account,
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
        Counts the rows and keeps what is assumed, and the first arrival.
    """
    session = _labels(batch, "session_id")
    requests = Requests.of(
        n_input,
        output_tokens=find_counts(batch, OUTPUT_NAMES) if n_output is None else n_output,
        request_ids=_names(batch, account),
        session=session,
        task=_tasks(batch, session, account),
        arrival_s=_arrivals(batch, account),
        **{name: _seconds(batch, name, batch.columns[name]) for name in TIMES if name in batch.columns},
    )
    account.n_read += len(batch)
    return requests


def find_counts(batch: Batch, names: Sequence[str]) -> NDArray[np.int64] | None:
    """Token counts under the first of `names` that the source has."""
    name = batch.find_name(names)
    if name is None:
        return None
    values = batch.columns[name]
    if set(map(type, values)) == {int}:
        try:
            counts = np.array(values, np.int64)
        except OverflowError:
            counts = np.array([-1], np.int64)
        if counts.min() >= 0 and counts.max() <= LARGEST_TOKENS:
            return counts
    k = next(k for k, value in enumerate(values) if type(value) is not int or not 0 <= value <= LARGEST_TOKENS)
    raise TraceError(
        f"{batch.where(k)}: {name} is {values[k]!r}; a whole number from 0 to {LARGEST_TOKENS} is accepted"
    )


def _names(batch: Batch, account: Account) -> Sequence[str]:
    names = batch.columns.get("request_id")
    if names is None:
        return NumberNames.starting_at(account.n_read, len(batch))
    for k, name in enumerate(names):
        if name is None:
            raise TraceError(f"{batch.where(k)}: request_id is null; a name on every row, or on none, is accepted")
    return list(map(str, names))


def _labels(batch: Batch, name: str) -> Labels | None:
    if name not in batch.columns:
        return None
    return Labels.encode(None if value is None else str(value) for value in batch.columns[name])


def _tasks(batch: Batch, session: Labels | None, account: Account) -> Labels | None:
    """Task names; a session without one is a task of its own."""
    task = _labels(batch, "task_id")
    if session is None:
        return task
    if task is None or bool(((task.codes < 0) & (session.codes >= 0)).any()):
        account.assume("sessions without a task_id are tasks of their own")
    if task is None:
        return session
    return Labels.encode(
        own if name is None else name for name, own in zip(task.decode(), session.decode(), strict=True)
    )


def _seconds(batch: Batch, name: str, values: Sequence[Any]) -> NDArray[np.float64]:
    """Seconds as float64, nulls as NaN."""
    if set(map(type, values)) <= SECONDS_TYPES:
        seconds = np.array(values, np.float64)
        if not np.isinf(seconds).any():
            return seconds
    for k, value in enumerate(values):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or math.isinf(value)):
            raise TraceError(f"{batch.where(k)}: {name} is {value!r}; seconds as a number are accepted")
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _arrivals(batch: Batch, account: Account) -> NDArray[np.float64] | None:
    """Seconds since the first arrival of the file."""
    name = batch.find_name(ARRIVAL_NAMES)
    if name is None:
        return None
    values = batch.columns[name]
    if any(isinstance(value, datetime) for value in values):
        values = [None if value is None else _to_epoch(value) for value in values]
        account.is_epoch = True
    elif name == "timestamp":
        account.assume("timestamp is read as seconds")
    seconds = _seconds(batch, name, values)
    tell_steps_back(seconds, account)
    known = seconds[~np.isnan(seconds)]
    if account.origin_s is None and known.size:
        account.origin_s = float(known[0])
    with np.errstate(over="ignore"):
        return seconds - account.origin_s if account.origin_s is not None else seconds


def _to_epoch(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
