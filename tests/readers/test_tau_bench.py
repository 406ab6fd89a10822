"""tau-bench results: conversations with null contents and tool calls."""

import numpy as np
import pytest
from builders import dump, links

from capplan.errors import TraceError
from capplan.readers import read_trace

CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"user": 1}'}}]
TRAJ = [
    {"role": "system", "content": "# Policy"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "content": "{}", "tool_call_id": "c1", "name": "f"},
    {"role": "assistant", "content": "done"},
    {"role": "user", "content": "###STOP###"},
]


def item(task=0, traj=TRAJ, **more):
    return {"task_id": task, "reward": 1.0, "info": {}, "traj": traj, "trial": 0} | more


@pytest.fixture
def write(tmp_path):
    def write_file(content):
        (tmp_path / "r.json").write_bytes(content if isinstance(content, bytes) else dump(content))
        return tmp_path / "r.json"

    return write_file


def read(path, format="auto"):
    return read_trace(path, format, tokenizer="bytes")


def test_every_answer_is_a_call(write):
    trace = read(write([item(), item(3, TRAJ[:3]), item(0, TRAJ[:3], trial=1), item(9, TRAJ[:2])]))
    first = "<|system|>\n# Policy\n<|user|>\nhi\n<|assistant|>\n"
    second = first + '{"name":"f","arguments":{"user":1}}\n<|tool|>\n{}\n<|assistant|>\n'
    r = trace.requests
    assert r.request_ids == ["r:0:0:0", "r:0:0:1", "r:3:0:0", "r:0:1:0"]
    assert r.session.decode() == r.task.decode() == ["r:0:0", "r:0:0", "r:3:0", "r:0:1"]
    assert r.input_tokens.tolist() == [len(first), len(second), len(first), len(first)]
    assert links(trace)[0] == [-1, 0, 0, 0]
    assert np.isnan(r.arrival_s).all()
    assert trace.notes[:4] == (
        "4 requests read as tau-bench",
        "1 left out: conversation without an answer",
        "a call's prompt is all messages before its answer: a history that was cut shows too much reuse",
        "the log holds no tool schemas: prompts are shorter than those sent, and share less",
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([item(), item()], ", item 1: task 0, trial 0 stands twice; one item for each is accepted"),
        ([item(), item(1, [{"role": 5}])], ", item 1, message 0: role is int '5'; a text is accepted"),
        ([item(), {"task_id": 1}], ": Object missing required field `traj` - at `$[1]`"),
        ([item(None)], ": Expected `int | str`, got `null` - at `$[0].task_id`"),
        (dump([item()])[:-4], ": not JSON (Input data was truncated); a complete object is needed"),
        ({"task_id": 0, "traj": []}, ": Expected `array`, got `object`"),
    ],
)
def test_refused_files(write, content, text):
    path = write(content)
    with pytest.raises(TraceError) as caught:
        read(path, "tau-bench")
    assert str(caught.value) == f"{path}{text}"


def test_empty_file(write):
    with pytest.raises(TraceError, match=r"^r\.json: no requests; at least one is needed$"):
        read(write(b" "), "tau-bench")
