"""TraceLab rounds: ids made from prefix lengths, times from events."""

import numpy as np
import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.readers import read_trace

ASSUMED = (
    "block ids are made from lengths: a round is taken to repeat the first prefix_tokens of its session's previous "
    "round, and sessions to share nothing"
)


def turn(session="z", index=0, total=64, prefix=0, n_output=16, events=(), **more):
    row = {"session_id": session, "round_index": index, "input_tokens_total": total, "prefix_tokens": prefix}
    timing = [{"event_type": kind, "timestamp": f"2026-01-01T00:00:{at}Z"} for kind, at in events]
    return row | {"newly_append_tokens": total - prefix, "output_tokens": n_output, "timing_events": timing} | more


def read(tmp_path, *rows, **options):
    return read_trace(write_jsonl(tmp_path / "t.jsonl", rows), **options)


def test_rounds_repeat_their_prefix_of_the_round_before(tmp_path):
    rows = [turn("a"), turn("b"), turn("a", 1, 100, 80), turn("b", 1, 70, 40), turn("a", 2, 90, 0)]
    trace = read(tmp_path, *rows)
    assert links(trace) == ([-1, -1, 0, 1, -1], [0, 0, 80, 32, 0])
    assert trace.outputs_known
    assert trace.requests.session.decode() == ["a", "b", "a", "b", "a"]
    assert trace.notes == ("5 requests read as tracelab", ASSUMED)


def test_prefixes_that_no_round_before_explains(tmp_path):
    rows = [turn("a", 0, 64, 48), turn("a", 1, 200, 190), turn("a", 0, 64, 64)]
    trace = read(tmp_path, *rows)
    assert trace.shared_tokens.tolist() == [0, 80, 64]
    assert trace.notes[1:4] == (
        "1 x first round of a session with a cached prefix: taken as never seen before",
        "1 x round that stands behind a later one of its session: compared with the row before it",
        "1 x round whose prefix is longer than the round before it: cut to its length",
    )


def test_times_come_from_events(tmp_path):
    rows = [
        turn("a", 0, events=[("user_message", "10"), ("text", "12.5"), ("usage_report", "13")]),
        turn("a", 1, events=[("tool_result", "15"), ("tool_result", "16.000001"), ("tool_call", "17")]),
        turn("a", 2, events=[("text", "20"), ("text", "21")]),
        turn("a", 3, events=[("user_message", "30")]),
        turn("a", 4, timing_events=[{"event_type": "text", "timestamp": None}]),
    ]
    r = read(tmp_path, *rows).requests
    np.testing.assert_allclose(r.arrival_s, [0, 6.000001, 10, 20, np.nan], atol=1e-6)
    np.testing.assert_allclose(r.service_s, [3, 0.999999, 1, np.nan, np.nan], atol=1e-6)
    np.testing.assert_allclose(r.gap_s, [np.nan, 3.000001, 3, 9, np.nan], atol=1e-6)


def test_missing_outputs_are_assumed_and_said(tmp_path):
    trace = read(tmp_path, turn(output_tokens=None))
    assert trace.requests.output_tokens.tolist() == [0]
    assert trace.notes[1] == "rounds without output_tokens are taken to generate nothing"


def test_models_can_be_chosen(tmp_path):
    rows = [turn("a", model="m1"), turn("b", model="m2")]
    assert read(tmp_path, *rows, model_filter="m2").requests.session.decode() == ["b"]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (turn(total=-1), "Expected `int` >= 0 - at `$.input_tokens_total`"),
        (
            turn(total=10, prefix=11),
            "prefix_tokens is 11 of 10 prompt tokens; a prefix no longer than the prompt is accepted",
        ),
        (turn(total=2**24 + 1), f"prompt and output come to {2**24 + 17} tokens; up to 16777216 are accepted"),
        (turn(round_index=None), "Expected `int`, got `null` - at `$.round_index`"),
        (
            turn(timing_events=[{"event_type": "text", "timestamp": "noon"}]),
            "timestamp of a timing event is 'noon'; an ISO 8601 date and time is accepted",
        ),
        ('{"session_id":"z"', "not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    assert refusal(write_jsonl(tmp_path / "t.jsonl", [turn(), bad])) == f", line 2: {text}"
