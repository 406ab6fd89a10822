"""SWE-agent trajectories: recorded queries, or prompts out of the history, with what that overstates."""

from functools import partial

import damage
import numpy as np
import pytest
from builders import dump
from oracles import link_by_search

from capplan.readers import read_trace

OVERSTATED = (
    "prompts are made from the history: what a history processor left out is still in them, which overstates reuse"
)


def message(role, text, agent="main", **more):
    return {"role": role, "content": text, "agent": agent} | more


def step(response="ls", **more):
    return {"action": "ls", "observation": "a", "response": response, "thought": "", "state": "{}"} | more


def trajectory(steps, history=(), **more):
    return {"environment": "e", "trajectory": list(steps), "history": list(history), "info": {}} | more


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="x.traj"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else dump(content))
        return tmp_path / name

    return write_file


def read(path):
    return read_trace(path, tokenizer="bytes")


refusal = partial(damage.refusal, tokenizer="bytes")


HISTORY = [
    message("system", "be good", message_type="system_prompt"),
    message("user", "fix", message_type="observation"),
    message("assistant", "ls", tool_calls=[{"id": "c", "function": {"name": "sh", "arguments": "{}"}}]),
    message("tool", [{"type": "text", "text": "a.py"}], tool_call_ids=["c"]),
    message("assistant", "submit"),
]
FIRST = "<|system|>\nbe good\n<|user|>\nfix\n<|assistant|>\n"
SECOND = FIRST + 'ls\n{"name":"sh","arguments":{}}\n<|tool|>\na.py\n<|assistant|>\n'


def test_prompts_are_the_history_before_each_answer(write):
    steps = [step(execution_time=0.5, state={"cwd": "/"}), step(execution_time=2.0)]
    trace = read(write(trajectory(steps, HISTORY)))
    r = trace.requests
    assert r.request_ids == ["x:0", "x:1"]
    assert r.session.decode() == r.task.decode() == ["x", "x"]
    assert r.input_tokens.tolist() == [len(FIRST), len(SECOND)]
    assert np.isnan(r.arrival_s).all()
    np.testing.assert_array_equal(r.gap_s, [np.nan, 0.5])
    np.testing.assert_array_equal(r.tail_gap_s, [np.nan, 2])
    assert trace.notes[:2] == ("2 requests read as swe-agent", OVERSTATED)
    assert "gaps are the execution times of the actions alone" in trace.notes


def test_recorded_queries_are_the_prompts(write):
    """A processor that cut the history between two steps shows as less sharing."""
    queries = [
        [message("system", "be good"), message("user", "x" * 40)],
        [message("system", "be good"), message("user", "(elided)"), message("assistant", "ls"), message("user", "b")],
    ]
    trace = read(write(trajectory([step(query=query) for query in queries], HISTORY)))
    texts = ["".join(f"<|{m['role']}|>\n{m['content']}\n" for m in query) + "<|assistant|>\n" for query in queries]
    assert trace.requests.input_tokens.tolist() == [len(text) for text in texts]
    assert trace.shared_tokens.tolist() == link_by_search([list(text.encode()) for text in texts], 16)[1]
    assert OVERSTATED not in trace.notes


def test_a_query_on_some_steps_only_falls_back_to_the_history(write):
    trace = read(write(trajectory([step(query=[message("user", "q")]), step(query=[])], HISTORY)))
    assert trace.requests.input_tokens.tolist() == [len(FIRST), len(SECOND)]
    assert OVERSTATED in trace.notes


def test_demonstrations_are_no_calls(write):
    shown = [message("user", "demo", is_demo=True), message("assistant", "demo", is_demo=True)]
    trace = read(write(trajectory([step(), step()], [HISTORY[0], *shown, *HISTORY[1:]])))
    assert len(trace) == 2
    assert trace.requests.input_tokens[0] > len(FIRST)


def test_every_agent_of_a_history_is_a_session_of_the_task(write):
    other = [message("system", "sum up", "helper"), message("assistant", "so", "helper")]
    trace = read(write(trajectory([step()] * 3, [*HISTORY[:3], *other, *HISTORY[3:]])))
    assert trace.requests.session.decode() == ["x", "x", "x#helper"]
    assert trace.requests.task.decode() == ["x"] * 3
    assert trace.requests.request_ids == ["x:0", "x:1", "x:2"]


def test_another_number_of_steps_is_told_and_has_no_gaps(write):
    trace = read(write(trajectory([step(execution_time=1.0)] * 3, HISTORY)))
    assert np.isnan(trace.requests.gap_s).all()
    assert (
        "1 x trajectory with another number of steps than its history has answers: the history is read" in trace.notes
    )


def test_an_empty_file_is_counted(write, tmp_path):
    write(trajectory([step()] * 2, HISTORY))
    write(b"", "y.traj")
    assert "1 left out: empty files" in read(tmp_path).notes


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"environment": "e", "trajectory": [step()], "info": {}},
         ": neither history nor a query on every step; one of them is needed for the prompts"),
        (trajectory([step(query=[{"role": "user"}, 5])]),
         ", step 0, message 1: int '5'; an object with role and content is accepted"),
        (trajectory([step()], [{"content": "a"}]), ", history, message 0: role is null; a text is accepted"),
        (trajectory([step(execution_time=-1)], HISTORY),
         ": Expected `float` >= 0.0 - at `$.trajectory[0].execution_time`"),
        (trajectory([step(response=5)], HISTORY), ": Expected `str | null`, got `int` - at `$.trajectory[0].response`"),
        (trajectory([], HISTORY) | {"trajectory": {}}, ": Expected `array`, got `object` - at `$.trajectory`"),
    ],
)  # fmt: skip
def test_refused_files(write, content, text):
    assert refusal(write(content)) == text
