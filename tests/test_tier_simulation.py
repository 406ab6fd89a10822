"""Simulated tiers against plain lists of keys, and the laws that hold for all of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cut, simulate
from oracles_tiers import (
    EfficientAgent,
    Kvbm,
    Lmcache,
    LmcacheMp,
    MooncakeStore,
    VllmOffload,
    VllmOffload13,
    keep_best,
)
from strategies import split_paths
from tier_runs import Calls, set_tier

from capplan.simulation.inclusive import goes_by_extents, simulate_extents, simulate_units
from capplan.simulation.rules import AdmissionRule, read_rules
from capplan.simulation.tier_run import sum_run

ORACLES = {
    "lmcache": Lmcache,
    "efficientagent-fixed": EfficientAgent,
    "vllm-offload": VllmOffload,
    "vllm-offload-0.13": VllmOffload13,
    "dynamo-kvbm": Kvbm,
    "mooncake-store": MooncakeStore,
}
NONE = AdmissionRule()


@st.composite
def calls_with_gpu(draw, **options):
    """Calls, and tokens of each that a GPU tier serves: any number that leaves one to compute."""
    split = draw(split_paths(**options))
    calls = [(path[:n], path[n:]) for path, n in split]
    return calls, [draw(st.integers(0, max(0, n - 1))) for _, n in split]


def compare(run, oracle, found):
    assert (run.found_tokens // run.unit_tokens).tolist() == found
    for name in ("written", "evicted", "duplicates", "refused"):
        assert int(getattr(run, name).sum()) == getattr(oracle, name), name


@pytest.mark.parametrize("name", sorted(ORACLES))
@given(drawn=calls_with_gpu(), unit=st.integers(1, 3), n_slots=st.integers(0, 12))
def test_preset_equals_its_plain_list(name, drawn, unit, n_slots):
    calls = Calls(*drawn)
    run = calls.run(set_tier(name, unit, rule=NONE), n_slots)
    oracle = ORACLES[name](n_slots, unit)
    if n_slots == 0:
        assert run.found_tokens.sum() == run.written.sum() == run.evicted.sum() == 0
    else:
        compare(run, oracle, calls.replay(oracle))


@given(calls_with_gpu(), st.integers(1, 3), st.integers(1, 12), st.sampled_from(["lru", "fifo", "lfu", "mru"]))
def test_lmcache_under_every_policy_it_has(drawn, unit, n_slots, policy):
    calls = Calls(*drawn)
    oracle = Lmcache(n_slots, unit, policy)
    compare(calls.run(set_tier("lmcache", unit, policy=policy), n_slots), oracle, calls.replay(oracle))


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("lmcache", Lmcache),
        ("efficientagent-fixed", EfficientAgent),
        ("vllm-offload", VllmOffload),
        ("vllm-offload-0.13", VllmOffload13),
    ],
)
@given(drawn=calls_with_gpu(), unit=st.integers(1, 3), n_slots=st.integers(1, 12), step=st.integers(1, 7))
def test_prefill_steps_store_what_they_fill(name, oracle, drawn, unit, n_slots, step):
    calls = Calls(*drawn)
    plain = oracle(n_slots, unit, step=step)
    compare(calls.run(set_tier(name, unit, rule=NONE, step_tokens=step), n_slots), plain, calls.replay(plain))


@given(calls_with_gpu(), st.integers(1, 12), st.integers(2, 4))
def test_units_are_stored_from_their_k_th_offer_on(drawn, n_slots, min_offers):
    calls = Calls(*drawn)
    oracle = VllmOffload(n_slots, 1, min_offers)
    compare(calls.run(set_tier("vllm-offload", min_offers=min_offers), n_slots), oracle, calls.replay(oracle))


@given(calls_with_gpu(), st.integers(1, 12), st.lists(st.integers(0, 3), min_size=14, max_size=14))
def test_a_thread_sweeps_every_second(drawn, n_slots, waits):
    calls, gpu = drawn
    times = np.cumsum(waits[: len(calls)])
    stream = Calls(calls, gpu, times)
    run = stream.run(set_tier("lmcache-mp"), n_slots)
    oracle, next_tick, found = LmcacheMp(n_slots, 1), times[0] + 1, []
    for c, now in enumerate(times):
        while next_tick <= now:
            oracle.tick()
            next_tick += 1
        prompt, output = calls[c]
        path = (prompt + output)[: len(prompt) + max(len(output) - 1, 0)]
        found.append(oracle.run(prompt, path, gpu[c]))
    compare(run, oracle, found)


@given(calls_with_gpu(), st.integers(1, 3), st.integers(0, 14))
def test_stack_distance_is_one_lru_list(drawn, unit, n_slots):
    calls = Calls(*drawn)
    run = calls.run(set_tier("stack-distance", unit), n_slots)
    found, written = simulate([cut(prompt, unit) for prompt, _ in drawn[0]], n_slots)
    assert (run.found_tokens // unit).tolist() == found
    assert int(run.written.sum()) == written


@pytest.mark.parametrize("name", ["lmcache-mp", *sorted(ORACLES)])
@given(
    drawn=calls_with_gpu(), unit=st.integers(1, 3), n_slots=st.integers(0, 14), step=st.sampled_from([0, 0, 1, 4]),
    policy=st.sampled_from(["lru", "fifo", "mru"]), kappa=st.sampled_from([1, 3, 100]),
)  # fmt: skip
def test_extents_are_the_general_path(name, drawn, unit, n_slots, step, policy, kappa):
    calls = Calls(*drawn, times=np.arange(len(drawn[0])))
    settings = set_tier(name, unit, rule=AdmissionRule("fixed", kappa), step_tokens=step)
    settings = replace(settings, policy=policy if policy in settings.preset.policies else "lru")
    assert goes_by_extents(settings)
    tier = calls.tier(settings)
    rules = read_rules(settings.preset, n_slots, unit, settings.policy, step, 0)
    general = simulate_units(tier, rules, n_slots * unit)
    fast = simulate_extents(tier, rules, n_slots * unit, n_items=1)  # too few: it has to start over
    for name in ("found_tokens", "written", "evicted", "duplicates", "refused", "declined"):
        assert getattr(fast, name).tolist() == getattr(general, name).tolist(), name


class DecliningLru(Lmcache):
    """Whole prompts touched tail first, one unit at a time; a declined request touches what is resident."""

    def lookup(self, call):
        return self.leading(call.prompt)

    def store(self, call, found):
        for key in reversed(call.prompt):
            if key not in self.order:
                if len(self.order) == self.n_slots:
                    self.evict(self.order[0])
                self.put([key])
            self.touch([key])

    def decline(self, call, found):
        self.touch(reversed(call.prompt))


DECLINES = {"stack-distance": DecliningLru, **ORACLES}


@pytest.mark.parametrize("name", sorted(DECLINES))
@given(drawn=calls_with_gpu(), n_slots=st.integers(1, 12), kappa=st.integers(0, 5))
def test_a_fixed_rule_declines_more_than_kappa_new_units(name, drawn, n_slots, kappa):
    calls = Calls(*drawn)
    oracle = DECLINES[name](n_slots, 1)
    sizes = [len(prompt) for prompt, _ in drawn[0]]
    found = calls.replay(oracle, lambda c, found: sizes[c] - found > kappa)
    run = calls.run(set_tier(name, rule=AdmissionRule("fixed", kappa)), n_slots)
    compare(run, oracle, found)
    declined = [n - f if n - f > kappa else 0 for n, f in zip(sizes, found, strict=True)]
    assert run.declined.tolist() == declined
    assert sum_run(run).declined_requests == sum(n > 0 for n in declined)


@given(calls_with_gpu(max_requests=10, max_piece=6), st.integers(0, 10))
def test_belady_keeps_what_is_used_soonest(drawn, n_slots):
    calls = Calls(*drawn)
    run = calls.run(set_tier("stack-distance", policy="belady"), n_slots)
    found, written = keep_best([cut(prompt, 1) for prompt, _ in drawn[0]], n_slots)
    assert run.found_tokens.tolist() == found
    assert run.written.tolist() == written


@given(calls_with_gpu(), st.integers(0, 12), st.integers(1, 3), st.sampled_from(["lru", "fifo", "lfu", "mru"]))
def test_no_policy_covers_more_than_belady(drawn, n_slots, unit, policy):
    calls = Calls(*drawn)
    best = calls.run(set_tier("stack-distance", unit, policy="belady"), n_slots).found_tokens.sum()
    assert calls.run(set_tier("lmcache", unit, policy=policy), n_slots).found_tokens.sum() <= best
    for name in ("stack-distance", "efficientagent-fixed", "mooncake-store"):
        assert calls.run(set_tier(name, unit, rule=NONE), n_slots).found_tokens.sum() <= best


PRESETS = ("stack-distance", "lmcache-mp", *ORACLES)


@pytest.mark.parametrize("name", PRESETS)
@given(drawn=calls_with_gpu(), n_slots=st.integers(0, 12), unit=st.integers(1, 3), kappa=st.integers(0, 4))
def test_laws_of_every_tier(name, drawn, n_slots, unit, kappa):
    calls = Calls(*drawn, times=np.arange(len(drawn[0])))
    run = calls.run(set_tier(name, unit, rule=AdmissionRule("fixed", kappa)), n_slots)
    assert (run.gpu_tokens + run.restored_tokens + run.computed_tokens == run.n_tokens).all()
    assert (run.restored_tokens >= 0).all()
    assert (run.moved_tokens >= run.restored_tokens).all()
    held = np.cumsum(run.written.astype(int) - run.evicted)
    assert (held >= 0).all()
    assert (held <= n_slots).all()
    total = sum_run(run)
    assert total.gpu_tokens + total.restored_tokens + total.computed_tokens == total.prompt_tokens
    # Nothing is found that was not written: an endless tier of the same scope finds at least as much.
    endless = calls.run(set_tier(name, unit, rule=NONE), 10_000)
    assert (run.found_tokens <= endless.found_tokens).all()


def test_one_request_larger_than_the_tier_keeps_its_head_or_nothing():
    prompt = list(range(12))
    calls = Calls([(prompt, []), (prompt, [])])
    assert calls.run(set_tier("lmcache"), 8).found_tokens.tolist() == [0, 8]
    assert calls.run(set_tier("vllm-offload"), 8).found_tokens.tolist() == [0, 0]
    assert calls.run(set_tier("stack-distance"), 8).found_tokens.tolist() == [0, 8]
