"""Chat requests in JSONL: what the caller adds is taken, what a provider counts is kept for comparison."""

from functools import partial

import damage
import numpy as np
import pytest
from builders import links, write_jsonl

from capplan.errors import TraceError
from capplan.readers import read_trace

HI = [{"role": "user", "content": "hi"}]
PROMPT = len("<|user|>\nhi\n<|assistant|>\n")


def row(messages=HI, **more):
    return {"model": "m", "messages": messages, "max_tokens": 8} | more


@pytest.fixture
def write(tmp_path):
    return lambda *rows: write_jsonl(tmp_path / "chat.jsonl", rows)


def read(path, **options):
    return read_trace(path, tokenizer="bytes", **options)


refusal = partial(damage.refusal, tokenizer="bytes")


def test_a_bare_request(write):
    trace = read(write(row(), row()))
    r = trace.requests
    assert list(r.request_ids) == ["0", "1"]
    assert r.session.decode() == r.task.decode() == [None, None]
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([PROMPT] * 2, [0, 0])
    assert np.isnan(r.arrival_s).all()
    assert links(trace) == ([-1, 0], [0, 16])
    assert not trace.outputs_known
    assert trace.notes[1] == "2 x request without an answer: no output tokens"


def test_what_the_caller_adds(write):
    rows = [
        row(request_id="a", session_id=7, timestamp=100.5, gap_s=-1, service_s=2),
        row(request_id=2, session_id="t", task_id="7", arrival_s=103, timestamp=5),
        row(custom_id="c", arrival_s=102.0),
    ]
    r = read(write(*rows)).requests
    assert r.request_ids == ["a", "2", "c"]
    assert r.session.decode() == ["7", "t", None]
    assert r.task.decode() == ["7", "7", None]
    assert r.arrival_s.tolist() == [0, 2.5, 1.5]
    np.testing.assert_array_equal(r.gap_s, [-1, np.nan, np.nan])
    np.testing.assert_array_equal(r.service_s, [2, np.nan, np.nan])
    notes = read(write(*rows)).notes
    assert "timestamp is read as seconds" in notes
    assert any(note.startswith("1 x request sent before the one in front of it in the file") for note in notes)


def test_lengths_of_answers(write):
    usage = {"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 32}}
    said = {"choices": [{"message": {"role": "assistant", "content": "hello"}}], "usage": usage}
    rows = [
        row(response="four"),
        row(response=said),
        row(**said),
        row(usage=usage),
        row(response={"choices": []}),
        row([*HI, {"role": "assistant", "content": "ab"}]),
        row(response={"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "f"}}]}}]}),
    ]
    trace = read(write(*rows))
    assert trace.requests.output_tokens.tolist() == [4, 5, 5, 9, 0, 2, len('{"name":"f"}')]
    assert trace.requests.input_tokens.tolist() == [PROMPT] * 7
    assert trace.notes[1:6] == (
        "150 x prompt tokens by the provider's count (comparison only)",
        "96 x prompt tokens the provider had cached (comparison only)",
        "1 x request without an answer: no output tokens",
        "1 x row that ends with an assistant's message: taken as the call's answer",
        "output tokens of answers without a text are the provider's count",
    )


def test_lines_of_a_batch_file(write):
    body = {"model": "m", "messages": HI, "tools": [{"name": "f"}]}
    trace = read(write({"custom_id": "q1", "method": "POST", "url": "/v1/chat/completions", "body": body}))
    assert trace.requests.request_ids == ["q1"]
    assert trace.requests.input_tokens.tolist() == [PROMPT + len('<|tools|>\n[{"name":"f"}]\n')]


def test_an_empty_list_of_messages_counts(write):
    assert read(write(row([]))).requests.input_tokens.tolist() == [len("<|assistant|>\n")]


def test_calls_of_a_wanted_model(write):
    trace = read(write(row(), row(model="other"), row(model=None)), model_filter="m")
    assert len(trace) == 1
    assert "2 left out: of another model than m (--model-filter)" in trace.notes


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"model": "m"}, ": no messages; a list of them is needed"),
        (row([{"role": "user", "content": 5}]),
         ", message 0: content is int '5'; a text, a list of parts, or null is accepted"),
        (row("hi"), ": Expected `array | null`, got `str` - at `$.messages`"),
        (row(timestamp="now"), ": Expected `float | null`, got `str` - at `$.timestamp`"),
        (row(service_s=-1), ": Expected `float` >= 0.0 - at `$.service_s`"),
        (row(usage={"completion_tokens": -1}), ": Expected `int` >= 0 - at `$.usage.completion_tokens`"),
        (row(choices=[{"message": {"content": 5}}]),
         ", answer: content is int '5'; a text, a list of parts, or null is accepted"),
        ('{"messages":[', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)  # fmt: skip
def test_refused_rows(write, bad, text):
    assert refusal(write(row(), bad)) == f", line 2{text}"


def test_names_twice(write):
    with pytest.raises(TraceError, match=r"^chat\.jsonl, row 1: request_id 'a' stands twice; names must be unique$"):
        read(write(row(request_id="a"), row(request_id="a")))
