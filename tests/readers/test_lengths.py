"""Prompt lengths that contradict the block ids: reported or refused, or replaced where the ids are believed."""

import numpy as np
import pytest
import writers_hashes as writers
from builders import dump, links, write_jsonl
from damage import refusal
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from writers_hashes import workloads

from capplan.readers import read_trace
from capplan.readers.lengths import FITTED, NOTHING_TO_FIT, fit_lengths
from capplan.readers.sample import Account, Options

IDS = Options(lengths="ids")
ROWS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 12)), max_size=9)


def fit(rows, block, options):
    account = Account()
    offsets = np.cumsum([0] + [n_ids for _, n_ids in rows])
    lengths = fit_lengths(np.array([n for n, _ in rows], np.int64), offsets, block, options, account)
    return lengths.tolist(), account.found[FITTED]


@given(ROWS, st.integers(1, 64))
def test_only_lengths_that_contradict_their_ids_are_replaced(rows, block):
    lengths, n_fitted = fit(rows, block, IDS)
    agree = [n // block <= n_ids <= -(-n // block) for n, n_ids in rows]
    assert lengths == [n if fine else block * n_ids for (n, n_ids), fine in zip(rows, agree, strict=True)]
    assert n_fitted == agree.count(False)
    assert fit(rows, block, Options()) == ([n for n, _ in rows], 0)


def kv_cache_tester(n_input):
    call = {"t": 0.0, "type": "s", "out": 1}
    calls = [call | {"in": n, "hash_ids": [1, 2]} for n in n_input]
    return {"id": "x", "block_size": 16, "hash_id_scope": "local", "requests": calls}


def mooncake(n):
    return {"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": [1, 2]}


def dynamo(n, k):
    replay = {"trace_block_size": 16, "input_length": n, "input_sequence_hashes": [1, 2]}
    request = {"request_id": f"r{k}", "request_received_ms": 5, "output_tokens": 1, "replay": replay}
    return {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request}


LENGTHS = [0, 9, 17, 32, 33, 500]
FITTED_LENGTHS = [32, 32, 17, 32, 33, 32]
SOURCES = {
    "kv-cache-tester": lambda path: path.write_bytes(dump(kv_cache_tester(LENGTHS))),
    "mooncake": lambda path: write_jsonl(path, map(mooncake, LENGTHS)),
    "mooncake-extended": lambda path: write_jsonl(path, [mooncake(n) | {"session_id": "s"} for n in LENGTHS]),
    "qwen-bailian": lambda path: write_jsonl(
        path, [mooncake(n) | {"chat_id": k, "parent_chat_id": -1} for k, n in enumerate(LENGTHS)]
    ),
    "dynamo": lambda path: write_jsonl(path, [dynamo(n, k) for k, n in enumerate(LENGTHS)]),
    "block-hashes": lambda path: write_jsonl(path, [{"hash_ids": [1, 2], "input_tokens": n} for n in LENGTHS]),
}
STATE_BLOCK = ("kv-cache-tester", "dynamo")


@pytest.mark.parametrize("name", SOURCES)
def test_ids_are_believed_where_the_caller_says_so(tmp_path, name):
    path = tmp_path / "t"
    SOURCES[name](path)
    block = None if name in STATE_BLOCK else 16
    trace = read_trace(path, block_size=block, lengths="ids")
    assert trace.notes[0] == f"6 requests read as {name}"
    assert trace.requests.input_tokens.tolist() == FITTED_LENGTHS
    assert f"3 x {FITTED}" in trace.notes
    assert trace.shared_tokens.tolist() == [0, 32, 16, 32, 32, 32]
    if name != "kv-cache-tester":
        assert refusal(path, block_size=block).endswith("block hashes for 0 tokens; accepted: 0 to 0 of 16 tokens each")


def test_kv_cache_tester_tells_of_the_choice(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(dump(kv_cache_tester(LENGTHS)))
    trace = read_trace(path)
    assert trace.requests.input_tokens.tolist() == LENGTHS
    assert trace.notes[1:5] == (
        "1 x request of length 0 with ids: they are left out",
        "1 x request with fewer ids than full blocks: the rest counts as never seen before",
        "1 x request with more ids than blocks: the surplus is left out",
        "prompt lengths that contradict their ids are kept as stated; --lengths ids takes block size times ids",
    )


@given(workloads(), st.integers(1, 5))
def test_nothing_changes_where_lengths_and_ids_agree(tmp_path_factory, calls, block):
    path = writers.write_mooncake_extended(tmp_path_factory.mktemp("t") / "t", calls, block)
    trace = read_trace(path, block_size=block, lengths="ids")
    assert links(trace) == link_by_search([call.prompt for call in calls], block)
    assert trace.fingerprint == read_trace(path, block_size=block).fingerprint
    assert trace.notes[-1] == NOTHING_TO_FIT


def test_a_length_that_no_trace_may_have(tmp_path):
    path = write_jsonl(tmp_path / "t", [{"hash_ids": [1, 2], "input_tokens": 0}])
    assert refusal(path, block_size=2**31 - 1, lengths="ids").endswith(
        ", row 0: input_tokens is too large; accepted: up to 2147483647"
    )


def test_the_choice_is_checked_and_has_no_place_on_a_linked_trace(tmp_path):
    from capplan import write_trace

    path = write_jsonl(tmp_path / "t", [{"token_ids": [1]}])
    with pytest.raises(ValueError, match="lengths is 'in'; accepted: 'stated', 'ids'"):
        read_trace(path, lengths="in")
    write_trace(read_trace(path), tmp_path / "l.parquet")
    assert "--lengths" in refusal(tmp_path / "l.parquet", lengths="ids")
