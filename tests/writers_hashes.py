"""Random agent workloads, and writers of every format that carries block hashes or sizes."""

import csv
import json
from dataclasses import dataclass

import polars as pl
from builders import chain, dump, write_jsonl
from hypothesis import strategies as st
from strategies import paths

PARTIAL = 1 << 32  # ids from here on stand for partial blocks


@dataclass
class Call:
    """One call: its prompt as tokens, and what a format may say of it."""

    prompt: list[int]
    n_output: int
    session: str
    sent_ms: int
    service_ms: int


@st.composite
def workloads(draw, **options):
    """Calls in the order of sending, prompts sharing prefixes at random."""
    prompts = draw(paths(**options))
    sent, calls = draw(st.integers(0, 10**12)), []
    for prompt in prompts:
        sent += draw(st.integers(0, 5000))
        session = draw(st.sampled_from("abc"))
        calls.append(Call(prompt, draw(st.integers(0, 9)), session, sent, draw(st.integers(1, 3000))))
    return calls


def hash_blocks(calls, block, *, partial=True):
    """Chained block ids of every call, with an id of its own for a partial last block."""
    keys = {}
    return [
        chain(call.prompt, block, keys) + ([PARTIAL + k] if partial and len(call.prompt) % block else [])
        for k, call in enumerate(calls)
    ]


def write_mooncake_extended(path, calls, block):
    rows = [
        {
            "session_id": call.session,
            "timestamp": call.sent_ms,
            "input_length": len(call.prompt),
            "output_length": call.n_output,
            "hash_ids": ids,
        }
        for call, ids in zip(calls, hash_blocks(calls, block), strict=True)
    ]
    return write_jsonl(path, rows)


def write_qwen_bailian(path, calls, block):
    rows, last = [], {}
    for k, (call, ids) in enumerate(zip(calls, hash_blocks(calls, block), strict=True)):
        parent = last.get(call.session, -1)
        last[call.session] = k
        rows.append(
            {
                "chat_id": k,
                "parent_chat_id": parent,
                "timestamp": call.sent_ms / 1000,
                "input_length": len(call.prompt),
                "output_length": call.n_output,
                "type": "text",
                "turn": 1 + (0 if parent < 0 else rows[parent]["turn"]),
                "hash_ids": ids,
            }
        )
    return write_jsonl(path, rows)


def write_dynamo(path, calls, block, *, spread=1):
    """`spread` multiplies ids, to fill 64 bits."""
    rows = []
    for k, (call, ids) in enumerate(zip(calls, hash_blocks(calls, block), strict=True)):
        event = {
            "schema": "dynamo.request.trace.v1",
            "event_type": "request_end",
            "event_time_unix_ms": call.sent_ms + call.service_ms,
            "agent_context": {"session_id": call.session, "parent_session_id": "root"},
            "request": {
                "request_id": f"r{k}",
                "request_received_ms": call.sent_ms,
                "total_time_ms": call.service_ms,
                "output_tokens": call.n_output,
                "replay": {
                    "trace_block_size": block,
                    "input_length": len(call.prompt),
                    "input_sequence_hashes": [(i + 1) * spread % 2**64 for i in ids],
                },
            },
        }
        rows.append({"timestamp": k, "event": event} if k % 2 else event)
    return write_jsonl(path, rows)


def write_lmcache_hashes(path, calls, block):
    rows = [
        {
            "timestamp": call.sent_ms / 1000,
            "request_id": f"r{k}",
            "model_name": "m",
            "chunk_size": block,
            "seq_len": len(call.prompt),
            "dtypes": ["bfloat16"],
            "shapes": [[2, 4, block, 64]] * len(ids),
            "chunk_hashes": [f"0x{i:x}" for i in ids],
        }
        for k, (call, ids) in enumerate(zip(calls, hash_blocks(calls, block, partial=False), strict=True))
    ]
    return write_jsonl(path, rows)


def write_baseten(path, calls, block):
    columns = {
        "timestamp_start_unix_ms": [call.sent_ms for call in calls],
        "prompt": ["text"] * len(calls),
        "input_tokens": [len(call.prompt) for call in calls],
        "output_tokens": [call.n_output for call in calls],
        "total_hashes": pl.Series(hash_blocks(calls, block), dtype=pl.List(pl.Int64)),
        "block_size": [block] * len(calls),
        "provided_session_id": [call.session for call in calls],
        "poor_man_session_id": list(range(len(calls))),
        "duration_e2e_ms": [call.service_ms for call in calls],
        "request_canceled": [0] * len(calls),
    }
    pl.DataFrame(columns).write_parquet(path)
    return path


def write_mooncake(path, calls, block):
    rows = [
        {"timestamp": call.sent_ms, "input_length": len(call.prompt), "output_length": call.n_output, "hash_ids": ids}
        for call, ids in zip(calls, hash_blocks(calls, block), strict=True)
    ]
    return write_jsonl(path, rows)


def describe_call(call):
    """The columns of generic tables, but for ids."""
    more = {"output_tokens": call.n_output, "session_id": call.session, "arrival_s": call.sent_ms / 1000}
    return more | {"service_s": call.service_ms / 1000}


def write_block_hashes(path, calls, block):
    rows = [
        {"block_hashes": [hex(i) for i in ids], "block_size": block, "input_tokens": len(call.prompt)}
        | describe_call(call)
        for call, ids in zip(calls, hash_blocks(calls, block), strict=True)
    ]
    return write_jsonl(path, rows)


def write_block_hashes_as_parquet(path, calls, block):
    rows = [
        {"block_ids": ids, "block_size": block, "input_tokens": len(call.prompt)} | describe_call(call)
        for call, ids in zip(calls, hash_blocks(calls, block), strict=True)
    ]
    pl.DataFrame(rows, schema_overrides={"block_ids": pl.List(pl.Int64)}).write_parquet(path)
    return path


def write_subagents(folder, calls, block, scope):
    """One kv-cache-tester file: session "a" with the calls of "b" and "c" as sub-agents, in runs of their own.

    Returns the folder, and the calls in the order of the file.
    """
    folder.mkdir(exist_ok=True)
    requests, in_order = [], []
    keys = {}
    for session in ("a", "b", "c"):
        own = [call for call in calls if call.session == session]
        start = min((call.sent_ms for call in own), default=0) if session != "a" else 0
        rows = []
        for call in own:
            ids = chain(call.prompt, block, keys if scope == "local" else keys.setdefault(session, {}))
            sent = (call.sent_ms - start) / 1000
            rows.append({"t": sent, "type": "n", "in": len(call.prompt), "out": call.n_output, "hash_ids": ids})
        if session != "a":
            rows = [{"t": start / 1000, "type": "subagent", "agent_id": session, "requests": rows}]
        requests += rows
        in_order += own
    content = {"id": "x", "block_size": block, "requests": requests}
    (folder / "a.json").write_bytes(dump(content | ({"hash_id_scope": scope} if scope else {})))
    return folder, in_order


def write_kv_cache_tester(folder, calls, block):
    """A file per session, in the order of `by_session`; ids are global."""
    folder.mkdir(exist_ok=True)
    files = {}
    for call, ids in zip(calls, hash_blocks(calls, block, partial=False), strict=True):
        row = {"t": call.sent_ms / 1000, "type": "n", "in": len(call.prompt), "out": call.n_output, "hash_ids": ids}
        files.setdefault(call.session, []).append(row | {"api_time": call.service_ms / 1000})
    for session, rows in files.items():
        content = {"id": session, "block_size": block, "hash_id_scope": "global", "requests": rows}
        (folder / f"{session}.json").write_bytes(dump(content))
    return folder


def by_session(calls):
    """The calls as files of one session each have them."""
    return sorted(calls, key=lambda call: call.session)


@dataclass
class Turn:
    """One call of a session that only grows."""

    n_new: int
    n_output: int
    wait_ms: int


growing_sessions = st.lists(
    st.lists(st.builds(Turn, st.integers(0, 12), st.integers(0, 9), st.integers(0, 5000)), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


def grow_paths(sessions):
    """Prompt lengths and whole paths of such sessions, all tokens different."""
    n_input, whole, token = [], [], 0
    for turns in sessions:
        path = []
        for turn in turns:
            path = [*path, *range(token, token + turn.n_new)]
            n_input.append(len(path))
            path = [*path, *range(token + turn.n_new, token + turn.n_new + turn.n_output)]
            token += turn.n_new + turn.n_output
            whole.append(path)
    return n_input, whole


def write_mooncake_delta(path, sessions, block):
    rows, next_id = [], 0
    for s, turns in enumerate(sessions):
        for k, turn in enumerate(turns):
            ids = list(range(next_id, next_id + -(-turn.n_new // block)))
            next_id += len(ids)
            row = {"session_id": f"s{s}", "input_length": turn.n_new, "output_length": turn.n_output, "hash_ids": ids}
            rows.append(row | ({"timestamp": 0.0, "group_id": 1} if k == 0 else {"delay": turn.wait_ms}))
    return write_jsonl(path, rows)


def write_tracelab(path, sessions):
    rows = []
    for s, turns in enumerate(sessions):
        total = 0
        for k, turn in enumerate(turns):
            prefix, total = total, total + turn.n_new
            rows.append(
                {
                    "session_id": f"s{s}",
                    "round_index": k,
                    "input_tokens_total": total,
                    "prefix_tokens": prefix,
                    "newly_append_tokens": turn.n_new,
                    "output_tokens": turn.n_output,
                    "timing_events": [],
                }
            )
            total += turn.n_output
    return write_jsonl(path, rows)


def write_applied_compute(path, sessions):
    rows = [
        {
            "num_turns": len(turns) - 1,
            "input_prompt_length": turns[0].n_new,
            "assistant_response_length": [turn.n_output for turn in turns[:-1]],
            "tool_call_output_length": [turn.n_new for turn in turns[1:]],
            "tool_call_latency": [turn.wait_ms / 1000 for turn in turns[1:]],
            "final_assistant_response_length": turns[-1].n_output,
        }
        for turns in sessions
    ]
    return write_jsonl(path, rows)


BURST_COLUMNS = ("Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens", "Response tokens", "Log Type")


def write_burstgpt(path, rows):
    """Rows of Timestamp, Session ID, Elapsed time, Model, Request tokens, Response tokens."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(BURST_COLUMNS)
        writer.writerows((*row, "Conversation log") for row in rows)
    return path


def write_growing_burstgpt(path, sessions):
    rows = []
    for s, turns in enumerate(sessions):
        total = 0
        for turn in turns:
            total += turn.n_new
            rows.append((len(rows), f"s{s}", 1.5, "GPT-4", total, turn.n_output))
            total += turn.n_output
    return write_burstgpt(path, rows)


def read_rows(path):
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
