"""Dynamo request traces, version 1: JSONL of request and tool events, with or without the sink's envelope.

A finished request carries the rolling hashes of its prompt's blocks, the last one for a partial
block, as unsigned 64-bit integers. Its session is the agent's trajectory; the task is the root of the
parents. Lines are in the order of responses. Tool events name no prompt and are counted only.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, Prompts, Requests
from capplan.readers import jsonl, lines
from capplan.readers.clock import Clock, Responses
from capplan.readers.id_lists import IdList
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import MS, BlockSize, Count, Milliseconds, WaitMs
from capplan.readers.sample import Account, Options, Sample

Float64s = NDArray[np.float64]

NAME = "dynamo"
CARRIES = "Dynamo request trace v1 JSONL: request_end events with replay hashes, trace_block_size, session and parent"
HASHES = "input_sequence_hashes"
SCHEMAS = ("dynamo.request.trace.v1", "dynamo.agent.trace.v1")
SCHEMA_FAMILIES = ("dynamo.request.trace.", "dynamo.agent.trace.")


class Replay(msgspec.Struct, gc=False):
    """The prompt by its block hashes."""

    trace_block_size: BlockSize
    input_length: Count
    input_sequence_hashes: IdList


class Request(msgspec.Struct, gc=False):
    """A finished request."""

    request_id: str | int
    model: str | None = None
    request_received_ms: Milliseconds | None = None
    total_time_ms: WaitMs | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached_tokens: Count | None = None
    replay: Replay | None = None


class Agent(msgspec.Struct, gc=False):
    """Who sent it."""

    session_id: str | int | None = None
    trajectory_id: str | int | None = None
    parent_session_id: str | int | None = None
    parent_trajectory_id: str | int | None = None


NOBODY = Agent()


class Event(msgspec.Struct, gc=False):
    """One record, as standard error has it."""

    schema: str | None = None
    event_type: str = ""
    event_time_unix_ms: Milliseconds | None = None
    agent_context: Agent | None = None
    request: Request | None = None


class Row(Event, gc=False):
    """One line: a record, or the envelope the file sinks put around it."""

    event: Event | None = None


class Call(msgspec.Struct, gc=False):
    """One request of the trace."""

    request: Request
    replay: Replay
    session: str | None
    parent: str | None
    end_ms: float | None


def matches(sample: Sample) -> bool:
    """Whether the first line, or the record in its envelope, names a schema of the family."""
    if sample.kind != "json":
        return False
    event = sample.first.get("event")
    names = (sample.first.get("schema"), event.get("schema") if isinstance(event, dict) else None)
    return any(isinstance(name, str) and name.startswith(SCHEMA_FAMILIES) for name in names)


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of requests in file order."""
    if options.block_tokens is not None:
        raise TraceError(f"{path}: --block-size is given, but Dynamo traces state their own trace_block_size")
    clock, responses = Clock(MS, account, is_epoch=True), Responses()
    parents: dict[str, str] = {}
    block: int | None = None
    n_cached = n_reported = 0
    for batch in jsonl.read_batches(path, Row):
        calls = take_calls(batch, options, account)
        if not calls.rows:
            continue
        block = calls.rows[0].replay.trace_block_size if block is None else block
        add_parents(calls, block, parents)
        for call in calls.rows:
            if call.request.cached_tokens is not None:
                n_cached += call.request.cached_tokens
                n_reported += call.replay.input_length
        yield make_prompts(calls, block, parents, clock, responses, options, account)
    if n_reported:
        account.assume(f"the server found {n_cached} of {n_reported} prompt tokens cached (for comparison only)")


def take_calls(batch: RowBatch[Row], options: Options, account: Account) -> RowBatch[Call]:
    """The requests of a batch of lines; all else is counted.

    Raises
    ------
    TraceError
        A schema of another version.
    """
    numbers, calls = [], []
    for k, row in enumerate(batch.rows):
        event = row.event if row.schema is None and row.event is not None else row
        if event.schema is None:
            account.skipped["line without a schema"] += 1
        elif event.schema not in SCHEMAS:
            raise TraceError(f"{batch.where(k)}: schema is {event.schema!r}; accepted: {', '.join(SCHEMAS)}")
        elif event.event_type != "request_end" or event.request is None:
            account.skipped[f"{event.event_type or 'unnamed'} event: no prompt"] += 1
        elif event.request.replay is None:
            account.skipped["request without replay hashes"] += 1
        elif options.keeps_model(event.request.model, account):
            numbers.append(batch.numbers[k])
            agent = event.agent_context or NOBODY
            session = agent.session_id if agent.trajectory_id is None else agent.trajectory_id
            parent = agent.parent_session_id if agent.parent_trajectory_id is None else agent.parent_trajectory_id
            names = None if session is None else str(session), None if parent is None else str(parent)
            calls.append(Call(event.request, event.request.replay, *names, event.event_time_unix_ms))
    return RowBatch(batch.path, numbers, calls)


def add_parents(calls: RowBatch[Call], block: int, parents: dict[str, str]) -> None:
    """Note what the calls say of their sessions' parents.

    Raises
    ------
    TraceError
        Another block size than `block`, or a session with two parents.
    """
    first: dict[tuple[int, str | None, str | None], int] = {}
    for k, call in enumerate(calls.rows):
        first.setdefault((call.replay.trace_block_size, call.session, call.parent), k)
    for (size, session, parent), k in first.items():
        if size != block:
            raise TraceError(
                f"{calls.where(k)}: trace_block_size is {size} after {block}; one size per trace is accepted"
            )
        if session is None or parent in (None, session):
            continue
        known = parents.setdefault(session, str(parent))
        if known != parent:
            raise TraceError(
                f"{calls.where(k)}: session {session!r} has parents {known!r} and {parent!r}; one is accepted"
            )


def _find_root(session: str, parents: dict[str, str]) -> str:
    seen = {session}
    while session in parents and parents[session] not in seen:
        session = parents[session]
        seen.add(session)
    return session


def make_prompts(
    calls: RowBatch[Call],
    block: int,
    parents: dict[str, str],
    clock: Clock,
    responses: Responses,
    options: Options,
    account: Account,
) -> Prompts:
    """The Prompts of one batch."""
    rows = calls.rows
    lengths = [call.replay.input_length for call in rows]
    hashes = [call.replay.input_sequence_hashes for call in rows]
    n_input, ids, offsets = lines.take_full_blocks(hashes, HASHES, lengths, block, calls.where, options, account)
    sessions = [call.session for call in rows]
    session = Labels.encode(sessions)
    roots = Labels.encode(_find_root(name, parents) for name in session.names)
    received_ms = np.array([call.request.request_received_ms for call in rows], np.float64)
    if np.isnan(received_ms).any():
        account.assume("calls without a time of receipt are dated back from their end by their total time, if known")
    n_output = [call.request.output_tokens for call in rows]
    if None in n_output:
        account.assume("calls without output_tokens are taken to generate nothing")
    stated = np.array([call.request.input_tokens for call in rows], np.float64)
    n_odd = int((~np.isnan(stated) & (stated != np.array(lengths))).sum())
    if n_odd:
        account.found["request whose input_tokens differ from the length its hashes stand for, which is taken"] += n_odd
    sent_ms, service_ms = find_times(rows, received_ms)
    arrival_s, service_s = clock.read(sent_ms), service_ms / MS
    requests = Requests.of(
        n_input,
        output_tokens=np.array([n or 0 for n in n_output], np.int64),
        request_ids=[str(call.request.request_id) for call in rows],
        session=session,
        task=Labels(np.append(roots.codes, -1)[session.codes], roots.names),
        arrival_s=arrival_s,
        gap_s=responses.find_gaps(sessions, arrival_s, service_s),
        service_s=service_s,
    )
    account.n_read += len(rows)
    return Prompts(requests, ids, offsets, "hashes", block)


def find_times(rows: Sequence[Call], received_ms: Float64s) -> tuple[Float64s, Float64s]:
    """When every call was received and how long it took, both (n,), in ms; NaN where unknown."""
    took_ms = np.array([call.request.total_time_ms for call in rows], np.float64)
    end_ms = np.array([call.end_ms for call in rows], np.float64)
    sent_ms = np.where(np.isnan(received_ms), end_ms - np.nan_to_num(took_ms), received_ms)
    return sent_ms, np.where(np.isnan(took_ms) & (end_ms > sent_ms), end_ms - sent_ms, took_ms)
