"""Calls of kv-cache-tester sessions: sub-agents unfolded, checked, and without what is logged twice."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from capplan.errors import TraceError
from capplan.readers.id_lists import IdList, is_null
from capplan.readers.lines import NO_IDS
from capplan.readers.sample import Account
from capplan.schema import LARGEST_S, LARGEST_TOKENS

PAIR_WINDOW_S = 60.0
WRAPPER = "subagent"


class Call(msgspec.Struct, rename={"n_input": "in", "n_output": "out"}):
    """A model call (`in`, `out`, `hash_ids`) or a sub-agent's wrapper (`requests`)."""

    t: float
    type: str
    n_input: int | None = None
    n_output: int | None = None
    hash_ids: IdList = NO_IDS
    api_time: float | None = None
    think_time: float | None = None
    model: str | None = None
    agent_id: str | None = None
    requests: "list[Call] | None" = None


class Session(msgspec.Struct):
    """One file."""

    block_size: int
    requests: list[Call]
    hash_id_scope: str | None = None
    start_ts: str | None = msgspec.field(default=None, name="_start_ts")


class Entry(msgspec.Struct):
    """One model call in emission order: its stream, when it was sent, and the call itself."""

    stream: str
    start_s: float
    call: Call
    where: str


def list_calls(session: Session, file: Path, task: str, account: Account) -> Iterator[Entry]:
    """Calls in file order, a sub-agent's at the place of its wrapper, times from the session's start."""
    if session.hash_id_scope not in (None, "local", "global"):
        raise TraceError(
            f"{file}: hash_id_scope is {session.hash_id_scope!r}; accepted: 'local', 'global', or no such field"
        )
    for k, call in enumerate(session.requests):
        where = f"{file}, request {k}"
        if call.requests is None and call.type == WRAPPER:
            account.skipped["sub-agent without recorded calls"] += 1
            continue
        if call.requests is None:
            yield Entry(task, call.t, _check_call(call, where), where)
            continue
        for j, inner in enumerate(call.requests):
            inside = f"{where}.{j}"
            if inner.requests is not None:
                raise TraceError(f"{inside}: a sub-agent inside a sub-agent; one level is accepted")
            stream = f"{task}#{call.agent_id if call.agent_id is not None else k}"
            yield Entry(stream, call.t + inner.t, _check_call(inner, inside), inside)


def _check_call(call: Call, where: str) -> Call:
    if is_null(call.hash_ids):
        raise TraceError(f"{where}: hash_ids is missing; a model call needs in, out and hash_ids")
    for name, value in (("in", call.n_input), ("out", call.n_output)):
        if value is None:
            raise TraceError(f"{where}: {name} is missing; a model call needs in, out and hash_ids")
        if not 0 <= value <= LARGEST_TOKENS:
            raise TraceError(f"{where}: {name} is {value}; 0 to {LARGEST_TOKENS} is accepted")
    for name, seconds, least in (
        ("t", call.t, -LARGEST_S),
        ("api_time", call.api_time, 0.0),
        ("think_time", call.think_time, -LARGEST_S),
    ):
        if seconds is not None and not least <= seconds <= LARGEST_S:
            raise TraceError(f"{where}: {name} is {seconds:g}; seconds from {least:g} to {LARGEST_S:g} are accepted")
    return call


def collapse_pairs(entries: list[Entry], account: Account) -> list[Entry]:
    """Drop the second of two log lines of one call: an "n" row equal to an "s" row up to 60 s before it."""
    kept: list[Entry] = []
    waiting: dict[tuple[object, ...], list[int]] = {}
    for entry in entries:
        key = (entry.stream, entry.call.n_input, bytes(entry.call.hash_ids))
        if entry.call.type == "n":
            partners = [k for k in waiting.get(key, []) if 0 <= entry.start_s - kept[k].start_s <= PAIR_WINDOW_S]
            if partners:
                waiting[key].remove(partners[0])
                first = kept[partners[0]].call
                first.n_output = max(first.n_output or 0, entry.call.n_output or 0)
                account.skipped["second log line of a call that is logged twice (s, then n)"] += 1
                continue
        if entry.call.type == "s":
            waiting.setdefault(key, []).append(len(kept))
        kept.append(entry)
    return kept


def report_twins(entries: list[Entry], task: str, account: Account) -> None:
    """Tell of sub-agents of one session that have the same sizes; of whole sessions, `settling` does."""
    agents: dict[str, list[tuple[int | None, int | None]]] = {}
    for entry in entries:
        if entry.stream != task:
            agents.setdefault(entry.stream, []).append((entry.call.n_input, entry.call.n_output))
    n_twins = len(agents) - len(set(map(tuple, agents.values())))
    if n_twins:
        account.found["sub-agent with the same sizes as another of its session: both are kept"] += n_twins
