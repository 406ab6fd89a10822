"""Every comparison at tiny size: both sides run, and what they compute is equal."""

import os
import sys
from dataclasses import replace

import bench_engine
import bench_hashing
import bench_mooncake
import bench_predict
import numpy as np
import pytest
from builders import link_tokens
from chunk_engines import count_with_bitmap, count_with_fenwick, curve_from_counts
from harness import ROOT, ProcessRun, Settings, SkippedError, interleave, run_process
from hypothesis import given, settings
from hypothesis import strategies as st
from mooncake_curve import main as write_curve
from streams import POOLED, TOKENS, make_prompts, make_stream, shrink

from capplan.curve import build_curve
from capplan.linking import link_prompts
from capplan.order import choose_order, fill_pool
from capplan.runs import find_runs
from capplan.synthetic import generate

compiled_only = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="an intrinsic and 64-bit wrap-around need compiled kernels"
)


@pytest.fixture
def small_trace():
    return generate(replace(shrink(POOLED, 0.004), n_calls=80))


@compiled_only
def test_engines_agree_on_a_pool(small_trace):
    stream = make_stream(small_trace, fill_pool(small_trace, 3))
    curve = bench_engine.check_equal(stream)
    assert curve.n_distinct == stream.n_distinct


@compiled_only
@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 2), max_size=70), min_size=1, max_size=12))
def test_engines_agree_on_any_prefix_tree(paths):
    trace = link_tokens(paths)
    stream = make_stream(trace, choose_order(trace, "recorded"))
    covered = build_curve(find_runs(trace, stream.tree, stream.order, 1)).covered_chunks
    for count in (count_with_fenwick, count_with_bitmap):
        counts = count(stream.ids, stream.offsets, stream.n_distinct)
        assert curve_from_counts(counts).tolist() == covered.tolist()


@compiled_only
def test_bitmap_counts_over_lines_and_groups():
    """References far enough apart that whole groups of the bitmap lie between them."""
    n_references = 100_000
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 300, n_references).astype(np.int32)
    ids[[0, n_references - 1]] = 300
    offsets = np.arange(n_references + 1)
    assert np.array_equal(count_with_bitmap(ids, offsets, 301), count_with_fenwick(ids, offsets, 301))


@compiled_only
def test_engine_benchmark_reports_both_targets(small_trace):
    results = bench_engine.compare(make_stream(small_trace, fill_pool(small_trace, 3)), rounds=1)
    assert [result.at_least for result in results] == [100, 50, None, None]


def test_prompts_have_the_links_of_their_trace():
    trace = generate(replace(TOKENS, n_tasks=2, n_calls=12))
    linked = link_prompts([make_prompts(trace)])
    assert linked.parent.tolist() == trace.parent.tolist()
    assert linked.shared_tokens.tolist() == trace.shared_tokens.tolist()


@compiled_only
def test_hashing_compares_equal_keys():
    pytest.importorskip("xxhash")
    ids = np.random.default_rng(0).integers(0, 1_000, 64 * bench_hashing.BLOCK_IDS, np.uint32)
    results = bench_hashing.compare_hashes(ids, rounds=1)
    assert [result.at_least for result in results] == [8, None]
    trace = generate(replace(TOKENS, n_tasks=2, n_calls=12))
    assert len(bench_hashing.compare_linking(trace, rounds=1)) == 1


def test_predict_benchmark_measures_whole_processes(monkeypatch):
    monkeypatch.setattr(bench_predict, "interleave_commands", stand_in)
    time, memory = bench_predict.measure(Settings(rounds=1, is_small=True))
    assert (time.value, time.at_most) == (2, 2)
    assert (memory.value, memory.at_most) == (300, 400)


def stand_in(commands, rounds):
    assert commands["predict"][1] == "predict"
    return {"predict": [ProcessRun(2.0, 300.0, "", "")], "import": [ProcessRun(1.0, 100.0, "", "")]}


def test_mooncake_process_writes_the_curve(tmp_path, write_mooncake):
    write_curve(str(write_mooncake([[1, 2], [1, 2], [1, 3]])), str(tmp_path / "curve.npy"))
    assert np.load(tmp_path / "curve.npy").tolist() == [0, 1024, 1536, 1536]


def test_without_the_mooncake_files_says_where_they_are(tmp_path):
    with pytest.raises(
        SkippedError, match=r"conversation_trace\.jsonl is not in .*https://github\.com/kvcache-ai/Mooncake"
    ):
        bench_mooncake.measure(Settings(mooncake=tmp_path))


@pytest.fixture
def write_mooncake(tmp_path):
    def write(id_lists):
        path = tmp_path / "trace.jsonl"
        rows = [
            f'{{"timestamp": {k}, "input_length": {512 * len(ids)}, "output_length": 1, "hash_ids": {ids}}}'
            for k, ids in enumerate(id_lists)
        ]
        path.write_text("\n".join(rows) + "\n")
        return path

    return write


def test_interleaving_leaves_the_warm_up_out():
    calls = []
    seconds = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert "".join(calls) == "ababab"
    assert [len(seconds[name]) for name in "ab"] == [2, 2]


def test_peak_memory_is_the_commands_own():
    ballast = np.ones(200_000_000, np.uint8)
    run = run_process([sys.executable, "-c", "print('here')"])
    assert run.stdout == "here\n"
    assert 1 < run.peak_mb < ballast.nbytes / 1e6


def test_a_failing_command_is_an_error():
    with pytest.raises(RuntimeError, match="exit code 3\nwhy"):
        run_process([sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"])


def test_scripts_say_what_they_do():
    for script in [*sorted((ROOT / "benchmarks").glob("bench_*.py")), ROOT / "benchmarks" / "run.py"]:
        run = run_process([sys.executable, str(script), "--help"])
        assert "--rounds" in run.stdout
