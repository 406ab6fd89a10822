"""LMCache lookup logs: hexadecimal chunk hashes, seconds, lookups that repeat."""

import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.readers import read_trace

NOTES = ("outputs are not logged: calls are taken to generate nothing", "sessions are not logged")


def lookup(name="a", chunks=("0x0a", "0x0b"), n=600, sent=1_900_000_000.25, **more):
    row = {"timestamp": sent, "request_id": name, "model_name": "m", "chunk_size": 256, "seq_len": n}
    return row | {"dtypes": ["bfloat16"], "shapes": [[2, 4, 256, 64]], "chunk_hashes": list(chunks)} | more


def read(tmp_path, *rows, **options):
    return read_trace(write_jsonl(tmp_path / "l.jsonl", rows), **options)


def test_lookups_become_requests(tmp_path):
    big = "0x" + "ab" * 32
    rows = [
        lookup("a", ["0xA", big]),
        lookup("b", ["0a", big, "1F"], 700, 1_900_000_002.75),
        lookup("c", [], 100),
        lookup("d", ["a"], 256, model_name=None),
    ]
    trace = read(tmp_path, *rows)
    assert links(trace) == ([-1, 0, -1, 0], [0, 512, 0, 256])
    assert trace.resolution_tokens == 256
    assert trace.requests.arrival_s.tolist() == [0, 2.5, 0, 0]
    assert trace.requests.output_tokens.tolist() == [0] * 4
    assert trace.notes[0] == "4 requests read as lmcache-hashes"
    assert trace.notes[-2:] == NOTES


def test_equal_lookups_of_a_request_are_one_call(tmp_path):
    trace = read(tmp_path, lookup("a"), lookup("a", sent=1_900_000_001.0), lookup("b"), lookup("a"))
    assert trace.requests.request_ids == ["a", "b"]
    assert "2 left out: repeated lookup of a request" in trace.notes


def test_models_can_be_chosen(tmp_path):
    rows = [lookup("a", model_name="m1"), lookup("b", model_name="m2")]
    assert read(tmp_path, *rows, model_filter="m2").requests.request_ids == ["b"]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (lookup("a", ["0x0a", "0x0c"]), "request_id 'a' stands twice with other chunks; names must be unique"),
        (lookup("b", chunk_size=512), "chunk_size is 512 after 256; one size per trace is accepted"),
        (lookup("b", chunk_size=0), "Expected `int` >= 1 - at `$.chunk_size`"),
        (lookup("b", n=-1), "Expected `int` >= 0 - at `$.seq_len`"),
        (lookup("b", n=2000), "2 block hashes for 2000 tokens; accepted: 7 to 8 of 256 tokens each"),
        (lookup("b", ["0xzz", "1"]), "block hash 0 is '0xzz'; accepted: an integer or a hexadecimal string"),
        (lookup("b", chunk_hashes=None), "Expected `array`, got `null` - at `$.chunk_hashes`"),
        (lookup("b", sent="now"), "Expected `float`, got `str` - at `$.timestamp`"),
        ('{"timestamp":1.5,', "not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    assert refusal(write_jsonl(tmp_path / "l.jsonl", [lookup("a"), bad])) == f", line 2: {text}"


def test_block_size_is_not_the_callers(tmp_path):
    path = write_jsonl(tmp_path / "l.jsonl", [lookup()])
    assert refusal(path, block_size=256) == (": --block-size is given, but LMCache lookups state their own chunk_size")
