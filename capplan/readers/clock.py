"""Times as sources write them: any unit and origin become seconds since the source's first request."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from capplan.prompts import Labels, NumberNames, Requests, unknown_seconds
from capplan.readers.sample import Account

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

BACKWARDS = "request sent before the one in front of it in the file; a recorded order sorts by time, ties in file order"


class Clock:
    """Turns the arrivals of one source into seconds since its first one, across batches."""

    def __init__(self, per_second: float, account: Account, *, is_epoch: bool = False, is_stream: bool = True) -> None:
        """Start without a first arrival.

        Parameters
        ----------
        per_second : float
            Units of the source in a second.
        account : Account
            Gets the origin of the clock, and the number of steps back.
        is_epoch : bool
            Whether they count from 1970.
        is_stream : bool
            Whether rows are meant to be in the order of their times, so that steps back are told.
        """
        self._per_second = per_second
        self._account = account
        self._is_epoch = is_epoch
        self._is_stream = is_stream
        self._first: float | None = None

    def read(self, times: Iterable[float | None]) -> Float64s:
        """Seconds since the first known arrival, NaN where unknown; counts steps back in time."""
        values = np.array(times if isinstance(times, np.ndarray) else list(times), np.float64)  # null becomes NaN
        known = values[~np.isnan(values)]
        if not known.size:
            return unknown_seconds(values.size)
        if self._first is None:
            self._first = float(known[0])
            self._account.origin_s = self._first / self._per_second
            self._account.is_epoch = self._is_epoch
        if self._is_stream:
            tell_steps_back(known, self._account)
        return (values - self._first) / self._per_second


def tell_steps_back(times: Float64s, account: Account) -> None:
    """Count times, in any unit, that are before the one in front of them, also across batches; NaN is unknown."""
    known = times[~np.isnan(times)]
    if not known.size:
        return
    n_back = int((np.diff(known, prepend=account.last_s) < 0).sum())
    if n_back:
        account.found[BACKWARDS] += n_back
    account.last_s = float(known[-1])


class Responses:
    """When the last response of every session ended, across batches."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def find_gaps(self, sessions: Sequence[str | None], sent_s: Float64s, service_s: Float64s) -> Float64s:
        """Seconds from the end of the session's previous response to each sending; NaN where unknown."""
        gaps = np.full(sent_s.size, np.nan)
        for k, (session, sent, service) in enumerate(zip(sessions, sent_s.tolist(), service_s.tolist(), strict=True)):
            if session is not None:
                gaps[k] = sent - self._ends.get(session, math.nan)
                self._ends[session] = sent + service
        return gaps


def number_requests(
    n_input: Int64s,
    n_output: Int64s,
    sessions: Sequence[str | None],
    arrival_s: Float64s,
    service_s: Float64s,
    responses: Responses,
    account: Account,
) -> Requests:
    """Requests called by their number in the file, every session a task; counts them as read.

    Parameters
    ----------
    n_input, n_output : (n,) int64
        Tokens of prompts and outputs.
    sessions : sequence of str or None
    arrival_s, service_s : (n,) float64
        Seconds, NaN where unknown; the gaps follow from them.
    responses : Responses
        Of the batches before.
    account : Account
    """
    labels = Labels.encode(sessions)
    first = account.n_read
    account.n_read += len(sessions)
    return Requests.of(
        n_input,
        output_tokens=n_output,
        request_ids=NumberNames.starting_at(first, len(sessions)),
        session=labels,
        task=labels,
        arrival_s=arrival_s,
        gap_s=responses.find_gaps(sessions, arrival_s, service_s),
        service_s=service_s,
    )


def to_epoch(text: str) -> float:
    """Unix seconds of an ISO 8601 date and time, UTC unless it says otherwise; raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
