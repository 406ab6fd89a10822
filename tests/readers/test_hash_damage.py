"""Broken files of the formats of hashes and sizes are read or refused in one line, never with a traceback."""

import contextlib

import pytest
import writers_hashes as writers
from builders import dump, write_jsonl
from damage import damage, edits, values
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import CapplanError
from capplan.readers import read_trace

CALLS = [writers.Call([1] * 40, 3, "a", 1000, 20), writers.Call([1] * 40 + [2] * 9, 3, "b", 2000, 20)]
TURNS = [[writers.Turn(40, 5, 0), writers.Turn(9, 5, 100)], [writers.Turn(20, 1, 0)]]
WRITE = {
    "mooncake-extended": lambda path: writers.write_mooncake_extended(path, CALLS, 16),
    "mooncake-delta": lambda path: writers.write_mooncake_delta(path, TURNS, 16),
    "qwen-bailian": lambda path: writers.write_qwen_bailian(path, CALLS, 16),
    "dynamo": lambda path: writers.write_dynamo(path, CALLS, 16),
    "lmcache-hashes": lambda path: writers.write_lmcache_hashes(path, CALLS, 16),
    "tracelab": lambda path: writers.write_tracelab(path, TURNS),
    "applied-compute": lambda path: writers.write_applied_compute(path, TURNS),
    "burstgpt": lambda path: writers.write_growing_burstgpt(path, TURNS),
}
JSON = [name for name in WRITE if name != "burstgpt"]
STATES_BLOCK = {"dynamo", "lmcache-hashes"}


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    return {name: write(tmp_path_factory.mktemp("valid") / name) for name, write in WRITE.items()}


def read(path, name, detect=False):
    assume = "session" if name == "burstgpt" else None
    block = None if name in STATES_BLOCK else 16
    return read_trace(path, "auto" if detect else name, block_size=block, assume_prefix=assume)


def read_or_refuse(path, name, detect=False):
    with contextlib.suppress(CapplanError):
        read(path, name, detect)


@pytest.mark.parametrize("name", WRITE)
def test_whole_files_are_read(valid, name):
    assert len(read(valid[name], name, detect=True)) >= 2


@pytest.mark.parametrize("name", WRITE)
@settings(max_examples=200)
@given(st.lists(edits, min_size=1, max_size=4), st.booleans())
def test_damaged_text(valid, tmp_path_factory, name, changes, detect):
    content = valid[name].read_bytes()
    for edit in changes:
        content = damage(content, edit)
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    read_or_refuse(path, name, detect)


@pytest.mark.parametrize("name", JSON)
@settings(max_examples=150)
@given(st.data())
def test_fields_of_any_value(valid, tmp_path_factory, name, data):
    rows = writers.read_rows(valid[name])
    row = rows[-1]
    places = [row, *(inner for inner in row.values() if isinstance(inner, dict))]
    for place in places:
        for field in data.draw(st.lists(st.sampled_from(sorted(place)), max_size=2)):
            place[field] = data.draw(values)
    path = write_jsonl(tmp_path_factory.getbasetemp() / "changed", rows)
    read_or_refuse(path, name)


@pytest.mark.parametrize("name", WRITE)
def test_each_line_cut_at_every_byte_of_its_end(valid, tmp_path, name):
    content = valid[name].read_bytes()
    path = tmp_path / "cut"
    for length in range(len(content) - 60, len(content)):
        path.write_bytes(content[:length])
        read_or_refuse(path, name)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["hash_ids", "total_hashes", "events", "schema", "event", "chat_id"]), values))
def test_rows_of_any_fields_are_told_apart(tmp_path_factory, row):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(dump(row))
    with contextlib.suppress(CapplanError):
        read_trace(path)
