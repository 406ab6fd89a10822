"""Change of the time to first token, against a loop over requests and a real LRU list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import LruTier, cut
from plans import make_costs
from strategies import paths

from capplan.costs.prefill import build_prefill, seconds
from capplan.economics import TAU_FLOOR_S, load_seconds, ttft_load, ttft_recompute
from capplan.hardware import load_gpu
from capplan.linking import link_prompts
from capplan.models import load_model
from capplan.order import Order
from capplan.prompts import Prompts, Requests
from capplan.runs import find_runs
from capplan.saving import linear_times, tabulate_times
from capplan.tree import build_tree
from capplan.ttft import PERCENTILES, measure_ttft

CHUNK = 2
RATE, BETA = 1e9, 1000
MODEL = build_prefill(load_gpu("h20"), load_model("qwen3-coder-30b-a3b"), 1).typical


def find_stream(made):
    ids = np.array([token for path in made for token in path], np.uint32)
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in made])]).astype(np.int64)
    requests = Requests.of(np.array([len(path) for path in made]))
    trace = link_prompts([Prompts(requests, ids, offsets, "tokens", 1)])
    order = Order("recorded", np.arange(len(made)), None, None)
    return trace.requests.input_tokens, find_runs(trace, build_tree(trace), order, CHUNK)


def costs_of(load_s=0.0, load_s_per_token=0.0):
    return make_costs(1e-3, RATE / 1e9, load_s, load_s_per_token, beta=BETA)


def loop(made, served, slots, time_of, costs, floor_s, leaf_first=True):
    """TTFT without and with the host tier, one request after the other."""
    tier = LruTier(slots, leaf_first)
    without, with_tier = [], []
    for prompt, g in zip(made, served, strict=True):
        n = len(prompt)
        chunks = cut(prompt, CHUNK)
        found = tier.lookup(chunks) * CHUNK
        tier.touch(chunks)
        end = max(g, min(found, n - 1))
        without.append(max(floor_s, time_of(g, n)))
        load = 0.0
        if end > g:
            moved = found - g // CHUNK * CHUNK  # whole chunks, from the one that holds the first token the GPU lacks
            load = costs.load_s.typical + moved * (BETA / RATE + costs.load_s_per_token)
        with_tier.append(max(floor_s, time_of(end, n)) + load)
    return np.array(without), np.array(with_tier)


@given(
    paths(max_requests=10, max_piece=12),
    st.lists(st.integers(0, 30), min_size=10, max_size=10),
    st.integers(0, 12),
    st.integers(0, 4),
    st.sampled_from([0.0, 1e-3, 1e-2]),
    st.sampled_from([0.0, 2e-3]),
    st.booleans(),
    st.booleans(),
)
def test_every_request_as_in_the_loop(made, served, slots, first, floor_s, load_s, is_linear, leaf_first):
    n_input, runs = find_stream(made)
    g = np.minimum(np.array(served[: len(made)]), np.maximum(n_input - 1, 0))
    first = min(first, len(made) - 1)
    costs = costs_of(load_s, 1e-6)
    times = linear_times(1e-3, n_input) if is_linear else tabulate_times(MODEL, n_input)

    def time_of(begin, n):
        return 1e-3 * (n - begin) if is_linear else float(seconds(MODEL, begin, n))

    without, with_tier = loop(made, g.tolist(), slots, time_of, costs, floor_s, leaf_first)
    change = (with_tier - without)[first:]
    touch = "leaf-first" if leaf_first else "head-first"
    found = measure_ttft(
        runs, n_input, g, slots, times, costs, touch=touch, first_request=first, floor_s=floor_s
    )  # fmt: skip
    assert (found.slots, found.floor_s) == (slots, floor_s)
    assert found.without_mean_s == pytest.approx(without[first:].mean(), abs=1e-15)
    assert found.change_mean_s == pytest.approx(change.mean(), abs=1e-15)
    assert list(found.change_percentiles_s) == list(PERCENTILES)
    assert list(found.change_percentiles_s.values()) == pytest.approx(np.percentile(change, PERCENTILES), abs=1e-15)
    is_clear = np.abs(change) > 1e-12  # a tie in exact arithmetic may be one unit off in either
    if is_clear[change != 0].all():
        assert found.faster_share == (change < 0).mean()
        assert found.slower_share == (change > 0).mean()
    assert 0 <= found.faster_share + found.slower_share <= 1


# Chunks of 2 tokens: the second prompt finds the first one's 3 chunks, less its last token; the third finds nothing.
MADE = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [7, 8]]
NOTHING = np.zeros(3, np.int64)


def measure(*, g=NOTHING, slots=9, load_s=0.0, per_token=0.01, **options):
    n_input, runs = find_stream(MADE)
    return measure_ttft(runs, n_input, g, slots, linear_times(per_token, n_input), costs_of(load_s), **options)


def test_by_hand():
    found = measure(load_s=0.002, floor_s=0.0)
    # without: 60, 60, 20 ms; the second computes 1 token and loads 6 at 1 us each
    assert found.without_mean_s == pytest.approx(0.14 / 3)
    assert found.change_mean_s == pytest.approx((0.01 + 0.002 + 6e-6 - 0.06) / 3)
    assert (found.faster_share, found.slower_share) == (pytest.approx(1 / 3), 0)
    assert found.change_percentiles_s[99] == 0


def test_gpu_served_tokens_are_neither_computed_nor_restored():
    found = measure(g=np.array([0, 3, 0]), floor_s=0.0)
    # the second computes 3 tokens without, 1 with the tier, which moves the 2 chunks from token 2 on
    assert found.change_mean_s == pytest.approx((-0.02 + 4e-6) / 3)
    assert measure(g=np.array([0, 5, 0]), floor_s=0.0).change_mean_s == 0


def test_no_prefill_is_shorter_than_the_floor():
    found = measure()
    assert found.floor_s == TAU_FLOOR_S == 0.042
    # 60, 60 and 42 ms; with the tier the second takes the floor and the load
    assert found.without_mean_s == pytest.approx((0.06 + 0.06 + 0.042) / 3)
    assert found.change_mean_s == pytest.approx((0.042 + 6e-6 - 0.06) / 3)
    hidden = measure(per_token=0.001)  # all prompts under the floor: restoring only costs
    assert hidden.without_mean_s == pytest.approx(0.042)
    assert hidden.change_mean_s == pytest.approx(6e-6 / 3)
    assert (hidden.faster_share, hidden.slower_share) == (0, pytest.approx(1 / 3))


def test_a_restore_of_a_whole_prompt_is_what_clients_measure():
    """`economics.ttft_load` against `ttft_recompute`, but for the one token that is always computed."""
    n_input, runs = find_stream([list(range(2000))] * 2)
    nothing = np.zeros(2, np.int64)
    found = measure_ttft(runs, n_input, nothing, 1000, linear_times(1e-3, n_input), costs_of(0.01))
    load = load_seconds(2000.0, BETA, RATE, 0.01)
    assert found.change_mean_s * 2 == pytest.approx(ttft_load(load) - ttft_recompute(2.0))


def test_warmup_fills_the_tier_and_is_not_counted():
    found = measure(first_request=1, floor_s=0.0)
    assert found.without_mean_s == pytest.approx(0.04)
    assert found.change_mean_s == pytest.approx((-0.05 + 6e-6) / 2)
    assert found.faster_share == 0.5


def test_a_slow_load_makes_requests_slower():
    found = measure(load_s=1.0)
    assert (found.faster_share, found.slower_share) == (0, pytest.approx(1 / 3))
    assert found.change_mean_s > 0


@pytest.mark.parametrize("slots", [0, 1, 2, 3, 10**9])
def test_without_coverage_nothing_changes(slots):
    found = measure(slots=slots, floor_s=0.0)
    # leaf-first: the head of a chain stays longest, each slot covers two tokens more
    restored = min(2 * slots, 5)
    assert found.change_mean_s == pytest.approx((-0.01 * restored + 1e-6 * min(2 * slots, 6)) / 3)
    if slots == 0:
        assert (found.faster_share, found.slower_share) == (0, 0)
        assert set(found.change_percentiles_s.values()) == {0.0}
