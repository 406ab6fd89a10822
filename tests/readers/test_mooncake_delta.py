"""Mooncake rows that hold only what is new: accumulated, with outputs, before anything is shared."""

import numpy as np
import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.readers import FORMATS, detect_format, read_trace

NAME = "mooncake-delta"


def first(session="s", n_input=16, n_output=4, ids=(1, 2), **more):
    turn = {"session_id": session, "input_length": n_input, "output_length": n_output, "hash_ids": list(ids)}
    return turn | {"timestamp": 0.0, "group_id": 3} | more


def later(session="s", n_input=8, n_output=4, ids=(50,), **more):
    turn = {"session_id": session, "input_length": n_input, "output_length": n_output, "hash_ids": list(ids)}
    return turn | {"delay": 1500} | more


def read(tmp_path, *rows, block_size=8):
    return read_trace(write_jsonl(tmp_path / "m.jsonl", rows), NAME, block_size=block_size)


def test_prompts_grow_by_output_and_new_tokens(tmp_path):
    trace = read(tmp_path, first(), later(), later(n_input=5, delay=2.5))
    r = trace.requests
    assert r.input_tokens.tolist() == [16, 16 + 4 + 8, 28 + 4 + 5]
    assert links(trace) == ([-1, 0, 1], [0, 16, 32])
    np.testing.assert_array_equal(r.arrival_s, [0, np.nan, np.nan])
    np.testing.assert_array_equal(r.gap_s, [np.nan, 1.5, 0.0025])
    assert r.session.decode() == r.task.decode() == ["s"] * 3
    assert trace.notes == (
        f"3 requests read as {NAME}",
        "a prompt is its session's previous prompt and output and the row's new tokens",
        "what follows a session's first prompt is shared within the session only",
        "timestamps and delays are milliseconds and blocks 8 tokens, as Mooncake rows define them",
    )


def test_first_prompts_share_their_ids_and_equal_later_ids_mean_nothing(tmp_path):
    rows = [first("a"), later("a"), first("b", n_input=20, ids=[1, 2, 9]), later("b"), first("c", ids=[1, 50])]
    assert links(read(tmp_path, *rows)) == ([-1, 0, 0, 2, 0], [0, 16, 16, 24, 8])


def test_interleaved_sessions_keep_apart(tmp_path):
    rows = [first("a", ids=[1, 2]), first("b", ids=[3, 4]), later("a"), later("b"), later("a")]
    assert links(read(tmp_path, *rows)) == ([-1, -1, 0, 1, 2], [0, 0, 16, 16, 32])


@pytest.mark.parametrize("name", ["prefix_reset", "is_restart"])
def test_later_row_may_start_its_session_over(tmp_path, name):
    rows = [first(ids=[1, 2]), later(), first(ids=[1, 7], delay=100, **{name: True}), later()]
    trace = read(tmp_path, *rows)
    assert trace.requests.input_tokens.tolist() == [16, 28, 16, 28]
    assert links(trace) == ([-1, 0, 0, 2], [0, 16, 8, 16])
    assert "1 x call that starts its session over (prefix_reset or is_restart)" in trace.notes


def test_session_that_goes_on_from_an_earlier_one_is_counted(tmp_path):
    trace = read(tmp_path, first("a"), first("b", n_input=24, ids=[1, 2, 3], is_restart=True))
    assert links(trace) == ([-1, 0], [0, 16])
    assert "1 x session that goes on from an earlier one (is_restart): it shares what its ids say" in trace.notes


@pytest.mark.parametrize("mark", [{"group_id": 1}, {"is_restart": False}])
def test_marks_of_the_generator_tell_the_format(tmp_path, mark):
    path = write_jsonl(tmp_path / "x", [later() | mark])
    assert detect_format(path) is FORMATS[NAME]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (later(n_input=-1), "Expected `int` >= 0 - at `$.input_length`"),
        (later(hash_ids=None), "Expected `array`, got `null` - at `$.hash_ids`"),
        (later(delay=-1), "Expected `float` >= 0.0 - at `$.delay`"),
        (later(session_id=None), "Expected `int | str`, got `null` - at `$.session_id`"),
        (later(ids=[1, 2]), "2 block hashes for 8 tokens; accepted: 1 to 1 of 8 tokens each"),
        (later(ids=[]), "0 block hashes for 8 tokens; accepted: 1 to 1 of 8 tokens each"),
        (later(ids=[2**39]), "block id 549755813888 is too large; ids below 549755813888 are accepted"),
        (
            later(n_output=2**24),
            f"prompt and output come to {16 + 4 + 8 + 2**24} tokens; up to 16777216 are accepted",
        ),
        ('{"session_id":"s"', "not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    path = write_jsonl(tmp_path / "m.jsonl", [first(), bad])
    assert refusal(path, block_size=8) == f", line 2: {text}"
