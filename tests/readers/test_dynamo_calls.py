"""Times and tasks of Dynamo calls, batch by batch, against a walk from call to call."""

import math

import numpy as np
import pytest
from builders import write_jsonl
from hypothesis import given
from hypothesis import strategies as st

from capplan.readers import dynamo, jsonl
from capplan.readers.sample import Account, Options

TIMES = st.sampled_from([None, 0, 250, 1000.5])
PARENTS = {"a": "b", "b": "c", "d": "d", "e": "f", "f": "e"}


@st.composite
def events(draw):
    rows = []
    for k in range(draw(st.integers(1, 8))):
        session = draw(st.sampled_from([*PARENTS, None]))
        agent = {"session_id": session, "parent_session_id": PARENTS.get(session) if draw(st.booleans()) else None}
        request = {
            "request_id": f"r{k}",
            "request_received_ms": draw(TIMES),
            "total_time_ms": draw(TIMES),
            "output_tokens": draw(st.sampled_from([None, 3])),
            "replay": {"trace_block_size": 64, "input_length": 0, "input_sequence_hashes": []},
        }
        rows.append(
            {
                "schema": dynamo.SCHEMAS[0],
                "event_type": "request_end",
                "event_time_unix_ms": draw(TIMES),
                "agent_context": agent,
                "request": request,
            }
        )
    return rows


def walk(rows):
    """Seconds at which every call was sent, after the first, and that it took."""
    found = []
    for row in rows:
        sent, took, end = (row["request"]["request_received_ms"], row["request"]["total_time_ms"],
                           row["event_time_unix_ms"])  # fmt: skip
        if sent is None and end is not None:
            sent = end - (took or 0)
        if took is None and sent is not None and end is not None and end > sent:
            took = end - sent
        found.append((sent, math.nan if took is None else took))
    first = next((sent for sent, _ in found if sent is not None), 0)
    arrival = [math.nan if sent is None else (sent - first) / 1000 for sent, _ in found]
    return arrival, [took / 1000 for _, took in found]


@given(events(), st.sampled_from([1, 1 << 20]))
def test_times_are_those_of_each_call_alone(tmp_path_factory, rows, batch_bytes):
    path = write_jsonl(tmp_path_factory.mktemp("d") / "d.jsonl", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", batch_bytes)
        parts = [prompts.requests for prompts in dynamo.read(path, Options(), Account())]
    arrival, service = walk(rows)
    np.testing.assert_array_equal([t for part in parts for t in part.arrival_s.tolist()], arrival)
    np.testing.assert_array_equal([t for part in parts for t in part.service_s.tolist()], service)


@given(events())
def test_tasks_are_the_roots_of_the_parents_named_so_far(tmp_path_factory, rows):
    path = write_jsonl(tmp_path_factory.mktemp("d") / "d.jsonl", rows)
    (prompts,) = dynamo.read(path, Options(), Account())
    parents = {}
    for row in rows:
        agent = row["agent_context"]
        if agent["parent_session_id"] not in (None, agent["session_id"]):
            parents[agent["session_id"]] = agent["parent_session_id"]
    for session, task in zip(prompts.requests.session.decode(), prompts.requests.task.decode(), strict=True):
        root, seen = session, set()
        while root in parents and parents[root] not in seen | {root}:
            seen.add(root)
            root = parents[root]
        assert task == root
