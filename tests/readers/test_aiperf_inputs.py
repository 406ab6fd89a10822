"""AIPerf inputs: payloads session by session."""

import pytest
from builders import dump, links

from capplan.errors import TraceError
from capplan.readers import read_trace

HI = [{"role": "user", "content": "hi there"}]
PROMPT = len("<|user|>\nhi there\n<|assistant|>\n")


def session(name, *payloads):
    return {"session_id": name, "payloads": list(payloads)}


@pytest.fixture
def write(tmp_path):
    def write_file(*sessions):
        (tmp_path / "inputs.json").write_bytes(dump({"data": list(sessions)}))
        return tmp_path / "inputs.json"

    return write_file


def read(path, **options):
    return read_trace(path, tokenizer="bytes", **options)


def test_payloads_become_calls(write):
    path = write(
        session("a", {"messages": HI, "model": "m", "max_tokens": 10}, {"prompt": "bare text", "model": "n"}),
        session("b", {"messages": HI, "max_completion_tokens": 5, "max_tokens": 9, "ignore_eos": True}),
        session("c"),
    )
    trace = read(path)
    r = trace.requests
    assert r.session.decode() == r.task.decode() == ["a", "a", "b"]
    assert r.input_tokens.tolist() == [PROMPT, len("bare text"), PROMPT]
    assert r.output_tokens.tolist() == [0, 0, 5]
    assert links(trace) == ([-1, -1, 0], [0, 0, 32])
    assert trace.notes[:3] == (
        "3 requests read as aiperf-inputs",
        "output tokens are max_tokens where ignore_eos forces that length, else 0 for unknown",
        "requests carry no times; those of a session follow one another",
    )
    assert len(read(path, model_filter="m")) == 1


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"model": "m"}, ", session 's', payload 1: neither messages nor prompt; one of them is needed"),
        (
            {"messages": [5]},
            ", session 's', payload 1, message 0: int '5'; an object with role and content is accepted",
        ),
        ({"prompt": ["a"]}, ": Expected `str | null`, got `array` - at `$.data[0].payloads[1].prompt`"),
        ({"messages": HI, "max_tokens": -1}, ": Expected `int` >= 0 - at `$.data[0].payloads[1].max_tokens`"),
    ],
)
def test_refused_payloads(write, payload, text):
    path = write(session("s", {"messages": HI}, payload))
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value) == f"{path}{text}"
