"""Sessions of extended Mooncake rows: who launched them, which calls wait for which, and for how long."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels
from capplan.readers.id_lists import IdList
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import MS, NO_IDS, Count, Milliseconds, WaitMs
from capplan.readers.sample import Account

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
Names = tuple[str | int, ...]  # the garbage collector looks at lists again and again, at these once

FIRST_DELAY = "delay before the first call of a session, or without one: left out"
OTHER_CALLS = "call that waits for others than its session's previous one: its gap counts from the last"
AS_DELTAS = (
    "no later row of a session begins with the block its previous row begins with; if rows hold only what is new, "
    "read them with --from mooncake-delta"
)


class Call(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One call; two names for one thing come from the two tools that write this format.

    Fields are in the order they are written in, which is the order they are decoded fastest.
    """

    request_id: str | int | None = None
    session_id: str | int | None = None
    timestamp: Milliseconds | None = None
    input_length: Count | None = None
    output_length: Count | None = None
    hash_ids: IdList = NO_IDS
    wait_for: Names | None = None
    tool_wait_ms: WaitMs | None = None
    delay: WaitMs | None = None
    delay_ms: WaitMs | None = None
    prefix_reset: Any = msgspec.UNSET
    branches: Names | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    created_time: Milliseconds | None = None
    parent_session_id: str | int | None = None


class Row(Call, gc=False, forbid_unknown_fields=False):
    """One call with whatever else there is, some of which changes what the others mean."""

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
        self._has_later = self._has_repeating = False

    def add(self, batch: RowBatch[Call], names: Sequence[str], sessions: Labels) -> Float64s:
        """Note the calls of a batch; their gaps in seconds, (n,), NaN where unknown.

        Raises
        ------
        TraceError
            A name that stands twice, or a call that waits for itself.
        """
        self._add_names(batch, names, sessions)
        rows = batch.rows
        wait_ms, is_stated = add_waits(rows)
        is_waiting = np.array([bool(row.wait_for) for row in rows])
        earlier = find_earlier(sessions.codes)
        before = [self._last_call.get(session) for session in sessions.names]
        follows = (earlier >= 0) | np.array([*(name is not None for name in before), False])[sessions.codes]
        n_first = int((~follows & (wait_ms > 0) & ~is_waiting).sum())
        n_other = 0
        waiting = np.flatnonzero(follows & is_waiting)
        for k, e, code in zip(
            waiting.tolist(), earlier[waiting].tolist(), sessions.codes[waiting].tolist(), strict=True
        ):
            awaited = rows[k].wait_for or ()
            n_other += len(awaited) != 1 or str(awaited[0]) != (names[e] if e >= 0 else before[code])
        for what, n_calls in ((FIRST_DELAY, n_first), (OTHER_CALLS, n_other)):
            if n_calls:
                self._account.found[what] += n_calls
        for session, k in find_last(sessions):
            self._last_call[session] = names[k]
        return np.where(follows & (is_stated | is_waiting), wait_ms / MS, np.nan)

    def compare_heads(self, sessions: Labels, ids: UInt64s, offsets: Int64s) -> None:
        """Look whether any row begins with the block its session's previous row begins with."""
        if self._has_repeating:
            return
        rows = np.flatnonzero((np.diff(offsets) > 0) & (sessions.codes >= 0))
        heads, own = ids[offsets[rows]], Labels(sessions.codes[rows], sessions.names)
        earlier = find_earlier(own.codes)
        repeats = (earlier >= 0) & (heads == heads[earlier])
        self._has_later |= bool((earlier >= 0).any())
        self._has_repeating |= bool(repeats.any())
        for k in np.flatnonzero(earlier < 0).tolist():
            known = self._first_id.get(own.names[own.codes[k]])
            self._has_later |= known is not None
            self._has_repeating |= known == heads[k]
        self._first_id |= {session: int(heads[k]) for session, k in find_last(own)}

    def find_tasks(self, sessions: Labels) -> Labels:
        """The task of every call, by the session it belongs to."""
        tasks = Labels.encode(self.tasks[session] for session in sessions.names)
        return Labels(np.append(tasks.codes, -1)[sessions.codes], tasks.names)

    def check_end(self) -> None:
        """Raise TraceError for a call nobody names; tell of rows that look as if they held only what is new."""
        for name, where in self._awaited.items():
            raise TraceError(f"{where}: waits for {name!r}, which no row names; a request_id of this file is accepted")
        if self._has_later and not self._has_repeating:
            self._account.assume(AS_DELTAS)

    def _add_names(self, batch: RowBatch[Call], names: Sequence[str], sessions: Labels) -> None:
        """Note calls that have names, wait or launch, and the tasks of new sessions."""
        rows, labels, codes = batch.rows, [*sessions.names, None], sessions.codes.tolist()
        session_of = self._session_of
        first_calls = np.unique(sessions.codes, return_index=True)[1].tolist()
        noted = [k for k, row in enumerate(rows) if row.request_id is not None or row.wait_for or row.branches]
        for k in noted if len(noted) == len(rows) else sorted({*noted, *first_calls}):
            row, name, session = rows[k], names[k], labels[codes[k]]
            if row.request_id is not None:
                if name in session_of:
                    raise TraceError(f"{batch.where(k)}: request_id {name!r} stands twice; names must be unique")
                session_of[name] = session
                self._awaited.pop(name, None)
            for other in row.wait_for or ():
                if other == name or other not in session_of:
                    self._add_awaited(str(other), name, batch.where(k))
            if session is not None:
                if row.branches:
                    self._launcher |= dict.fromkeys(map(str, row.branches), session)
                if session not in self.tasks:
                    parent = self._find_parent(row, name)
                    self.tasks[session] = session if parent is None else self.tasks.get(parent, parent)

    def _add_awaited(self, other: str, name: str, where: str) -> None:
        if other == name:
            raise TraceError(f"{where}: {name!r} waits for itself; other requests are accepted")
        if other not in self._session_of:
            self._awaited.setdefault(other, where)

    def _find_parent(self, row: Call, name: str) -> str | None:
        """The session that launched the one a call begins."""
        if row.parent_session_id is not None:
            return str(row.parent_session_id)
        waited_for = (self._session_of.get(str(other)) for other in row.wait_for or ())
        return self._launcher.get(name) or next((session for session in waited_for if session is not None), None)


def add_waits(rows: Sequence[Call]) -> tuple[Float64s, Bools]:
    """Delay and tool wait of every call together, in ms, and whether either is stated."""
    delay = np.array([row.delay if row.delay_ms is None else row.delay_ms for row in rows], np.float64)
    tool = np.array([row.tool_wait_ms for row in rows], np.float64)
    return np.nan_to_num(delay) + np.nan_to_num(tool), ~(np.isnan(delay) & np.isnan(tool))


def find_earlier(codes: Int64s) -> Int64s:
    """The row before with the same code, (n,); -1 where there is none, or no code."""
    earlier = np.full(codes.size, -1)
    order = np.argsort(codes, kind="stable")
    follows = (codes[order[1:]] == codes[order[:-1]]) & (codes[order[1:]] >= 0)
    earlier[order[1:][follows]] = order[:-1][follows]
    return earlier


def find_last(sessions: Labels) -> Iterator[tuple[str, int]]:
    """Every session that has a row, and the last one."""
    last = np.full(len(sessions.names) + 1, -1)
    last[sessions.codes] = np.arange(sessions.codes.size)
    return ((session, k) for session, k in zip(sessions.names, last[:-1].tolist(), strict=True) if k >= 0)
