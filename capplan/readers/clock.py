"""Times as sources write them: any unit and origin become seconds since the source's first request."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from capplan.prompts import unknown_seconds
from capplan.readers.sample import Account

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
        self._last = math.nan

    def read(self, times: Iterable[float | None]) -> Float64s:
        """Seconds since the first known arrival, NaN where unknown; counts steps back in time."""
        values = np.array([math.nan if time is None else time for time in times], np.float64)
        known = values[~np.isnan(values)]
        if not known.size:
            return unknown_seconds(values.size)
        if self._first is None:
            self._first = self._last = float(known[0])
            self._account.origin_s = self._first / self._per_second
            self._account.is_epoch = self._is_epoch
        n_back = int((np.diff(known, prepend=self._last) < 0).sum())
        if n_back and self._is_stream:
            self._account.found[BACKWARDS] += n_back
        self._last = float(known[-1])
        return (values - self._first) / self._per_second


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


def to_epoch(text: str) -> float:
    """Unix seconds of an ISO 8601 date and time, UTC unless it says otherwise; raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
