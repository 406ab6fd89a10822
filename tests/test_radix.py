"""SGLang's radix tree over two pools: what its classes do, a tree of objects, and laws that hold for all presets."""

import os
from dataclasses import replace

import numpy as np
import pytest
from builders import in_order, link_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import common_prefix
from oracles_radix import SELECTIVE, WRITE_BACK, WRITE_THROUGH, RadixTiers
from strategies import split_paths

from capplan.errors import SpecError
from capplan.kernels import radix_tree as tree_state
from capplan.simulation.presets import load_preset
from capplan.simulation.radix import read_rules, run_pools, simulate_radix
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import prepare_tier
from capplan.simulation.tier_run import sum_run
from capplan.tiers import GpuService
from capplan.tree import build_tree

MODES = {
    "sglang-hicache": WRITE_THROUGH,
    "sglang-hicache-selective": SELECTIVE,
    "sglang-hicache-writeback": WRITE_BACK,
}
PRESETS = sorted(MODES)
UNSAMPLED = -1  # ends every output: the token that is sampled last has no KV
every_preset = pytest.mark.parametrize("name", PRESETS)
without_jit = os.environ.get("NUMBA_DISABLE_JIT") == "1"


@st.composite
def workloads(draw, max_requests=16, max_piece=6):
    """Prompts and outputs with KV, a page, and pools that the longest of them nearly fill."""
    split = draw(split_paths(max_requests=max_requests, max_piece=max_piece, alphabet=2))
    calls = [(path[:n], path[n:]) for path, n in split]
    page = draw(st.integers(1, 2))
    longest = -(-max(len(path) for path, _ in split) // page)
    device = max(0, longest + draw(st.integers(-1, 5)))
    return calls, page, device, draw(st.integers(0, 2 * device + 2))


def cut_calls(calls, name, page, changes=None):
    """A preset's input for calls whose outputs end with a token that has no KV."""
    paths = [[*prompt, *output, UNSAMPLED % 1000] for prompt, output in calls]
    trace = link_tokens(paths, 1, [len(prompt) for prompt, _ in calls])
    none = np.zeros(len(calls), np.int64)
    tier_settings = replace(TierSettings.of(load_preset(name)), unit_tokens=page, **(changes or {}))
    order, gpu = in_order(range(len(calls))), GpuService(1, 0, none, none)
    return prepare_tier(trace, build_tree(trace), order, gpu, tier_settings, 1)


def run_calls(calls, name, page, device, host, min_load_tokens=1, counts_own_finish=True):
    """The tree at the end, and the tally, of a preset."""
    tier = cut_calls(calls, name, page)
    rules = read_rules(tier.settings.preset, page, device, host, tier.settings.min_offers)
    rules = rules._replace(min_load_tokens=min_load_tokens, counts_own_finish=counts_own_finish)
    return run_pools(tier.stream, rules)


def family(name, n_prompt, n_output=0):
    """A prompt and an output that share all they can with others of the same name."""
    tokens = [1000 * name + k for k in range(n_prompt + n_output)]
    return tokens[:n_prompt], tokens[n_prompt:]


# what the real classes were seen to do

CALLS = [
    family(1, 40, 5), family(2, 30, 5), family(3, 40), family(1, 46), family(4, 40), family(5, 40), family(2, 36),
]  # fmt: skip
OBSERVED = {
    "sglang-hicache": ([0, 0, 0, 45, 0, 0, 0], [95, 60, 20, 19, 54, 14, 24]),
    "sglang-hicache-selective": ([0, 0, 0, 40, 0, 0, 0], [100, 70, 30, 24, 54, 14, 24]),
}
DEVICE_FREE = [55, 20, 25, 54, 14, 20, 24]


@pytest.mark.parametrize("name", sorted(OBSERVED))
def test_pools_fill_as_observed(name):
    loaded, host_free = OBSERVED[name]
    oracle = RadixTiers(100, 140, 1, MODES[name])
    for k, call in enumerate(CALLS):
        served = oracle.serve(*call)
        assert (served.device, served.host_hit, served.loaded_end) == (0, loaded[k], loaded[k])
        assert (oracle.device_free, oracle.host_free) == (DEVICE_FREE[k], host_free[k])
    _, tally = run_calls(CALLS, name, 1, 100, 140, min_load_tokens=10)
    assert not tally.device_end.any()
    assert tally.loaded_end.tolist() == loaded
    assert (100 - tally.device_used).tolist() == DEVICE_FREE
    assert (140 - tally.host_used).tolist() == host_free


def test_short_hits_are_not_loaded_as_observed():
    calls = [family(1, 8), family(2, 29), family(1, 9)]
    oracle = RadixTiers(30, 60)
    hits = [(served.host_hit, served.loaded_end) for served in (oracle.serve(*call) for call in calls)]
    assert hits == [(0, 0), (0, 0), (8, 0)]
    _, tally = run_calls(calls, "sglang-hicache", 1, 30, 60, min_load_tokens=10)
    assert tally.loaded_end.tolist() == [0, 0, 0]
    _, tally = run_calls(calls, "sglang-hicache", 1, 30, 60, min_load_tokens=8)
    assert tally.loaded_end.tolist() == [0, 0, 8]


# the tree of objects


@every_preset
@given(drawn=workloads(), min_load=st.sampled_from([1, 3, 10]), counts_own=st.booleans())
@settings(max_examples=20 if without_jit else 150)
def test_preset_equals_the_tree_of_objects(name, drawn, min_load, counts_own):
    calls, page, device, host = drawn
    oracle = RadixTiers(device, host, page, MODES[name], min_load, counts_own)
    tree, tally = run_calls(calls, name, page, device, host, min_load, counts_own)
    for c, call in enumerate(calls):
        served = oracle.serve(*call)
        assert (tally.device_end[c], tally.loaded_end[c]) == (served.device, served.loaded_end)
        assert tally.repeats[c] == served.whole
        assert (tally.written[c], tally.evicted[c], tally.refused[c]) == (
            served.written,
            served.evicted,
            served.refused,
        )
        assert tally.device_used[c] == device - oracle.device_free
        assert tally.host_used[c] == host - oracle.host_free
    assert tree.totals[tree_state.PEAK_DEVICE] == oracle.peak_device
    assert tree.totals[tree_state.PEAK_HOST] == oracle.peak_host


@pytest.mark.parametrize(("device", "n_output", "below"), [(10, 0, 0), (12, 3, 3)])
def test_what_is_being_loaded_stays_on_the_host(device, n_output, below):
    """A load of 8 has the device give up 10, for which the host could only drop the 8, and what lies below them."""
    calls = [family(1, 8, n_output), family(2, 10), family(1, 9)]
    oracle = RadixTiers(device, 12 + below, 1, WRITE_BACK, min_load_tokens=1)
    served = [oracle.serve(*call) for call in calls]
    _, tally = run_calls(calls, "sglang-hicache-writeback", 1, device, 12 + below, min_load_tokens=1)
    assert tally.refused.tolist() == [one.refused for one in served] == [0, 0, 10]
    assert tally.evicted.tolist() == [one.evicted for one in served] == [0, 0, below]
    assert tally.host_used.tolist() == [0, 8 + below, 8]


def test_a_prompt_stays_on_the_device_while_its_output_takes_all_other_room():
    calls = [family(1, 6), (family(1, 4)[0], family(2, 0, 10)[1]), family(1, 5)]
    _, tally = run_calls(calls, "sglang-hicache", 2, 7, 20)
    assert tally.device_used.tolist() == [3, 7, 2]
    assert tally.device_end.tolist() == [0, 1, 2]


def test_a_node_without_room_on_the_host_takes_copies_made_for_the_same_eviction_along():
    calls = [family(1, 6, 4), family(2, 10)]
    _, tally = run_calls(calls, "sglang-hicache-writeback", 1, 10, 5)
    assert (tally.written.tolist(), tally.evicted.tolist(), tally.refused.tolist()) == ([0, 4], [0, 4], [0, 6])
    assert (tally.device_used.tolist(), tally.host_used.tolist()) == ([10, 10], [0, 0])


def test_a_node_is_offered_at_every_insert_until_the_host_has_room():
    calls = [family(1, 6), family(1, 9), family(1, 9)]
    _, tally = run_calls(calls, "sglang-hicache", 1, 20, 5)
    assert tally.refused.tolist() == [12, 12, 12]
    assert tally.written.tolist() == [0, 3, 0]


# laws


@every_preset
@given(drawn=workloads())
def test_pools_never_overflow_and_hold_what_was_put_in_and_not_taken_out(name, drawn):
    calls, page, device, host = drawn
    tree, tally = run_calls(calls, name, page, device, host)
    assert tree.totals[tree_state.PEAK_DEVICE] <= device
    assert tree.totals[tree_state.PEAK_HOST] <= host
    held = np.cumsum(tally.written.astype(np.int64) - tally.evicted)
    assert tally.host_used.tolist() == held.tolist()
    heads = np.flatnonzero(tree.held & (tree.below < 0))
    sizes = np.array([tree_state.count_pages(tree, node) for node in heads], np.int64)
    assert sizes[tree.on_host[heads]].sum() == tree.totals[tree_state.ON_HOST]
    assert sizes[tree.on_device[heads]].sum() == tree.totals[tree_state.ON_DEVICE]
    assert (tree.on_device[heads] | tree.on_host[heads]).all()


@every_preset
@given(drawn=workloads())
def test_tokens_add_up_and_nothing_is_found_that_was_never_there(name, drawn):
    calls, page, device, host = drawn
    tier = cut_calls(calls, name, page)
    run = simulate_radix(tier, device, host)
    totals = sum_run(run)
    assert totals.gpu_tokens + totals.restored_tokens + totals.computed_tokens == totals.prompt_tokens
    paths = [prompt + output for prompt, output in calls]
    for c, (prompt, _) in enumerate(calls):
        seen = max((common_prefix(earlier, prompt) for earlier in paths[:c]), default=0)
        assert run.known_tokens[c] <= min(seen, max(len(prompt) - 1, 0)) // page * page
    assert run.restored_tokens.sum() == 0 or run.written.sum() > 0
    unlimited = simulate_radix(tier, 10_000, 10_000)
    assert (run.known_tokens <= unlimited.known_tokens).all()
    assert unlimited.evicted.sum() == unlimited.refused.sum() == unlimited.restored_tokens.sum() == 0


@every_preset
@given(drawn=workloads())
def test_without_a_host_the_device_stands_alone(name, drawn):
    calls, page, device, _ = drawn
    _, tally = run_calls(calls, name, page, device, 0)
    _, reference = run_calls(calls, "sglang-hicache", page, device, 0)
    assert tally.device_end.tolist() == reference.device_end.tolist()
    assert not tally.loaded_end.any()
    assert not tally.written.any()
    assert not tally.host_used.any()


@given(workloads())
def test_a_device_that_evicts_nothing_is_served_alike_by_every_mode(drawn):
    calls, page, _, host = drawn
    ends = [run_calls(calls, name, page, 10_000, host)[1].device_end.tolist() for name in PRESETS]
    assert ends[0] == ends[1] == ends[2]


@given(workloads())
def test_what_is_copied_at_the_device_eviction_is_never_copied_earlier(drawn):
    calls, page, _, host = drawn
    assert not run_calls(calls, "sglang-hicache-writeback", page, 10_000, host)[1].written.any()


# rules that differ between versions and presets


def test_a_prompt_is_copied_when_its_request_ends_only_where_that_counts():
    calls = [family(1, 20, 4), family(1, 21)]
    _, counted = run_calls(calls, "sglang-hicache-selective", 1, 100, 100)
    _, uncounted = run_calls(calls, "sglang-hicache-selective", 1, 100, 100, counts_own_finish=False)
    assert counted.written.tolist() == [20, 1]
    assert uncounted.written.tolist() == [0, 21]


@pytest.mark.parametrize("n_pages", [1, 2, 3])
def test_a_repeated_prompt_of_whole_pages_computes_its_last_page(n_pages):
    n = 2 * n_pages
    run = simulate_radix(cut_calls([family(1, n), family(1, n), family(2, n)], "sglang-hicache", 2), 100, 100)
    assert run.gpu_tokens.tolist() == [0, n - 2, 0]
    assert run.gpu_forced_tokens.tolist() == [0, 2, 0]
    assert run.forced_tokens.tolist() == [0, 2, 0]


def test_a_request_longer_than_the_device_is_computed_and_its_pages_are_refused():
    tier = cut_calls([family(1, 6), family(1, 20), family(1, 6)], "sglang-hicache", 1)
    run = simulate_radix(tier, 10, 100)
    assert run.gpu_tokens.tolist() == [0, 0, 5]
    assert run.refused.tolist() == [0, 20, 0]


def test_evictions_free_as_much_as_is_asked_for_not_what_is_missing():
    calls = [family(1, 30), family(2, 30), family(3, 30), family(4, 31)]
    _, tally = run_calls(calls, "sglang-hicache", 1, 100, 200)
    assert tally.device_used.tolist() == [30, 60, 90, 61]


def test_a_capacity_in_bytes_is_pages_beside_the_gpu_pool_of_the_deployment():
    tier = cut_calls(CALLS, "sglang-hicache", 1)
    tier = replace(tier, gpu=replace(tier.gpu, block_tokens=10, n_slots=10))
    run = simulate_tier(tier, 140)
    assert (run.n_slots, run.unit_tokens) == (140, 1)
    assert run.found_tokens.tolist() == OBSERVED["sglang-hicache"][0]
    assert run.restored_tokens.tolist() == OBSERVED["sglang-hicache"][0]


@every_preset
def test_write_admission_is_refused(name):
    tier = cut_calls([family(1, 6)], name, 1, {"rule": AdmissionRule("fixed")})
    with pytest.raises(SpecError, match=f"tier {name} has no admission rule 'fixed'"):
        simulate_radix(tier, 10, 10)


@every_preset
def test_presets_say_what_they_do(name):
    preset = load_preset(name)
    assert (preset.kind, preset.unit_tokens, preset.min_load_tokens) == ("radix", 1, 10)
    assert preset.write_back == (MODES[name] == WRITE_BACK)
    assert preset.min_offers == {WRITE_THROUGH: 1, SELECTIVE: 2, WRITE_BACK: 0}[MODES[name]]
    assert preset.counts_own_finish
