"""ARC as vLLM's offload has it: against plain lists, step by step, and against LRU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cut
from oracles_arc import ArcOffload
from strategies import split_paths
from tier_runs import Calls, set_tier

from capplan.errors import SpecError
from capplan.kernels import arc, recency
from capplan.simulation.presets import load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings

NONE = AdmissionRule()
UNMARKED = np.full(20, -1, np.int32)


@st.composite
def calls_with_gpu(draw, **options):
    """Calls, and tokens of each that a GPU tier serves: any number that leaves one to compute."""
    split = draw(split_paths(**options))
    return [(path[:n], path[n:]) for path, n in split], [draw(st.integers(0, max(0, n - 1))) for _, n in split]


def compare(calls, n_slots, oracle, declines=None, **changes):
    run = calls.run(set_tier("vllm-offload", oracle.unit, policy="arc", **changes), n_slots)
    found = calls.replay(oracle, declines)
    assert (run.found_tokens // run.unit_tokens).tolist() == found
    for name in ("written", "evicted", "duplicates", "refused"):
        assert int(getattr(run, name).sum()) == getattr(oracle, name), name
    return run


@given(calls_with_gpu(max_requests=24), st.integers(1, 3), st.integers(1, 12))
def test_arc_equals_plain_lists(drawn, unit, n_slots):
    run = compare(Calls(*drawn), n_slots, ArcOffload(n_slots, unit), rule=NONE)
    assert (run.gpu_tokens + run.restored_tokens + run.computed_tokens == run.n_tokens).all()


@given(calls_with_gpu(max_requests=20), st.integers(1, 12), st.integers(1, 5))
def test_prefill_steps_store_what_they_fill(drawn, n_slots, step):
    compare(Calls(*drawn), n_slots, ArcOffload(n_slots, 1, step=step), rule=NONE, step_tokens=step)


@given(calls_with_gpu(max_requests=20), st.integers(1, 12), st.integers(2, 3))
def test_units_are_stored_from_their_k_th_offer_on(drawn, n_slots, min_offers):
    compare(Calls(*drawn), n_slots, ArcOffload(n_slots, 1, min_offers), rule=NONE, min_offers=min_offers)


@given(calls_with_gpu(max_requests=20), st.integers(1, 12), st.integers(0, 4))
def test_declined_requests_use_what_they_load(drawn, n_slots, kappa):
    calls = Calls(*drawn)

    def declines(c, found):
        return len(calls.calls[c][0]) - found > kappa

    compare(calls, n_slots, ArcOffload(n_slots, 1), declines, rule=AdmissionRule("fixed", kappa))


@given(calls_with_gpu(max_requests=12))
def test_with_room_for_all_it_finds_what_lru_finds(drawn):
    calls = Calls(*drawn)
    lru, adaptive = (calls.run(set_tier("vllm-offload", rule=NONE, policy=policy), 1000) for policy in ("lru", "arc"))
    assert lru.found_tokens.tolist() == adaptive.found_tokens.tolist()
    assert adaptive.evicted.sum() == adaptive.refused.sum() == 0


@given(calls_with_gpu(max_requests=20), st.integers(1, 12))
def test_nothing_is_found_that_was_never_in_a_prompt(drawn, n_slots):
    calls = Calls(*drawn)
    run = calls.run(set_tier("vllm-offload", rule=NONE, policy="arc"), n_slots)
    seen = set()
    for (prompt, _), begin, end in zip(calls.calls, run.gpu_tokens, run.found_tokens, strict=True):
        assert set(cut(prompt, 1)[begin:end]) <= seen
        seen.update(cut(prompt, 1))


@given(calls_with_gpu(max_requests=12))
def test_tier_without_slots_stores_nothing(drawn):
    run = Calls(*drawn).run(set_tier("vllm-offload", rule=NONE, policy="arc"), 0)
    assert run.found_tokens.sum() == run.written.sum() == run.evicted.sum() == 0


def read(store, n_list):
    """Units of a list, oldest first."""
    found, unit = [], store.newer[store.n_units + n_list]
    while unit < store.n_units:
        found.append(int(unit))
        unit = store.newer[unit]
    return found


def read_all(lists):
    return [read(lists.store, 0), read(lists.store, 1), read(lists.ghosts, 0), read(lists.ghosts, 1)]


def test_lists_step_by_step():
    """Four slots: what is used twice stays while new units pass, until a ghost says that the first list is short."""
    lists = arc.open_lists(20)
    for unit in range(4):
        arc.insert(lists, unit)
    arc.use(lists, 0)
    arc.use(lists, 1)
    arc.use(lists, 0)
    assert read_all(lists) == [[2, 3], [1, 0], [], []]
    arc.make_room(lists, 1, 4, UNMARKED, 0)
    arc.insert(lists, 4)
    assert read_all(lists) == [[3, 4], [1, 0], [2], []]
    arc.learn(lists, 2, 4)
    assert lists.aim[0] == 1
    arc.learn(lists, 2, 4)
    arc.learn(lists, 2, 4)
    assert lists.aim[0] == 3
    arc.make_room(lists, 1, 4, UNMARKED, 0)
    assert read_all(lists) == [[3, 4], [0], [2], [1]]
    arc.insert(lists, 2)
    assert read_all(lists) == [[3, 4, 2], [0], [], [1]]
    arc.refresh(lists, 3)
    assert read_all(lists) == [[4, 2, 3], [0], [], [1]]
    arc.learn(lists, 1, 4)
    assert lists.aim[0] == 2
    assert (lists.sizes.tolist(), lists.ghost_sizes.tolist()) == ([3, 1], [0, 1])
    assert lists.store.totals[recency.RESIDENT] == 4


def test_ghost_of_a_short_list_weighs_more():
    lists = arc.open_lists(20)
    for unit in range(6):
        arc.insert(lists, unit)
    for unit in (0, 1, 2):
        arc.use(lists, unit)
    arc.evict(lists, 3)
    for unit in (0, 1, 2):
        arc.evict(lists, unit)
    arc.learn(lists, 3, 10)
    assert lists.aim[0] == 3
    arc.learn(lists, 0, 10)
    assert lists.aim[0] == 2


def test_aim_counts_in_whole_units():
    """Two ghosts of the first list, three of the second: the aim becomes 1.5, and a list of one is long enough."""
    lists = arc.open_lists(20)
    for unit in range(7):
        arc.insert(lists, unit)
    for unit in (2, 3, 4, 5):
        arc.use(lists, unit)
    for unit in range(5):
        arc.evict(lists, unit)
    arc.learn(lists, 0, 10)
    assert lists.aim[0] == 1.5
    arc.make_room(lists, 1, 10, UNMARKED, 0)
    assert read_all(lists) == [[], [5], [1, 0, 6], [2, 3, 4]]


def test_marked_units_are_passed_over_and_ghosts_are_as_many_as_slots():
    lists, mark = arc.open_lists(20), UNMARKED.copy()
    for unit in range(5):
        arc.insert(lists, unit)
    mark[[0, 2]] = 8
    arc.make_room(lists, 3, 2, mark, 8)
    assert read_all(lists) == [[0, 2], [], [3, 4], []]


def test_used_prompt_survives_a_scan_that_empties_lru():
    """A is used twice, then prompts that come once fill the tier over and over: LRU drops A, ARC keeps it."""
    a = [1, 2]
    scan = [([10 + k, 30 + k], []) for k in range(6)]
    calls = Calls([(a, []), (a, []), *scan, ([*a, 3], [])])
    lru, adaptive = (calls.run(set_tier("vllm-offload", rule=NONE, policy=policy), 6) for policy in ("lru", "arc"))
    assert lru.found_tokens[-1] == 0
    assert adaptive.found_tokens[-1] == 2


def test_policy_is_of_presets_that_have_it():
    assert TierSettings.of(load_preset("vllm-offload")).change(policy="arc").policy == "arc"
    with pytest.raises(SpecError, match=r"tier vllm-offload-0\.13 has no policy 'arc'; accepted: lru, belady"):
        TierSettings.of(load_preset("vllm-offload-0.13")).change(policy="arc")
