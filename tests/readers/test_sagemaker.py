"""SageMaker captures: JSON texts inside JSON, of several endpoints."""

import base64
import json

import pytest
from builders import write_jsonl

from capplan.errors import TraceError
from capplan.readers import read_trace


def row(sent, got=None, event="e1", time="2030-01-01T00:00:00Z", **more):
    data = sent if isinstance(sent, str) else json.dumps(sent)
    captured = {"endpointInput": {"data": data} | more}
    if got is not None:
        captured["endpointOutput"] = {"data": got if isinstance(got, str) else json.dumps(got)}
    return {"captureData": captured, "eventMetadata": {"eventId": event, "inferenceTime": time}, "eventVersion": "0"}


@pytest.fixture
def write(tmp_path):
    return lambda *rows: write_jsonl(tmp_path / "c.jsonl", rows)


def read(path):
    return read_trace(path, tokenizer="bytes")


def test_requests_and_answers_of_several_endpoints(write):
    hidden = base64.b64encode(b'{"prompt":"hello"}').decode()
    chat = {"messages": [{"role": "user", "content": "hi"}], "tools": None}
    said = {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}
    trace = read(
        write(
            row({"inputs": "hi"}, [{"generated_text": "four"}]),
            row(hidden, {"generated_text": "ab"}, "e2", "2030-01-01T01:00:01.250000+01:00", encoding="BASE64"),
            row(chat, said, "e3", "2030-01-01T00:00:02Z"),
            row(chat, {"choices": [{"text": "x"}]}, "e4", "2030-01-01T00:00:02Z"),
            row(chat, {}, "e5"),
            row(chat, "", "e6"),
            row(chat, None, "e7"),
        )
    )
    r = trace.requests
    n_chat = len("<|user|>\nhi\n<|assistant|>\n")
    assert r.request_ids == ["e1", "e2", "e3", "e4", "e5", "e6", "e7"]
    assert r.input_tokens.tolist() == [2, 5] + [n_chat] * 5
    assert r.output_tokens.tolist() == [4, 2, 3, 1, 0, 0, 0]
    assert r.arrival_s.tolist() == [0, 1.25, 2, 2, 0, 0, 0]
    assert "3 x request without an answer: no output tokens" in trace.notes


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (row("{"), ": captured data is not JSON (Input data was truncated); a JSON request is needed"),
        (row("!", encoding="BASE64"),
         ": captured data is not JSON (Only base64 data is allowed); a JSON request is needed"),
        (row("ä", encoding="BASE64"),
         ": captured data is not JSON (string argument should contain only ASCII characters); a JSON request is "
         "needed"),
        (row({"inputs": 5}),
         ": no prompt in the captured request; messages, or a text in inputs or prompt, is needed"),
        (row([1]), ": no prompt in the captured request; messages, or a text in inputs or prompt, is needed"),
        (row({"messages": [5]}), ", message 0: int '5'; an object with role and content is accepted"),
        (row({"inputs": "a"}, {"choices": [{"message": 5}]}),
         ", answer, message 0: int '5'; an object with role and content is accepted"),
        (row({"inputs": "a"}, time="soon"), ": inferenceTime is 'soon'; an ISO 8601 date and time is accepted"),
        ({"captureData": {}}, ": Object missing required field `endpointInput` - at `$.captureData`"),
        ('{"captureData":', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)  # fmt: skip
def test_refused_rows(write, bad, text):
    path = write(row({"inputs": "a"}, event="e0"), bad)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value) == f"{path}, line 2{text}"
