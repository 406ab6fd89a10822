"""Dynamo request traces: envelopes, tool events, trajectories, unsigned 64-bit rolling hashes."""

import numpy as np
import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.readers import FORMATS, detect_format, read_trace
from capplan.readers.ledger import EARLIEST_LATER

SENT = 1_900_000_000_000


def record(name="x", hashes=(11400714819323198485,), n_input=None, sent=SENT, agent=None, **more):
    n = 64 * len(hashes) if n_input is None else n_input
    request = {
        "request_id": name,
        "request_received_ms": sent,
        "total_time_ms": 500,
        "output_tokens": 3,
        "replay": {"trace_block_size": 64, "input_length": n, "input_sequence_hashes": list(hashes)},
    }
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": sent + 500,
        "agent_context": agent,
        "request": request | more,
    }


def wrap(event):
    return {"timestamp": 500, "event": event}


def read(tmp_path, *rows, **options):
    return read_trace(write_jsonl(tmp_path / "d.jsonl", rows), **options)


def test_requests_in_envelopes_or_bare(tmp_path):
    rows = [
        wrap(record("a", [2**64 - 1, 42], 70)),
        record("b", [2**64 - 1, 2**64 - 2], sent=SENT + 1250, total_time_ms=None),
        record("c", [2**64 - 1, 7], 127, sent=SENT - 10, output_tokens=None),
    ]
    trace = read(tmp_path, *rows)
    assert links(trace) == ([-1, 0, 0], [0, 64, 64])
    r = trace.requests
    assert r.request_ids == ["a", "b", "c"]
    assert r.arrival_s.tolist() == [0.01, 1.26, 0]
    assert r.service_s.tolist() == [0.5, 0.5, 0.5]
    assert r.output_tokens.tolist() == [3, 3, 0]
    assert r.session.decode() == [None] * 3
    assert trace.notes[0] == "3 requests read as dynamo"
    assert trace.notes[-2:] == ("calls without output_tokens are taken to generate nothing", EARLIEST_LATER)
    assert "1 x request sent before the one in front of it in the file" in trace.notes[1]


def test_sessions_are_trajectories_and_tasks_their_roots(tmp_path):
    rows = [
        record("a", agent={"session_id": "r"}),
        record("b", agent={"session_id": "r:a", "parent_session_id": "r"}, sent=SENT + 100),
        record("c", agent={"session_id": "z", "trajectory_id": "t2", "parent_trajectory_id": "t1"}),
        record("d", agent={"session_id": "z", "trajectory_id": "t1", "parent_trajectory_id": None}),
        record("e", agent={"session_id": "r"}, sent=SENT + 800),
        record("f", agent={"session_id": "deep", "parent_session_id": "r:a"}),
        record("g", agent={"session_id": None}),
    ]
    r = read(tmp_path, *rows).requests
    assert r.session.decode() == ["r", "r:a", "t2", "t1", "r", "deep", None]
    assert r.task.decode() == ["r", "r", "t1", "t1", "r", "r", None]
    np.testing.assert_allclose(r.gap_s, [np.nan] * 4 + [0.3] + [np.nan] * 2)


def test_parents_in_a_circle_end(tmp_path):
    rows = [record(n, agent={"session_id": n, "parent_session_id": p}) for n, p in (("a", "b"), ("b", "a"))]
    assert read(tmp_path, *rows).requests.task.decode() == ["b", "a"]


def test_everything_else_is_counted(tmp_path):
    tool = {"schema": "dynamo.agent.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 5, "tool": {}}
    rows = [
        wrap(tool),
        tool | {"event_type": "tool_start"},
        wrap(tool),
        {"verification": "uploaded"},
        record("a", replay=None),
        record("b", input_tokens=65, cached_tokens=40) | {"schema": "dynamo.agent.trace.v1"},
        record("c", input_tokens=64, cached_tokens=0),
        {"schema": "dynamo.request.trace.v1"},
    ]
    trace = read(tmp_path, *rows)
    assert trace.requests.request_ids == ["b", "c"]
    assert trace.notes == (
        "2 requests read as dynamo",
        "1 left out: line without a schema",
        "1 left out: request without replay hashes",
        "2 left out: tool_end event: no prompt",
        "1 left out: tool_start event: no prompt",
        "1 left out: unnamed event: no prompt",
        "1 x request whose input_tokens differ from the length its hashes stand for, which is taken",
        "the server found 40 of 128 prompt tokens cached (for comparison only)",
    )


def test_times_from_the_end_where_the_receipt_is_unknown(tmp_path):
    rows = [record("a", request_received_ms=None, total_time_ms=250), record("b", sent=SENT + 500)]
    trace = read(tmp_path, *rows)
    assert trace.requests.arrival_s.tolist() == [0, 0.25]
    assert "calls without a time of receipt are dated back from their end by their total time, if known" in trace.notes


def test_time_that_is_nowhere(tmp_path):
    bare = record("a", sent=SENT) | {"event_time_unix_ms": None}
    bare["request"] |= {"request_received_ms": None, "total_time_ms": None}
    r = read(tmp_path, bare).requests
    assert np.isnan(r.arrival_s).all()
    assert np.isnan(r.service_s).all()


def test_models_can_be_chosen(tmp_path):
    rows = [record("a", model="m1"), record("b", model="m2"), record("c")]
    assert read(tmp_path, *rows, model_filter="m1").requests.request_ids == ["a"]


@pytest.mark.parametrize("schema", ["dynamo.request.trace.v2", "dynamo.agent.trace.v9"])
def test_unknown_versions_are_recognised_and_refused(tmp_path, schema):
    path = write_jsonl(tmp_path / "d.jsonl", [wrap(record() | {"schema": schema})])
    assert detect_format(path) is FORMATS["dynamo"]
    assert refusal(path) == (
        f", line 1: schema is {schema!r}; accepted: dynamo.request.trace.v1, dynamo.agent.trace.v1"
    )


def changed(**replay):
    bad = record("b")
    bad["request"]["replay"] |= replay
    return wrap(bad)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (changed(trace_block_size=32), "trace_block_size is 32 after 64; one size per trace is accepted"),
        (changed(trace_block_size=0), "Expected `int` >= 1 - at `$.event.request.replay.trace_block_size`"),
        (changed(input_length=-1), "Expected `int` >= 0 - at `$.event.request.replay.input_length`"),
        (changed(input_length=200), "1 block hashes for 200 tokens; accepted: 3 to 4 of 64 tokens each"),
        (
            changed(input_sequence_hashes=None),
            "Expected `array`, got `null` - at `$.input_sequence_hashes`",
        ),
        (changed(input_sequence_hashes=[2**64]), "block hash 0 is 18446744073709551616; 64-bit integers are accepted"),
        (
            changed(input_sequence_hashes=[1.5]),
            "Expected `int | str`, got `float` - at `$.input_sequence_hashes[0]`",
        ),
        (
            record("b", request_received_ms="now"),
            "Expected `float | null`, got `str` - at `$.request.request_received_ms`",
        ),
        (
            record("b", agent={"session_id": "s", "parent_session_id": "q"}),
            "session 's' has parents 'p' and 'q'; one is accepted",
        ),
        ('{"event":{"schema"', "not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    good = record("a", agent={"session_id": "s", "parent_session_id": "p"})
    path = write_jsonl(tmp_path / "d.jsonl", [good, bad])
    assert refusal(path) == f", line 2: {text}"


def test_names_twice(tmp_path):
    path = write_jsonl(tmp_path / "d.jsonl", [record("a"), record("a")])
    assert refusal(path, format="dynamo").endswith("row 1: request_id 'a' stands twice; names must be unique")


def test_block_size_is_not_the_callers(tmp_path):
    path = write_jsonl(tmp_path / "d.jsonl", [record()])
    assert refusal(path, block_size=64) == (
        ": --block-size is given, but Dynamo traces state their own trace_block_size"
    )
