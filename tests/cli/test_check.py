"""`capplan check`: what a trace is, as a table and as JSON."""

import json

import pytest
from builders import write_jsonl
from commands import invoke, misuse_of, refusal_of


def check(*arguments):
    result = invoke("check", *arguments)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def rows(tmp_path):
    """Two sessions of a task and one of another, on a clock, outputs unknown."""
    head, own, other = [1] * 32, [2] * 32, [3] * 32
    made = [
        {"token_ids": head + own, "session_id": "a", "task_id": "t", "arrival_s": 0},
        {"token_ids": head + own + own[:16], "session_id": "a", "task_id": "t", "arrival_s": 5},
        {"token_ids": head + own, "session_id": "b", "task_id": "t", "arrival_s": 5, "gap_s": -1},
        {"token_ids": head + other, "session_id": "c", "task_id": "u", "arrival_s": 3, "output_tokens": 7},
        {"token_ids": [], "session_id": "c", "task_id": "u", "arrival_s": 9},
    ]
    for row in made:
        row.setdefault("output_tokens", 4)
    made[0]["output_tokens"] = 0
    return write_jsonl(tmp_path / "r.jsonl", made)


def test_numbers_as_json(rows):
    record = json.loads(check(rows, "--format", "json"))
    assert (record["format"], record["requests"], record["sessions"], record["tasks"]) == (1, 5, 3, 2)
    assert (record["input_tokens"], record["output_tokens"], record["longest_prompt_tokens"]) == (272, 19, 80)
    assert record["sharing"] == {
        "session_tokens": 64, "task_tokens": 64, "other_tokens": 32, "new_tokens": 112, "shared_tokens": 160,
    }  # fmt: skip
    assert record["distinct_tokens"] == 112
    clock = record["clock"]
    assert (clock["n_arrivals"], clock["span_s"], clock["n_back"], clock["n_ties"]) == (5, 9, 1, 1)
    assert (clock["n_starts"], clock["n_gaps"], clock["begins"]) == (0, 1, None)
    assert record["oddities"] == {
        "empty prompt": 1,
        "prompt whose full blocks an earlier path holds all": 1,
        "no output tokens": 1,
        "gap below 0: sent before the session's previous response ended": 1,
    }
    assert record["ids"] == "tokens"
    assert record["account"]["formats"] == {"token-ids": 5}


def test_a_linked_file_tells_the_same_as_its_source(rows, tmp_path):
    out = tmp_path / "t.parquet"
    assert invoke("ingest", rows, "-o", out).exit_code == 0
    left, right = (json.loads(check(path, "--format", "json")) for path in (rows, out))
    assert right.pop("source") == "t.parquet"
    assert right.pop("command") == "capplan ingest r.jsonl"
    del left["source"], left["command"]
    assert left == right


def test_the_table_says_it_in_words(rows):
    lines = check(rows).splitlines()
    assert lines[0] == "made from        r.jsonl"
    assert lines[1] == "requests         5 in 3 sessions, 2 tasks"
    text = " ".join(" ".join(lines).split())
    for words in (
        "272 tokens: 54 a request, 80 at most",
        "16 tokens; token ids, hashed in blocks; outputs unknown",
        "160 tokens, 58.8 % of the input, with an earlier request",
        "same session 64 tokens, 23.5 %",
        "arrivals over 9.00 s, 1 steps back in time, 1 ties; 1 gaps",
        "odd 1 x empty prompt",
        "read 5 requests read as token-ids",
    ):
        assert words in text
    assert max(map(len, lines)) <= 80


def test_dates_are_told_where_the_clock_has_them(tmp_path):
    import datetime as dt

    import polars as pl

    pl.DataFrame({"token_ids": [[1]], "timestamp": [dt.datetime(2026, 3, 1, 12)]}).write_parquet(tmp_path / "t.parquet")
    assert "from 2026-03-01T12:00:00.000+00:00" in check(tmp_path / "t.parquet")


def test_without_sessions_and_times(nameless):
    text = check(nameless)
    assert "no sessions, no tasks" in text
    assert "no arrivals on a common clock" in text


@pytest.mark.parametrize("format", ["table", "json"])
def test_the_same_input_gives_the_same_bytes_and_files_are_written(linked, tmp_path, format):
    out = tmp_path / "answer"
    assert invoke("check", linked, "--format", format, "-o", out).stdout == ""
    assert out.read_text() == check(linked, "--format", format)


def test_refusals(tmp_path, linked):
    assert refusal_of("check", tmp_path / "absent").startswith(f"{tmp_path / 'absent'}: No such file")
    assert "folder does not exist" in refusal_of("check", linked, "-o", tmp_path / "none" / "x")
    assert "Invalid value for '--format'" in misuse_of("check", linked, "--format", "csv")


def test_real_sessions(real_traces):
    record = json.loads(check(real_traces / "kv-cache-tester" / "sessions", "--format", "json"))
    assert (record["requests"], record["sessions"], record["tasks"]) == (2304, 91, 77)
    assert (record["input_tokens"], record["output_tokens"]) == (234_291_715, 1_063_267)
    assert record["sharing"]["shared_tokens"] == 216_822_720
    assert record["distinct_tokens"] == 271_815 * 64


def test_which_times_are_real_is_told_of_formats_that_say_it(tmp_path):
    row = {"input_toks": 3, "output_toks": 1, "arrival_time_ns": 5, "input_tok_ids": [4, 5, 6], "output_tok_ids": [7]}
    path = write_jsonl(tmp_path / "w.jsonl", [row])
    assert "  real           arrivals and tool times are generated\n" in check(path)
    record = json.loads(check(path, "--format", "json"))
    assert record["clock"]["recorded"] == {"llmservingsim": "arrivals and tool times are generated"}
    out = tmp_path / "linked.parquet"
    assert invoke("ingest", path, "-o", out).exit_code == 0
    assert json.loads(check(out, "--format", "json"))["clock"]["recorded"] == record["clock"]["recorded"]


def test_arrival_0_is_the_earliest_request_and_its_date_is_told(tmp_path):
    row = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
    replay = {"trace_block_size": 16, "input_length": 16, "input_sequence_hashes": [1]}
    sent = [1_900_000_000_000, 1_899_999_990_500]
    rows = [
        row | {"request": {"request_id": f"r{ms}", "request_received_ms": ms, "output_tokens": 1, "replay": replay}}
        for ms in sent
    ]
    record = json.loads(check(write_jsonl(tmp_path / "d.jsonl", rows), "--format", "json"))
    assert record["clock"]["begins"] == "2030-03-17T17:46:30.500+00:00"
    assert record["clock"]["span_s"] == 9.5
