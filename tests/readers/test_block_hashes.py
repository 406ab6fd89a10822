"""Block hashes in JSONL and Parquet."""

import polars as pl
import pytest
from builders import chain, links, write_jsonl
from damage import refusal
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from strategies import paths

from capplan.errors import TraceError
from capplan.readers import read_trace
from capplan.readers.hashes import count_full_blocks, to_keys

both = pytest.mark.parametrize("kind", ["jsonl", "parquet"])


def write(folder, rows, kind):
    if kind == "jsonl":
        return write_jsonl(folder / "t.jsonl", rows)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "t.parquet")
    return folder / "t.parquet"


@both
@pytest.mark.parametrize("name", ["block_ids", "block_hashes", "hash_ids"])
def test_hashes_are_linked_at_the_stated_block_size(tmp_path, kind, name):
    rows = [{name: ids, "block_size": 32} for ids in ([5, 9, 2], [5, 9], [], [5, 9, 4, 1])]
    trace = read_trace(write(tmp_path, rows, kind))
    assert links(trace) == ([-1, 0, -1, 0], [0, 64, 0, 64])
    assert trace.resolution_tokens == 32
    assert trace.requests.input_tokens.tolist() == [96, 64, 0, 128]
    assert trace.notes == (
        "4 requests read as block-hashes",
        "no prompt lengths: taken as block size times block hashes",
    )


@given(paths(), st.integers(1, 20))
def test_partial_tails_are_dropped(tmp_path_factory, prompts, block):
    keys, rows = {}, []
    for k, prompt in enumerate(prompts):
        ids = chain(prompt, block, keys)
        partial = [10**6 + k] if len(prompt) % block else []  # an id of its own, as for a full block
        rows.append({"block_ids": ids + partial, "block_size": block, "input_tokens": len(prompt)})
    trace = read_trace(write_jsonl(tmp_path_factory.mktemp("t") / "t.jsonl", rows))
    assert links(trace) == link_by_search(prompts, block)
    assert trace.requests.input_tokens.tolist() == [len(prompt) for prompt in prompts]


@both
@pytest.mark.parametrize("names", [("input_tokens", "output_tokens"), ("input_length", "output_length")])
def test_lengths_under_either_name(tmp_path, kind, names):
    rows = [dict(zip(names, (40, 3), strict=True)) | {"hash_ids": [1, 2, 3], "block_size": 16}]
    trace = read_trace(write(tmp_path, rows, kind))
    assert (trace.requests.input_tokens.tolist(), trace.requests.output_tokens.tolist()) == ([40], [3])


@both
@pytest.mark.parametrize("base", [2**53, 2**63, 2**64 - 2])
def test_64_bit_hashes_survive_exactly(tmp_path, kind, base):
    rows = [{"block_hashes": ids, "block_size": 16} for ids in ([base], [base + 1], [base])]
    if kind == "parquet":
        path = tmp_path / "t.parquet"
        hashes = pl.Series([row["block_hashes"] for row in rows], dtype=pl.List(pl.UInt64))
        pl.DataFrame({"block_hashes": hashes, "block_size": [16] * 3}).write_parquet(path)
    else:
        path = write(tmp_path, rows, kind)
    assert links(read_trace(path)) == ([-1, -1, 0], [0, 0, 16])


@both
def test_signed_and_hexadecimal_hashes(tmp_path, kind):
    signed = write(tmp_path, [{"hash_ids": ids, "block_size": 16} for ids in ([-1, -2], [-1, 7], [-2])], kind)
    with pytest.raises(TraceError, match=f"block id {2**64 - 2} "):
        read_trace(signed)
    rows = [{"hash_ids": ids, "block_size": 16} for ids in (["0xff", "0A"], ["ff", "0b"], ["00ff", "a"])]
    assert links(read_trace(write(tmp_path, rows, kind))) == ([-1, 0, 0], [0, 16, 32])


def test_block_size_comes_from_the_caller_where_the_source_has_none(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"block_ids": [1, 2]}, {"block_ids": [1]}])
    assert refusal(path) == ", line 1: no block_size; state the tokens per block hash with --block-size"
    assert links(read_trace(path, block_size=64)) == ([-1, 0], [0, 64])


def test_unchained_hashes_are_refused_or_chained_anew(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"block_ids": ids, "block_size": 16} for ids in ([1, 2], [3, 2], [3, 2])])
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value) == (
        "t.jsonl, row 1 (request '1'): block id 2 (block 1 of the prompt) has a second predecessor or position, so ids "
        "are not prefix-chained; --ids content chains them anew"
    )
    trace = read_trace(path, ids="content")
    assert links(trace) == ([-1, -1, 1], [0, 0, 32])
    assert trace.notes[-1] == "block ids chained anew by content (--ids content)"


# --- refusals


def blocks(**columns):
    return [{"block_ids": [1], "block_size": 16}, {"block_ids": [1], "block_size": 16} | columns]


@both
@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"block_size": 32}, "block_size is 32 after 16; one size per trace is accepted"),
        ({"block_size": 0}, "block_size is 0; a whole number from 1 to 2147483647 is accepted"),
        ({"block_size": None}, "block_size is None; a whole number from 1 to 2147483647 is accepted"),
        ({"block_size": 2**31}, "block_size is 2147483648; a whole number from 1 to 2147483647 is accepted"),
        ({"block_ids": None}, "block_ids is null; a list of block hashes on every row is accepted"),
    ],
)
def test_refused_rows(tmp_path, kind, columns, text):
    where = {"jsonl": "line 2", "parquet": "row 1"}[kind]
    assert refusal(write(tmp_path, blocks(**columns), kind)) == f", {where}: {text}"


@both
@pytest.mark.parametrize(("n_tokens", "n_ids"), [(40, 1), (40, 4), (16, 2), (0, 1), (15, 2)])
def test_count_of_hashes_that_does_not_fit_the_length(tmp_path, kind, n_tokens, n_ids):
    row = {"block_ids": list(range(n_ids)), "block_size": 16, "input_tokens": n_tokens}
    where = {"jsonl": "line 1", "parquet": "row 0"}[kind]
    least, most = n_tokens // 16, -(-n_tokens // 16)
    assert refusal(write(tmp_path, [row], kind)) == (
        f", {where}: {n_ids} block hashes for {n_tokens} tokens; accepted: {least} to {most} of 16 tokens each"
    )


def test_source_contradicts_the_caller(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", blocks())
    assert refusal(path, block_size=64) == ", line 1: block_size is 16 after 64; one size per trace is accepted"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["xyz"], "block hash 0 is 'xyz'; accepted: an integer or a hexadecimal string"),
        ([1, ""], "block hash 1 is ''; accepted: an integer or a hexadecimal string"),
        ([1, 2**64], "block hash 1 is 18446744073709551616; 64-bit integers are accepted"),
        ([-(2**63) - 1], "block hash 0 is -9223372036854775809; 64-bit integers are accepted"),
        ([1.0], "Expected `int | str`, got `float` - at `$.block_ids[0]`"),
        ([None], "Expected `int | str`, got `null` - at `$.block_ids[0]`"),
        ("ab", "Expected `array`, got `str` - at `$.block_ids`"),
    ],
)
def test_refused_hashes_in_jsonl(tmp_path, value, text):
    path = write_jsonl(tmp_path / "t.jsonl", ["", *blocks(block_ids=value)])
    assert refusal(path) == f", line 3: {text}"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1], "Int64"),
        ([[1.0]], "List(Float64)"),
        ([[b"1"]], "List(Binary)"),
        ([[[1]]], "List(List(Int64))"),
        ([[True]], "List(Boolean)"),
    ],
)
def test_refused_types_in_parquet(tmp_path, values, dtype):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"block_ids": values, "block_size": [16]}).write_parquet(path)
    assert refusal(path) == f", row 0: block_ids is {dtype}; a list of integers or hexadecimal strings is accepted"


def test_null_hash_in_parquet(tmp_path):
    path = write(tmp_path, blocks(block_ids=[1, None]), "parquet")
    assert refusal(path) == ", row 1: block_ids is null; a list of block hashes on every row is accepted"


@pytest.mark.parametrize("size", [16.0, True, "16"])
def test_refused_block_sizes_in_parquet(tmp_path, size):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"block_ids": [[1]], "block_size": [size]}).write_parquet(path)
    assert refusal(path) == f", row 0: block_size is {size!r}; a whole number from 1 to 2147483647 is accepted"


def test_row_without_hashes(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"block_size": 16}])
    assert refusal(path, format="block-hashes", block_size=16) == (
        ", line 1: no block hashes; accepted: block_ids, block_hashes, hash_ids"
    )


# --- hashes


@given(st.lists(st.integers(-(2**63), 2**64 - 1)))
def test_integers_keep_their_64_bits(values):
    assert to_keys(values, "x").tolist() == [value % 2**64 for value in values]


@given(st.lists(st.integers(0, 2**64 - 1)), st.sampled_from(["0x{:x}", "{:016x}f", "0X{:X}"]))
def test_hexadecimal_strings_keep_their_low_64_bits(values, form):
    texts = [form.format(value) for value in values]
    assert to_keys(texts, "x").tolist() == [int(text, 16) % 2**64 for text in texts]


@both
def test_hexadecimal_hashes_without_a_letter_are_hexadecimal(tmp_path, kind):
    """10 and 0a would be one hash if digits alone made a string decimal, whichever batch they stand in."""
    ids = [["10", "16"], ["10", "0a"], ["0010", "000a"]]
    trace = read_trace(write(tmp_path, [{"hash_ids": keys, "block_size": 16} for keys in ids], kind))
    assert links(trace) == ([-1, 0, 1], [0, 16, 32])


@given(st.integers(10**16, 2**64 - 1))
def test_long_decimal_strings_are_decimal(value):
    assert to_keys([str(value)], "x").tolist() == [value]


@both
def test_64_bits_as_decimal_or_hexadecimal_strings(tmp_path, kind):
    ids = [2**64 - 1, 2**64 - 2, 10**16 + 1, 12345678901234567890]
    rows = [{"hash_ids": [form(i) for i in ids], "block_size": 16} for form in (str, hex, "{:016x}".format)]
    assert links(read_trace(write(tmp_path, rows, kind))) == ([-1, 0, 0], [0, 64, 64])


@given(st.integers(0, 500), st.integers(1, 40))
def test_floor_and_ceiling_of_the_block_count_are_accepted(n_tokens, block):
    full, blocks = n_tokens // block, -(-n_tokens // block)
    assert count_full_blocks(n_tokens, full, block, "x") == count_full_blocks(n_tokens, blocks, block, "x") == full
