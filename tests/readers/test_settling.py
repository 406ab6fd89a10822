"""What is known only of all files together: the first arrival, and the tasks of sub-agents."""

from itertools import pairwise

import numpy as np
import pytest
from builders import dump, write_jsonl
from hypothesis import given
from hypothesis import strategies as st

from capplan.prompts import Labels, Requests
from capplan.readers import Selection, canonical, extend_trace, link_sources, read_trace
from capplan.readers.canonical import write_trace
from capplan.readers.ledger import EARLIEST_LATER
from capplan.readers.sample import Options
from capplan.readers.settling import join_tasks

MOONCAKE = {"input_length": 512, "output_length": 1, "hash_ids": [1]}


def write_days(folder, days):
    return [
        write_jsonl(folder / f"{k}.jsonl", [MOONCAKE | {"timestamp": ms} for ms in day]) for k, day in enumerate(days)
    ]


days_of_ms = st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=4), min_size=1, max_size=4)


@given(days_of_ms)
def test_the_earliest_request_is_at_0_whichever_file_it_is_in(tmp_path_factory, days):
    trace = read_trace(write_days(tmp_path_factory.mktemp("d"), days))
    sent = np.array([ms for day in days for ms in day])
    np.testing.assert_allclose(trace.requests.arrival_s, (sent - sent.min()) / 1000, atol=1e-9)
    assert (EARLIEST_LATER in trace.notes) == (sent.min() < sent[0])


@given(days_of_ms)
def test_a_trace_that_grows_into_the_past_equals_one_made_at_once(tmp_path_factory, days):
    folder = tmp_path_factory.mktemp("d")
    files = write_days(folder, days)
    whole, _ = link_sources(files, "auto", "chained", Options(), Selection())
    trace, keys = link_sources(files[:1], "auto", "chained", Options(), Selection())
    for file in files[1:]:
        write_trace(trace, folder / "t.parquet")
        trace, keys = extend_trace(canonical.read(folder / "t.parquet"), keys, file)
    assert trace.fingerprint == whole.fingerprint
    assert trace.notes == whole.notes
    assert trace.provenance["ledger"] == whole.provenance["ledger"]


def test_requests_that_were_not_wanted_do_not_move_the_others(tmp_path):
    files = write_days(tmp_path, [[0, 10_000], [20_000]])
    trace = read_trace(files, since=5)
    assert trace.requests.arrival_s.tolist() == [10, 20]


# --- tasks


def dynamo(name, session, parent=None):
    agent = {"session_id": session} | ({"parent_session_id": parent} if parent else {})
    replay = {"trace_block_size": 16, "input_length": 16, "input_sequence_hashes": [1]}
    request = {"request_id": name, "request_received_ms": 5, "output_tokens": 1, "replay": replay}
    return {
        "schema": "dynamo.request.trace.v1", "event_type": "request_end", "agent_context": agent, "request": request,
    }  # fmt: skip


CHAIN = [dynamo("q", "root"), dynamo("r", "child", "root"), dynamo("s", "deep", "child"), dynamo("t", "deeper", "deep")]


@given(st.permutations(CHAIN), st.sets(st.integers(1, 3)))
def test_parents_in_other_files_are_found(tmp_path_factory, rows, cuts):
    folder = tmp_path_factory.mktemp("d")
    ends = [0, *sorted(cuts), len(rows)]
    files = [write_jsonl(folder / f"{a}.jsonl", rows[a:b]) for a, b in pairwise(ends)]
    assert read_trace(files).requests.task.decode() == ["root"] * 4


def test_sessions_of_mooncake_rows_too(tmp_path):
    row = MOONCAKE | {"timestamp": 0}
    files = [
        write_jsonl(tmp_path / "a.jsonl", [row | {"session_id": "deep", "parent_session_id": "child"}]),
        write_jsonl(tmp_path / "b.jsonl", [row | {"session_id": "child", "parent_session_id": "root"}]),
    ]
    assert read_trace(files).requests.task.decode() == ["root", "root"]


def test_names_of_tasks_and_sessions_are_two_things_elsewhere(tmp_path):
    rows = [
        {"token_ids": [1], "session_id": "1", "task_id": "7"},
        {"token_ids": [1], "session_id": "9", "task_id": "1"},
    ]
    assert read_trace(write_jsonl(tmp_path / "t.jsonl", rows)).requests.task.decode() == ["7", "1"]


@pytest.mark.parametrize("tasks", [["b", "a", None], ["a", "b", None]])
def test_circles_and_missing_names_stay(tasks):
    requests = Requests.of(np.ones(3, np.int64), session=Labels.encode(["a", "b", None]), task=Labels.encode(tasks))
    assert join_tasks(requests).task.decode() == tasks


@st.composite
def chats(draw):
    """Chats with a parent each, or -1, some of which are missing, in any order."""
    numbers = range(100, 100 + draw(st.integers(1, 8)))
    parents = {k: draw(st.sampled_from([-1, *range(100, k)])) for k in numbers}
    missing = draw(st.sets(st.sampled_from(sorted(parents)), max_size=len(parents) - 1))
    return draw(st.permutations([(k, parent) for k, parent in parents.items() if k not in missing]))


@given(chats(), st.sets(st.integers(1, 7)))
def test_chats_of_one_root_are_a_session_wherever_they_stand(tmp_path_factory, made, cuts):
    folder, parents = tmp_path_factory.mktemp("q"), dict(made)
    rows = [MOONCAKE | {"timestamp": 0.5, "chat_id": k, "parent_chat_id": p, "hash_ids": []} for k, p in made]
    rows = [row | {"input_length": 0} for row in rows]
    ends = [0, *(cut for cut in sorted(cuts) if cut < len(rows)), len(rows)]
    files = [write_jsonl(folder / f"{a}.jsonl", rows[a:b]) for a, b in pairwise(ends)]

    def find_root(k):
        while parents.get(k, -1) >= 0:
            k = parents[k]
        return str(k)

    r = read_trace(files).requests
    assert r.session.decode() == r.task.decode() == [find_root(k) for k, _ in made]


# --- sessions that stand twice


def write_session(folder, name, sizes):
    calls = [{"t": k, "type": "n", "in": n, "out": m, "hash_ids": []} for k, (n, m) in enumerate(sizes)]
    content = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": calls}
    (folder / f"{name}.json").write_bytes(dump(content))
    return folder / f"{name}.json"


sessions = st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=3), max_size=8)


@given(sessions.filter(bool))
def test_twins_are_the_sessions_with_the_sizes_of_an_earlier_one(tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("k")
    files = [write_session(folder, f"s{k}", sizes) for k, sizes in enumerate(made)]
    twins = [
        f"s{k} has the same sizes as s{made.index(sizes)}: maybe the same session twice; both are kept"
        for k, sizes in enumerate(made)
        if len(sizes) > 1 and made.index(sizes) < k
    ]
    for source in (folder, files):
        assert [note for note in read_trace(source).notes if "same sizes" in note] == twins


def test_sizes_of_other_formats_say_nothing(tmp_path):
    rows = [MOONCAKE | {"timestamp": 0, "session_id": name} for name in "aabb"]
    assert not any("same sizes" in note for note in read_trace(write_jsonl(tmp_path / "m.jsonl", rows)).notes)
