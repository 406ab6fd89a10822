"""aibrix workloads: several requests a row, keys with spaces, milliseconds."""

import pytest
from builders import dump, links, write_jsonl

from capplan.errors import TraceError
from capplan.readers import read_trace


def row(*requests, timestamp=40):
    return {"timestamp": timestamp, "requests": list(requests)}


def request(prompt="say hi now, all of you", n=5, **more):
    return {"Prompt Length": 3, "Output Length": n, "prompt": prompt} | more


@pytest.fixture
def write(tmp_path):
    return lambda *rows: write_jsonl(tmp_path / "w.jsonl", rows)


def read(path, **options):
    return read_trace(path, tokenizer="bytes", **options)


def test_requests_of_a_row_keep_their_order_and_time(tmp_path):
    rows = [
        row(request(), request("say hi now, all of us", None)),
        row(timestamp=41),
        row({"prompt": "", "prompt_length": 4, "output_length": 7, "session_id": 0, "model": "m"}, timestamp=1240.5),
    ]
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"\r\n".join(dump(one) for one in rows))
    trace = read(path)
    r = trace.requests
    assert r.input_tokens.tolist() == [22, 21, 0]
    assert r.output_tokens.tolist() == [5, 0, 7]
    assert r.arrival_s.tolist() == [0, 0, 1.2005]
    assert r.session.decode() == [None, None, "0"]
    assert links(trace) == ([-1, 0, -1], [0, 16, 0])
    assert trace.notes[:5] == (
        "3 requests read as aibrix",
        "1 left out: row without requests",
        "10 x prompt tokens by the source's count (comparison only)",
        "timestamps are milliseconds; output tokens are the source's count",
        "prompts are the text logged, without a chat template",
    )
    assert len(read(path, model_filter="m")) == 1


def test_rows_out_of_order_are_told(write):
    trace = read(write(row(request(), timestamp=40), row(request(), timestamp=20)))
    assert trace.requests.arrival_s.tolist() == [0.02, 0]
    assert any(note.startswith("1 x request sent before the one in front of it") for note in trace.notes)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (row(request(), request(None)), ", request 1: prompt is missing; its text is needed"),
        (row(request(n=-1)), ": Expected `int` >= 0 - at `$.requests[0].Output Length`"),
        (row(request(5)), ": Expected `str | null`, got `int` - at `$.requests[0].prompt`"),
        (row(timestamp="now"), ": Expected `float`, got `str` - at `$.timestamp`"),
        ({"timestamp": 1}, ": Object missing required field `requests`"),
        ('{"timestamp":', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(write, bad, text):
    path = write(row(request()), bad)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value) == f"{path}, line 2{text}"
