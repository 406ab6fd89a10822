"""Token ids in JSONL and Parquet."""

import datetime
import time

import numpy as np
import polars as pl
import pytest
from builders import links, write_jsonl
from damage import refusal
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from strategies import split_paths

from capplan.errors import TraceError
from capplan.readers import jsonl, read_trace
from capplan.readers.token_ids import interleave

BIG = (1 << 32) - 1


def write(folder, rows, kind):
    """The same rows as JSONL or as Parquet."""
    if kind == "jsonl":
        return write_jsonl(folder / "t.jsonl", rows)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "t.parquet")
    return folder / "t.parquet"


both = pytest.mark.parametrize("kind", ["jsonl", "parquet"])


@both
@pytest.mark.parametrize("name", ["token_ids", "prompt_token_ids"])
def test_prompts_are_linked_at_16_tokens(tmp_path, kind, name):
    prompts = [list(range(40)), list(range(33)), [], [BIG] * 17, [BIG] * 20]
    trace = read_trace(write(tmp_path, [{name: prompt} for prompt in prompts], kind))
    assert links(trace) == link_by_search(prompts, 16)
    assert trace.requests.input_tokens.tolist() == [40, 33, 0, 17, 20]
    assert (trace.resolution_tokens, trace.outputs_known) == (16, False)
    assert trace.notes == ("5 requests read as token-ids",)


@both
def test_outputs_lengthen_the_paths(tmp_path, kind):
    first, answer = list(range(20)), list(range(100, 130))
    rows = [
        {"token_ids": first, "output_token_ids": answer},
        {"token_ids": first + answer + [7], "output_token_ids": []},
    ]
    trace = read_trace(write(tmp_path, rows, kind))
    assert trace.outputs_known
    assert links(trace) == ([-1, 0], [0, 48])
    assert trace.requests.input_tokens.tolist() == [20, 51]
    assert trace.requests.output_tokens.tolist() == [30, 0]


@both
def test_outputs_that_are_all_empty_are_known_to_be(tmp_path, kind):
    trace = read_trace(write(tmp_path, [{"token_ids": [1], "output_token_ids": []}] * 2, kind))
    assert trace.outputs_known
    assert trace.requests.output_tokens.tolist() == [0, 0]


@both
def test_optional_columns(tmp_path, kind):
    rows = [
        {"token_ids": [1], "request_id": "x", "session_id": "s", "task_id": None, "arrival_s": 7.5, "service_s": 1.5,
         "output_tokens": 3, "start_s": 0.0, "gap_s": None, "tail_gap_s": None},
        {"token_ids": [1], "request_id": "y", "session_id": None, "task_id": "t", "arrival_s": 7.25, "service_s": None,
         "output_tokens": 4, "start_s": None, "gap_s": -0.5, "tail_gap_s": 2.0},
    ]  # fmt: skip
    trace = read_trace(write(tmp_path, rows, kind))
    r = trace.requests
    assert r.request_ids == ["x", "y"]
    assert r.session.decode() == ["s", None]
    assert r.task.decode() == ["s", "t"]
    assert r.arrival_s.tolist() == [0.25, 0]
    assert any(note.startswith("1 x request sent before the one in front of it") for note in trace.notes)
    assert r.output_tokens.tolist() == [3, 4]
    np.testing.assert_array_equal(r.service_s, [1.5, np.nan])
    np.testing.assert_array_equal(r.start_s, [0, np.nan])
    np.testing.assert_array_equal(r.gap_s, [np.nan, -0.5])
    np.testing.assert_array_equal(r.tail_gap_s, [np.nan, 2])
    assert "sessions without a task_id are tasks of their own" in trace.notes


@both
def test_lengths_that_differ_from_the_ids_are_told(tmp_path, kind):
    row = {"token_ids": [1, 2], "output_token_ids": [3]}
    rows = [row | {"input_tokens": 2, "output_tokens": n} for n in (1, 7)] + [
        row | {"input_tokens": 9, "output_tokens": 0}
    ]
    trace = read_trace(write(tmp_path, rows, kind))
    assert trace.requests.input_tokens.tolist() == [2, 2, 2]
    assert trace.requests.output_tokens.tolist() == [1, 1, 1]
    assert trace.notes[1:3] == (
        "1 x request whose input_tokens differ from the number of its ids, which is taken",
        "2 x request whose output_tokens differ from the number of its ids, which is taken",
    )
    bad = write(tmp_path, [row | {"input_tokens": -1, "output_tokens": 1}], kind)
    assert refusal(bad).endswith(": input_tokens is -1; a whole number from 0 to 2147483647 is accepted")


@both
def test_numbers_serve_as_names(tmp_path, kind):
    rows = [{"token_ids": [1], "request_id": 7, "session_id": 1}, {"token_ids": [1], "request_id": 8, "session_id": 1}]
    r = read_trace(write(tmp_path, rows, kind)).requests
    assert (r.request_ids, r.session.decode(), r.task.decode()) == (["7", "8"], ["1", "1"], ["1", "1"])


@both
def test_timestamps_are_seconds_unless_they_are_dates(tmp_path, kind):
    trace = read_trace(
        write(tmp_path, [{"token_ids": [1], "timestamp": t} for t in (1900000000.5, 1900000002.0)], kind)
    )
    assert trace.requests.arrival_s.tolist() == [0, 1.5]
    assert "timestamp is read as seconds" in trace.notes


@pytest.fixture
def summer_time_tonight(monkeypatch):
    """A local clock that leaps from 2 to 3 o'clock on 8 March 2026."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("zone", [None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=5))])
@pytest.mark.usefixtures("summer_time_tonight")
def test_dates_in_parquet_are_read_to_the_microsecond(tmp_path, zone):
    times = [
        datetime.datetime(2026, 3, 8, 1, 30, 0, 250_000, zone),
        datetime.datetime(2026, 3, 8, 3, 30, 0, 500_001, zone),
    ]
    trace = read_trace(write(tmp_path, [{"token_ids": [1], "timestamp": t} for t in times], "parquet"))
    assert trace.requests.arrival_s.tolist() == pytest.approx([0, 7200.250001], abs=5e-7)
    assert "timestamp is read as seconds" not in trace.notes


@given(split_paths(max_piece=40), st.integers(1, 5))
def test_jsonl_batches_change_nothing(tmp_path_factory, made, batch_rows):
    whole = [path for path, _ in made]
    rows = [
        {"token_ids": path[:n], "output_token_ids": path[n:], "session_id": str(n), "arrival_s": 100 + 2 * k}
        for k, (path, n) in enumerate(made)
    ]
    path = write_jsonl(tmp_path_factory.mktemp("t") / "t.jsonl", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", batch_rows)
        trace = read_trace(path)
    assert links(trace) == link_by_search(whole, 16)
    assert trace.requests.request_ids == [str(k) for k in range(len(made))]
    assert trace.requests.arrival_s.tolist() == [2 * k for k in range(len(made))]
    assert trace.fingerprint == read_trace(path).fingerprint


def test_interleave_puts_every_output_behind_its_prompt():
    prompt, output = np.array([1, 2, 3], np.uint32), np.array([7, 8, 9], np.uint32)
    paths = interleave(prompt, np.array([2, 0, 1]), output, np.array([0, 2, 1]))
    assert paths.tolist() == [1, 2, 7, 8, 3, 9]


# --- line endings


def test_marks_blank_lines_line_ends_and_a_missing_last_newline(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"token_ids":[1]}\r\n\r\n \r\n{"token_ids":[2]}')
    assert read_trace(path).requests.input_tokens.tolist() == [1, 1]


@pytest.mark.parametrize("batch_rows", [1, 2, 4096])
def test_errors_count_lines_from_1_blank_ones_included_in_every_batch(tmp_path, monkeypatch, batch_rows):
    monkeypatch.setattr(jsonl, "BATCH_BYTES", batch_rows)
    good, bad = '{"token_ids":[1],"gap_s":1}', '{"token_ids":[1],"output_tokens":-1,"gap_s":1}'
    path = write_jsonl(tmp_path / "t.jsonl", ["", good.replace("}", ',"output_tokens":1}'), "", "", bad])
    assert refusal(path) == ", line 5: output_tokens is -1; a whole number from 0 to 2147483647 is accepted"
    path = write_jsonl(tmp_path / "t.jsonl", ["", good, "", '{"token_ids":[1,-1]}'])
    assert refusal(path) == f", line 4: token_ids holds an id outside 0 to {BIG}"
    path = write_jsonl(tmp_path / "t.jsonl", ["", good, "", '{"token_ids":[1,'])
    assert refusal(path).startswith(", line 4: not JSON (")


# --- refusals


@both
@pytest.mark.parametrize("token", [-1, BIG + 1, 2**62])
def test_id_out_of_range(tmp_path, kind, token):
    path = write(tmp_path, [{"token_ids": [1, 2]}, {"token_ids": []}, {"token_ids": [token, 3]}], kind)
    where = {"jsonl": "line 3", "parquet": "row 2"}[kind]
    assert refusal(path) == f", {where}: token_ids holds an id outside 0 to {BIG}"


@both
def test_output_id_out_of_range(tmp_path, kind):
    path = write(tmp_path, [{"token_ids": [1], "output_token_ids": [-5]}], kind)
    where = {"jsonl": "line 1", "parquet": "row 0"}[kind]
    assert refusal(path) == f", {where}: output_token_ids holds an id outside 0 to {BIG}"


def test_id_beyond_64_bits(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"token_ids": [1]}, {"token_ids": [10**30]}])
    assert refusal(path) == f", line 2: token_ids holds an id outside 0 to {BIG}"


@both
def test_null_list_of_output_ids(tmp_path, kind):
    path = write(
        tmp_path, [{"token_ids": [1], "output_token_ids": [1]}, {"token_ids": [1], "output_token_ids": None}], kind
    )
    where = {"jsonl": "line 2", "parquet": "row 1"}[kind]
    assert refusal(path) == f", {where}: output_token_ids is null; a list of token ids on every row is accepted"


def test_null_id_in_parquet(tmp_path):
    path = write(tmp_path, [{"token_ids": [1]}, {"token_ids": []}, {"token_ids": [1, None]}], "parquet")
    assert refusal(path) == ", row 2: token_ids is null; a list of token ids on every row is accepted"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1, 2], "Int64"), ([[1.5]], "List(Float64)"), ([["a"]], "List(String)"), ([[[1]]], "List(List(Int64))")],
)
def test_other_types_in_parquet(tmp_path, values, dtype):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"token_ids": values}).write_parquet(path)
    assert refusal(path) == f", row 0: token_ids is {dtype}; a list of integers is accepted"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ('{"token_ids":null}', "Expected `array`, got `null` - at `$.token_ids`"),
        ('{"token_ids":[1,null]}', "Expected `int`, got `null` - at `$.token_ids[1]`"),
        ('{"token_ids":[1.5]}', "Expected `int`, got `float` - at `$.token_ids[0]`"),
        ('{"token_ids":[1],"gap_s":"soon"}', "Expected `float | null`, got `str` - at `$.gap_s`"),
        ('{"token_ids":[1],"request_id":null}', "Expected `int | str`, got `null` - at `$.request_id`"),
        ("[1,2]", "Expected `object`, got `array`"),
    ],
)
def test_other_types_in_jsonl(tmp_path, row, text):
    assert refusal(write_jsonl(tmp_path / "t.jsonl", ['{"token_ids":[1]}', row])) == f", line 2: {text}"


@both
@pytest.mark.parametrize("name", ["output_tokens"])
@pytest.mark.parametrize("value", [-1, 2**31, None])
def test_counts_out_of_range(tmp_path, kind, name, value):
    path = write(tmp_path, [{"token_ids": [1], name: 1}, {"token_ids": [1], name: value}], kind)
    where = {"jsonl": "line 2", "parquet": "row 1"}[kind]
    assert refusal(path) == f", {where}: {name} is {value}; a whole number from 0 to 2147483647 is accepted"


@pytest.mark.parametrize("value", ["1.5", [1.0], datetime.timedelta(seconds=1), True, float("inf")])
def test_seconds_of_another_type_in_parquet(tmp_path, value):
    path = write(tmp_path, [{"token_ids": [1], "gap_s": value}], "parquet")
    assert refusal(path) == f", row 0: gap_s is {value!r}; seconds as a number are accepted"


def test_a_date_without_a_time_is_no_timestamp(tmp_path):
    path = write(tmp_path, [{"token_ids": [1], "timestamp": datetime.date(2026, 1, 1)}], "parquet")
    assert refusal(path) == ", row 0: timestamp is datetime.date(2026, 1, 1); seconds as a number are accepted"


@both
def test_names_on_some_rows_only(tmp_path, kind):
    rows = [{"token_ids": [1], "request_id": "a"}, {"token_ids": [1]}]
    where = {"jsonl": "line 2", "parquet": "row 1"}[kind]
    assert refusal(write(tmp_path, rows, kind)) == (
        f", {where}: request_id is null; a name on every row, or on none, is accepted"
    )


def test_names_twice(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"token_ids": [1], "request_id": "a"}] * 2)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value) == "t.jsonl, row 1: request_id 'a' stands twice; names must be unique"


def test_outputs_on_some_rows_only(tmp_path, monkeypatch):
    rows = [{"token_ids": [1], "output_token_ids": [2]}, {"token_ids": [1]}]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    assert refusal(path) == ", line 2: output_token_ids is null; a list of token ids on every row is accepted"
    monkeypatch.setattr(jsonl, "BATCH_BYTES", 1)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value) == "t.jsonl: output ids in some parts only; accepted: in all or in none"


def test_block_size_is_not_for_token_ids(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"token_ids": [1]}])
    assert refusal(path, block_size=32) == ": --block-size is for block hashes; token ids are linked at 16 tokens"


def test_row_without_ids(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"output_tokens": 1}])
    assert refusal(path, format="token-ids") == ", line 1: no token ids; accepted: token_ids or prompt_token_ids"


def test_content_option_is_said_to_have_no_effect_on_token_ids(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"token_ids": [1]}])
    assert read_trace(path, ids="content").notes == (
        "1 requests read as token-ids",
        "--ids content has no effect: there are no block ids to chain anew",
    )
