"""Sessions of extended Mooncake rows: who launched them, which calls wait for which, and for how long."""

import math
from collections.abc import Callable
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.readers.id_lists import IdList
from capplan.readers.lines import MS, NO_IDS, Count, Milliseconds, WaitMs
from capplan.readers.sample import Account

AS_DELTAS = (
    "no later row of a session begins with the block its previous row begins with; if rows hold only what is new, "
    "read them with --from mooncake-delta"
)


class Row(msgspec.Struct, gc=False):
    """One call; two names for one thing come from the two tools that write this format."""

    hash_ids: IdList = NO_IDS
    input_length: Count | None = None
    input_tokens: Count | None = None
    output_length: Count | None = None
    output_tokens: Count | None = None
    timestamp: Milliseconds | None = None
    created_time: Milliseconds | None = None
    delay: WaitMs | None = None
    delay_ms: WaitMs | None = None
    tool_wait_ms: WaitMs | None = None
    request_id: str | int | None = None
    session_id: str | int | None = None
    parent_session_id: str | int | None = None
    wait_for: list[str | int] | None = None
    branches: list[str | int] | None = None
    messages: Any = msgspec.UNSET
    text_input: Any = msgspec.UNSET
    payload: Any = msgspec.UNSET
    group_id: Any = msgspec.UNSET
    is_restart: Any = msgspec.UNSET
    schema: Any = msgspec.UNSET
    version: Any = msgspec.UNSET


class Sessions:
    """What the rows so far say of sessions, their tasks, and calls that wait for each other."""

    def __init__(self, account: Account) -> None:
        """`account`: gets what is odd."""
        self.tasks: dict[str, str] = {}
        self._account = account
        self._last_call: dict[str, str] = {}
        self._first_id: dict[str, int] = {}
        self._session_of: dict[str, str | None] = {}
        self._launcher: dict[str, str] = {}
        self._awaited: dict[str, str] = {}
        self._n_later = self._n_repeating = 0

    def add(self, row: Row, name: str, session: str | None, first_id: int | None, where: Callable[[], str]) -> float:
        """Note a call; its gap in seconds, NaN where unknown."""
        awaited = self._add_name(row, name, session, where)
        waits = [wait for wait in (_find_delay(row), row.tool_wait_ms) if wait is not None]
        previous = None
        if session is not None:
            previous = self._last_call.get(session)
            self._last_call[session] = name
            if row.branches:
                self._launcher |= dict.fromkeys(map(str, row.branches), session)
            if session not in self.tasks:
                parent = self._find_parent(row, name, awaited)
                self.tasks[session] = session if parent is None else self.tasks.get(parent, parent)
            if first_id is not None:
                self._compare_first(session, first_id)
        if previous is None:
            if any(waits) and not awaited:
                self._account.found["delay before the first call of a session, or without one: left out"] += 1
            return math.nan
        if awaited and awaited != [previous]:
            self._account.found[
                "call that waits for others than its session's previous one: its gap counts from the last"
            ] += 1
        return sum(waits) / MS if waits or awaited else math.nan

    def check_end(self) -> None:
        """Raise TraceError for a call nobody names; tell of rows that look as if they held only what is new."""
        for name, where in self._awaited.items():
            raise TraceError(f"{where}: waits for {name!r}, which no row names; a request_id of this file is accepted")
        if self._n_later and not self._n_repeating:
            self._account.assume(AS_DELTAS)

    def _add_name(self, row: Row, name: str, session: str | None, where: Callable[[], str]) -> list[str]:
        """Note a call's name and the names it waits for, which are returned."""
        if row.request_id is not None:
            if name in self._session_of:
                raise TraceError(f"{where()}: request_id {name!r} stands twice; names must be unique")
            self._session_of[name] = session
            self._awaited.pop(name, None)
        awaited = [str(other) for other in row.wait_for or ()]
        for other in awaited:
            if other == name:
                raise TraceError(f"{where()}: {name!r} waits for itself; other requests are accepted")
            if other not in self._session_of:
                self._awaited.setdefault(other, where())
        return awaited

    def _find_parent(self, row: Row, name: str, awaited: list[str]) -> str | None:
        """The session that launched the one a call begins."""
        if row.parent_session_id is not None:
            return str(row.parent_session_id)
        waited_for = (self._session_of.get(other) for other in awaited)
        return self._launcher.get(name) or next((session for session in waited_for if session is not None), None)

    def _compare_first(self, session: str, first_id: int) -> None:
        if session in self._first_id:
            self._n_later += 1
            self._n_repeating += first_id == self._first_id[session]
        self._first_id[session] = first_id


def _find_delay(row: Row) -> float | None:
    return row.delay if row.delay_ms is None else row.delay_ms
