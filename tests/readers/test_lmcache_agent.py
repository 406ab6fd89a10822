"""LMCache agent traces: texts out of order, flattened chats, and messages with pauses."""

from functools import partial

import damage
import numpy as np
import pytest
from builders import links, write_jsonl

from capplan.readers import read_trace
from capplan.readers.text.lmcache_agent import SORTED

START = 1_900_000_000_000_000
HI = [{"role": "user", "content": "hi"}]


def row(text="hi", time=0, output="ok", **more):
    return {"timestamp": START + time, "input": text, "output": output, "session_id": "ab"} | more


@pytest.fixture
def write(tmp_path):
    return lambda *rows: write_jsonl(tmp_path / "ab.jsonl", rows)


def read(path, **options):
    return read_trace(path, tokenizer="bytes", **options)


refusal = partial(damage.refusal, tokenizer="bytes")


def test_rows_are_sorted_by_time_and_ties_keep_the_file_s_order(write):
    a, b = "user: fix " + "a" * 30, "user: fix " + "a" * 30 + "b" * 20
    trace = read(write(row(b, 2_500_000), row(a), row("", 2_500_000, ""), row(b + "c", 3_000_000)))
    r = trace.requests
    assert r.input_tokens.tolist() == [40, 60, 0, 61]
    assert r.output_tokens.tolist() == [2, 2, 0, 2]
    assert r.arrival_s.tolist() == [0, 2.5, 2.5, 3]
    assert r.session.decode() == r.task.decode() == ["ab"] * 4
    assert links(trace) == ([-1, 0, -1, 1], [0, 32, 0, 48])
    assert trace.outputs_known
    assert trace.notes == (
        "4 requests read as lmcache-agent",
        "1 x empty output",
        "1 x empty prompt",
        f"1 x {SORTED}",
        "timestamps are microseconds since 1970",
        "prompts are the text logged, without a chat template",
        trace.notes[-1],
    )
    assert trace.notes[-1].startswith("APPROXIMATE: one token per byte")


def test_folders_of_sessions(write, tmp_path):
    write(row(time=10**6))
    write_jsonl(tmp_path / "cd.openai_chat.jsonl", [row("user: hi\n\nassistant: yes", 0, session_id="cd")])
    (tmp_path / "ef.jsonl").touch()
    trace = read(tmp_path)
    assert trace.requests.session.decode() == ["ab", "cd"]
    assert np.diff(trace.requests.arrival_s).tolist() == [-1]
    assert "1 left out: empty files" in trace.notes


def test_messages_with_pauses(write):
    rows = [
        {"session_id": "s", "model": "m", "input": HI, "output_length": 9, "pre_gap": 0.7},
        {"session_id": "s", "model": "n", "input": [], "pre_gap": None},
    ]
    trace = read(write(*rows))
    r = trace.requests
    assert not trace.outputs_known
    assert r.input_tokens.tolist() == [len("<|user|>\nhi\n<|assistant|>\n"), len("<|assistant|>\n")]
    assert r.output_tokens.tolist() == [9, 0]
    np.testing.assert_array_equal(r.gap_s, [0.7, np.nan])
    assert np.isnan(r.arrival_s).all()
    assert not any("microseconds" in note for note in trace.notes)
    assert len(read(write(*rows), model_filter="m")) == 1


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"input": "a", "session_id": "s", "output": "b"},
         ": timestamp is missing; microseconds on every row, or on none, are accepted"),
        ({"input": "a", "session_id": "s", "timestamp": START},
         ": output is on some rows only; on every row, or on none, is accepted"),
        (row(timestamp=-1), ": Expected `int` >= 0 - at `$.timestamp`"),
        (row(timestamp=1.5), ": Expected `int | null`, got `float` - at `$.timestamp`"),
        (row(None), ": Expected `str | array`, got `null` - at `$.input`"),
        (row([5]), ", message 0: int '5'; an object with role and content is accepted"),
        (row(output_length=-1), ": Expected `int` >= 0 - at `$.output_length`"),
        ('{"input":"a', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)  # fmt: skip
def test_refused_rows(write, bad, text):
    assert refusal(write(row(), bad)) == f", line 2{text}"
