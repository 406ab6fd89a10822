"""Lists of numbers read from JSON text, against a JSON parser."""

import json
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import TraceError
from capplan.kernels.digits import parse_lists, parse_string_lists
from capplan.readers import hashes
from capplan.readers.id_lists import parse_hex_ids, parse_ids, parse_small_ids

SPACES = st.text(" \t\r\n", max_size=2)
WIDE = st.integers(0, 2**64 - 1) | st.sampled_from([0, 9, 10, 2**53 + 1, 2**63, 2**64 - 1])


def read(texts, dtype=np.uint64):
    text = np.frombuffer(b"".join(texts), np.uint8)
    ends = np.cumsum([len(one) for one in texts]).astype(np.int64)
    ids, offsets = np.zeros(text.size // 2 + 1, dtype), np.zeros(len(texts) + 1, np.int64)
    n_lists = parse_lists(text, ends, ids, offsets, np.uint64(np.iinfo(dtype).max))
    return n_lists, [ids[a:b].tolist() for a, b in pairwise(offsets[: n_lists + 1])]


@given(st.lists(st.lists(WIDE, max_size=5), max_size=5), st.data())
def test_numbers_are_those_of_a_json_parser(lists, data):
    pad = lambda: data.draw(SPACES)  # noqa: E731  # drawn anew at every place
    texts = [("[" + ",".join(f"{pad()}{n}{pad()}" for n in one) + pad() * (not one) + "]").encode() for one in lists]
    assert read(texts) == (len(lists), lists)
    assert [json.loads(text) for text in texts] == lists


ODD = [b"", b"[", b"]", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1 2]", b"[01]", b"[-1]", b"[1.0]", b"[1e2]", b'["1"]',
       b"null", b"[1]]", b"[[1]]", b"[1],", b"[18446744073709551616]", b"[99999999999999999999]", b"[ ]x",
       b"{}"]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_anything_else_is_left_to_the_json_parser(odd):
    assert read([b"[7]", odd, b"[8]"]) == (1, [[7]])


HEX = st.text("0123456789abcdefABCDEF", min_size=1, max_size=40)
STRINGS = st.builds("".join, st.tuples(st.sampled_from(["", "", "0x", "0X"]), HEX)) | st.text(
    "0123456789", min_size=15, max_size=22
)


def read_strings(texts, has_decimals=False):
    text = np.frombuffer(b"".join(texts), np.uint8)
    ends = np.cumsum([len(one) for one in texts]).astype(np.int64)
    ids, offsets = np.zeros(text.size // 4 + 1, np.uint64), np.zeros(len(texts) + 1, np.int64)
    n_lists = parse_string_lists(text, ends, ids, offsets, has_decimals)
    return n_lists, [ids[a:b].tolist() for a, b in pairwise(offsets[: n_lists + 1])]


@given(st.lists(st.lists(STRINGS, max_size=4), max_size=4), st.data())
def test_strings_are_hexadecimal_numbers_of_which_the_low_64_bits_are_kept(lists, data):
    pad = lambda: data.draw(SPACES)  # noqa: E731  # drawn anew at every place
    texts = [("[" + ",".join(f'{pad()}"{x}"{pad()}' for x in one) + pad() * (not one) + "]").encode() for one in lists]
    with np.errstate(over="ignore"):
        assert read_strings(texts) == (len(lists), [[int(x, 16) % 2**64 for x in one] for one in lists])
    assert [json.loads(text) for text in texts] == lists


ODD_STRINGS = [b'[""]', b'["0x"]', b'["+1"]', b'["-1"]', b'["1_0"]', b'[" 1"]', b'["1 "]', b'["g"]', b'["x1"]', b'["1]',
               b'["1"', b'["1",', b'["1",]', b'["1" "2"]', b'["1",2]', b'["1"],', b'[1]', b'["\\u0031"]', b"null",
               b'["0x0x1"]', b'"1"', b"", b"[", b'["1"]]', b"['1']"]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_STRINGS)
def test_any_other_string_is_left_to_the_json_parser(odd):
    assert read_strings([b'["7"]', odd, b'["8"]']) == (1, [[7]])


@given(st.lists(st.lists(STRINGS | st.sampled_from([" 12", "1_0"]), max_size=4), max_size=4))
def test_strings_read_at_once_are_what_they_are_one_by_one(lists):
    raws = [msgspec.Raw(json.dumps(one).encode()) for one in lists]
    ids, offsets = parse_ids(raws, "ids", str)
    plain, hex_offsets = parse_hex_ids(raws, "ids", str)
    assert ids.tolist() == [int(key) for one in lists for key in hashes.to_keys(one, "")]
    assert plain.tolist() == [key for one in lists for key in hashes.read_hex(one, "")]
    assert offsets.tolist() == hex_offsets.tolist() == [0, *np.cumsum([len(one) for one in lists])]


@pytest.mark.parametrize(("number", "n_lists"), [(2**32 - 1, 1), (2**32, 0), (2**32 + 5, 0), (42949672950, 0)])
def test_ids_fit_their_type(number, n_lists):
    assert read([b"[%d]" % number], np.uint32)[0] == n_lists


@given(st.lists(st.lists(WIDE | st.integers(-(2**63), -1) | st.sampled_from(["0x1f", "ff"]), max_size=4), max_size=4))
def test_odd_lists_take_the_slow_way_to_the_same_ids(lists):
    raws = [msgspec.Raw(json.dumps(one).encode()) for one in lists]
    ids, offsets = parse_ids(raws, "ids", str)
    expected = [[int(x, 16) if isinstance(x, str) else x % 2**64 for x in one] for one in lists]
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected


@given(st.lists(st.lists(st.integers(-3, 2**33), max_size=4), max_size=4))
def test_small_ids_are_read_or_the_first_bad_row_is_named(lists):
    raws = [msgspec.Raw(json.dumps(one).encode()) for one in lists]
    bad = [k for k, one in enumerate(lists) if any(not 0 <= n < 2**32 for n in one)]
    if bad:
        with pytest.raises(TraceError, match=f"^row {bad[0]}: ids holds an id outside 0 to 4294967295$"):
            parse_small_ids(raws, "ids", "row {}".format)
    else:
        ids, counts = parse_small_ids(raws, "ids", str)
        assert (ids.tolist(), counts.tolist()) == ([n for one in lists for n in one], [len(one) for one in lists])


def test_minus_nought_is_nought():
    ids, counts = parse_small_ids([msgspec.Raw(b"[-0, 4]")], "ids", str)
    assert (ids.tolist(), counts.tolist()) == ([0, 4], [2])
