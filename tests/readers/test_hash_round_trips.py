"""A random workload written in a format of hashes or sizes, and read back, has the same links and times."""

import numpy as np
import polars as pl
import pytest
import writers_hashes as writers
from builders import links, write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import link_by_search
from writers_hashes import by_session, grow_paths, growing_sessions, workloads
from writers_text import TEXT_WRITERS

from capplan.readers import FORMATS, jsonl, read_trace

HASHED = {
    "mooncake": writers.write_mooncake,
    "mooncake-extended": writers.write_mooncake_extended,
    "qwen-bailian": writers.write_qwen_bailian,
    "dynamo": writers.write_dynamo,
    "lmcache-hashes": writers.write_lmcache_hashes,
    "baseten": writers.write_baseten,
    "block-hashes": writers.write_block_hashes,
    "block-hashes in Parquet": writers.write_block_hashes_as_parquet,
}
STATES_BLOCK = {"dynamo", "lmcache-hashes", "baseten", "block-hashes", "block-hashes in Parquet"}
HAS_NO_OUTPUTS = {"lmcache-hashes"}
HAS_NO_SESSIONS = {"lmcache-hashes", "mooncake"}
HAS_SERVICE = {"dynamo", "baseten"}


@pytest.mark.parametrize("name", HASHED)
@given(workloads(), st.integers(1, 5))
def test_workload_comes_back(tmp_path_factory, name, calls, block):
    path = HASHED[name](tmp_path_factory.mktemp("t") / "t", calls, block)
    trace = read_trace(path, block_size=None if name in STATES_BLOCK else block)
    assert trace.notes[0] == f"{len(calls)} requests read as {name.split()[0]}"
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


@pytest.mark.parametrize("scope", ["local", None])
@given(workloads(), st.integers(1, 5))
def test_kv_cache_tester_with_subagents_comes_back(tmp_path_factory, scope, calls, block):
    """Links within the file, or within each agent where ids have no scope; starts are those of the file."""
    folder, calls = writers.write_subagents(tmp_path_factory.mktemp("t") / "t", calls, block, scope)
    trace = read_trace(folder)
    if scope:
        assert links(trace) == link_by_search([call.prompt for call in calls], block)
    else:
        found = [
            link_by_search([call.prompt for call in calls[: k + 1] if call.session == calls[k].session], block)[1][-1]
            for k in range(len(calls))
        ]
        assert trace.shared_tokens.tolist() == found
    assert trace.requests.session.decode() == ["a" if call.session == "a" else f"a#{call.session}" for call in calls]
    assert trace.requests.task.decode() == ["a"] * len(calls)
    np.testing.assert_allclose(trace.requests.start_s, [call.sent_ms / 1000 for call in calls], rtol=1e-12)


@pytest.mark.parametrize("with_outputs", [False, True])
@pytest.mark.parametrize("save", ["jsonl", "parquet", "arrow"])
@settings(max_examples=30)
@given(workloads(), st.data())
def test_token_ids_come_back(tmp_path_factory, with_outputs, save, calls, data):
    path = tmp_path_factory.mktemp("t") / f"t.{save}"
    tokens = st.lists(st.integers(0, 2), max_size=20)
    outputs = [data.draw(tokens) if with_outputs else None for _ in calls]
    rows = []
    for call, output in zip(calls, outputs, strict=True):
        row = {"token_ids": call.prompt * 9} | writers.describe_call(call)
        rows.append(row | ({"output_token_ids": output, "output_tokens": len(output)} if with_outputs else {}))
    if save == "jsonl":
        write_jsonl(path, rows)
    else:
        lists = {name: pl.List(pl.UInt32) for name in ("token_ids", "output_token_ids") if name in rows[0]}
        frame = pl.DataFrame(rows, schema_overrides=lists)
        frame.write_parquet(path) if save == "parquet" else frame.write_ipc(path)
    trace = read_trace(path)
    paths = [call.prompt * 9 + (output or []) for call, output in zip(calls, outputs, strict=True)]
    assert links(trace) == link_by_search(paths, 16)
    r = trace.requests
    assert r.input_tokens.tolist() == [9 * len(call.prompt) for call in calls]
    sizes = [call.n_output if output is None else len(output) for call, output in zip(calls, outputs, strict=True)]
    assert r.output_tokens.tolist() == sizes
    assert r.session.decode() == [call.session for call in calls]
    np.testing.assert_allclose(r.arrival_s, [(call.sent_ms - calls[0].sent_ms) / 1000 for call in calls], atol=3e-4)


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


def test_every_format_that_can_carry_a_workload_has_a_round_trip():
    hashed = {name.split()[0] for name in HASHED} | set(GROWING) | {"kv-cache-tester", "token-ids"}
    texts = {name.split()[0] for name in TEXT_WRITERS} | {"lmcache-agent", "aibrix"}
    tokens = {"replay-trace", "agent-run", "llmservingsim"}  # tests/readers/test_text_round_trip.py
    refused = {"azure", "kv-events", "lmcache-calls", "lmcache-log", "otel-spans"}
    assert hashed | texts | tokens | refused | {"capplan"} == set(FORMATS)
