"""Extended and agentic Mooncake rows: sessions, delays, dependencies, sub-agents."""

import numpy as np
import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.readers import FORMATS, detect_format, read_trace

NAME = "mooncake-extended"
UNITS = "timestamps and delays are milliseconds and blocks 512 tokens, as Mooncake rows define them"
AS_DELTAS = (
    "no later row of a session begins with the block its previous row begins with; if rows hold only what is new, "
    "read them with --from mooncake-delta"
)


def row(session="s", ids=(1,), n_input=None, **more):
    n = 512 * len(ids) if n_input is None else n_input
    named = {} if session is None else {"session_id": session}
    return named | {"input_length": n, "output_length": 7, "hash_ids": list(ids)} | more


def read(tmp_path, *rows, **options):
    return read_trace(write_jsonl(tmp_path / "m.jsonl", rows), NAME, **options)


# --- sessions and delays


def test_sessions_delays_and_partial_blocks(tmp_path):
    rows = [
        row("a", [1, 2], 1000, timestamp=500),
        row("b", [1], timestamp=2500, delay=0),
        row("a", [1, 2, 3], 1100, delay=1500),
        row("a", [1, 2, 3], 1536, delay_ms=250.5, timestamp=9000),
        row("a", [1], 500, timestamp=9500),
    ]
    trace = read(tmp_path, *rows)
    assert links(trace) == ([-1, 0, 0, 2, -1], [0, 512, 512, 1024, 0])
    r = trace.requests
    np.testing.assert_array_equal(r.arrival_s, [0, 2, np.nan, 8.5, 9])
    np.testing.assert_array_equal(r.gap_s, [np.nan, np.nan, 1.5, 0.2505, np.nan])
    assert r.session.decode() == r.task.decode() == ["a", "b", "a", "a", "a"]
    assert r.request_ids == ["0", "1", "2", "3", "4"]
    assert trace.notes == (f"5 requests read as {NAME}", UNITS)


@pytest.mark.parametrize(
    "more",
    [
        {"session_id": "s"},
        {"timestamp": 5, "session_id": 7},
        {"delay": 5},
        {"delay_ms": 5},
        {"created_time": 5},
        {"wait_for": []},
        {"branches": []},
        {"tool_wait_ms": None},
        {"timestamp": 0, "prefix_reset": True},
    ],
)
def test_one_field_of_the_dialect_is_enough_to_know_it(tmp_path, more):
    path = write_jsonl(tmp_path / "x", [row(None) | more])
    assert detect_format(path) is FORMATS[NAME]
    assert len(read_trace(path)) == 1


def test_created_time_and_other_names_of_lengths(tmp_path):
    rows = [row(created_time=5000) | {"input_tokens": 512, "output_tokens": 9}, row(created_time=7500, priority=1)]
    del rows[0]["input_length"], rows[0]["output_length"]
    trace = read(tmp_path, *rows)
    assert trace.requests.arrival_s.tolist() == [0, 2.5]
    assert trace.requests.output_tokens.tolist() == [9, 7]


def test_missing_lengths_are_assumed_and_said(tmp_path):
    trace = read(tmp_path, {"session_id": "s", "hash_ids": [1, 2]})
    assert trace.requests.input_tokens.tolist() == [1024]
    assert trace.requests.output_tokens.tolist() == [0]
    assert trace.notes[1:3] == (
        "calls without an input length are taken to fill their blocks",
        "calls without an output length are taken to generate nothing",
    )


def test_rows_without_a_session_have_no_task(tmp_path):
    trace = read(tmp_path, row("a", timestamp=0), row(None, timestamp=1, delay=20))
    assert trace.requests.session.decode() == trace.requests.task.decode() == ["a", None]
    assert "1 x delay before the first call of a session, or without one: left out" in trace.notes


def test_rows_out_of_order_are_counted(tmp_path):
    trace = read(tmp_path, row("a", timestamp=9), row("b", timestamp=3), row("c", timestamp=3), row("d", timestamp=2))
    assert trace.notes[1].startswith("2 x request sent before the one in front of it in the file")


def test_rows_that_look_like_deltas_are_pointed_at(tmp_path):
    assert AS_DELTAS in read(tmp_path, row(ids=[1], timestamp=0), row(ids=[2], delay=1)).notes
    trace = read(tmp_path, row(ids=[1], timestamp=0), row(ids=[2], delay=1), row(ids=[2, 3], delay=1))
    assert AS_DELTAS not in trace.notes


def test_block_size_can_be_stated(tmp_path):
    trace = read(tmp_path, row(ids=[1, 2], n_input=30), row(ids=[1, 3], n_input=32), block_size=16)
    assert links(trace) == ([-1, 0], [0, 16])


# --- agents


def agents():
    return [
        row("root", [1], request_id="r1", timestamp=0, prefix_reset=True, branches=["c1"]),
        row("child", [8], request_id="c1", wait_for=["r1"], delay=10),
        row("root", [1, 2], request_id="r2", wait_for=["r1"], delay=100, tool_wait_ms=400),
        row("root", [1, 2], request_id="r3", wait_for=["r2", "c2"], tool_wait_ms=50),
        row("child", [8, 9], request_id="c2", wait_for=["c1"]),
        row("other", [1], request_id="o1", timestamp=900),
    ]


def test_waits_are_gaps_and_launched_sessions_belong_to_their_root(tmp_path):
    trace = read(tmp_path, *agents())
    assert links(trace) == ([-1, -1, 0, 2, 1, 0], [0, 0, 512, 1024, 512, 512])
    r = trace.requests
    assert r.request_ids == ["r1", "c1", "r2", "r3", "c2", "o1"]
    assert r.session.decode() == ["root", "child", "root", "root", "child", "other"]
    assert r.task.decode() == ["root"] * 5 + ["other"]
    np.testing.assert_array_equal(r.gap_s, [np.nan, np.nan, 0.5, 0.05, 0, np.nan])
    assert "1 x call that waits for others than its session's previous one: its gap counts from the last" in trace.notes


@pytest.mark.parametrize("link", [{"wait_for": ["r"]}, {"parent_session_id": "root"}, {}])
def test_ways_to_name_the_parent(tmp_path, link):
    branches = [] if link else ["c"]
    rows = [row("root", request_id="r", branches=branches), row("child", request_id="c", **link)]
    grand = row("grand", request_id="g", wait_for=["c"])
    assert read(tmp_path, *rows, grand).requests.task.decode() == ["root"] * 3


# --- refusals


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (row(input_length=-1), "Expected `int` >= 0 - at `$.input_length`"),
        (row(output_length=2**31), "Expected `int` <= 2147483647 - at `$.output_length`"),
        (row(input_length="5"), "Expected `int | null`, got `str` - at `$.input_length`"),
        (row(timestamp=1e16), "Expected `float` <= 1000000000000000.0 - at `$.timestamp`"),
        (row(delay=-1), "Expected `float` >= 0.0 - at `$.delay`"),
        (row(hash_ids=None), "hash_ids is missing; a list of block ids on every row is accepted"),
        (row(hash_ids=[None]), "Expected `int | str`, got `null` - at `$.hash_ids[0]`"),
        (row(hash_ids=[2**64]), "block hash 0 is 18446744073709551616; 64-bit integers are accepted"),
        (row(n_input=1500), "1 block hashes for 1500 tokens; accepted: 2 to 3 of 512 tokens each"),
        (row(ids=[1, 2], n_input=512), "2 block hashes for 512 tokens; accepted: 1 to 1 of 512 tokens each"),
        (
            row(is_restart=True),
            "field is_restart belongs to rows that hold only what is new; --from mooncake-delta reads them",
        ),
        (
            row(hash_ids=None, messages=[]),
            "messages holds text and there are no hash_ids; rows with hash_ids are accepted",
        ),
        (row(request_id="a"), "request_id 'a' stands twice; names must be unique"),
        (row(request_id="b", wait_for=["b"]), "'b' waits for itself; other requests are accepted"),
        (
            row(request_id="b", wait_for=["x"]),
            "waits for 'x', which no row names; a request_id of this file is accepted",
        ),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    path = write_jsonl(tmp_path / "m.jsonl", [row(request_id="a"), bad])
    assert refusal(path, format=NAME) == f", line 2: {text}"


def test_header_of_an_unknown_version(tmp_path):
    header = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 64}
    path = write_jsonl(tmp_path / "m.jsonl", [header, row()])
    assert refusal(path) == (
        ", line 1: schema 'dynamo.agentic_mooncake', version 2 is not known; agentic Mooncake rows without a header "
        "are accepted"
    )


def test_line_cut_short(tmp_path):
    path = write_jsonl(tmp_path / "m.jsonl", [row(), '{"session_id":"s","hash'])
    assert refusal(path) == ", line 2: not JSON (Input data was truncated); a complete object is needed"
