"""mini-swe-agent trajectories: calls out of an append-only log, times of the provider, comparison counts."""

from functools import partial

import damage
import numpy as np
import pytest
from builders import dump, links

from capplan.errors import TraceError
from capplan.readers import read_trace

START = 1_900_000_000
APPEND_ONLY = "a call's prompt is all messages before its answer: a history that was cut shows too much reuse"


def answer(text="ls", created=START, cached=0, prompt=20, **more):
    usage = {"prompt_tokens": prompt, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}}
    response = {"created": created, "provider": "p", "model": "m", "usage": usage | more}
    return {"role": "assistant", "content": text, "extra": {"response": response}}


def user(text):
    return {"role": "user", "content": text}


def trajectory(*messages, form="mini-swe-agent-1", **more):
    return {"info": {"exit_status": "Submitted"}, "messages": list(messages), "trajectory_format": form} | more


@pytest.fixture
def write(tmp_path):
    """Write trajectories as a.traj.json, b.traj.json, ...; a single one is given as its file."""

    def write_files(*contents):
        for name, content in zip("abcd", contents, strict=False):
            text = content if isinstance(content, bytes) else dump(content)
            (tmp_path / f"{name}.traj.json").write_bytes(text)
        return tmp_path if len(contents) > 1 else tmp_path / "a.traj.json"

    return write_files


def read(path, **options):
    return read_trace(path, tokenizer="bytes", **options)


refusal = partial(damage.refusal, tokenizer="bytes")


def test_every_answer_is_a_call(write):
    system, parts = {"role": "system", "content": "be good"}, [{"type": "text", "text": "a.py"}]
    later = answer("cat a.py", START + 7, 15, cost=0.1)
    content = trajectory(system, user("fix"), answer(cached=8), user(parts), later, user("done"), instance_id="x__y-1")
    trace = read(write(content))
    r = trace.requests
    assert r.request_ids == ["a:0", "a:1"]
    assert r.session.decode() == r.task.decode() == ["a", "a"]
    assert r.arrival_s.tolist() == [0, 7]
    assert np.isnan(r.gap_s).all()
    first = "<|system|>\nbe good\n<|user|>\nfix\n<|assistant|>\n"
    second = first + "ls\n<|user|>\na.py\n<|assistant|>\n"
    assert r.input_tokens.tolist() == [len(first), len(second)]
    assert r.output_tokens.tolist() == [len("ls\n"), len("cat a.py\n")]
    assert trace.outputs_known
    assert links(trace) == ([-1, 0], [0, (len(first) + 3) // 16 * 16])
    assert trace.notes[:4] == (
        "2 requests read as mini-swe-agent",
        "40 x prompt tokens by the provider's count (comparison only)",
        "23 x prompt tokens the provider had cached (comparison only)",
        APPEND_ONLY,
    )
    assert trace.notes[4] == "times are whole seconds: when the provider made the response"


def test_what_a_provider_may_leave_out(write):
    bare = {"role": "assistant", "content": None, "extra": {"response": {"usage": {"prompt_tokens_details": None}}}}
    content = trajectory(user("a"), bare, user("b"), {"role": "assistant"}, {"role": "assistant", "extra": {}})
    trace = read(write(content))
    assert np.isnan(trace.requests.arrival_s).all()
    assert "3 x call without a time" in trace.notes
    assert not any("provider's count" in note for note in trace.notes)


def test_times_that_run_backwards_are_told(write):
    trace = read(write(trajectory(user("a"), answer(created=START + 5), answer(created=START), answer(created=START))))
    assert trace.requests.arrival_s.tolist() == [5, 0, 0]
    assert "1 x answer older than the one before it: calls keep the order of the file" in trace.notes


def test_files_of_a_folder_share_one_clock(write):
    trace = read(write(trajectory(user("a"), answer()), b"", trajectory(user("b"), answer(created=START + 3))))
    assert trace.requests.session.decode() == ["a", "c"]
    assert trace.requests.arrival_s.tolist() == [0, 3]
    assert "1 left out: empty files" in trace.notes


def test_a_file_without_answers_among_others(write):
    trace = read(write(trajectory(user("a")), trajectory(user("b"), answer(), form="mini-swe-agent-1.1")))
    assert trace.requests.session.decode() == ["b"]


def test_calls_of_a_wanted_model(write):
    other = answer("x")
    other["extra"]["response"]["model"] = "other"
    trace = read(write(trajectory(user("a"), other, user("b"), answer())), model_filter="m")
    assert trace.requests.request_ids == ["a:1"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (trajectory(answer(), form="mini-swe-agent-9"),
         ": trajectory_format is 'mini-swe-agent-9'; accepted: mini-swe-agent-1, mini-swe-agent-1.1"),
        (trajectory({"content": "a"}), ": Object missing required field `role` - at `$.messages[0]`"),
        (trajectory(user("a"), {"role": "user", "content": 5}),
         ", message 1: content is int '5'; a text, a list of parts, or null is accepted"),
        (trajectory(answer(created="now")),
         ": Expected `float | null`, got `str` - at `$.messages[0].extra.response.created`"),
        (trajectory(answer(prompt=-1)),
         ": Expected `int` >= 0 - at `$.messages[0].extra.response.usage.prompt_tokens`"),
        (trajectory({"role": "user", "content": "x"}, instance_id="i") | {"messages": {}},
         ": Expected `array`, got `object` - at `$.messages`"),
    ],
)  # fmt: skip
def test_refused_files(write, content, text):
    assert refusal(write(content)) == text


def test_cut_short(write):
    path = write(dump(trajectory(answer()))[:-5])
    with pytest.raises(TraceError) as caught:
        read_trace(path, "mini-swe-agent", tokenizer="bytes")
    assert str(caught.value) == f"{path}: not JSON (Input data was truncated); a complete object is needed"


def test_no_calls_at_all(write):
    with pytest.raises(TraceError, match=r"^a\.traj\.json: no requests; at least one is needed$"):
        read(write(trajectory(user("a"))))
