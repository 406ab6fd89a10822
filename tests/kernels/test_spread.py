"""Difference arrays over capacities against loops over every capacity."""

import numpy as np
import pytest
from builders import in_order, link_tokens
from hypothesis import given
from hypothesis import strategies as st
from oracles import cover_sequentially, cut, simulate
from strategies import paths

from capplan.curve import sum_up_to
from capplan.kernels import spread
from capplan.runs import find_runs
from capplan.tree import build_tree


@pytest.mark.parametrize("slope", [0, 1])
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=8))
def test_chunks_are_counted_at_their_positions(slope, runs):
    n_slots = 15
    base, length = (np.array([run[k] for run in runs], np.int64) for k in (0, 1))
    difference = np.zeros(n_slots + 1, np.int64)
    spread.count_at_positions(difference, length, base, slope)
    totals = sum_up_to(difference)
    stand = [first + slope * i for first, count in runs for i in range(count)]
    assert totals.tolist() == [sum(position < k for position in stand) for k in range(n_slots + 1)]


@pytest.mark.parametrize(
    ("touch", "distance"), [("leaf-first", "lookup"), ("leaf-first", "sequential"), ("head-first", "lookup")]
)
@given(paths(), st.integers(1, 3), st.integers(0, 20))
def test_covered_chunks_per_request_at_one_capacity(touch, distance, prompts, size, n_slots):
    trace = link_tokens(prompts)
    runs = find_runs(trace, build_tree(trace), in_order(range(len(prompts))), size)
    base, slope = runs.positions(touch, distance)
    found = spread.cover_requests(runs.offsets, runs.length, base, slope, n_slots)
    stream, leaf_first = [cut(prompt, size) for prompt in prompts], touch == "leaf-first"
    if distance == "sequential":
        assert found.tolist() == cover_sequentially(stream, n_slots, leaf_first)
    else:
        assert found.tolist() == simulate(stream, n_slots, leaf_first)[0]


def restore_one_by_one(covered, n_tokens, gpu_tokens, gpu_forced, b):
    """Restored tokens, moved chunks, loading requests and change in forced tokens (docs/model.md section 4)."""
    totals = [0, 0, 0, 0]
    for h, n, g, f in zip(covered, n_tokens, gpu_tokens, gpu_forced, strict=True):
        c = min(h * b, max(n - 1, 0))
        restored = max(0, c - g)
        if restored:
            totals[0] += restored
            totals[1] += h - g // b
            totals[2] += 1
            totals[3] += (n - max(g, c) if f or h * b >= n else 0) - f
    return totals


@pytest.mark.parametrize(
    ("touch", "distance"), [("leaf-first", "lookup"), ("leaf-first", "sequential"), ("head-first", "lookup")]
)
@given(paths(), st.integers(1, 4), st.data())
def test_restores_at_every_capacity_are_the_sums_over_requests(touch, distance, prompts, b, data):
    trace = link_tokens(prompts)
    runs = find_runs(trace, build_tree(trace), in_order(range(len(prompts))), b)
    n_tokens = trace.requests.input_tokens
    gpu = [data.draw(st.integers(0, max(int(n) - 1, 0))) for n in n_tokens]
    # What a whole hit in the GPU tier leaves to compute is all it does not serve.
    gpu_forced = [data.draw(st.sampled_from([0, int(n) - g])) for n, g in zip(n_tokens, gpu, strict=True)]
    first = data.draw(st.integers(0, len(prompts)))
    base, slope = runs.positions(touch, distance)
    table = runs.offsets, runs.start, runs.length, base, slope
    per_request = n_tokens, np.array(gpu), np.array(gpu_forced)
    arrays = spread.spread_restores(*table, b, *per_request, first, runs.n_distinct)
    totals = [sum_up_to(array).tolist() for array in arrays]
    for k in range(runs.n_distinct + 1):
        covered = spread.cover_requests(runs.offsets, runs.length, base, slope, k).tolist()
        expected = restore_one_by_one(covered[first:], n_tokens[first:].tolist(), gpu[first:], gpu_forced[first:], b)
        assert [total[k] for total in totals] == expected


def spread_one_run(n, g, b, n_chunks, gpu_forced=0):
    """One request whose `n_chunks` chunks form one run at positions from 0 on."""
    table = np.array([0, 1]), np.array([0]), np.array([n_chunks]), np.array([0]), 1
    arrays = spread.spread_restores(*table, b, np.array([n]), np.array([g]), np.array([gpu_forced]), 0, n_chunks)
    return [sum_up_to(array).tolist() for array in arrays]


def test_gpu_hit_and_last_token_cut_the_first_and_last_chunk():
    saved, moved, loads, forced = spread_one_run(n=40, g=14, b=10, n_chunks=4)
    assert saved == [0, 0, 6, 16, 25]
    assert moved == [0, 0, 1, 2, 3]
    assert loads == [0, 0, 1, 1, 1]
    assert forced == [0, 0, 0, 0, 1]


def test_one_chunk_cut_on_both_sides():
    saved, moved, loads, forced = spread_one_run(n=40, g=33, b=10, n_chunks=4)
    assert (saved, moved, loads, forced) == ([0, 0, 0, 0, 6], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1])


def test_whole_host_hit_forces_one_token_in_place_of_those_the_gpu_hit_forced():
    assert spread_one_run(n=40, g=32, b=10, n_chunks=4, gpu_forced=8)[3] == [0, 0, 0, 0, 1 - 8]


def test_nothing_to_restore_behind_a_gpu_hit_of_all_but_the_last_token():
    assert spread_one_run(n=40, g=39, b=10, n_chunks=4) == [[0] * 5] * 4
