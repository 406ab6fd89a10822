"""Dynamo request traces, version 1: JSONL of request and tool events, with or without the sink's envelope.

A finished request carries the rolling hashes of its prompt's blocks, the last one for a partial
block, as unsigned 64-bit integers. Its session is the agent's trajectory; the task is the root of the
parents. Lines are in the order of responses. Tool events name no prompt and are counted only.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Labels, Prompts, Requests
from capplan.readers import jsonl, lines
from capplan.readers.clock import Clock, Responses
from capplan.readers.id_lists import IdList
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import MS, BlockSize, Count, Milliseconds, WaitMs
from capplan.readers.sample import Account, Options, Sample

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
        for k, call in enumerate(calls.rows):
            block = call.replay.trace_block_size if block is None else block
            if call.replay.trace_block_size != block or call.parent is not None:
                _add_parent(call, calls.where(k), block, parents)
            if call.request.cached_tokens is not None:
                n_cached += call.request.cached_tokens
                n_reported += call.replay.input_length
        if block is not None and calls.rows:
            yield make_prompts(calls, block, parents, clock, responses, account)
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
            agent = event.agent_context or Agent()
            calls.append(
                Call(
                    event.request,
                    event.request.replay,
                    _name(agent.trajectory_id, agent.session_id),
                    _name(agent.parent_trajectory_id, agent.parent_session_id),
                    event.event_time_unix_ms,
                )
            )
    return RowBatch(batch.path, numbers, calls)


def _name(first: str | int | None, second: str | int | None) -> str | None:
    name = second if first is None else first
    return None if name is None else str(name)


def _add_parent(call: Call, where: str, block: int, parents: dict[str, str]) -> None:
    if call.replay.trace_block_size != block:
        raise TraceError(
            f"{where}: trace_block_size is {call.replay.trace_block_size} after {block}; one size per trace is accepted"
        )
    if call.session is not None and call.parent not in (None, call.session):
        known = parents.setdefault(call.session, str(call.parent))
        if known != call.parent:
            raise TraceError(
                f"{where}: session {call.session!r} has parents {known!r} and {call.parent!r}; one is accepted"
            )


def _find_root(session: str, parents: dict[str, str]) -> str:
    seen = {session}
    while session in parents and parents[session] not in seen:
        session = parents[session]
        seen.add(session)
    return session


def make_prompts(
    calls: RowBatch[Call], block: int, parents: dict[str, str], clock: Clock, responses: Responses, account: Account
) -> Prompts:
    """The Prompts of one batch."""
    rows = calls.rows
    n_input = [call.replay.input_length for call in rows]
    ids, offsets = lines.take_full_blocks(
        [call.replay.input_sequence_hashes for call in rows], HASHES, n_input, block, calls.where
    )
    sessions = [call.session for call in rows]
    times = [_find_times(call) for call in rows]
    if any(call.request.request_received_ms is None for call in rows):
        account.assume("calls without a time of receipt are dated back from their end by their total time, if known")
    if any(call.request.output_tokens is None for call in rows):
        account.assume("calls without output_tokens are taken to generate nothing")
    n_odd = sum(call.request.input_tokens not in (None, n) for call, n in zip(rows, n_input, strict=True))
    if n_odd:
        account.found["request whose input_tokens differ from the length its hashes stand for, which is taken"] += n_odd
    arrival_s = clock.read(sent for sent, _ in times)
    service_s = np.array([service / MS for _, service in times], np.float64)
    requests = Requests.of(
        np.array(n_input, np.int64),
        output_tokens=np.array([call.request.output_tokens or 0 for call in rows], np.int64),
        request_ids=[str(call.request.request_id) for call in rows],
        session=Labels.encode(sessions),
        task=Labels.encode(None if session is None else _find_root(session, parents) for session in sessions),
        arrival_s=arrival_s,
        gap_s=responses.find_gaps(sessions, arrival_s, service_s),
        service_s=service_s,
    )
    account.n_read += len(rows)
    return Prompts(requests, ids, offsets, "hashes", block)


def _find_times(call: Call) -> tuple[float | None, float]:
    """When a call was received, and how long it took, in ms; None and NaN where unknown."""
    sent, service, end = call.request.request_received_ms, call.request.total_time_ms, call.end_ms
    if sent is None and end is not None:
        sent = end - (service or 0)
    if service is None and sent is not None and end is not None and end > sent:
        service = end - sent
    return sent, math.nan if service is None else service
