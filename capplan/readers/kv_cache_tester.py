"""kv-cache-tester sessions: one JSON file per coding-agent session, or a folder of them.

Blocks of 64 tokens, one id per full block. Ids are comparable within a file (scope "local"), between
files ("global"), or within one agent's stream only (no scope given). Sub-agents are nested, with
times relative to their wrapper; they are sessions of their own in the same task. Session starts are
rarely recorded (`_start_ts`): without them sessions come from the pool.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, Prompts, Requests
from capplan.readers import files
from capplan.readers.clock import Clock, to_epoch
from capplan.readers.documents import read_document
from capplan.readers.first_look import find_sessions
from capplan.readers.id_lists import parse_ids
from capplan.readers.kv_cache_calls import Call, Entry, Session, collapse_pairs, list_calls, report_twins
from capplan.readers.lengths import fit_lengths
from capplan.readers.sample import Account, Options, Sample
from capplan.schema import LARGEST_TOKENS

NAME = "kv-cache-tester"
STATED = "prompt lengths that contradict their ids are kept as stated; --lengths ids takes block size times ids"
CARRIES = "JSON session or folder of sessions with block_size and requests of t, in, out, hash_ids"


def matches(sample: Sample) -> bool:
    """Whether the object is a session."""
    return sample.kind in ("json", "folder") and {"block_size", "requests"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """One batch per file, in the order of their paths."""
    if options.block_tokens is not None:
        raise TraceError(f"{path}: --block-size is given, but kv-cache-tester files state their own")
    clock = Clock(1, account, is_epoch=True, is_stream=False)
    n_spaces = n_undated = 0
    block: int | None = None
    for file in find_sessions(path) if path.is_dir() else [path]:
        session = read_document(file, Session, account)
        if session is None:
            continue
        block = _check_block_size(session, file, block)
        task = _name_task(file, path)
        entries = [e for e in list_calls(session, file, task, account) if options.keeps_model(e.call.model, account)]
        entries = collapse_pairs(entries, account)
        report_twins(entries, task, account)
        account.n_read += len(entries)
        n_undated += session.start_ts is None
        if entries:
            prompts = make_prompts(session, file, task, n_spaces, entries, clock, options, account)
            n_spaces += len(prompts.requests.session.names)
            yield prompts
    if n_undated:
        account.assume("session starts are not recorded: they come from the pool")
        if account.origin_s is not None:
            account.found["session without a start among sessions with one: arrivals are incomplete"] += n_undated


def _name_task(file: Path, source: Path) -> str:
    inside = file.relative_to(source).parent if source.is_dir() else Path()
    return (inside / files.stem_of(file)).as_posix()


def _check_block_size(session: Session, file: Path, known: int | None) -> int:
    block = session.block_size
    if not 1 <= block <= LARGEST_TOKENS:
        raise TraceError(f"{file}: block_size is {block}; 1 to {LARGEST_TOKENS} is accepted")
    if known not in (None, block):
        raise TraceError(f"{file}: block_size is {block} after {known}; one size per trace is accepted")
    return block


def make_prompts(
    session: Session,
    file: Path,
    task: str,
    n_spaces: int,
    entries: list[Entry],
    clock: Clock,
    options: Options,
    account: Account,
) -> Prompts:
    """The Prompts of one file, its namespaces numbered after the `n_spaces` of earlier files."""
    block = session.block_size
    calls = [entry.call for entry in entries]
    ids, offsets = parse_ids([call.hash_ids for call in calls], "hash_ids", lambda k: entries[k].where)
    n_input = np.array([call.n_input for call in calls], np.int64)
    n_input = fit_lengths(n_input, offsets, block, options, account)
    ids, offsets = _keep_full_blocks(ids, offsets, n_input, block, account)
    start = np.array([entry.start_s for entry in entries])
    arrival_s = None if session.start_ts is None else clock.read((_read_start(session, file) + start).tolist())
    if start.min() < 0:
        account.found["session with times before its start, shifted to begin at 0"] += 1
        start = start - start.min()
    streams = Labels.encode(entry.stream for entry in entries)
    service = np.array([np.nan if call.api_time is None else call.api_time for call in calls])
    requests = Requests.of(
        n_input,
        output_tokens=np.array([call.n_output for call in calls], np.int64),
        request_ids=[f"{task}:{k}" for k in range(len(calls))],
        session=streams,
        task=Labels.encode([task] * len(calls)),
        arrival_s=arrival_s,
        start_s=start,
        gap_s=_find_gaps(calls, streams, start, service),
        service_s=service,
    )
    ids, namespaces = _separate(session, ids, n_spaces + 1, streams.codes)
    return Prompts(requests, ids, offsets, "hashes", block, namespaces=namespaces)


def _read_start(session: Session, file: Path) -> float:
    try:
        return to_epoch(session.start_ts or "")
    except ValueError:
        raise TraceError(f"{file}: _start_ts is {session.start_ts!r}; an ISO 8601 date and time is accepted") from None


def _keep_full_blocks(
    ids: NDArray[np.uint64], offsets: NDArray[np.int64], n_input: NDArray[np.int64], block: int, account: Account
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Ids of full blocks, whatever their number: a prompt and its ids may be counted by different tokenisers."""
    n_ids, full = np.diff(offsets), n_input // block
    for what, count in (
        ("request of length 0 with ids: they are left out", (n_ids > 0) & (n_input == 0)),
        ("request with fewer ids than full blocks: the rest counts as never seen before", n_ids < full),
        ("request with more ids than blocks: the surplus is left out", (n_ids > full + 1) & (n_input > 0)),
    ):
        if count.any():
            account.found[what] += int(count.sum())
            account.assume(STATED)
    n_kept = np.minimum(n_ids, full)
    place = np.arange(ids.size) - np.repeat(offsets[:-1], n_ids)
    kept = np.zeros(offsets.size, np.int64)
    np.cumsum(n_kept, out=kept[1:])
    return ids[place < np.repeat(n_kept, n_ids)], kept


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
    """Ids and a namespace per request: the file, one stream of it, or none for global ids."""
    if session.hash_id_scope == "global":
        return ids, np.zeros(streams.size, np.uint64)
    if session.hash_id_scope == "local":
        return ids, np.full(streams.size, first_space, np.uint64)
    return ids, (first_space + streams).astype(np.uint64)
