"""Published traces against reference results of one LRU simulation per capacity."""

import json
from itertools import pairwise

import numpy as np
import pytest

from capplan.curve import build_curve, cover_requests
from capplan.errors import TraceError
from capplan.order import choose_order, follow_record
from capplan.readers import kv_cache_tester, read_trace
from capplan.readers.canonical import write_trace
from capplan.readers.sample import Account, Options
from capplan.runs import find_runs
from capplan.tree import build_tree

SESSIONS = "kv-cache-tester/sessions"
CONTENT_HASHED = "kv-cache-tester/content-hash-ids"
UNCHAINED = ("trace_0307.json", "trace_0479.json")
UNLIMITED = 10**9
CASES = {  # key of the reference results: path, pool size, chunk tokens
    "kv-cache-tester/sessions pool=8 chunk=1024": (SESSIONS, 8, 1024),
    "kv-cache-tester/sessions pool=16 chunk=1024": (SESSIONS, 16, 1024),
    "mooncake/conversation chunk=512": ("mooncake/conversation_trace.jsonl", None, 512),
    "mooncake/conversation chunk=1024": ("mooncake/conversation_trace.jsonl", None, 1024),
    "mooncake/synthetic chunk=512": ("mooncake/synthetic_trace.jsonl", None, 512),
    "mooncake/synthetic chunk=1024": ("mooncake/synthetic_trace.jsonl", None, 1024),
}


@pytest.fixture(scope="module")
def load(real_traces, tmp_path_factory):
    """Read a trace once, as published or from the canonical file written from it."""
    known = {}
    folder = tmp_path_factory.mktemp("canonical")

    def load_trace(name, *, from_canonical=False):
        if (name, from_canonical) not in known:
            trace = read_trace(real_traces / name) if not from_canonical else load_trace(name)
            if from_canonical:
                path = folder / f"{len(known)}.parquet"
                write_trace(trace, path)
                trace = read_trace(path)
            known[name, from_canonical] = trace
        return known[name, from_canonical]

    return load_trace


@pytest.fixture(scope="module")
def expected(real_traces):
    return json.loads((real_traces / "expected.json").read_text())


def make_runs(trace, chunk_tokens, pool_size=None, *, row_order=False):
    order = follow_record(trace) if row_order else choose_order(trace, pool_size=pool_size)
    return order, find_runs(trace, build_tree(trace), order, chunk_tokens)


def test_there_is_a_case_for_every_reference_result(expected):
    assert set(expected) == set(CASES)


@pytest.mark.parametrize("from_canonical", [False, True], ids=["as published", "canonical"])
@pytest.mark.parametrize("key", CASES)
def test_reference_results_exactly(load, expected, key, from_canonical):
    name, pool_size, chunk_tokens = CASES[key]
    trace, wanted = load(name, from_canonical=from_canonical), dict(expected[key])
    order, runs = make_runs(trace, chunk_tokens, pool_size)
    slots = np.array(wanted.pop("capacities_chunks"))
    n_input = trace.requests.input_tokens[order.rows]
    leaf_first, head_first = build_curve(runs), build_curve(runs, "head-first")
    found = {
        "requests": len(trace),
        "prompt_tokens": int(n_input.sum()),
        "chunk_references": int(runs.n_chunks.sum()),
        "distinct_chunks": runs.n_distinct,
        "covered_tokens_leaf_first": leaf_first.covered_tokens(slots).tolist(),
        "computed_prefill_leaf_first": [
            int((n_input - np.minimum(cover_requests(runs, k), n_input - 1)).sum()) for k in slots.tolist()
        ],
        "chunks_written_leaf_first": leaf_first.written(slots).tolist(),
        "covered_tokens_head_first": head_first.covered_tokens(slots).tolist(),
    }
    if pool_size is not None:
        found["sessions"] = len(set(trace.requests.task.codes.tolist()))
    assert found == wanted


@pytest.mark.parametrize("name", [SESSIONS, "mooncake/conversation_trace.jsonl"])
def test_canonical_file_is_the_same_trace(load, name):
    assert load(name, from_canonical=True).fingerprint == load(name).fingerprint
    assert load(name, from_canonical=True).notes == load(name).notes


CEILINGS = {
    SESSIONS: {
        64: 216_822_720,
        256: 216_604_928,
        512: 216_309_760,
        1024: 215_753_728,
        2048: 214_646_784,
        4096: 212_287_488,
    },
    "mooncake/conversation_trace.jsonl": {512: 54_063_104, 1024: 49_173_504, 2048: 46_483_456, 4096: 42_168_320},
    "mooncake/synthetic_trace.jsonl": {512: 39_802_880, 1024: 39_306_240, 2048: 38_514_688, 4096: 36_556_800},
}


@pytest.mark.parametrize(("name", "chunk_tokens"), [(name, b) for name, found in CEILINGS.items() for b in found])
def test_ceiling_by_chunk_size(load, name, chunk_tokens):
    trace = load(name)
    for row_order in (True, False):
        _, runs = make_runs(trace, chunk_tokens, row_order=row_order)
        assert build_curve(runs).covered_tokens(UNLIMITED) == CEILINGS[name][chunk_tokens]


def test_sessions_are_all_there(load):
    trace = load(SESSIONS)
    r = trace.requests
    assert (len(trace), int(r.input_tokens.sum()), int(r.output_tokens.sum())) == (2_304, 234_291_715, 1_063_267)
    assert (int(r.input_tokens.min()), int(r.input_tokens.max())) == (9_008, 864_156)
    assert (len(set(r.task.decode())), len(set(r.session.decode()))) == (77, 77 + 14)
    in_subagents = [session != task for session, task in zip(r.session.decode(), r.task.decode(), strict=True)]
    assert sum(in_subagents) == 172
    assert int((~np.isnan(r.service_s)).sum()) == 1_850
    assert (r.output_tokens == 0).sum() == 2
    assert make_runs(trace, 64)[1].n_distinct == 271_815
    assert not any("ids" in note for note in trace.notes)
    assert trace.resolution_tokens == 64


@pytest.mark.parametrize(
    ("name", "n", "n_input", "n_output", "shortest", "longest"),
    [
        ("conversation", 12_031, 144_793_823, 4_122_048, 891, 126_195),
        ("synthetic", 3_993, 61_194_628, 595_432, 13, 191_378),
    ],
)
def test_mooncake_is_all_there(load, name, n, n_input, n_output, shortest, longest):
    r = load(f"mooncake/{name}_trace.jsonl").requests
    assert (len(r), int(r.input_tokens.sum()), int(r.output_tokens.sum())) == (n, n_input, n_output)
    assert (int(r.input_tokens.min()), int(r.input_tokens.max())) == (shortest, longest)
    assert r.arrival_s[0] == 0
    assert not r.session.is_complete


# --- ids that are not chained between files


@pytest.fixture(scope="module")
def content_hashed(real_traces):
    return real_traces / CONTENT_HASHED


@pytest.fixture(scope="module")
def eight_clean_files(content_hashed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    for file in sorted(content_hashed.iterdir()):
        if file.name not in UNCHAINED:
            (folder / file.name).symlink_to(file.resolve())
    return folder


def cover_all(trace, chunk_tokens=64):
    """Covered tokens of an unlimited tier in row order, and distinct chunks."""
    _, runs = make_runs(trace, chunk_tokens, row_order=True)
    return int(build_curve(runs).covered_tokens(UNLIMITED)), runs.n_distinct


def test_unchained_ids_of_ten_files_together_are_refused(content_hashed):
    with pytest.raises(TraceError) as caught:
        read_trace(content_hashed)
    found = str(caught.value)
    assert found.startswith("content-hash-ids, row 67 (request 'trace_")
    assert found.endswith("so ids are not prefix-chained; --ids content chains them anew")


def test_ten_files_chained_anew(content_hashed):
    trace = read_trace(content_hashed, ids="content")
    assert cover_all(trace)[0] == 3_323_904
    assert trace.notes[-1] == "block ids chained anew by content (--ids content)"


def test_raw_ids_would_find_more_than_they_stand_for(content_hashed):
    """Leading ids met before, whatever stood in front of them: what chaining anew does not count."""
    seen, n_covered = set(), 0
    for batch in kv_cache_tester.read(content_hashed, Options(), Account()):
        for begin, end in pairwise(batch.offsets.tolist()):
            ids = batch.ids[begin:end].tolist()
            n_covered += next((k for k, i in enumerate(ids) if i not in seen), len(ids))
            seen.update(ids)
    assert n_covered * 64 == 3_332_160


def test_turns_logged_twice_are_collapsed_and_twin_sessions_reported(content_hashed, eight_clean_files):
    twice = "left out: second log line of a call that is logged twice (s, then n)"
    trace = read_trace(content_hashed, ids="content")
    assert trace.notes[:2] == ("97 requests read as kv-cache-tester", f"97 {twice}")
    eight = read_trace(eight_clean_files)
    assert eight.notes[:2] == ("74 requests read as kv-cache-tester", f"74 {twice}")
    assert [note for note in trace.notes if "same sizes" in note] == [
        "trace_0518 has the same sizes as trace_0407: maybe the same session twice; both are kept"
    ]


def test_eight_files_are_chained_and_share_ids(eight_clean_files):
    trace = read_trace(eight_clean_files)
    assert cover_all(trace) == (2_883_968, 17_133)
    assert cover_all(read_trace(eight_clean_files, ids="content")) == (2_883_968, 17_133)
    assert int(trace.requests.input_tokens.sum()) == 3_982_738


def test_eight_files_each_for_itself(eight_clean_files):
    found = [cover_all(read_trace(file)) for file in sorted(eight_clean_files.iterdir())]
    assert tuple(map(sum, zip(*found, strict=True))) == (2_873_920, 17_290)


def test_local_ids_must_not_be_shared(load, content_hashed, eight_clean_files, tmp_path):
    for file in sorted(eight_clean_files.iterdir()):
        local = file.read_bytes().replace(b'"hash_id_scope":"global"', b'"hash_id_scope":"local"', 1)
        (tmp_path / file.name).write_bytes(local)
    assert cover_all(read_trace(tmp_path)) == (2_873_920, 17_290)
