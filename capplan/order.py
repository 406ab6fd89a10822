"""Order: the reference stream as a permutation of the trace's rows, with times where known."""

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Requests
from capplan.trace import Trace

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

DEFAULT_POOL = 16


@dataclass(frozen=True, slots=True)
class Order:
    """Rows in the order they reach the server.

    Attributes
    ----------
    kind : "recorded", "pool" or "replayed"
    rows : (n,) int64
        Trace rows, in stream order.
    time_s : (n,) float64 or None
        Sending times, non-decreasing; None where the trace has no clock.
    end_s : float or None
        When the last response ends, as far as service times are known.
    pool_size : int or None
        Task slots `A` of a pool.
    assumptions : tuple of str
        What was assumed to make this order, in words.
    """

    kind: Literal["recorded", "pool", "replayed"]
    rows: Int64s
    time_s: Float64s | None
    end_s: float | None
    pool_size: int | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def is_identity(self) -> bool:
        """Whether the stream is the table's own row order."""
        return bool((self.rows == np.arange(self.rows.size)).all())

    def span_from(self, position: int) -> float | None:
        """Seconds from the sending at a stream position to the last response; None without a clock."""
        if self.time_s is None or self.end_s is None or position >= self.rows.size:
            return None
        return self.end_s - float(self.time_s[position])


def choose_order(trace: Trace, kind: str | None = None, pool_size: int | None = None) -> Order:
    """The order asked for, or the default: recorded where every arrival is known, else a pool.

    Raises
    ------
    TraceError
        A pool without task ids, or a recorded order of a trace with only some arrivals.
    """
    if kind is None:
        has_clock = not np.isnan(trace.requests.arrival_s).any()
        kind = "recorded" if pool_size is None and has_clock else "pool"
    if kind == "recorded":
        return follow_record(trace)
    if kind == "pool":
        return fill_pool(trace, DEFAULT_POOL if pool_size is None else pool_size)
    raise ValueError(f"order is {kind!r}; accepted: 'recorded', 'pool'")


def follow_record(trace: Trace) -> Order:
    """Requests by arrival time, ties in row order; without any arrival, in row order."""
    arrival = trace.requests.arrival_s
    unknown = np.isnan(arrival)
    if unknown.all():
        rows = np.arange(len(trace), dtype=np.int64)
        return Order("recorded", rows, None, None, assumptions=("no arrival times: requests follow row order",))
    if unknown.any():
        row = int(np.argmax(unknown))
        raise TraceError(
            f"{trace.source}, row {row}: arrival_s is missing; a recorded order needs it on every row "
            "(--order pool uses tasks instead)"
        )
    rows = np.argsort(arrival, kind="stable").astype(np.int64)
    end = float((arrival + _known(trace.requests.service_s)).max())
    return Order("recorded", rows, arrival[rows], end)


def fill_pool(trace: Trace, pool_size: int) -> Order:
    """Tasks, in row order, take the slot that is free earliest; ties to the lowest slot number.

    A request is sent at its task's begin + `start_s`; the slot frees when the last response of the
    task has ended and its `tail_gap_s` has passed. An open-loop pool: calls do not wait for
    simulated service.

    Raises
    ------
    TraceError
        Without a task id on every row.
    """
    if pool_size < 1:
        raise ValueError(f"pool size is {pool_size}; 1 or more is accepted")
    task = trace.requests.task
    if not task.is_complete:
        row = int(np.argmax(task.codes < 0))
        raise TraceError(
            f"{trace.source}, row {row}: no task id, so a pool cannot be formed; accepted: task_id or session_id on "
            "every row, or arrival times with --order recorded"
        )
    start, assumptions = find_starts(trace.requests)
    end = start + _known(trace.requests.service_s)
    n_tasks = len(task.names)
    length = np.full(n_tasks, -np.inf)
    np.maximum.at(length, task.codes, end)
    tail = np.zeros(n_tasks)
    tail[task.codes] = _known(trace.requests.tail_gap_s)
    begin = np.zeros(n_tasks)
    slots = [(0.0, slot) for slot in range(pool_size)]
    used, first_rows = np.unique(task.codes, return_index=True)
    for code in used[np.argsort(first_rows)].tolist():
        free_s, slot = heapq.heappop(slots)
        begin[code] = free_s
        heapq.heappush(slots, (free_s + float(length[code]) + float(tail[code]), slot))
    sent = begin[task.codes] + start
    rows = np.argsort(sent, kind="stable").astype(np.int64)
    last = float((sent + _known(trace.requests.service_s)).max())
    return Order("pool", rows, sent[rows], last, pool_size, assumptions)


def find_starts(requests: Requests) -> tuple[Float64s, tuple[str, ...]]:
    """Seconds from the start of the task, (rows,), and what had to be assumed.

    `start_s` where the source has it; else the arrival since the task's first one; else a session's
    recorded gaps and service times added up, 0 where unknown.
    """
    start = requests.start_s.copy()
    unknown = np.isnan(start)
    if not unknown.any():
        return start, ()
    if not np.isnan(requests.arrival_s).any():
        first = np.full(len(requests.task.names), np.inf)
        np.minimum.at(first, requests.task.codes, requests.arrival_s)
        start[unknown] = (requests.arrival_s - first[requests.task.codes])[unknown]
        return start, ()
    built = _add_up_gaps(requests)
    start[unknown] = built[unknown]
    missing = int((np.isnan(requests.gap_s) | np.isnan(requests.service_s))[unknown].sum())
    note = f"start times of {int(unknown.sum())} requests are built from gaps and service times"
    if missing:
        note += f" ({missing} of them unknown, taken as 0 s)"
    return start, (note,)


def _add_up_gaps(requests: Requests) -> Float64s:
    gap, service = _known(requests.gap_s), _known(requests.service_s)
    start = np.zeros(len(requests))
    free: dict[tuple[int, int], float] = {}
    for row, conversation in enumerate(zip(requests.task.codes.tolist(), requests.session.codes.tolist(), strict=True)):
        known = requests.start_s[row]
        start[row] = free.get(conversation, 0.0) + gap[row] if np.isnan(known) else known
        free[conversation] = start[row] + service[row]
    return start


def _known(seconds: Float64s) -> Float64s:
    return np.nan_to_num(seconds, nan=0.0)


def count_open_tasks(trace: Trace, order: Order) -> float | None:
    """Concurrent tasks `A`: the pool, or the time average of tasks begun and not ended; None if unknown."""
    if order.pool_size is not None:
        return float(order.pool_size)
    task = trace.requests.task
    if order.time_s is None or order.end_s is None or not task.is_complete:
        return None
    codes = task.codes[order.rows]
    begin = np.full(len(task.names), np.inf)
    end = np.full(len(task.names), -np.inf)
    np.minimum.at(begin, codes, order.time_s)
    np.maximum.at(end, codes, order.time_s + _known(trace.requests.service_s)[order.rows])
    present = np.isfinite(begin)
    span = order.end_s - float(order.time_s[0])
    return float((end - begin)[present].sum() / span) if span > 0 else None
