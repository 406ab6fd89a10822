"""kv-cache-tester sessions: one JSON file per coding-agent session, or a folder of them.

Blocks of 64 tokens, one id per full block. Ids are comparable within a file (scope "local"), between
files ("global"), or within one agent's stream only (no scope given). Sub-agents are nested, with
times relative to their wrapper; they are sessions of their own in the same task. Session starts are
not recorded: they come from the pool.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.linking import ID_BITS
from capplan.prompts import Labels, Prompts, Requests
from capplan.readers import jsonl
from capplan.readers.hashes import to_keys
from capplan.readers.sample import BYTE_ORDER_MARK, Account, Options, Sample, find_sessions
from capplan.schema import LARGEST_S, LARGEST_TOKENS

NAME = "kv-cache-tester"
CARRIES = "JSON session or folder of sessions with block_size and requests of t, in, out, hash_ids"
PAIR_WINDOW_S = 60.0


class Call(msgspec.Struct, rename={"n_input": "in", "n_output": "out"}):
    """A model call (`in`, `out`, `hash_ids`) or a sub-agent's wrapper (`requests`)."""

    t: float
    type: str
    n_input: int | None = None
    n_output: int | None = None
    hash_ids: list[int] | None = None
    api_time: float | None = None
    think_time: float | None = None
    agent_id: str | None = None
    requests: "list[Call] | None" = None


class Session(msgspec.Struct):
    """One file."""

    block_size: int
    requests: list[Call]
    hash_id_scope: str | None = None


class Entry(msgspec.Struct):
    """One model call in emission order: its stream, when it was sent, and the call itself."""

    stream: str
    start_s: float
    call: Call
    where: str


def matches(sample: Sample) -> bool:
    """Whether the object is a session."""
    return sample.kind in ("json", "folder") and {"block_size", "requests"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """One batch per file, in file-name order."""
    if options.block_tokens is not None:
        raise TraceError(f"{path}: --block-size is given, but kv-cache-tester files state their own")
    files = find_sessions(path) if path.is_dir() else [path]
    decoder = msgspec.json.Decoder(Session)
    seen: dict[tuple[tuple[int | None, int | None], ...], str] = {}
    n_spaces = 0
    for file in files:
        text = _read_bytes(file)
        if not text.strip():
            account.skipped["empty files"] += 1
            continue
        session = jsonl.decode_row(decoder, text, str(file))
        entries = list(list_calls(session, file, file.stem))
        entries = collapse_pairs(entries, account)
        _report_twin(entries, file, seen, account)
        account.n_read += len(entries)
        if entries:
            prompts = make_prompts(session, file, n_spaces, entries, account)
            n_spaces += len(prompts.requests.session.names)
            yield prompts
    account.assume("session starts are not recorded: they come from the pool")


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes().removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror or error}; a readable file is needed") from error


def list_calls(session: Session, file: Path, task: str) -> Iterator[Entry]:
    """Calls in file order, a sub-agent's at the place of its wrapper, times from the session's start."""
    if session.hash_id_scope not in (None, "local", "global"):
        raise TraceError(
            f"{file}: hash_id_scope is {session.hash_id_scope!r}; accepted: 'local', 'global', or no such field"
        )
    for k, call in enumerate(session.requests):
        where = f"{file}, request {k}"
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
    for name, value in (("in", call.n_input), ("out", call.n_output), ("hash_ids", call.hash_ids)):
        if value is None:
            raise TraceError(f"{where}: {name} is missing; a model call needs in, out and hash_ids")
        if isinstance(value, int) and not 0 <= value <= LARGEST_TOKENS:
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
        key = (entry.stream, entry.call.n_input, tuple(entry.call.hash_ids or ()))
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


def _report_twin(
    entries: list[Entry], file: Path, seen: dict[tuple[tuple[int | None, int | None], ...], str], account: Account
) -> None:
    sizes = tuple((entry.call.n_input, entry.call.n_output) for entry in entries)
    if len(sizes) > 1 and sizes in seen:
        account.assume(f"{file.name} has the same sizes as {seen[sizes]}: maybe the same session twice; both are kept")
    seen.setdefault(sizes, file.name)


def make_prompts(session: Session, file: Path, n_spaces: int, entries: list[Entry], account: Account) -> Prompts:
    """The Prompts of one file, its namespaces numbered after the `n_spaces` of earlier files."""
    block = session.block_size
    if not 1 <= block <= LARGEST_TOKENS:
        raise TraceError(f"{file}: block_size is {block}; 1 to {LARGEST_TOKENS} is accepted")
    calls = [entry.call for entry in entries]
    keys = [_full_ids(entry, block, account) for entry in entries]
    ids, offsets = jsonl.flatten(keys)
    start = np.array([entry.start_s for entry in entries])
    if start.min() < 0:
        account.found["session with times before its start, shifted to begin at 0"] += 1
        start = start - start.min()
    streams = Labels.encode(entry.stream for entry in entries)
    service = np.array([np.nan if call.api_time is None else call.api_time for call in calls])
    requests = Requests.of(
        np.array([call.n_input for call in calls], np.int64),
        output_tokens=np.array([call.n_output for call in calls], np.int64),
        request_ids=[f"{file.stem}:{k}" for k in range(len(calls))],
        session=streams,
        task=Labels.encode([file.stem] * len(calls)),
        start_s=start,
        gap_s=_find_gaps(calls, streams, start, service),
        service_s=service,
    )
    ids, namespaces = _separate(session, ids, n_spaces + 1, streams.codes)
    return Prompts(requests, ids, offsets, "hashes", block, namespaces=namespaces)


def _full_ids(entry: Entry, block: int, account: Account) -> NDArray[np.uint64]:
    call = entry.call
    full = (call.n_input or 0) // block
    ids = call.hash_ids or []
    if len(ids) < full:
        account.found["request with fewer ids than full blocks: the rest counts as never seen before"] += 1
    elif len(ids) > full + 1:
        account.found["request with more ids than blocks: the surplus is left out"] += 1
    return to_keys(ids[:full], entry.where)


def _find_gaps(
    calls: list[Call], streams: Labels, start: NDArray[np.float64], service: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Recorded think time, else the time since the stream's previous response; NaN where neither is known."""
    gap = np.array([np.nan if call.think_time is None else call.think_time for call in calls])
    last: dict[int, int] = {}
    for k, stream in enumerate(streams.codes.tolist()):
        if np.isnan(gap[k]) and stream in last:
            gap[k] = start[k] - start[last[stream]] - service[last[stream]]
        last[stream] = k
    return gap


def _separate(
    session: Session, ids: NDArray[np.uint64], first_space: int, streams: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Ids and a namespace per request: the file, one stream of it, or none for global ids.

    Namespaced ids are numbered anew where they are large, so that both fit into one key.
    """
    if session.hash_id_scope == "global":
        return ids, np.zeros(streams.size, np.uint64)
    if ids.size and int(ids.max()) >> ID_BITS:
        ids = np.unique(ids, return_inverse=True)[1].astype(np.uint64)
    if session.hash_id_scope == "local":
        return ids, np.full(streams.size, first_space, np.uint64)
    return ids, (first_space + streams).astype(np.uint64)
