"""A small whole source of every format that can be read, as plain values that a test may break and write again."""

import csv
import io
from dataclasses import dataclass, field

import polars as pl
from builders import dump

HI = [{"role": "user", "content": "hi"}]
CHAT = [*HI, {"role": "assistant", "content": "ls"}]


@dataclass
class Miniature:
    """A source.

    `rows` are the objects of its main file, `kind` says how they are written there: one JSON object a
    line, one JSON value, CSV or Parquet. `name` is the file's place in the source, `beside` are other
    files by place. `is_folder`: the source is the folder they are in.
    """

    rows: list
    name: str = "m.jsonl"
    kind: str = "lines"
    beside: dict = field(default_factory=dict)
    is_folder: bool = False
    options: dict = field(default_factory=dict)

    def write(self, folder, rows=None, *, cut=0):
        """Write it, or other rows in place of its own, `cut` bytes missing at the end; the path to read."""
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = self.encode(self.rows if rows is None else rows)
        path.write_bytes(text[: len(text) - cut])
        for place, value in self.beside.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(dump(value))
        return folder if self.is_folder else path

    def encode(self, rows):
        """The bytes of its main file."""
        if self.kind == "lines":
            return b"\n".join(map(dump, rows))
        if self.kind == "document":
            return dump(rows[0])
        text = io.StringIO() if self.kind == "csv" else io.BytesIO()
        if self.kind == "csv":
            writer = csv.DictWriter(text, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
            return text.getvalue().encode()
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(text)
        return text.getvalue()


def mooncake(ids, **more):
    return {"timestamp": 1200, "input_length": 40, "output_length": 4, "hash_ids": ids} | more


def kv_call(ids, **more):
    return {"t": 0.5, "type": "s", "in": 16 * len(ids), "out": 3, "hash_ids": ids} | more


def dynamo(name, hashes):
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": 1_900_000_000_500,
        "agent_context": {"session_id": "r"},
        "request": {
            "request_id": name,
            "request_received_ms": 1_900_000_000_000,
            "output_tokens": 3,
            "replay": {"trace_block_size": 16, "input_length": 40, "input_sequence_hashes": hashes},
        },
    }


def lookup(name, hashes):
    return {"timestamp": 1.5, "request_id": name, "chunk_size": 16, "seq_len": 40, "chunk_hashes": hashes}


def baseten(hashes):
    return {
        "timestamp_start_unix_ms": 1_900_000_000_000,
        "input_tokens": 40,
        "output_tokens": 3,
        "total_hashes": hashes,
        "block_size": 16,
        "provided_session_id": "u",
    }


def tracelab(k):
    return {"session_id": "z", "round_index": k, "input_tokens_total": 50, "prefix_tokens": 20, "output_tokens": 4}


APPLIED = {
    "num_turns": 1,
    "input_prompt_length": 90,
    "assistant_response_length": [40],
    "tool_call_output_length": [20],
    "tool_call_latency": [2.5],
    "final_assistant_response_length": 3,
}


def burst(sent):
    return {"Timestamp": sent, "Session ID": 1, "Request tokens": 30, "Response tokens": 4}


def step(seq):
    more = {"prompt_shared": 0, "prompt_suffix": [8, 9], "prompt_len": 2, "output": [3], "output_len": 1}
    return {"seq": seq, "gap_before_s": 0.4} | more


def agent_call(seq):
    return {
        "request_sequence": seq,
        "start_wall_ns": 10 * seq,
        "end_wall_ns": 10 * seq + 5,
        "prompt_token_ids": [1, 2],
        "generated_token_ids": [[3]],
    }


def serving(sent):
    return {
        "input_toks": 3,
        "output_toks": 1,
        "arrival_time_ns": sent,
        "input_tok_ids": [4, 5, 6],
        "output_tok_ids": [7],
    }


def chat(**more):
    return {"model": "m", "messages": HI, "usage": {"completion_tokens": 3}} | more


def answer(**more):
    response = {"created": 1_900_000_000, "usage": {"prompt_tokens": 20, "completion_tokens": 2}}
    return {"role": "assistant", "content": "ls", "extra": {"response": response}} | more


def capture(name):
    sent = dump({"inputs": "hi"}).decode()
    return {
        "captureData": {"endpointInput": {"data": sent}},
        "eventMetadata": {"eventId": name, "inferenceTime": "2030-01-01T00:00:00Z"},
    }


BYTES = {"tokenizer": "bytes"}
BLOCK = {"block_size": 16}
MINIATURES = {
    "kv-cache-tester": Miniature(
        [{"id": "x", "block_size": 16, "hash_id_scope": "local", "requests": [kv_call([1, 2]), kv_call([1, 2, 3])]}],
        "m.json",
        "document",
    ),
    "qwen-bailian": Miniature(
        [mooncake([1, 2], chat_id=1, parent_chat_id=-1), mooncake([1, 2], chat_id=2, parent_chat_id=1)]
    ),
    "mooncake-delta": Miniature(
        [mooncake([1, 2], session_id="s", group_id=1), mooncake([8, 9], session_id="s", delay=5)], options=BLOCK
    ),
    "mooncake-extended": Miniature(
        [mooncake([1, 2], session_id="s", request_id="a"), mooncake([1, 2], session_id="s", request_id="b")],
        options=BLOCK,
    ),
    "mooncake": Miniature([mooncake([1, 2]), mooncake([1, 2])], options=BLOCK),
    "dynamo": Miniature([dynamo("a", [1, 2]), dynamo("b", [1, 2])]),
    "lmcache-hashes": Miniature([lookup("a", ["0x0a", "0x0b"]), lookup("b", ["0x0a", "0x0b"])]),
    "baseten": Miniature([baseten([1, 2]), baseten([1, 2])], "m.parquet", "parquet"),
    "tracelab": Miniature([tracelab(0), tracelab(1)]),
    "applied-compute": Miniature([APPLIED, APPLIED]),
    "burstgpt": Miniature([burst(5), burst(6)], "m.csv", "csv", options={"assume_prefix": "session"}),
    "replay-trace": Miniature(
        [{"instance_id": "x", "order": 0, "tail_gap_s": 1.5}, step(1), step(2)],
        "m.jsonl",
        beside={"trace_manifest.json": {"schema": "efficientagent.replay_trace.v1"}},
        is_folder=True,
    ),
    "agent-run": Miniature(
        [agent_call(1), agent_call(2)],
        "attempts/t/attempt_00/telemetry/llm_requests.jsonl",
        beside={"tasks/t.json": {"task_timing": {"assigned_ns": 0, "finished_ns": 99}}},
        is_folder=True,
    ),
    "llmservingsim": Miniature([serving(5), serving(6)]),
    "mini-swe-agent": Miniature(
        [{"messages": [*HI, answer()], "trajectory_format": "mini-swe-agent-1"}],
        "m.traj.json",
        "document",
        options=BYTES,
    ),
    "swe-agent": Miniature(
        [{"environment": "e", "trajectory": [{"response": "ls", "execution_time": 1.5}], "history": CHAT, "info": {}}],
        "m.traj",
        "document",
        options=BYTES,
    ),
    "tau-bench": Miniature(
        [[{"task_id": k, "traj": CHAT, "trial": 0} for k in range(2)]], "m.json", "document", options=BYTES
    ),
    "openhands": Miniature(
        [
            {
                "messages": HI,
                "response": {"choices": [{"message": {"content": "ok"}}], "usage": {"prompt_tokens": 9}},
                "kwargs": {},
                "timestamp": 1.5,
            }
        ],
        "x/m.json",
        "document",
        is_folder=True,
        options=BYTES,
    ),
    "lmcache-agent": Miniature(
        [{"timestamp": 1_900_000_000_000_000 + k, "input": "hi", "output": "ok", "session_id": "ab"} for k in range(2)],
        options=BYTES,
    ),
    "aiperf-inputs": Miniature(
        [{"data": [{"session_id": "s", "payloads": [{"messages": HI, "max_tokens": 8}]}]}],
        "m.json",
        "document",
        options=BYTES,
    ),
    "aibrix": Miniature(
        [{"timestamp": 4, "requests": [{"Prompt Length": 2, "Output Length": 5, "prompt": "hi"}]}] * 2, options=BYTES
    ),
    "sagemaker-capture": Miniature([capture("a"), capture("b")], options=BYTES),
    "openai-chat": Miniature([chat(request_id="a"), chat(request_id="b")], options=BYTES),
    "token-ids": Miniature(
        [{"token_ids": [1, 2], "request_id": name, "input_tokens": 2, "output_tokens": 3} for name in "ab"]
    ),
    "block-hashes": Miniature(
        [{"block_ids": [1, 2], "block_size": 16, "input_tokens": 40, "request_id": name} for name in "ab"]
    ),
}
