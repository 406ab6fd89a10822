"""TraceLab rounds: JSONL of coding-agent calls with lengths and how much of each prompt was cached.

There are no ids. Block ids are made from prefix lengths: a round repeats the first `prefix_tokens` of
its session's previous round (prompt and output), the rest was never seen before. What the provider
found cached stands for what was repeated, so reuse it missed, and reuse between sessions, is missing.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import jsonl
from capplan.readers.clock import Clock, Responses, number_requests, to_epoch
from capplan.readers.growth import GrowingPaths, check_length, in_one_file
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import Count, keep_rows
from capplan.readers.sample import Account, Options, Sample

NAME = "tracelab"
CARRIES = "JSONL with session_id, round_index, input_tokens_total, prefix_tokens: ids are made from prefix lengths"
RESOLUTION_TOKENS = 16
INPUT_EVENTS = ("user_message", "tool_result")


class Event(msgspec.Struct):
    """Something that happened in a round."""

    event_type: str | None = None
    timestamp: str | None = None


class Row(msgspec.Struct):
    """One round: a model call."""

    session_id: str | int
    round_index: int
    input_tokens_total: Count
    prefix_tokens: Count
    output_tokens: Count | None = None
    model: str | None = None
    timing_events: list[Event] | None = None


def matches(sample: Sample) -> bool:
    """Whether the first row is a round."""
    return sample.kind == "json" and {"round_index", "input_tokens_total", "prefix_tokens"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of rounds in file order; paths go on with the output, which the next prompt may repeat."""
    block = options.block_tokens or RESOLUTION_TOKENS
    clock, responses = Clock(1, account, is_epoch=True), Responses()
    paths = GrowingPaths(block)
    last: dict[str, tuple[int, int]] = {}
    for batch in jsonl.read_batches(path, Row):
        batch = keep_rows(batch, [options.keeps_model(row.model, account) for row in batch.rows])
        if batch.rows:
            yield make_prompts(batch, block, paths, last, clock, responses, account)
    account.assume(
        "block ids are made from lengths: a round is taken to repeat the first prefix_tokens of its session's previous "
        "round, and sessions to share nothing"
    )


def make_prompts(
    batch: RowBatch[Row],
    block: int,
    paths: GrowingPaths,
    last: dict[str, tuple[int, int]],
    clock: Clock,
    responses: Responses,
    account: Account,
) -> Prompts:
    """The Prompts of one batch; `last` holds every session's last round and the length of its path."""
    rows = batch.rows
    sessions = [str(row.session_id) for row in rows]
    keys = []
    for k, (row, session) in enumerate(zip(rows, sessions, strict=True)):
        n_output = row.output_tokens or 0
        where = batch.where(k)
        shared = _find_shared(row, last.get(session), where, account)
        check_length(row.input_tokens_total + n_output, where)
        keys.append(paths.grow(session, shared, row.input_tokens_total + n_output))
        last[session] = (row.round_index, row.input_tokens_total + n_output)
    if any(row.output_tokens is None for row in rows):
        account.assume("rounds without output_tokens are taken to generate nothing")
    ids, offsets = jsonl.flatten(keys)
    times = [_find_times(row, batch.where(k)) for k, row in enumerate(rows)]
    requests = number_requests(
        np.array([row.input_tokens_total for row in rows], np.int64),
        np.array([row.output_tokens or 0 for row in rows], np.int64),
        sessions,
        clock.read(sent for sent, _ in times),
        np.array([service for _, service in times], np.float64),
        responses,
        account,
    )
    return Prompts(requests, ids, offsets, "hashes", block, outputs_known=True, namespaces=in_one_file(len(rows)))


def _find_shared(row: Row, before: tuple[int, int] | None, where: str, account: Account) -> int:
    """Tokens a round repeats of its session's previous one."""
    if row.prefix_tokens > row.input_tokens_total:
        raise TraceError(
            f"{where}: prefix_tokens is {row.prefix_tokens} of {row.input_tokens_total} prompt tokens; "
            "a prefix no longer than the prompt is accepted"
        )
    if before is None:
        if row.prefix_tokens:
            account.found["first round of a session with a cached prefix: taken as never seen before"] += 1
        return 0
    if row.round_index < before[0]:
        account.found["round that stands behind a later one of its session: compared with the row before it"] += 1
    if row.prefix_tokens > before[1]:
        account.found["round whose prefix is longer than the round before it: cut to its length"] += 1
    return min(row.prefix_tokens, before[1])


def _find_times(row: Row, where: str) -> tuple[float, float]:
    """When a round was sent and how long it took, in seconds: last input event, then to the last event."""
    events = [(event.event_type, _parse(event, where)) for event in row.timing_events or () if event.timestamp]
    if not events:
        return math.nan, math.nan
    inputs = [moment for kind, moment in events if kind in INPUT_EVENTS]
    outputs = [moment for kind, moment in events if kind not in INPUT_EVENTS]
    sent = max(inputs) if inputs else min(outputs)
    return sent, max(max(outputs) - sent, 0.0) if outputs else math.nan


def _parse(event: Event, where: str) -> float:
    try:
        return to_epoch(event.timestamp or "")
    except ValueError:
        raise TraceError(
            f"{where}: timestamp of a timing event is {event.timestamp!r}; an ISO 8601 date and time is accepted"
        ) from None
