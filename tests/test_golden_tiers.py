"""Order lists observed on the engines' own classes with stub pools: vLLM's native offload and LMCache 0.3.12."""

import numpy as np
import pytest
from tier_runs import Calls, set_tier

from capplan.kernels import gate, inclusive, paths, recency, tier_rules
from capplan.simulation.presets import load_preset
from capplan.simulation.rules import AdmissionRule, policy_number, read_rules

FAMILIES = "ABCZ"
PER_FAMILY = 12


def spell(text):
    """Names of "A0-3 B1": a family and its first and last unit, or one."""
    names = []
    for word in text.split():
        first, _, last = word[1:].partition("-")
        names += [f"{word[0]}{k}" for k in range(int(first), int(last or first) + 1)]
    return names


def number(name):
    return FAMILIES.index(name[0]) * PER_FAMILY + int(name[1:])


def read_order(store):
    """Names of what a store holds, oldest first."""
    found, unit = [], store.newer[store.n_units]
    while unit < store.n_units:
        found.append(f"{FAMILIES[unit // PER_FAMILY]}{unit % PER_FAMILY}")
        unit = store.newer[unit]
    return found


def read_set(store):
    return {f"{FAMILIES[k // PER_FAMILY]}{k % PER_FAMILY}" for k in np.flatnonzero(store.newer[: store.n_units] >= 0)}


class Backend:
    """A preset's tier, one call at a time."""

    def __init__(self, preset, n_slots, policy="lru", min_offers=0):
        self.rules = read_rules(load_preset(preset), n_slots, 1, policy, 0, min_offers)
        n_units, kind = len(FAMILIES) * PER_FAMILY, policy_number(policy)
        self.store = recency.open_store(n_units, kind, 20 if kind == recency.LFU else 1)
        self.offers = inclusive.open_offers(n_units, 64_000 if min_offers else 0)
        self.buffers = inclusive.open_buffers(n_units, n_units)
        self.tally = tier_rules.open_tally(1)

    def fill(self, text):
        units = [number(name) for name in spell(text)]
        self.buffers.units[: len(units)] = units
        return len(units)

    def look_up(self, text):
        n = self.fill(text)
        found = inclusive.look_up(self.store, self.rules, self.buffers.units, n, 0)
        inclusive.touch_found(self.store, self.rules, self.buffers.units, n, found)
        return found

    def put(self, text):
        """Store units; the names that are gone afterwards."""
        before, n = read_set(self.store), self.fill(text)
        inclusive.offer(self.store, self.rules, self.offers, self.buffers, 0, n, self.tally, 0)
        return sorted(before - read_set(self.store))

    @property
    def order(self):
        return read_order(self.store)


def test_lmcache_keeps_its_list():
    """L1, ten slots: stored head first, turned round by the next lookup."""
    tier = Backend("lmcache", 10)
    assert tier.put("A0-3") == []
    assert tier.order == spell("A0-3")
    assert tier.look_up("A0-5") == 4
    assert tier.order == spell("A3 A2 A1 A0")
    assert tier.put("A4-5") == []
    assert tier.order == spell("A3 A2 A1 A0 A4 A5")
    assert tier.put("B0-5") == ["A2", "A3"]
    assert tier.order == spell("A1 A0 A4 A5 B0-5")
    assert tier.look_up("A0-5") == 2
    assert tier.put("A2-5") == ["B0", "B1"]  # A4 and A5 are taken as victims and stored again
    assert tier.order == spell("B2 B3 B4 B5 A1 A0 A2 A3 A4 A5")


def test_lmcache_keeps_the_head_of_what_does_not_fit():
    """L2, four slots. Observed besides: with everything pinned, a store of two stores none. Nothing is pinned here."""
    tier = Backend("lmcache", 4)
    assert tier.put("A0-6") == []
    assert tier.order == spell("A0-3")
    tier = Backend("lmcache", 4)
    tier.put("Z0-3")
    assert tier.put("A0-6") == spell("Z0-3")
    assert tier.order == spell("A0-3")
    assert tier.tally.refused[0] == 3


@pytest.mark.parametrize(("policy", "gone"), [("lfu", "A2 B0"), ("fifo", "A0 A1"), ("mru", "B1 B2")])
def test_lmcache_evicts_as_its_policies_say(policy, gone):
    """L3, six slots."""
    tier = Backend("lmcache", 6, policy)
    tier.put("A0-2")
    assert tier.look_up("A0-1") == 2
    tier.put("B0-2")
    assert tier.put("C0-1") == spell(gone)


OFFLOAD = [
    # prompt units, units the GPU serves, host hit, stored, refused, evicted, order after
    ("A0-3", 0, 0, "A0-3", 0, 0, "A3 A2 A1 A0"),
    ("A0-5", 4, 0, "A4-5", 0, 0, "A5 A4 A3 A2 A1 A0"),
    ("B0-2", 0, 0, "B0-2", 0, 1, "A4 A3 A2 A1 A0 B2 B1 B0"),
    ("A0-5", 0, 5, "A5", 0, 1, "B1 B0 A5 A4 A3 A2 A1 A0"),
    ("C0-11", 0, 0, "", 12, 0, "B1 B0 A5 A4 A3 A2 A1 A0"),
    ("A0-5", 6, 0, "", 0, 0, "B1 B0 A5 A4 A3 A2 A1 A0"),
    ("B0-2", 0, 2, "B2", 0, 1, "A4 A3 A2 A1 A0 B2 B1 B0"),
]


def run_offload(name, rows, n_slots, **changes):
    """Run requests of units of two tokens and one token more; the store and the tally."""
    calls = Calls(
        [([t for unit in spell(row[0]) for t in (number(unit), 0)] + [99], []) for row in rows],
        gpu_tokens=[2 * row[1] for row in rows],
    )
    tier = calls.tier(set_tier(name, 2, rule=AdmissionRule(), **changes))
    stream, settings = tier.stream, tier.settings
    rules = read_rules(settings.preset, n_slots, 2, "lru", 0, settings.min_offers)
    store, tally = recency.open_store(stream.n_units, recency.LRU, 1), tier_rules.open_tally(len(stream))
    gate_rules = settings.rule.for_tier(0, 1, n_slots)
    inclusive.run_tier(
        store,
        rules,
        tier_rules.Stream(
            stream.nodes,
            stream.prompt_node,
            stream.prompt_units,
            stream.path_node,
            stream.path_units,
            stream.n_tokens,
            tier.gpu.tokens,
            stream.time_s,
            stream.task,
        ),
        inclusive.open_offers(stream.n_units, 64_000 if settings.min_offers else 0),
        inclusive.open_buffers(stream.n_units, stream.longest_path),
        gate_rules,
        gate.open_gate(gate_rules, len(stream), 0, 0.0),
        gate.open_decisions(len(stream)),
        tally,
        np.zeros(1),
    )
    return name_units(rows, stream, store), tally


def name_units(rows, stream, store):
    """Names of what a store holds, oldest first, where units are numbered by a stream."""
    names, units = {}, np.empty(stream.longest_path, np.int64)
    for row, node, n in zip(rows, stream.prompt_node, stream.prompt_units, strict=True):
        paths.list_units(stream.nodes, node, n, units)
        names.update(zip(units[:n].tolist(), spell(row[0]), strict=True))
    found, unit = [], store.newer[store.n_units]
    while unit < store.n_units:
        found.append(names[int(unit)])
        unit = store.newer[unit]
    return found


@pytest.mark.parametrize("name", ["vllm-offload", "vllm-offload-0.13"])
@pytest.mark.parametrize("n", range(1, 8))
def test_vllm_offload_keeps_its_list(name, n):
    """Eight slots, after each of seven requests."""
    order, tally = run_offload(name, OFFLOAD[:n], 8)
    _, _, hit, stored, refused, evicted, after = OFFLOAD[n - 1]
    assert order == spell(after)
    assert [int(counts[n - 1]) for counts in tally] == [hit, len(spell(stored)), evicted, 0, refused]


def test_store_threshold_of_two_stores_at_the_second_offer():
    rows = [("A0-3", 0)] * 2
    assert run_offload("vllm-offload", rows[:1], 8, min_offers=2)[1].written.tolist() == [0]
    order, tally = run_offload("vllm-offload", rows, 8, min_offers=2)
    assert tally.written.tolist() == [0, 4]
    assert order == spell("A3 A2 A1 A0")
