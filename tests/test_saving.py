"""Prefill time saved at every capacity, against T(g) - T(c) request by request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import paths

from capplan.costs.prefill import build_prefill, seconds
from capplan.curve import cover_requests
from capplan.hardware import load_gpu
from capplan.linking import link_prompts
from capplan.models import load_model
from capplan.order import Order
from capplan.prompts import Prompts, Requests
from capplan.runs import find_runs
from capplan.saving import linear_times, sum_saved_seconds, tabulate_times
from capplan.tree import build_tree

H20 = build_prefill(load_gpu("h20"), load_model("qwen3-coder-30b-a3b"), 1).typical
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
