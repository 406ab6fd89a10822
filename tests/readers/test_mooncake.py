"""Mooncake JSONL: milliseconds, 512-token blocks, a last id for a partial block."""

import pytest
from builders import chain, links, write_jsonl
from damage import refusal
from hypothesis import given
from oracles import link_by_search
from strategies import paths

from capplan.errors import TraceError
from capplan.readers import jsonl, read_trace
from capplan.readers.clock import BACKWARDS
from capplan.readers.ledger import EARLIEST_LATER


def row(timestamp=0, n_input=512, n_output=7, ids=(1,), **more):
    return {"timestamp": timestamp, "input_length": n_input, "output_length": n_output, "hash_ids": list(ids)} | more


def write(folder, rows):
    return write_jsonl(folder / "m.jsonl", rows)


def test_times_lengths_and_links(tmp_path):
    rows = [row(1200, 1300, 40, [7, 8, 31]), row(1200, 1100, 0, [7, 8, 32]), row(4500, 13, 1, [33]), row(900, 0, 5, [])]
    trace = read_trace(write(tmp_path, rows))
    assert links(trace) == ([-1, 0, -1, -1], [0, 1024, 0, 0])
    assert trace.resolution_tokens == 512
    r = trace.requests
    assert r.arrival_s.tolist() == [0.3, 0.3, 3.6, 0]
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([1300, 1100, 13, 0], [40, 0, 1, 5])
    assert r.session.decode() == [None] * 4
    assert trace.notes == (
        "4 requests read as mooncake",
        f"1 x {BACKWARDS}",
        "timestamps are milliseconds and blocks 512 tokens, as the Mooncake release defines them",
        EARLIEST_LATER,
    )


def test_partial_last_id_is_dropped_even_where_it_comes_back(tmp_path):
    trace = read_trace(write(tmp_path, [row(0, 600, 1, [1, 2]), row(0, 600, 1, [1, 2])]))
    assert links(trace) == ([-1, 0], [0, 512])
    aligned = read_trace(write(tmp_path, [row(0, 1024, 1, [1, 2]), row(0, 1024, 1, [1, 2])]))
    assert links(aligned) == ([-1, 0], [0, 1024])


@given(paths())
def test_batches_change_nothing(tmp_path_factory, prompts):
    keys = {}
    rows = [row(k, 512 * len(p), 0, chain(p, 1, keys)) for k, p in enumerate(prompts)]
    path = write(tmp_path_factory.mktemp("m"), rows)
    parent, shared = link_by_search(prompts, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", 2)
        trace = read_trace(path)
    assert links(trace) == (parent, [512 * n for n in shared])
    assert trace.requests.arrival_s.tolist() == [k / 1000 for k in range(len(rows))]
    assert trace.requests.request_ids == [str(k) for k in range(len(rows))]


def test_fractions_of_milliseconds_and_string_ids(tmp_path):
    trace = read_trace(write(tmp_path, [row(0.5, ids=["ab"]), row(2.25, ids=["ab"])]))
    assert trace.requests.arrival_s.tolist() == [0, 0.00175]
    assert links(trace) == ([-1, 0], [0, 512])


def test_block_size_can_be_stated(tmp_path):
    trace = read_trace(write(tmp_path, [row(0, 40, 1, [1, 2, 3]), row(0, 33, 1, [1, 2, 4])]), block_size=16)
    assert links(trace) == ([-1, 0], [0, 32])
    assert "timestamps are milliseconds and blocks 16 tokens, as the Mooncake release defines them" in trace.notes


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b"\r\n \r\n"])
def test_line_ends_marks_and_a_missing_last_newline(tmp_path, end):
    path = tmp_path / "m.jsonl"
    line = b'{"timestamp":1,"input_length":512,"output_length":0,"hash_ids":[1]}'
    path.write_bytes(b"\xef\xbb\xbf" + line + end + line)
    assert links(read_trace(path)) == ([-1, 0], [0, 512])


# --- refusals


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("session_id", "mooncake-extended"),
        ("delay", "mooncake-extended"),
        ("delay_ms", "mooncake-extended"),
        ("wait_for", "mooncake-extended"),
        ("prefix_reset", "mooncake-extended"),
        ("messages", "mooncake-extended"),
        ("group_id", "mooncake-delta"),
        ("is_restart", "mooncake-delta"),
        ("chat_id", "qwen-bailian"),
    ],
)
@pytest.mark.parametrize("value", ["s", None, 5])
def test_rows_of_other_dialects_are_refused_and_their_reader_is_named(tmp_path, name, reader, value):
    assert refusal(write(tmp_path, [row(), "", row(**{name: value})])) == (
        f", line 3: field {name} belongs to another dialect (--from {reader}); accepted: timestamp, input_length, "
        "output_length, hash_ids"
    )


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"n_input": -1}, "Expected `int` >= 0 - at `$.input_length`"),
        ({"n_input": 2**31}, "Expected `int` <= 2147483647 - at `$.input_length`"),
        ({"n_output": -1}, "Expected `int` >= 0 - at `$.output_length`"),
        ({"n_input": 1.5}, "Expected `int`, got `float` - at `$.input_length`"),
        ({"timestamp": None}, "Expected `int | float`, got `null` - at `$.timestamp`"),
        ({"timestamp": 10**400}, "timestamp is out of range; up to 1e+15 ms either way are accepted"),
        ({"timestamp": -1e16}, "timestamp is out of range; up to 1e+15 ms either way are accepted"),
        ({"ids": [1.0]}, "Expected `int | str`, got `float` - at `$.hash_ids[0]`"),
        ({"ids": [2**64]}, "block hash 0 is 18446744073709551616; 64-bit integers are accepted"),
        ({"ids": ["xyz"]}, "block hash 0 is 'xyz'; accepted: an integer or a hexadecimal string"),
        ({"ids": []}, "0 block hashes for 512 tokens; accepted: 1 to 1 of 512 tokens each"),
        ({"ids": [1, 2]}, "2 block hashes for 512 tokens; accepted: 1 to 1 of 512 tokens each"),
        ({"n_input": 513, "ids": [1, 2, 3]}, "3 block hashes for 513 tokens; accepted: 1 to 2 of 512 tokens each"),
    ],
)
def test_refused_rows(tmp_path, columns, text):
    assert refusal(write(tmp_path, [row(), row(**columns)])) == f", line 2: {text}"


def test_missing_field(tmp_path):
    path = write(tmp_path, [row(), '{"timestamp":1,"input_length":5,"hash_ids":[]}'])
    assert refusal(path) == ", line 2: Object missing required field `output_length`"


def test_line_cut_short(tmp_path):
    path = write(tmp_path, [row(), '{"timestamp":1,"input_le'])
    assert refusal(path) == ", line 2: not JSON (Input data was truncated); a complete object is needed"


def test_nesting_without_end(tmp_path):
    path = write(tmp_path, [row(), '{"tools":' + "[" * 100_000])
    assert refusal(path).startswith(", line 2: not JSON (maximum recursion depth exceeded")


def test_unchained_ids(tmp_path):
    rows = [row(0, 1024, 0, [1, 2]), row(0, 1024, 0, [3, 2])]
    path = write(tmp_path, rows)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value) == (
        "m.jsonl, row 1 (request '1'): block id 2 (block 1 of the prompt) has a second predecessor or position, so ids "
        "are not prefix-chained; --ids content chains them anew"
    )
    assert links(read_trace(path, ids="content")) == ([-1, -1], [0, 0])


def test_only_blank_lines(tmp_path):
    path = write(tmp_path, ["", " "])
    with pytest.raises(TraceError) as caught:
        read_trace(path, "mooncake")
    assert str(caught.value) == "m.jsonl: no requests; at least one is needed"


def test_unreadable(tmp_path):
    assert refusal(tmp_path / "x", format="mooncake") == ": No such file or directory; a readable file is needed"
