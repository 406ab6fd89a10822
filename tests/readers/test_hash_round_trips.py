"""A random workload written in a format of hashes or sizes, and read back, has the same links and times."""

import numpy as np
import pytest
import writers_hashes as writers
from builders import links
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from writers_hashes import by_session, grow_paths, growing_sessions, workloads

from capplan.readers import jsonl, read_trace

HASHED = {
    "mooncake-extended": writers.write_mooncake_extended,
    "qwen-bailian": writers.write_qwen_bailian,
    "dynamo": writers.write_dynamo,
    "lmcache-hashes": writers.write_lmcache_hashes,
    "baseten": writers.write_baseten,
}
STATES_BLOCK = {"dynamo", "lmcache-hashes", "baseten"}
HAS_NO_OUTPUTS = {"lmcache-hashes"}
HAS_NO_SESSIONS = {"lmcache-hashes"}
HAS_SERVICE = {"dynamo", "baseten"}


@pytest.mark.parametrize("name", HASHED)
@given(workloads(), st.integers(1, 5))
def test_workload_comes_back(tmp_path_factory, name, calls, block):
    path = HASHED[name](tmp_path_factory.mktemp("t") / "t", calls, block)
    trace = read_trace(path, block_size=None if name in STATES_BLOCK else block)
    assert trace.notes[0] == f"{len(calls)} requests read as {name}"
    assert links(trace) == link_by_search([call.prompt for call in calls], block)
    assert trace.resolution_tokens == block
    r = trace.requests
    assert r.input_tokens.tolist() == [len(call.prompt) for call in calls]
    assert r.output_tokens.tolist() == [0 if name in HAS_NO_OUTPUTS else call.n_output for call in calls]
    np.testing.assert_allclose(r.arrival_s, [(call.sent_ms - calls[0].sent_ms) / 1000 for call in calls], atol=3e-4)
    if name in HAS_NO_SESSIONS:
        assert r.session.decode() == [None] * len(calls)
    else:
        found = {(label, call.session) for label, call in zip(r.session.decode(), calls, strict=True)}
        assert len({label for label, _ in found}) == len({session for _, session in found}) == len(found)
    if name in HAS_SERVICE:
        assert r.service_s.tolist() == [call.service_ms / 1000 for call in calls]
        last = {}
        for k, call in enumerate(calls):
            gap = (call.sent_ms - last[call.session]) / 1000 if call.session in last else np.nan
            np.testing.assert_allclose(r.gap_s[k], gap, atol=1e-6)
            last[call.session] = call.sent_ms + call.service_ms


@given(workloads(), st.integers(1, 5))
def test_kv_cache_tester_comes_back_session_by_session(tmp_path_factory, calls, block):
    folder = writers.write_kv_cache_tester(tmp_path_factory.mktemp("t") / "t", calls, block)
    trace, calls = read_trace(folder), by_session(calls)
    assert links(trace) == link_by_search([call.prompt for call in calls], block)
    assert trace.requests.session.decode() == [call.session for call in calls]
    assert trace.requests.start_s.tolist() == [call.sent_ms / 1000 for call in calls]


@given(workloads(), st.integers(1, 5), st.integers(2**53, 2**64 - 1))
def test_ids_of_64_bits_survive(tmp_path_factory, calls, block, factor):
    path = writers.write_dynamo(tmp_path_factory.mktemp("t") / "t", calls, block, spread=factor | 1)
    assert links(read_trace(path)) == link_by_search([call.prompt for call in calls], block)


GROWING = {
    "mooncake-delta": writers.write_mooncake_delta,
    "tracelab": lambda path, sessions, _: writers.write_tracelab(path, sessions),
    "applied-compute": lambda path, sessions, _: writers.write_applied_compute(path, sessions),
    "burstgpt": lambda path, sessions, _: writers.write_growing_burstgpt(path, sessions),
}


@pytest.mark.parametrize("name", GROWING)
@given(growing_sessions, st.integers(1, 5), st.integers(1, 6))
def test_sessions_that_grow_come_back(tmp_path_factory, name, sessions, block, batch_rows):
    path = GROWING[name](tmp_path_factory.mktemp("t") / "t", sessions, block)
    assume = "session" if name == "burstgpt" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", batch_rows)
        trace = read_trace(path, block_size=block, assume_prefix=assume)
    n_input, whole = grow_paths(sessions)
    turns = [(k, turn) for session in sessions for k, turn in enumerate(session)]
    assert links(trace) == link_by_search(whole, block)
    assert trace.outputs_known
    assert trace.requests.input_tokens.tolist() == n_input
    assert trace.requests.output_tokens.tolist() == [turn.n_output for _, turn in turns]
    assert trace.requests.session.is_complete
    assert len(trace.requests.session.names) == len(sessions)
    if name in ("mooncake-delta", "applied-compute"):
        np.testing.assert_array_equal(trace.requests.gap_s, [turn.wait_ms / 1000 if k else np.nan for k, turn in turns])


@pytest.mark.parametrize("name", GROWING)
def test_ids_made_for_two_files_stay_apart(tmp_path, name):
    sessions = [[writers.Turn(64, 64, 0)]]
    paths = [GROWING[name](tmp_path / f"{n}.x", sessions, 16) for n in "ab"]
    trace = read_trace(paths, block_size=16, assume_prefix="session" if name == "burstgpt" else None)
    assert links(trace) == ([-1, -1], [0, 0])
