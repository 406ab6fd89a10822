"""Prefill time saved at every capacity, against T(g) - T(c) request by request."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import paths

from capplan.costs import PrefillCost, Triple
from capplan.costs.prefill import build_prefill, seconds
from capplan.costs.prefill_curve import Curve
from capplan.curve import cover_requests
from capplan.hardware import load_gpu
from capplan.linking import link_prompts
from capplan.models import load_model
from capplan.order import Order
from capplan.prompts import Prompts, Requests
from capplan.runs import find_runs
from capplan.saving import linear_times, measure_savings, sum_saved_seconds, tabulate_times
from capplan.tree import build_tree

H20 = build_prefill(load_gpu("h20"), load_model("qwen3-coder-30b-a3b"), 1).typical
ONE = Triple(1.0, 1.0, 1.0)
WINDOWED = build_prefill(load_gpu("h100"), load_model("llama-3.1-8b"), 1, windows=((0.5, 4),)).low


def find_stream(made, block, chunk):
    ids = np.array([token for path in made for token in path], np.uint32)
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in made])]).astype(np.int64)
    requests = Requests.of(np.array([len(path) for path in made]))
    trace = link_prompts([Prompts(requests, ids, offsets, "tokens", block)])
    order = Order("recorded", np.arange(len(made)), None, None)
    return trace.requests.input_tokens, find_runs(trace, build_tree(trace), order, chunk)


@given(
    paths(max_requests=10, max_piece=12),
    st.integers(1, 3),
    st.sampled_from(["leaf-first", "head-first"]),
    st.sampled_from(["lookup", "sequential"]),
    st.sampled_from([H20, WINDOWED]),
    st.lists(st.integers(0, 30), min_size=10, max_size=10),
    st.integers(0, 3),
)
def test_saved_seconds_are_exact_at_every_capacity(made, block, touch, distance, model, served, first):
    n_input, runs = find_stream(made, block, 2 * block)
    g = np.minimum(np.array(served[: len(made)]), np.maximum(n_input - 1, 0))
    first = min(first, len(made))
    times = tabulate_times(model, n_input)
    saved = sum_saved_seconds(runs, n_input, g, times, touch, distance, first)
    assert saved.size == runs.n_distinct + 1
    for n_slots in range(runs.n_distinct + 1):
        c = np.maximum(g, np.minimum(cover_requests(runs, n_slots, touch, distance), np.maximum(n_input - 1, 0)))
        expected = (seconds(model, g, n_input) - seconds(model, c, n_input))[first:].sum()
        assert saved[n_slots] == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(paths(max_requests=8), st.floats(1e-6, 1e-3))
def test_equal_cost_per_token_gives_tokens_times_cost(made, cost):
    n_input, runs = find_stream(made, 1, 1)
    nothing = np.zeros(n_input.size, np.int64)
    saved = sum_saved_seconds(runs, n_input, nothing, linear_times(cost, n_input))
    for n_slots in range(runs.n_distinct + 1):
        restored = np.minimum(cover_requests(runs, n_slots), np.maximum(n_input - 1, 0)).sum()
        assert saved[n_slots] == pytest.approx(cost * restored, abs=1e-15)


def test_tables_equal_the_model_for_every_suffix():
    n_input = np.array([1, 5, 1_000, 70_000])
    for model in (H20, WINDOWED):
        times = tabulate_times(model, n_input, scale=2.0)
        for begin in ([0, 0, 0, 0], [1, 4, 999, 69_999], [0, 2, 512, 1_024]):
            found = times.seconds_from(np.array(begin), n_input)
            assert found == pytest.approx(2 * seconds(model, begin, n_input), rel=1e-12)


BAND = Triple(0.9, 1.0, 1.1)
ENDS = tuple(build_prefill(load_gpu("h800"), load_model("qwen3-coder-30b-a3b"), 8))


def cost_of(models=ENDS, known=None, position=None, band=ONE, origin="formula"):
    return PrefillCost(models, known, position, band, origin, ("for a test",))


def serve(made, n_input, served):
    return np.minimum(np.array(served[: len(made)]), np.maximum(n_input - 1, 0))


def count(runs, n_input, g, first=0):
    """Tokens an unlimited host tier restores."""
    c = np.minimum(cover_requests(runs, runs.n_distinct), np.maximum(n_input - 1, 0))
    return int(np.maximum(c - g, 0)[first:].sum())


streams = st.tuples(
    paths(max_requests=8, max_piece=12), st.lists(st.integers(0, 30), min_size=8, max_size=8), st.integers(0, 3)
)


@given(streams, st.sampled_from(["leaf-first", "head-first"]), st.sampled_from(["lookup", "sequential"]))
def test_ends_of_the_formula_are_in_order_and_each_its_models(stream, touch, distance):
    made, served, first = stream
    n_input, runs = find_stream(made, 1, 2)
    g, first = serve(made, n_input, served), min(first, len(made) - 1)
    total = count(runs, n_input, g, first)
    savings = measure_savings(runs, n_input, g, cost_of(), total, touch, distance, first)
    low, typical, high = savings.saved_s
    assert (low <= typical).all()
    assert (typical <= high).all()
    own = [
        sum_saved_seconds(runs, n_input, g, tabulate_times(model, n_input), touch, distance, first) for model in ENDS
    ]
    assert typical == pytest.approx(own[1])
    assert low == pytest.approx(np.minimum(own[0], own[1]))
    assert high == pytest.approx(np.maximum(own[1], own[2]))
    for model, without in zip(ENDS, savings.without_s, strict=True):
        assert without == pytest.approx(float(seconds(model, g, n_input)[first:].sum()))
    assert savings.without_s == tuple(sorted(savings.without_s))
    assert savings.mean_s_per_token == tuple(sorted(savings.mean_s_per_token))
    computed = int((n_input - g)[first:].sum())
    if total:
        assert savings.mean_s_per_token.typical == pytest.approx(typical[-1] / total)
    elif computed:
        assert savings.mean_s_per_token.typical == pytest.approx(savings.without_s.typical / computed)


@given(streams, st.floats(1e-6, 1e-3))
def test_a_measured_mean_without_position_is_that_of_what_is_restored(stream, known):
    made, served, first = stream
    n_input, runs = find_stream(made, 1, 2)
    g, first = serve(made, n_input, served), min(first, len(made) - 1)
    total = count(runs, n_input, g, first)
    cost = cost_of((H20, H20, H20), known, None, BAND, "measured")
    savings = measure_savings(runs, n_input, g, cost, total, first_request=first)
    if not int((n_input - g)[first:].sum()):
        return
    assert savings.mean_s_per_token == pytest.approx([factor * known for factor in BAND])
    if total:
        assert [saved[-1] / total for saved in savings.saved_s] == pytest.approx([factor * known for factor in BAND])
    shape = sum_saved_seconds(runs, n_input, g, tabulate_times(H20, n_input), first_request=first)
    for saved, without, factor in zip(savings.saved_s, savings.without_s, BAND, strict=True):
        scale = factor * savings.times.suffix_s[1] / tabulate_times(H20, n_input).suffix_s[1]
        assert saved == pytest.approx(scale * shape)
        assert without == pytest.approx(scale * float(seconds(H20, g, n_input)[first:].sum()))


@given(streams, st.floats(1e-6, 1e-3), st.sampled_from([16.0, 2048.0, 50_000.0]))
def test_a_measured_mean_at_a_position_holds_for_the_prompt_with_that_position(stream, known, position):
    made, served, _ = stream
    n_input, runs = find_stream(made, 1, 2)
    g = serve(made, n_input, served)
    cost = cost_of((H20, H20, H20), known, position, BAND, "measured")
    savings = measure_savings(runs, n_input, g, cost, count(runs, n_input, g))
    whole = 2 * position
    scale = known / (float(seconds(H20, 0, whole)) / whole)
    shape = sum_saved_seconds(runs, n_input, g, tabulate_times(H20, n_input))
    for saved, factor in zip(savings.saved_s, BAND, strict=True):
        assert saved == pytest.approx(factor * scale * shape)
    assert savings.times.seconds_from(g, n_input) == pytest.approx(scale * seconds(H20, g, n_input))


def test_one_prompt_at_the_measured_position_takes_the_measured_time():
    n_input, runs = find_stream([list(range(4096))], 16, 1024)
    cost = cost_of((H20, H20, H20), 60.3e-6, 2048.0, BAND, "measured")
    savings = measure_savings(runs, n_input, np.zeros(1, np.int64), cost, 0)
    assert savings.without_s == pytest.approx([factor * 60.3e-6 * 4096 for factor in BAND])
    assert savings.mean_s_per_token.typical == pytest.approx(60.3e-6)


@given(streams, st.floats(1e-6, 1e-3))
def test_a_given_rate_is_linear_in_the_tokens(stream, known):
    made, served, first = stream
    n_input, runs = find_stream(made, 1, 2)
    g, first = serve(made, n_input, served), min(first, len(made) - 1)
    cost = cost_of(None, known, None, ONE, "given")
    savings = measure_savings(runs, n_input, g, cost, count(runs, n_input, g, first), first_request=first)
    for n_slots in range(runs.n_distinct + 1):
        c = np.minimum(cover_requests(runs, n_slots), np.maximum(n_input - 1, 0))
        restored = int(np.maximum(c - g, 0)[first:].sum())
        for saved in savings.saved_s:
            assert saved[n_slots] == pytest.approx(known * restored, abs=1e-12)
    computed = int((n_input - g)[first:].sum())
    assert savings.without_s == pytest.approx([known * computed] * 3)
    assert savings.mean_s_per_token == pytest.approx([known if computed else 0.0] * 3)
    assert savings.times.seconds_from(g, n_input) == pytest.approx(known * (n_input - g))


def test_equal_shares_of_the_peak_without_attention_are_linear_too():
    """A model whose attention costs nothing and whose products reach the same share at every size."""
    flat = Curve(np.zeros(1), np.array([0.5]))
    model = replace(H20, attention_s=0.0, dense=flat, moe=flat)
    per_token = float(seconds(model, 0, 1))
    made = [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 9, 9], [1, 2, 3, 4, 5, 6, 7, 8, 8]]
    n_input, runs = find_stream(made, 1, 2)
    g = np.array([0, 1, 3])
    total = count(runs, n_input, g)
    linear = measure_savings(runs, n_input, g, cost_of(None, per_token, origin="given"), total)
    modelled = measure_savings(runs, n_input, g, cost_of((model,) * 3), total)
    for saved, expected in zip(modelled.saved_s, linear.saved_s, strict=True):
        assert saved == pytest.approx(expected)
    assert modelled.without_s == pytest.approx(linear.without_s)
    assert modelled.mean_s_per_token == pytest.approx((per_token,) * 3)


def test_ends_do_not_cross_where_differences_of_ordered_times_do():
    """T of a table that is sure of long suffixes only: T(g) is the same, T(c) differs, and so the saving falls."""
    at = np.array([2.0, 4.0])
    ends = [
        replace(H20, attention_s=0.0, moe_s=0.0, dense=Curve(at, np.array([share, 0.8]))) for share in (0.8, 0.5, 0.4)
    ]
    n_input, runs = find_stream([list(range(16)), list(range(16))], 1, 4)
    nothing = np.zeros(2, np.int64)
    crossed = [sum_saved_seconds(runs, n_input, nothing, tabulate_times(m, n_input))[3] for m in ends]
    assert crossed[0] > crossed[1] > crossed[2]
    savings = measure_savings(runs, n_input, nothing, cost_of(tuple(ends)), count(runs, n_input, nothing))
    assert [saved[3] for saved in savings.saved_s] == pytest.approx([crossed[1]] * 3)
    assert savings.mean_s_per_token == tuple(sorted(savings.mean_s_per_token))
