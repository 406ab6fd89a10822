"""EfficientAgent replay traces: prompts rebuilt from their changes, gaps, tail gaps and outputs."""

import gzip
import json

import numpy as np
import pytest
from builders import dump, links
from damage import refusal

from capplan.readers import read_trace

BIG = (1 << 32) - 1
GAPS = "gaps are recorded, arrivals are not: the order comes from the pool"


def header(name="x", order=0, tail=1.5, **more):
    made = {"instance_id": name, "order": order, "tail_gap_s": tail} | more
    return {key: value for key, value in made.items() if value is not None}


def step(seq=1, shared=0, suffix=(8, 9), output=(3,), gap=0.4, n=None, **more):
    made = {"seq": seq, "gap_before_s": gap, "prompt_shared": shared, "prompt_suffix": list(suffix)}
    made |= {"prompt_len": shared + len(suffix) if n is None else n, "output": list(output), "output_len": len(output)}
    return made | more


@pytest.fixture
def write(tmp_path):
    """Write tasks as 000.jsonl.gz, 001.jsonl.gz, ..."""

    def write_tasks(*tasks):
        for number, rows in enumerate(tasks):
            text = b"".join((row.encode() if isinstance(row, str) else dump(row)) + b"\n" for row in rows)
            (tmp_path / f"{number:03d}.jsonl.gz").write_bytes(gzip.compress(text))
        return tmp_path

    return write_tasks


def test_prompts_are_rebuilt(write):
    ids = list(range(40))
    first = [header("a/1", trial_id="t"), step(3, 0, ids, [90] * 10), step(5, 40, [90] * 10 + [7], [], gap=2.0),
             step(6, 33, [5] * 8, recorded_client_elapsed_s=1.25)]  # fmt: skip
    trace = read_trace(write(first, [header("b", 1, 0.0), step(1, 0, ids, recorded_client_elapsed_s=0.0)]))
    r = trace.requests
    assert r.request_ids == ["a/1:3", "a/1:5", "a/1:6", "b:1"]
    assert r.session.decode() == r.task.decode() == ["a/1"] * 3 + ["b"]
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([40, 51, 41, 40], [10, 0, 1, 1])
    assert r.gap_s.tolist() == [0.4, 2, 0.4, 0.4]
    np.testing.assert_array_equal(r.tail_gap_s, [np.nan, np.nan, 1.5, 0])
    np.testing.assert_array_equal(r.service_s, [np.nan, np.nan, 1.25, np.nan])
    assert np.isnan(r.arrival_s).all()
    assert links(trace) == ([-1, 0, 0, 0], [0, 48, 32, 32])
    assert (trace.outputs_known, trace.resolution_tokens) == (True, 16)
    assert trace.notes == ("4 requests read as replay-trace", GAPS)


def test_one_task_alone_and_not_compressed(tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_bytes(b"\r\n".join(map(dump, [header(), step(), step(2, 2, ())])))
    assert read_trace(path).requests.input_tokens.tolist() == [2, 2]


def test_empty_tasks_and_files_are_counted(write, tmp_path):
    write([header()], [], [header("y", 2), step()])
    (tmp_path / "zero.jsonl").touch()
    notes = read_trace(tmp_path).notes
    assert "2 left out: empty files" in notes
    assert "1 left out: task without calls" in notes


def test_file_names_give_the_order(write):
    trace = read_trace(write([header("a", 1), step()], [header("b", 0), step()], [header("c", None), step()]))
    assert trace.requests.session.decode() == ["a", "b", "c"]
    assert "tasks follow the order of the file names, which is not the one in their headers" in trace.notes


def test_a_manifest_is_no_task(write, tmp_path):
    path = write([header(), step()])
    manifest = tmp_path / "trace_manifest.json"
    manifest.write_text(json.dumps({"schema": "efficientagent.replay_trace.v1", "tasks": 1}))
    assert len(read_trace(path)) == 1
    manifest.write_text(json.dumps({"schema": "efficientagent.replay_trace.v9"}))
    assert refusal(path) == (
        "/trace_manifest.json: schema is 'efficientagent.replay_trace.v9'; accepted: efficientagent.replay_trace.v1"
    )
    manifest.write_text("{")
    assert refusal(path) == "/trace_manifest.json: not a manifest (Input data was truncated); a JSON object is accepted"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (step(2, 3), ": prompt_shared is 3, but the previous prompt has 2 tokens; up to that is accepted"),
        (step(2, 2, (1,), n=4), ": prompt_len is 4, but there are 3 tokens; the same number is accepted"),
        (step(2, output_len=2), ": output_len is 2, but there are 1 tokens; the same number is accepted"),
        (step(1), ": seq 1 stands twice in the task; one line per call is accepted"),
        (step(2, 0, [BIG + 1]), f": prompt_suffix holds an id outside 0 to {BIG}"),
        (step(2, output=[-1]), f": output holds an id outside 0 to {BIG}"),
        (step(2, gap=-0.5), ": Expected `float` >= 0.0 - at `$.gap_before_s`"),
        (step(2, prompt_suffix=None), ": Expected `array`, got `null` - at `$.prompt_suffix`"),
        ({"seq": 2}, ": Object missing required field `gap_before_s`"),
        ('{"seq":', ": not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_calls(write, bad, text):
    assert refusal(write([header(), step(), bad])) == f"/000.jsonl.gz, line 3{text}"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (header("x", 1), ": instance_id 'x' stands in 000.jsonl.gz too; one file per task is accepted"),
        (header("y", tail=-1), ": Expected `float` >= 0.0 - at `$.tail_gap_s`"),
        (step(), ": Object missing required field `instance_id`"),
    ],
)
def test_refused_headers(write, bad, text):
    assert refusal(write([header(), step()], [bad, step()])) == f"/001.jsonl.gz, line 1{text}"


def test_cut_short(write, tmp_path):
    path = write([header(), step()])
    whole = (tmp_path / "000.jsonl.gz").read_bytes()
    (tmp_path / "000.jsonl.gz").write_bytes(whole[:-12])
    assert refusal(path, format="replay-trace").startswith("/000.jsonl.gz: damaged compressed data (")


def test_block_size_is_not_for_token_ids(write):
    assert refusal(write([header(), step()]), block_size=32) == (
        ": --block-size is for block hashes; token ids are linked at 16 tokens"
    )
