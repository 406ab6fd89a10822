"""Sessions of extended Mooncake rows, batch by batch, against a walk from row to row."""

import math

import numpy as np
import pytest
from builders import write_jsonl
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import TraceError
from capplan.readers import jsonl, mooncake_extended
from capplan.readers.mooncake_sessions import AS_DELTAS, FIRST_DELAY, OTHER_CALLS, find_earlier
from capplan.readers.sample import Account, Options

SESSIONS = st.sampled_from(["a", "b", "c", 7, None])


@st.composite
def calls(draw):
    """Rows of some sessions; names, waits, launches and delays are there or not."""
    n = draw(st.integers(1, 12))
    is_named = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    others = [f"r{k}" for k in range(n) if is_named[k]] + [900]
    rows = []
    for k in range(n):
        row = {"session_id": draw(SESSIONS), "hash_ids": draw(st.lists(st.sampled_from([1, 2, 3]), max_size=1))}
        row["input_length"] = 512 * len(row["hash_ids"])
        if is_named[k]:
            row["request_id"] = f"r{k}"
        for name in ("delay", "delay_ms", "tool_wait_ms"):
            if draw(st.booleans()):
                row[name] = draw(st.sampled_from([0, 40, 1500.5]))
        if draw(st.booleans()):
            row["wait_for"] = draw(st.lists(st.sampled_from(others), max_size=2))
        if draw(st.integers(0, 3)) == 0:
            row["branches"] = draw(st.lists(st.sampled_from([*others, "b"]), max_size=2))
        if draw(st.integers(0, 3)) == 0:
            row["parent_session_id"] = draw(SESSIONS)
        if draw(st.integers(0, 5)) == 0:
            row["priority"] = 1  # a field no one knows
        rows.append(row)
    return [*rows, {"request_id": 900, "hash_ids": []}]


def walk(rows):
    """Gaps and tasks, row after row, and what is odd; raises ValueError for a call that waits for itself."""
    last, tasks, launcher, session_of, heads = {}, {}, {}, {}, {}
    gaps, labels, odd = [], [], {FIRST_DELAY: 0, OTHER_CALLS: 0, "later": 0, "repeating": 0}
    for k, row in enumerate(rows):
        name = str(row.get("request_id", k))
        session = None if row.get("session_id") is None else str(row["session_id"])
        awaited = [str(other) for other in row.get("wait_for", [])]
        if "request_id" in row:
            session_of[name] = session
        if name in awaited:
            raise ValueError(name)
        if session is not None:
            launcher |= dict.fromkeys(map(str, row.get("branches", [])), session)
            if session not in tasks:
                known = [session_of[other] for other in awaited if session_of.get(other) is not None]
                parent = row.get("parent_session_id") or launcher.get(name) or (known or [None])[0]
                tasks[session] = session if parent is None else tasks.get(str(parent), str(parent))
            if row["hash_ids"]:
                odd["later"] += session in heads
                odd["repeating"] += heads.get(session) == row["hash_ids"][0]
                heads[session] = row["hash_ids"][0]
        previous = last.get(session) if session is not None else None
        waits = [row.get("delay_ms", row.get("delay")), row.get("tool_wait_ms")]
        waits = [wait for wait in waits if wait is not None]
        if previous is None:
            odd[FIRST_DELAY] += any(waits) and not awaited
            gaps.append(math.nan)
        else:
            odd[OTHER_CALLS] += bool(awaited) and awaited != [previous]
            gaps.append(sum(waits) / 1000 if waits or awaited else math.nan)
        if session is not None:
            last[session] = name
        labels.append(tasks.get(session))
    return gaps, labels, odd


def read(path, batch_bytes):
    account = Account()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", batch_bytes)
        requests = [prompts.requests for prompts in mooncake_extended.read(path, Options(), account)]
    gaps = [gap for part in requests for gap in part.gap_s.tolist()]
    return gaps, [task for part in requests for task in part.task.decode()], account


@given(calls(), st.sampled_from([1, 200, 1 << 20]))
def test_batches_say_what_a_walk_from_row_to_row_says(tmp_path_factory, rows, batch_bytes):
    path = write_jsonl(tmp_path_factory.mktemp("m") / "m.jsonl", rows)
    try:
        gaps, tasks, odd = walk(rows)
    except ValueError as name:
        with pytest.raises(TraceError, match=f"'{name}' waits for itself"):
            read(path, batch_bytes)
        return
    found = read(path, batch_bytes)
    np.testing.assert_array_equal(found[0], gaps)
    assert found[1] == tasks
    assert {what: found[2].found[what] for what in (FIRST_DELAY, OTHER_CALLS)} == {
        what: odd[what] for what in (FIRST_DELAY, OTHER_CALLS)
    }
    assert (AS_DELTAS in found[2].assumed) == (odd["later"] > 0 and odd["repeating"] == 0)


@given(st.lists(st.integers(-1, 3), max_size=12))
def test_the_earlier_row_is_the_last_one_of_the_same_code(codes):
    earlier = find_earlier(np.array(codes, np.int64)).tolist()
    for k, code in enumerate(codes):
        same = [j for j in range(k) if codes[j] == code and code >= 0]
        assert earlier[k] == (same[-1] if same else -1)
