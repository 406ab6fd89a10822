"""EfficientAgent agent runs: the attempt a task names, its calls by sequence, failures left out."""

import numpy as np
import pytest
from builders import dump, links, write_jsonl
from damage import refusal

from capplan.errors import TraceError
from capplan.readers import read_trace

START = 1_900_000_000 * 10**9
S = 10**9
BIG = (1 << 32) - 1


def call(seq=1, begin=2, end=3, ids=(1, 2, 3), out=(7,), **more):
    made = {"trial_id": "t", "request_sequence": seq, "error": None, "token_identity_verified": True}
    made |= {"prompt_token_ids": list(ids), "generated_token_ids": [list(out)]}
    made |= {"start_wall_ns": START + begin * S, "end_wall_ns": START + end * S, "client_elapsed_ns": (end - begin) * S}
    return made | more


@pytest.fixture
def write(tmp_path):
    """Write one task: its calls in one attempt, and its record."""

    def write_task(*calls, name="x", assigned=0, finished=100, attempt=0, record=None):
        log = tmp_path / "attempts" / name / f"attempt_{attempt:02d}" / "telemetry" / "llm_requests.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(log, calls) if calls else log.touch()
        (tmp_path / "tasks").mkdir(exist_ok=True)
        timing = {"assigned_ns": START + assigned * S, "finished_ns": START + finished * S}
        made = {"attempt_index": attempt, "trial_id": "t", "task_timing": timing} if record is None else record
        (tmp_path / "tasks" / f"{name}.json").write_bytes(made if isinstance(made, bytes) else dump(made))
        return tmp_path

    return write_task


LOG = "/attempts/x/attempt_00/telemetry/llm_requests.jsonl"


def test_calls_by_sequence_without_the_failed_ones(write):
    ids = list(range(40))
    write(call(9))  # another attempt, which the record will not name
    path = write(
        call(4, 20, 25, ids + [7] + [5] * 20, client_elapsed_ns=None),
        call(1, 2, 3, ids),
        call(2, 5, 6, error="timeout", prompt_token_ids=None, generated_token_ids=None),
        call(3, 7, 8, token_identity_verified=False),
        finished=30,
        attempt=1,
    )
    write(call(1, 1, 2, ids), name="early", assigned=-1, finished=2)
    write(name="none", assigned=-2)
    trace = read_trace(path)
    r = trace.requests
    assert r.request_ids == ["early:1", "x:1", "x:4"]
    assert r.session.decode() == r.task.decode() == ["early", "x", "x"]
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([40, 40, 61], [1, 1, 1])
    assert r.arrival_s.tolist() == [3, 4, 22]
    assert r.start_s.tolist() == [2, 2, 20]
    assert r.gap_s.tolist() == [2, 2, 17]
    assert r.service_s.tolist() == [1, 1, 5]
    np.testing.assert_array_equal(r.tail_gap_s, [0, np.nan, 5])
    assert links(trace) == ([-1, 0, 0], [0, 32, 32])
    assert trace.outputs_known
    assert trace.notes == (
        "3 requests read as agent-run",
        "1 left out: call with unverified token ids: its time stays in the gaps",
        "1 left out: failed call: its time stays in the gaps",
        "1 left out: task without calls",
        "arrivals count from the first assignment of a task",
    )


def test_overlapping_calls_have_no_negative_gaps(write):
    trace = read_trace(write(call(1, 2, 9), call(2, 5, 12), finished=11))
    assert trace.requests.gap_s.tolist() == [2, 0]
    np.testing.assert_array_equal(trace.requests.tail_gap_s, [np.nan, 0])


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (call(2, trial_id="u"), ": trial_id is 'u', but the task's is 't'; calls of one trial are accepted"),
        (call(1), ": request_sequence 1 stands twice; each call once is accepted"),
        (call(2, 5, 4, client_elapsed_ns=1), ": end_wall_ns is before start_wall_ns; a call ends after its start"),
        (call(2, prompt_token_ids=None),
         ": prompt_token_ids or generated_token_ids is missing; both are needed for a call that succeeded"),
        (call(2, generated_token_ids=[]),
         ": prompt_token_ids or generated_token_ids is missing; both are needed for a call that succeeded"),
        (call(2, ids=[BIG + 1]), f": prompt_token_ids holds an id outside 0 to {BIG}"),
        (call(2, out=[-1]), f": generated_token_ids holds an id outside 0 to {BIG}"),
        (call(2, start_wall_ns=-1), ": Expected `int` >= 0 - at `$.start_wall_ns`"),
        ({"request_sequence": 2}, ": Object missing required field `start_wall_ns`"),
        ('{"request_sequence":', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)  # fmt: skip
def test_refused_calls(write, bad, text):
    assert refusal(write(call(), bad)) == f"{LOG}, line 2{text}"


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b'{"task_timing":', ": not JSON (Input data was truncated); a complete object is needed"),
        ({"trial_id": "t"}, ": Object missing required field `task_timing`"),
        ({"attempt_index": -1, "task_timing": {"assigned_ns": 1, "finished_ns": 2}},
         ": Expected `int` >= 0 - at `$.attempt_index`"),
    ],
)  # fmt: skip
def test_refused_records(write, record, text):
    assert refusal(write(call(), record=record)) == f"/tasks/x.json{text}"


def test_the_attempt_is_missing(write):
    record = {"attempt_index": 7, "trial_id": "t", "task_timing": {"assigned_ns": 1, "finished_ns": 2}}
    assert refusal(write(call(), record=record)) == (
        "/attempts/x/attempt_07/telemetry/llm_requests.jsonl: No such file or directory; a readable file is needed"
    )


def test_no_run_at_all(tmp_path):
    from capplan.readers import agent_run
    from capplan.readers.sample import Account, Options

    with pytest.raises(TraceError) as caught:
        list(agent_run.read(tmp_path, Options(), Account()))
    assert str(caught.value) == (
        f"{tmp_path}: no tasks/*.json, or no attempts beside them; a folder of one agent run is accepted"
    )
