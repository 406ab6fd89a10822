"""Applied Compute agent rows: JSONL where a line gives the lengths and tool waits of one whole session.

There are no ids and no arrivals. A session's first prompt is new; every later one is, by the format,
the one before it, its response and the tool output. What sessions share is not recorded.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Labels, NumberNames, Prompts, Requests
from capplan.readers import jsonl
from capplan.readers.growth import GrowingPaths, check_length, in_one_file
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import Count, Wait
from capplan.readers.sample import Account, Options, Sample

NAME = "applied-compute"
CARRIES = "JSONL of sessions with num_turns, input_prompt_length, assistant_response_length, tool_call_output_length"
RESOLUTION_TOKENS = 16


class Row(msgspec.Struct):
    """One session of `num_turns` tool calls and a final response."""

    num_turns: Count
    input_prompt_length: Count
    assistant_response_length: list[Count]
    tool_call_output_length: list[Count]
    tool_call_latency: list[Wait]
    final_assistant_response_length: Count


def matches(sample: Sample) -> bool:
    """Whether the first row is a session by lengths."""
    return sample.kind == "json" and {"num_turns", "input_prompt_length", "tool_call_output_length"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of whole sessions in file order; paths go on with the output, which the next prompt repeats."""
    block = options.block_tokens or RESOLUTION_TOKENS
    paths = GrowingPaths(block)
    n_sessions = 0
    for batch in jsonl.read_batches(path, Row):
        for k, row in enumerate(batch.rows):
            _check(row, batch.where(k))
        yield make_prompts(batch, block, n_sessions, paths, account)
        n_sessions += len(batch.rows)
    account.assume(
        "block ids are made from lengths: a prompt is its session's previous prompt, response and tool output, and "
        "sessions share nothing"
    )
    account.assume("session starts are not recorded: they come from the pool")


def _check(row: Row, where: str) -> None:
    for name in ("assistant_response_length", "tool_call_output_length", "tool_call_latency"):
        found = len(getattr(row, name))
        if found != row.num_turns:
            raise TraceError(f"{where}: {name} has {found} entries for {row.num_turns} turns; one per turn is accepted")
    added = (*row.assistant_response_length, *row.tool_call_output_length, row.final_assistant_response_length)
    check_length(row.input_prompt_length + sum(added), where)


def make_prompts(batch: RowBatch[Row], block: int, n_sessions: int, paths: GrowingPaths, account: Account) -> Prompts:
    """The Prompts of one batch of sessions, numbered after `n_sessions` earlier ones."""
    keys, n_input, n_output, gaps, sessions = [], [], [], [], []
    for k, row in enumerate(batch.rows):
        session = str(n_sessions + k)
        prompt = row.input_prompt_length
        outputs = [*row.assistant_response_length, row.final_assistant_response_length]
        n_before = 0
        for n_new, tool in zip(outputs, [*row.tool_call_output_length, 0], strict=True):
            keys.append(paths.grow(session, n_before, prompt + n_new))
            n_input.append(prompt)
            n_before = prompt + n_new
            prompt = n_before + tool
        n_output += outputs
        gaps += [np.nan, *row.tool_call_latency]
        sessions += [session] * len(outputs)
        paths.forget(session)
    ids, offsets = jsonl.flatten(keys)
    labels = Labels.encode(sessions)
    requests = Requests.of(
        np.array(n_input, np.int64),
        output_tokens=np.array(n_output, np.int64),
        request_ids=NumberNames.starting_at(account.n_read, len(sessions)),
        session=labels,
        task=labels,
        gap_s=np.array(gaps, np.float64),
    )
    account.n_read += len(sessions)
    return Prompts(requests, ids, offsets, "hashes", block, outputs_known=True, namespaces=in_one_file(len(sessions)))
