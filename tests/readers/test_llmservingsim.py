"""LLMServingSim workloads: token ids in single requests and sessions, nanoseconds, or lengths alone."""

import numpy as np
import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.errors import TraceError
from capplan.readers import read_trace

BIG = (1 << 32) - 1


def request(ids=(4, 5, 6), out=(7, 8), **more):
    made = {"input_toks": len(ids), "output_toks": len(out), "input_tok_ids": list(ids), "output_tok_ids": list(out)}
    return {name: value for name, value in (made | more).items() if value is not None}


def row(ids=(4, 5, 6), out=(7, 8), ns=5_000_000, **more):
    return {"arrival_time_ns": ns} | request(ids, out, **more)


def session(*calls, name="s", ns=0):
    return {"session_id": name, "arrival_time_ns": ns, "sub_requests": list(calls)}


def sizes(n_input, n_output, wait=0):
    return {"input_toks": n_input, "output_toks": n_output, "tool_duration_ns": wait}


@pytest.fixture
def write(tmp_path):
    return lambda *rows: write_jsonl(tmp_path / "w.jsonl", rows)


def test_single_requests_have_no_sessions(write):
    ids = list(range(40))
    trace = read_trace(write(row(ids), row([*ids, 7, 8, *range(20)], ns=1_005_000_000), row((), ())))
    r = trace.requests
    assert list(r.request_ids) == ["0", "1", "2"]
    assert r.session.decode() == [None] * 3
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([40, 62, 0], [2, 2, 0])
    assert r.arrival_s.tolist() == [0, 1, 0]
    assert links(trace) == ([-1, 0, -1], [0, 32, 0])
    assert (trace.outputs_known, trace.resolution_tokens) == (True, 16)
    assert trace.notes[0] == "3 requests read as llmservingsim"
    assert trace.notes[1].startswith("1 x request sent before the one in front of it in the file")
    assert trace.notes[2:] == ("times are nanoseconds; no sessions are inferred from prompts that extend one another",)


def test_sessions_wait_for_responses_and_tools(write):
    calls = [request(tool_duration_ns=5_000_000), request(tool_duration_ns=7_000_000)]
    trace = read_trace(write(session(*calls, ns=10**9), row(ns=2 * 10**9), session(name=3)))
    r = trace.requests
    assert r.request_ids == ["s:0", "s:1", "2"]
    assert r.session.decode() == r.task.decode() == ["s", "s", None]
    np.testing.assert_array_equal(r.arrival_s, [0, np.nan, 1])
    np.testing.assert_array_equal(r.start_s, [0, np.nan, np.nan])
    np.testing.assert_array_equal(r.gap_s, [np.nan, 0.005, np.nan])
    np.testing.assert_array_equal(r.tail_gap_s, [np.nan, 0.007, np.nan])
    assert "1 left out: session without requests" in trace.notes
    assert "only the first call of a session has an arrival: later ones follow the response and the tool" in trace.notes


def test_outputs_may_have_lengths_only(write):
    trace = read_trace(write(row(output_tok_ids=None, output_toks=9), row(output_tok_ids=None)))
    assert not trace.outputs_known
    assert trace.requests.output_tokens.tolist() == [9, 2]


def test_lengths_alone_need_an_assumption(write):
    path = write(session(sizes(90, 8, 5_000_000), sizes(120, 8), sizes(32, 0)), session(sizes(64, 1), name="t"))
    trace = read_trace(path, assume_prefix="session")
    assert links(trace) == ([-1, 0, 0, -1], [0, 96, 32, 0])
    assert trace.requests.input_tokens.tolist() == [90, 120, 32, 64]
    assert trace.notes[-1] == (
        "every request is taken to repeat its session's previous prompt and response as far as its length allows "
        "(--assume-prefix session); the source has sizes only"
    )
    assert refusal(path) == (
        ", line 1, sub-request 0: input_tok_ids is missing, and lengths do not say what prompts share; accepted: token "
        "ids on every call, or --assume-prefix session to take a session's calls to repeat one another"
    )


def test_assumed_sessions_of_two_files_share_nothing(write, tmp_path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        write_jsonl(path, [session(sizes(64, 0), name=path.stem)])
    assert links(read_trace(paths, assume_prefix="session")) == ([-1, -1], [0, 0])


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (row(input_tok_ids=None),
         ": input_tok_ids is missing, and lengths do not say what prompts share; accepted: token ids on every call, or "
         "--assume-prefix session to take a session's calls to repeat one another"),
        (row(output_tok_ids=None), ": output_tok_ids is on some calls only; on every call, or on none, is accepted"),
        (row(input_toks=4), ": 3 input_tok_ids, but input_toks is 4; the same number is accepted"),
        (row(output_toks=1), ": 2 output_tok_ids, but output_toks is 1; the same number is accepted"),
        (row([BIG + 1]), f": input_tok_ids holds an id outside 0 to {BIG}"),
        (row(out=[-1]), f": output_tok_ids holds an id outside 0 to {BIG}"),
        (row([10**30]), f": input_tok_ids holds an id outside 0 to {BIG}"),
        ({"arrival_time_ns": 1, "input_toks": 1},
         ": input_toks or output_toks is missing; both, or sub_requests, are needed"),
        ({"arrival_time_ns": 1, "sub_requests": []}, ": session_id is missing; a row with sub_requests needs one"),
        (session(request(), request(output_tok_ids=None)),
         ", sub-request 1: output_tok_ids is on some calls only; on every call, or on none, is accepted"),
        (row(input_toks=-1), ": Expected `int` >= 0 - at `$.input_toks`"),
        (row(ns=-1), ": Expected `int` >= 0 - at `$.arrival_time_ns`"),
        (row(ns="1"), ": Expected `int`, got `str` - at `$.arrival_time_ns`"),
        (session({"input_toks": 1}), ": Object missing required field `output_toks` - at `$.sub_requests[0]`"),
        ('{"arrival_time_ns":', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)  # fmt: skip
def test_refused_rows(write, bad, text):
    assert refusal(write(row(), bad)) == f", line 2{text}"


def test_a_length_beyond_measure(write):
    assert refusal(write(session(sizes(2**24, 1))), assume_prefix="session") == (
        ", line 1, sub-request 0: prompt and output come to 16777217 tokens; up to 16777216 are accepted"
    )


def test_names_twice(write):
    with pytest.raises(TraceError, match=r"^w\.jsonl, row 1: request_id 's:0' stands twice; names must be unique$"):
        read_trace(write(session(request()), session(request())))


def test_block_size_is_not_for_token_ids(write):
    assert refusal(write(row()), block_size=32) == (
        ": --block-size is for block hashes; token ids are linked at 16 tokens"
    )


def test_empty_file(write):
    with pytest.raises(TraceError, match=r"^w\.jsonl: no requests; at least one is needed$"):
        read_trace(write(""), "llmservingsim")
