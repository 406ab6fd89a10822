"""Broken files of text and token formats are read or refused in one line, never anything else."""

import json

import pytest
import writers_text as w
from builders import dump
from damage import damage, edits, values
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import CapplanError
from capplan.readers import FORMATS, read_trace

AGENTS = [w.Conversation(f"agent-{k}", [("system", "s"), ("user", "fix"), ("assistant", "ls"), ("tool", "ä"),
                                        ("assistant", "ok")]) for k in range(2)]  # fmt: skip
TASKS = [w.Task(f"task-{k}", [([1] * 20, [2]), ([1] * 20 + [2, 3], [4])], [5, 6], [7, 8], 9) for k in range(2)]


def write_some_prompts(folder, made):
    return w.write_lmcache(folder, [("s", "hi", "ok"), ("s", "hi there", "")], [10**15, 10**15 + 5])


LEFT_OUT = {"swe-agent with queries", "baseten prompts"}  # one of a format is enough; damaged columns end polars itself
WRITERS = {name: write for name, (write, _) in w.TEXT_WRITERS.items() if name not in LEFT_OUT}
WRITERS |= {
    "lmcache-agent texts": write_some_prompts,
    "aibrix": lambda folder, _: w.write_aibrix(folder / "w.jsonl", [(21, [("hi", 3), ("", 0)]), (40, [("hi", 1)])]),
    "replay-trace": lambda folder, _: w.write_replay(folder, TASKS, compress=False),
    "replay-trace compressed": lambda folder, _: w.write_replay(folder, TASKS),
    "agent-run": lambda folder, _: w.write_agent_run(folder, TASKS),
    "llmservingsim": lambda folder, _: w.write_llmservingsim(folder / "w.jsonl", TASKS, agentic=False),
    "llmservingsim sessions": lambda folder, _: w.write_llmservingsim(folder / "w.jsonl", TASKS, agentic=True),
}


def read_or_refuse(path, format):
    found = ""
    try:
        read_trace(path, format, tokenizer="bytes")
    except CapplanError as error:
        found = str(error)
    assert "\n" not in found


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The path to read of every format, and its files with their contents."""
    made = {}
    for case, write in WRITERS.items():
        path = write(tmp_path_factory.mktemp("source"), AGENTS)
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        made[case] = path, [(file, file.read_bytes()) for file in inside]
    return made


@pytest.mark.parametrize("case", WRITERS)
def test_every_source_is_good_before_it_is_damaged(sources, case):
    path, _ = sources[case]
    trace = read_trace(path, tokenizer="bytes")
    assert trace.notes[0].split(" requests read as ")[1].split(",")[0] == case.split()[0]
    assert read_trace(path, case.split()[0], tokenizer="bytes").fingerprint == trace.fingerprint


@pytest.mark.parametrize("case", WRITERS)
@settings(max_examples=60)
@given(data=st.data(), changes=st.lists(edits, min_size=1, max_size=3), named=st.booleans())
def test_damaged_bytes(sources, case, data, changes, named):
    path, inside = sources[case]
    file, content = data.draw(st.sampled_from(inside))
    broken = content
    for edit in changes:
        broken = damage(broken, edit)
    file.write_bytes(broken)
    try:
        read_or_refuse(path, case.split()[0] if named else "auto")
    finally:
        file.write_bytes(content)


def replace_one(data, value):
    """The JSON value with something in it replaced by another value."""
    while isinstance(value, dict | list) and value and data.draw(st.integers(0, 4)):
        key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if not isinstance(value[key], dict | list) or not value[key] or data.draw(st.integers(0, 3)) == 0:
            value[key] = data.draw(values)
            return
        value = value[key]


@pytest.mark.parametrize("case", [case for case in WRITERS if case != "replay-trace compressed"])
@settings(max_examples=60)
@given(data=st.data())
def test_values_of_any_type(sources, case, data):
    path, inside = sources[case]
    file, content = data.draw(st.sampled_from(inside))
    rows = [json.loads(line) for line in content.splitlines() if line]
    replace_one(data, rows[data.draw(st.integers(0, len(rows) - 1))])
    file.write_bytes(b"\n".join(map(dump, rows)))
    try:
        read_or_refuse(path, case.split()[0])
    finally:
        file.write_bytes(content)


def test_all_of_these_formats_are_known():
    assert {case.split()[0] for case in WRITERS} <= set(FORMATS)
