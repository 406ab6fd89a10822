"""Block-hash sources made from a synthetic trace, in the formats engines and tools write, one JSON object a line.

Beside every writer stands the shape its rows are decoded to where the parser alone is timed: all fields a
reader needs, ids as lists.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from streams import POOLED, write_ids

from capplan.trace import Trace
from capplan.workloads import Workload

FIRST_MS = 1_900_000_000_000

# Turns of about 14k tokens, as in the published Mooncake conversation trace.
CONVERSATIONS: Workload = replace(
    POOLED, n_calls=20_000, shared_prompt_tokens=2_000, instruction_tokens=2_000, observation_tokens=900,
    window_tokens=32_768,
)  # fmt: skip


class Mooncake(msgspec.Struct):
    """A Mooncake row."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


class Extended(msgspec.Struct):
    """A row with sessions and delays."""

    session_id: str
    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float | None = None
    delay: float | None = None


class Agentic(msgspec.Struct):
    """A row with names and dependencies."""

    request_id: str
    session_id: str
    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float | None = None
    tool_wait_ms: float | None = None
    wait_for: list[str] | None = None


class Bailian(msgspec.Struct):
    """A row of a chat's turn."""

    chat_id: int
    parent_chat_id: int
    timestamp: float
    input_length: int
    output_length: int
    turn: int
    hash_ids: list[int]


class Replay(msgspec.Struct):
    """The prompt of a Dynamo request."""

    trace_block_size: int
    input_length: int
    input_sequence_hashes: list[int]


class Request(msgspec.Struct):
    """A finished Dynamo request."""

    request_id: str
    model: str
    request_received_ms: float
    total_time_ms: float
    output_tokens: int
    replay: Replay


class Agent(msgspec.Struct):
    """Who sent it."""

    session_id: str
    parent_session_id: str | None = None


class Event(msgspec.Struct):
    """A Dynamo record."""

    schema: str
    event_type: str
    event_time_unix_ms: float
    agent_context: Agent
    request: Request


class Envelope(msgspec.Struct):
    """A line of the file sink."""

    timestamp: float
    event: Event


class Lookup(msgspec.Struct):
    """An LMCache lookup."""

    timestamp: float
    request_id: str
    model_name: str
    chunk_size: int
    seq_len: int
    chunk_hashes: list[str]


@dataclass(frozen=True, slots=True)
class Rows:
    """Calls of a trace with their prompts as ids of blocks, the last one partial where `has_partial`."""

    trace: Trace
    block: int
    has_partial: bool = True

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Row numbers and block ids, equal where the prefixes are; a partial block has an id of its own."""
        requests, trace = self.trace.requests, self.trace
        n_blocks = (requests.input_tokens + requests.output_tokens) // self.block
        offsets = np.concatenate([[0], np.cumsum(n_blocks)]).astype(np.int64)
        ids = np.empty(int(offsets[-1]), np.int32)
        n_distinct = write_ids(trace.parent, trace.shared_tokens // self.block, offsets, ids)
        for row, n_tokens in enumerate(requests.input_tokens.tolist()):
            begin = int(offsets[row])
            partial = [n_distinct + row] if self.has_partial and n_tokens % self.block else []
            yield row, ids[begin : begin + n_tokens // self.block].tolist() + partial


def list_mooncake(trace: Trace) -> Iterator[dict]:
    requests = trace.requests
    for k, ids in Rows(trace, 512):
        yield {
            "timestamp": 40 * k,
            "input_length": int(requests.input_tokens[k]),
            "output_length": int(requests.output_tokens[k]),
            "hash_ids": ids,
        }


def list_extended(trace: Trace) -> Iterator[dict]:
    sessions, seen = trace.requests.session.decode(), set()
    for k, row in enumerate(list_mooncake(trace)):
        sent = row.pop("timestamp")
        when = {"delay": 1500} if sessions[k] in seen else {"timestamp": sent}
        seen.add(sessions[k])
        yield {"session_id": sessions[k], **row, **when}


def list_agentic(trace: Trace) -> Iterator[dict]:
    last: dict[str, str] = {}
    for k, row in enumerate(list_extended(trace)):
        row.pop("delay", None)
        session = row["session_id"]
        waits = {"wait_for": [last[session]], "tool_wait_ms": 800} if session in last else {}
        last[session] = f"r{k}"
        yield {"request_id": f"r{k}", **row, **waits}


def list_bailian(trace: Trace) -> Iterator[dict]:
    last: dict[str, tuple[int, int]] = {}
    sessions, requests = trace.requests.session.decode(), trace.requests
    for k, ids in Rows(trace, 16):
        parent, turn = last.get(sessions[k], (-1, 0))
        last[sessions[k]] = k, turn + 1
        yield {
            "chat_id": k,
            "parent_chat_id": parent,
            "timestamp": 0.04 * k,
            "input_length": int(requests.input_tokens[k]),
            "output_length": int(requests.output_tokens[k]),
            "type": "text",
            "turn": turn + 1,
            "hash_ids": ids,
        }


def list_dynamo(trace: Trace) -> Iterator[dict]:
    sessions, requests = trace.requests.session.decode(), trace.requests
    for k, ids in Rows(trace, 64):
        sent = FIRST_MS + 40 * k
        replay = {
            "trace_block_size": 64,
            "input_length": int(requests.input_tokens[k]),
            "input_sequence_hashes": [mix(number) for number in ids],
        }
        request = {
            "request_id": f"{mix(k):016x}",
            "model": "m",
            "request_received_ms": sent,
            "total_time_ms": 812.5,
            "output_tokens": int(requests.output_tokens[k]),
            "replay": replay,
        }
        event = {
            "schema": "dynamo.request.trace.v1",
            "event_type": "request_end",
            "event_time_unix_ms": sent + 812.5,
            "agent_context": {"session_id": sessions[k], "parent_session_id": "root"},
            "request": request,
        }
        yield {"timestamp": 40 * k, "event": event}


def list_lookups(trace: Trace) -> Iterator[dict]:
    requests = trace.requests
    for k, ids in Rows(trace, 256, has_partial=False):
        yield {
            "timestamp": FIRST_MS / 1000 + 0.04 * k,
            "request_id": f"cmpl-{mix(k):016x}",
            "model_name": "m",
            "chunk_size": 256,
            "seq_len": int(requests.input_tokens[k]),
            "dtypes": ["bfloat16"],
            "shapes": [[2, 48, 256, 512]],
            "chunk_hashes": [f"0x{mix(number):x}" for number in ids],
        }


def mix(number: int) -> int:
    """A 64-bit hash."""
    word = (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64)
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    return word ^ (word >> 31)


@dataclass(frozen=True, slots=True)
class Format:
    """What is compared: a writer of rows, the parser's shape, and the share of all calls that are written."""

    name: str
    list_rows: Callable[[Trace], Iterator[dict]]
    shape: type
    share: float
    options: tuple[tuple[str, str], ...] = ()


FORMATS = (
    Format("Mooncake", list_mooncake, Mooncake, 1.0),
    Format("extended Mooncake", list_extended, Extended, 1.0),
    Format("agentic Mooncake", list_agentic, Agentic, 1.0),
    Format("Qwen-Bailian", list_bailian, Bailian, 0.1, (("ids", "content"),)),
    Format("Dynamo", list_dynamo, Envelope, 0.2),
    Format("LMCache lookups, hexadecimal", list_lookups, Lookup, 0.5),
)


def write_lines(path: Path, rows: Iterator[dict]) -> Path:
    """One JSON object a line."""
    with path.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
    return path
