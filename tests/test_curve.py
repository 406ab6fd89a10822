"""Coverage curves against one simulation per capacity, and the laws of docs/model.md section 2."""

import numpy as np
import pytest
from builders import in_order, link_tokens
from hypothesis import given
from hypothesis import strategies as st
from oracles import LruTier, cover_sequentially, cut, simulate
from strategies import paths

from capplan.curve import CoverageCurve, build_curve, cover_requests, sum_up_to
from capplan.runs import find_runs
from capplan.tree import build_tree

TOUCHES = ("leaf-first", "head-first")
touches = st.sampled_from(TOUCHES)
distances = st.sampled_from(["lookup", "sequential"])


def make_runs(prompts, chunk, rows=None):
    trace = link_tokens(prompts)
    return find_runs(trace, build_tree(trace), in_order(range(len(prompts)) if rows is None else rows), chunk)


def simulate_from(stream, n_slots, leaf_first, first):
    """Covered chunks and writes of the requests from `first` on; earlier ones only fill the tier."""
    tier = LruTier(n_slots, leaf_first)
    covered = written = 0
    for position, chunks in enumerate(stream):
        found, wrote = tier.lookup(chunks), tier.touch(chunks)
        if position >= first:
            covered, written = covered + found, written + wrote
    return covered, written


@pytest.mark.parametrize("touch", TOUCHES)
@given(paths(), st.integers(1, 3), st.data())
def test_covered_and_written_at_every_capacity(touch, prompts, chunk, data):
    stream = [cut(prompt, chunk) for prompt in prompts]
    runs, first = make_runs(prompts, chunk), data.draw(st.integers(0, len(prompts)))
    curve, later = build_curve(runs, touch), build_curve(runs, touch, first_request=first)
    for k in range(curve.n_distinct + 3):
        covered, written = simulate(stream, k, touch == "leaf-first")
        assert (curve.covered_tokens(k), curve.written(k)) == (sum(covered) * chunk, written)
        covered, written = simulate_from(stream, k, touch == "leaf-first", first)
        assert (later.covered_tokens(k), later.written(k)) == (covered * chunk, written)


@given(paths(), st.integers(1, 3), touches)
def test_published_convention_counts_leading_chunks_by_sequential_distance(prompts, chunk, touch):
    stream = [cut(prompt, chunk) for prompt in prompts]
    runs = make_runs(prompts, chunk)
    curve = build_curve(runs, touch, "sequential")
    for k in range(curve.n_distinct + 2):
        assert curve.covered_tokens(k) == sum(cover_sequentially(stream, k, touch == "leaf-first")) * chunk
    np.testing.assert_array_equal(curve.written_chunks, build_curve(runs, touch).written_chunks)


@given(paths(), st.integers(1, 3), touches, distances, st.data())
def test_curve_is_the_sum_of_its_requests(prompts, chunk, touch, distance, data):
    runs, first = make_runs(prompts, chunk), data.draw(st.integers(0, len(prompts)))
    curve = build_curve(runs, touch, distance, first)
    for k in range(curve.n_distinct + 2):
        assert curve.covered_tokens(k) == cover_requests(runs, k, touch, distance)[first:].sum()


# --- laws


@given(paths(), st.integers(1, 3), touches, distances)
def test_coverage_never_falls_and_writes_never_rise_with_capacity(prompts, chunk, touch, distance):
    curve = build_curve(make_runs(prompts, chunk), touch, distance)
    assert (np.diff(curve.covered_chunks) >= 0).all()
    assert (np.diff(curve.written_chunks[1:]) <= 0).all()


@given(paths(), st.integers(1, 3), touches, distances)
def test_no_slots_cover_nothing_and_write_nothing(prompts, chunk, touch, distance):
    curve = build_curve(make_runs(prompts, chunk), touch, distance)
    assert (curve.covered_tokens(0), curve.written(0)) == (0, 0)


@given(paths(), st.integers(1, 3), touches, distances)
def test_unbounded_tier_covers_references_less_distinct_and_writes_each_once(prompts, chunk, touch, distance):
    runs = make_runs(prompts, chunk)
    curve = build_curve(runs, touch, distance)
    for k in (curve.n_distinct, curve.n_distinct + 1, 10**9):
        assert curve.covered_tokens(k) == (runs.n_chunks.sum() - runs.n_distinct) * chunk
        assert curve.written(k) == runs.n_distinct


@given(paths(), st.integers(1, 3))
def test_leaf_first_is_never_below_head_first(prompts, chunk):
    runs = make_runs(prompts, chunk)
    leaf, head = (build_curve(runs, touch).covered_chunks for touch in TOUCHES)
    assert (leaf >= head).all()


@given(paths(), st.integers(1, 3), touches)
def test_sequential_is_never_above_lookup(prompts, chunk, touch):
    runs = make_runs(prompts, chunk)
    lookup, sequential = (build_curve(runs, touch, way).covered_chunks for way in ("lookup", "sequential"))
    assert (lookup >= sequential).all()


@given(paths(), st.integers(1, 2), st.integers(0, 12))
def test_leaf_first_keeps_the_tier_prefix_closed(prompts, chunk, n_slots):
    tier = LruTier(n_slots)
    for prompt in prompts:
        tier.touch(cut(prompt, chunk))
        resident = set(tier.stack)
        assert all(len(key) == chunk or key[:-chunk] in resident for key in resident)


@given(paths(), st.integers(1, 2), st.randoms(use_true_random=False))
def test_end_of_the_curve_does_not_depend_on_the_order(prompts, chunk, random):
    rows = random.sample(range(len(prompts)), len(prompts))
    one, other = (build_curve(make_runs(prompts, chunk, order)) for order in (None, rows))
    assert one.covered_chunks[-1] == other.covered_chunks[-1]
    assert one.n_distinct == other.n_distinct


@given(paths(), st.integers(1, 3), touches)
def test_coarser_chunks_lower_the_ceiling(prompts, chunk, touch):
    fine, coarse = (build_curve(make_runs(prompts, size), touch) for size in (chunk, 2 * chunk))
    assert coarse.covered_tokens(10**9) <= fine.covered_tokens(10**9)


# --- reading a curve


@given(paths(), st.integers(1, 3), touches, st.data())
def test_slots_for_a_coverage_are_the_fewest_that_reach_it(prompts, chunk, touch, data):
    curve = build_curve(make_runs(prompts, chunk), touch)
    ceiling = int(curve.covered_tokens(10**9))
    wanted = data.draw(st.integers(0, ceiling + 2 * chunk))
    slots = curve.find_slots(wanted)
    if wanted > ceiling:
        assert slots is None
    else:
        assert slots == min(k for k in range(curve.n_distinct + 1) if curve.covered_tokens(k) >= wanted)


def test_arrays_of_slots_are_read_at_once():
    curve = CoverageCurve(10, np.array([0, 2, 2, 5]), np.array([0, 9, 4, 3]))
    assert curve.covered_tokens(np.array([0, 1, 3, 99])).tolist() == [0, 20, 50, 50]
    assert curve.written(np.array([0, 1, 3, 99])).tolist() == [0, 9, 3, 3]
    assert [curve.find_slots(n) for n in (0, 1, 20, 21, 50, 51)] == [0, 1, 1, 3, 3, None]


def test_counting_from_the_end_counts_nothing():
    curve = build_curve(make_runs([[1, 2], [1, 2]], 1), first_request=2)
    assert curve.covered_chunks.tolist() == curve.written_chunks.tolist() == [0, 0, 0]


def test_difference_arrays_are_summed_over_positions_below_k():
    assert sum_up_to(np.array([2, 0, -1, 5])).tolist() == [0, 2, 4, 5]
