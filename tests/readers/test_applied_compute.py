"""Applied Compute rows: one line is one session by its lengths and waits."""

import numpy as np
import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.order import choose_order
from capplan.readers import read_trace


def session(prompt=900, answers=(40,), tools=(200,), waits=(2.5,), final=30, **more):
    row = {"num_turns": len(answers), "input_prompt_length": prompt, "assistant_response_length": list(answers)}
    row |= {"tool_call_output_length": list(tools), "tool_call_latency": list(waits)}
    return row | {"final_assistant_response_length": final} | more


def read(tmp_path, *rows, **options):
    return read_trace(write_jsonl(tmp_path / "a.jsonl", rows), **options)


def test_a_row_becomes_its_calls(tmp_path):
    trace = read(tmp_path, session(), session(100, (), (), (), 5))
    r = trace.requests
    assert r.input_tokens.tolist() == [900, 1140, 100]
    assert r.output_tokens.tolist() == [40, 30, 5]
    assert links(trace) == ([-1, 0, -1], [0, 928, 0])
    assert r.session.decode() == r.task.decode() == ["0", "0", "1"]
    np.testing.assert_array_equal(r.gap_s, [np.nan, 2.5, np.nan])
    assert choose_order(trace).kind == "pool"
    assert trace.notes == (
        "3 requests read as applied-compute",
        "block ids are made from lengths: a prompt is its session's previous prompt, response and tool output, and "
        "sessions share nothing",
        "session starts are not recorded: they come from the pool",
    )


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (session(num_turns=2), "assistant_response_length has 1 entries for 2 turns; one per turn is accepted"),
        (session(tools=()), "tool_call_output_length has 0 entries for 1 turns; one per turn is accepted"),
        (session(waits=(1, 2)), "tool_call_latency has 2 entries for 1 turns; one per turn is accepted"),
        (session(prompt=-1), "Expected `int` >= 0 - at `$.input_prompt_length`"),
        (session(tools=(None,)), "Expected `int`, got `null` - at `$.tool_call_output_length[0]`"),
        (session(waits=(-1,)), "Expected `float` >= 0.0 - at `$.tool_call_latency[0]`"),
        (session(prompt=2**24), f"prompt and output come to {2**24 + 270} tokens; up to 16777216 are accepted"),
        ('{"num_turns":1,', "not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    assert refusal(write_jsonl(tmp_path / "a.jsonl", [session(), bad])) == f", line 2: {text}"
