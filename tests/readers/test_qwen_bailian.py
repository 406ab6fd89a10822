"""Qwen-Bailian chats: sessions by parent, seconds, 16-token hashes that may or may not be chained."""

import pytest
from builders import links, write_jsonl
from damage import refusal

from capplan.readers import read_trace
from capplan.readers.clock import BACKWARDS

ROOTS = "chats that descend from one root chat are one session and one task"


def chat(number, parent=-1, ids=(1,), n_input=None, sent=0.0, **more):
    n = 16 * len(ids) if n_input is None else n_input
    row = {"chat_id": number, "parent_chat_id": parent, "timestamp": sent, "input_length": n, "output_length": 3}
    return row | {"type": "text", "turn": 1, "hash_ids": list(ids)} | more


def read(tmp_path, *rows, **options):
    return read_trace(write_jsonl(tmp_path / "q.jsonl", rows), **options)


def test_sessions_are_the_roots_of_parent_chains(tmp_path):
    rows = [
        chat(9, ids=[501, 502], sent=12.5, n_input=40 - 8),
        chat(4, ids=[501, 777], n_input=20, sent=13.0),
        chat(11, 9, [501, 502, 600], n_input=40, sent=15.25, turn=2),
        chat(12, 11, [501, 502, 601], sent=15.0, turn=3),
        chat(13, 9, [501, 502, 601], sent=16.0, turn=2),
    ]
    trace = read(tmp_path, *rows)
    assert links(trace) == ([-1, 0, 0, 0, 3], [0, 16, 32, 32, 48])
    r = trace.requests
    assert r.request_ids == ["9", "4", "11", "12", "13"]
    assert r.session.decode() == r.task.decode() == ["9", "4", "9", "9", "9"]
    assert r.arrival_s.tolist() == [0, 0.5, 2.75, 2.5, 3.5]
    assert r.output_tokens.tolist() == [3] * 5
    assert trace.notes == (
        "5 requests read as qwen-bailian",
        f"1 x {BACKWARDS}",
        "timestamps are seconds and blocks 16 tokens, as the Qwen-Bailian release defines them",
        ROOTS,
    )


def test_parents_that_are_not_in_the_file(tmp_path):
    rows = [chat(5, 3, turn=4), chat(6, 5, turn=5), chat(7, 3, turn=4), chat(3, turn=3)]
    trace = read(tmp_path, *rows)
    assert trace.requests.session.decode() == ["3"] * 4
    assert (
        "1 x chat whose parent is not in front of it: its session is that of a later one, else the parent itself"
        in trace.notes
    )


def test_turns_that_do_not_count_on_are_told(tmp_path):
    trace = read(tmp_path, chat(1), chat(2, 1, turn=2), chat(3, 2, turn=7), chat(4, 3, turn=None))
    assert "1 x chat whose turn does not follow its parent's" in trace.notes


def test_hashes_that_are_not_chained_are_refused_or_chained_anew(tmp_path):
    rows = [chat(1, ids=[1, 2]), chat(2, ids=[3, 2])]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    assert refusal(path).endswith("so ids are not prefix-chained; --ids content chains them anew")
    assert links(read(tmp_path, *rows, ids="content")) == ([-1, -1], [0, 0])


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (chat(1), "chat_id 1 stands twice; names must be unique"),
        (chat(2, 2), "chat 2 is its own parent; another chat or -1 is accepted"),
        (chat(2, n_input=-1), "Expected `int` >= 0 - at `$.input_length`"),
        (chat(2, n_input=40), "1 block hashes for 40 tokens; accepted: 2 to 3 of 16 tokens each"),
        (chat(2, hash_ids=None), "Expected `array`, got `null` - at `$.hash_ids`"),
        (chat(2, sent="now"), "Expected `float`, got `str` - at `$.timestamp`"),
        (chat(2, sent=1e13), "Expected `float` <= 1000000000000.0 - at `$.timestamp`"),
        (chat(2, parent_chat_id=None), "Expected `int`, got `null` - at `$.parent_chat_id`"),
        ('{"chat_id":2,', "not JSON (Input data was truncated); a complete object is needed"),
    ],
)
def test_refused_rows(tmp_path, bad, text):
    assert refusal(write_jsonl(tmp_path / "q.jsonl", [chat(1), "", bad])) == f", line 3: {text}"
