"""Baseten Parquet and Arrow: total hashes or prompt text, two session ids, canceled rows."""

import numpy as np
import polars as pl
import pytest
from builders import links
from damage import refusal

from capplan.readers import parquet, read_trace
from capplan.readers.clock import BACKWARDS
from capplan.readers.lengths import FITTED

SENT = 1_900_000_000_000


def row(hashes=(3, 9), n_input=None, sent=SENT, **more):
    n = 16 * len(hashes) if n_input is None else n_input
    made = {"timestamp_start_unix_ms": sent, "prompt": "text", "input_tokens": n, "output_tokens": 3}
    return made | {"total_hashes": list(hashes), "block_size": 16} | more


def write(tmp_path, *rows, **types):
    pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None).write_parquet(tmp_path / "b.parquet")
    return tmp_path / "b.parquet"


def test_rows_become_requests(tmp_path):
    rows = [
        row([3, 9, 27, 81], 70, provided_session_id="u7", duration_e2e_ms=500, request_canceled=0),
        row([3, 9, 28], 40, SENT + 2000, provided_session_id="u7", duration_e2e_ms=None, request_canceled=1),
        row([3], 16, SENT + 1000, provided_session_id=None, duration_e2e_ms=250.5, request_canceled=0),
    ]
    trace = read_trace(write(tmp_path, *rows))
    assert links(trace) == ([-1, 0, 0], [0, 32, 16])
    r = trace.requests
    assert r.session.decode() == r.task.decode() == ["u7", "u7", None]
    assert r.arrival_s.tolist() == [0, 2, 1]
    np.testing.assert_array_equal(r.service_s, [0.5, np.nan, 0.2505])
    np.testing.assert_array_equal(r.gap_s, [np.nan, 1.5, np.nan])
    assert trace.notes == (
        "3 requests read as baseten",
        "1 x canceled request: kept, its prompt was sent",
        f"1 x {BACKWARDS}",
    )


def test_guessed_sessions_are_taken_where_stated_ones_never_repeat(tmp_path):
    rows = [row(provided_session_id=f"u{k}", poor_man_session_id=k // 2) for k in range(4)]
    trace = read_trace(write(tmp_path, *rows))
    assert trace.requests.session.decode() == ["0", "0", "1", "1"]
    assert trace.notes[1:] == ("no provided_session_id stands on two rows: sessions are those of poor_man_session_id",)


def test_what_the_provider_found_cached_is_told_only(tmp_path):
    rows = [row(cached_tokens_reference=16), row(cached_tokens_reference=None)]
    assert read_trace(write(tmp_path, *rows)).notes[1:] == (
        "the provider found 16 of 32 prompt tokens cached (for comparison only)",
    )


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.String])
def test_hashes_of_64_bits(tmp_path, dtype):
    lists = [[2**64 - 1, 5], [2**64 - 1, 6], [2**64 - 2, 7]]
    if dtype == pl.String:
        lists = [[hex(i) for i in ids] for ids in lists]
    rows = [row(ids, 32) for ids in lists]
    assert links(read_trace(write(tmp_path, *rows, total_hashes=pl.List(dtype)))) == ([-1, 0, -1], [0, 16, 0])


def test_models_can_be_chosen(tmp_path):
    rows = [row(model_name="m1"), row(model_name="m2"), row(model_name=None)]
    trace = read_trace(write(tmp_path, *rows), model_filter="m2")
    assert len(trace) == 1
    assert trace.notes[1] == "2 left out: of another model than m2 (--model-filter)"


def text_row(prompt="hello", **more):
    made = row(**more) | {"prompt": prompt}
    del made["total_hashes"], made["block_size"]
    return made


def test_text_without_hashes_needs_a_tokenizer(tmp_path):
    assert refusal(write(tmp_path, text_row())).startswith(
        ": a Baseten trace without total_hashes holds text, and reuse is counted in tokens; accepted: --tokenizer PATH"
    )


def test_text_becomes_prompts(tmp_path):
    head = "0123456789abcdef"
    rows = [
        text_row(head + "x", provided_session_id="u", duration_e2e_ms=500, request_canceled=1),
        text_row(head * 2, provided_session_id="u", duration_e2e_ms=None, sent=SENT + 2000, cached_tokens_reference=8),
        text_row("", provided_session_id=None, sent=SENT + 3000),
    ]
    trace = read_trace(write(tmp_path, *rows), tokenizer="bytes")
    assert links(trace) == ([-1, 0, -1], [0, 16, 0])
    r = trace.requests
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([17, 32, 0], [3, 3, 3])
    assert r.session.decode() == r.task.decode() == ["u", "u", None]
    assert r.arrival_s.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(r.gap_s, [np.nan, 1.5, np.nan])
    np.testing.assert_array_equal(r.service_s, [0.5, np.nan, np.nan])
    assert not trace.outputs_known
    assert trace.notes[:5] == (
        "3 requests read as baseten",
        "1 x canceled request: kept, its prompt was sent",
        "96 x prompt tokens by the source's count (comparison only)",
        "the provider found 8 of 32 prompt tokens cached (for comparison only)",
        "prompts are the text logged, without a chat template; output tokens are the source's count",
    )


def test_text_is_checked(tmp_path):
    assert refusal(write(tmp_path, text_row(), text_row(None)), tokenizer="bytes") == (
        ", row 1: prompt is null; a text on every row is accepted"
    )
    assert (
        refusal(write(tmp_path, text_row(7)), tokenizer="bytes") == ": prompt is Int64; a column of texts is accepted"
    )
    bare = text_row()
    del bare["prompt"]
    assert refusal(write(tmp_path, bare)) == ": neither total_hashes nor prompt; one of these columns is needed"


@pytest.mark.parametrize("save", ["write_ipc", "write_ipc_stream"])
def test_arrow_is_read_as_parquet_is(tmp_path, save, monkeypatch):
    rows = [row([3, k % 2], sent=SENT + 10 * k, provided_session_id=str(k % 3)) for k in range(9)]
    whole = read_trace(write(tmp_path, *rows))
    getattr(pl.DataFrame(rows), save)(tmp_path / "b.arrow")
    monkeypatch.setattr(parquet, "FIRST_ROWS", 2)
    monkeypatch.setattr(parquet, "MOST_ROWS", 3)
    trace = read_trace(tmp_path / "b.arrow")
    assert trace.fingerprint == whole.fingerprint
    assert trace.notes == whole.notes


def test_lengths_that_contradict_the_hashes(tmp_path):
    path = write(tmp_path, row(n_input=0), row(n_input=300), row(n_input=40))
    assert refusal(path) == ", row 0: 2 block hashes for 0 tokens; accepted: 0 to 0 of 16 tokens each"
    trace = read_trace(write(tmp_path, row(n_input=0), row(n_input=300)), lengths="ids")
    assert trace.requests.input_tokens.tolist() == [32, 32]
    assert trace.notes[1] == f"2 x {FITTED}"


def test_block_size_from_the_caller(tmp_path):
    rows = [row(), row()]
    for each in rows:
        del each["block_size"]
    path = write(tmp_path, *rows)
    assert refusal(path) == ", row 0: no block_size; state the tokens per block hash with --block-size"
    assert links(read_trace(path, block_size=16)) == ([-1, 0], [0, 32])


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (row(block_size=32), "block_size is 32 after 16; one size per trace is accepted"),
        (row(n_input=-1), "input_tokens is -1; a whole number from 0 to 2147483647 is accepted"),
        (row(n_input=100), "2 block hashes for 100 tokens; accepted: 6 to 7 of 16 tokens each"),
        (row(output_tokens=None), "output_tokens is None; a whole number from 0 to 2147483647 is accepted"),
        (row(sent=None), "timestamp_start_unix_ms is null; Unix milliseconds on every row are accepted"),
        (row(total_hashes=None), "total_hashes is null; a list of block hashes on every row is accepted"),
        (row(total_hashes=[1, None]), "total_hashes is null; a list of block hashes on every row is accepted"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    assert refusal(write(tmp_path, row(), bad)) == f", row 1: {text}"


@pytest.mark.parametrize(
    ("hashes", "dtype"), [([1.5, 2.5], "Float64"), ([[1], [2]], "List(Int64)"), ([True, False], "Boolean")]
)
def test_hashes_of_other_types(tmp_path, hashes, dtype):
    assert refusal(write(tmp_path, row(hashes))) == (
        f", row 0: total_hashes is List({dtype}); a list of integers or hexadecimal strings is accepted"
    )


def test_batches_change_nothing(tmp_path, monkeypatch):
    rows = [row([3, k % 2], sent=SENT + 10 * k, poor_man_session_id=k % 3) for k in range(9)]
    path = write(tmp_path, *rows)
    whole = read_trace(path)
    monkeypatch.setattr(parquet, "FIRST_ROWS", 2)
    monkeypatch.setattr(parquet, "MOST_ROWS", 2)
    parts = read_trace(path)
    assert parts.fingerprint == whole.fingerprint
    assert list(parts.requests.request_ids) == [str(k) for k in range(9)]
    assert refusal(write(tmp_path, *rows, row(block_size=8))).startswith(", row 9: block_size is 8 after 16;")


@pytest.mark.parametrize("name", ["timestamp_start_unix_ms", "duration_e2e_ms", "cached_tokens_reference"])
def test_numbers_of_other_types(tmp_path, name):
    assert refusal(write(tmp_path, row(**{name: "5"}))) == (
        f", row 0: {name} is '5'; milliseconds as a number are accepted"
    )


def test_cut_file(tmp_path):
    path = write(tmp_path, row())
    path.write_bytes(path.read_bytes()[:-9])
    assert refusal(path).startswith(": not readable as Parquet (")
