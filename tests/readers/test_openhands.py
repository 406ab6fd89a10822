"""OpenHands completion logs: a folder per instance, a file per call."""

from functools import partial

import damage
import numpy as np
import pytest
from builders import dump

from capplan.readers import read_trace

HI = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
PROMPT = len("<|user|>\nhi\n<|assistant|>\n")
START = 1_900_000_000.25


def completion(messages=HI, text="ok", time=START, **more):
    said = {"model": "m", "choices": [{"message": {"role": "assistant", "content": text}}]}
    made = {
        "messages": messages,
        "response": said,
        "args": [],
        "kwargs": {"model": "m"},
        "cost": 0.1,
        "timestamp": time,
    }
    return {name: value for name, value in (made | more).items() if value is not None}


@pytest.fixture
def write(tmp_path):
    """Write files by their path in the folder."""

    def write_files(**contents):
        for name, content in contents.items():
            file = tmp_path / (name.replace("__", "/") + ".json")
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else dump(content))
        return tmp_path

    return write_files


def read(path, **options):
    return read_trace(path, tokenizer="bytes", **options)


refusal = partial(damage.refusal, tokenizer="bytes")


def test_instances_are_sessions_ordered_by_time(write):
    path = write(
        b__2=completion(time=START + 1), b__1=completion(time=START + 4), a__1=completion(time=START + 2), a__empty=b"",
    )  # fmt: skip
    trace = read(path)
    r = trace.requests
    assert r.request_ids == ["a:0", "b:0", "b:1"]
    assert r.session.decode() == r.task.decode() == ["a", "b", "b"]
    assert r.arrival_s.tolist() == [1, 0, 3]
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([PROMPT] * 3, [3] * 3)
    assert trace.outputs_known
    assert trace.notes[:4] == (
        "3 requests read as openhands",
        "1 left out: empty files",
        "1 x instance whose file names are not in time order: sorted by time, ties by name",
        "times are those of the log entries, written when the response was complete",
    )


def test_files_of_one_folder_are_one_instance(write, tmp_path):
    path = write(x=completion(), y=completion(time=None), z=completion(text=None, response={"choices": []}))
    trace = read(path)
    assert trace.requests.session.decode() == [tmp_path.name] * 3
    assert trace.requests.output_tokens.tolist() == [3, 3, 0]
    np.testing.assert_array_equal(trace.requests.arrival_s, [0, np.nan, 0])
    assert "1 x completion without a time: its instance is ordered by file name" in trace.notes
    assert "1 x completion without an answer: no output tokens" in trace.notes
    assert read(path / "x.json").requests.session.decode() == [tmp_path.name]


def test_tools_and_the_provider_s_counts(write):
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
    said = {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "f"}}]}}], "usage": usage}
    trace = read(write(a=completion(response=said, kwargs={"tools": [{"name": "f"}], "model": "m"})))
    assert trace.requests.input_tokens.tolist() == [PROMPT + len('<|tools|>\n[{"name":"f"}]\n')]
    assert trace.requests.output_tokens.tolist() == [len('{"name":"f"}\n')]
    assert "4 x prompt tokens the provider had cached (comparison only)" in trace.notes


def test_calls_of_a_wanted_model(write):
    path = write(a=completion(), b=completion(kwargs={"model": "n"}), c=completion(kwargs=None))
    assert len(read(path, model_filter="m")) == 2


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (completion(time="now"), ": Expected `float | null`, got `str` - at `$.timestamp`"),
        (completion([5]), ", message 0: int '5'; an object with role and content is accepted"),
        (completion(messages=None), ": Object missing required field `messages`"),
        (completion(text=5), ", answer: content is int '5'; a text, a list of parts, or null is accepted"),
        (dump(completion())[:-40], ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_files(write, content, text):
    assert refusal(write(a=completion(), b=content)) == f"/b.json{text}"
