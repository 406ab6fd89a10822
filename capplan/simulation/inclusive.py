"""A host tier beside the GPU's, which holds copies: the fast path, the general path, and ARC."""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import arc, extent_tier, extents, gate, inclusive, recency, tier_rules
from capplan.simulation.rules import policy_number, read_rules
from capplan.simulation.settings import TierSettings
from capplan.simulation.tier_input import TierInput, collect_run, first_time, open_gate
from capplan.simulation.tier_run import TierRun

Float64s = NDArray[np.float64]


def simulate_inclusive(tier: TierInput, n_slots: int, capacity_bytes: int) -> TierRun:
    """A tier beside the GPU's: extent by extent where its rules allow, else unit by unit."""
    stream, settings = tier.stream, tier.settings
    rules = read_rules(
        settings.preset, n_slots, stream.unit_tokens, settings.policy, settings.step_tokens, settings.min_offers
    )
    if settings.policy == "arc":
        return simulate_arc(tier, rules, capacity_bytes)
    if goes_by_extents(settings):
        return simulate_extents(tier, rules, capacity_bytes)
    return simulate_units(tier, rules, capacity_bytes)


def goes_by_extents(settings: TierSettings) -> bool:
    """Whether the fast path has all the rules: no offers noted, no uses counted, tails touched first."""
    preset = settings.preset
    is_plain = settings.min_offers < 2 and settings.policy in ("lru", "fifo", "mru")
    # Room is made for a protected offer after its resident units are touched: they must be touched at the end.
    is_protected = preset.protects_offer and (settings.policy != "lru" or preset.settles == "none")
    return is_plain and preset.touch_order == "tail-first" and not is_protected


def simulate_units(tier: TierInput, rules: tier_rules.Rules, capacity_bytes: int) -> TierRun:
    """The general path, unit by unit."""
    stream, settings = tier.stream, tier.settings
    policy = policy_number(settings.policy)
    n_lists = len(stream) + 1 if policy == recency.LFU else 1
    tracked = settings.preset.tracked_offers if settings.min_offers > 1 else 0
    gate_rules, gates, decisions = open_gate(tier, capacity_bytes)
    tally = tier_rules.open_tally(len(stream))
    inclusive.run_tier(
        recency.open_store(stream.n_units, policy, n_lists),
        rules,
        _view(tier),
        inclusive.open_offers(stream.n_units, tracked),
        inclusive.open_buffers(stream.n_units, stream.longest_path),
        gate_rules,
        gates,
        decisions,
        tally,
        _open_clock(tier),
    )
    return _collect_tally(tier, rules.n_slots, tally, decisions, gate_rules.n_slots)


def simulate_arc(tier: TierInput, rules: tier_rules.Rules, capacity_bytes: int) -> TierRun:
    """The same under ARC, whose lists are not one order."""
    stream, settings = tier.stream, tier.settings
    tracked = settings.preset.tracked_offers if settings.min_offers > 1 else 0
    gate_rules, gates, decisions = open_gate(tier, capacity_bytes)
    tally = tier_rules.open_tally(len(stream))
    arc.run_tier(
        arc.open_lists(stream.n_units),
        rules,
        _view(tier),
        inclusive.open_offers(stream.n_units, tracked),
        inclusive.open_buffers(stream.n_units, stream.longest_path),
        gate_rules,
        gates,
        decisions,
        tally,
    )
    return _collect_tally(tier, rules.n_slots, tally, decisions, gate_rules.n_slots)


def simulate_extents(tier: TierInput, rules: tier_rules.Rules, capacity_bytes: int, n_items: int = 0) -> TierRun:
    """The fast path; run again with twice the room where `n_items` extents were too few."""
    stream = tier.stream
    n_items = n_items or 2 * stream.chains.first.size + 1024
    while True:
        gate_rules, gates, decisions = open_gate(tier, capacity_bytes)
        tally = np.zeros((5, len(stream)), np.int32)
        is_done = extent_tier.run_tier(
            extents.open_extents(stream.chains, stream.most_chains, n_items, policy_number(tier.settings.policy)),
            rules,
            _view(tier),
            gate_rules,
            gates,
            decisions,
            tally,
            _open_clock(tier),
        )
        if is_done:
            return _collect_tally(tier, rules.n_slots, tier_rules.Tally(*tally), decisions, gate_rules.n_slots)
        n_items *= 2


def _view(tier: TierInput) -> tier_rules.Stream:
    stream = tier.stream
    return tier_rules.Stream(
        stream.chains,
        stream.prompt_chain,
        stream.prompt_units,
        stream.path_chain,
        stream.path_units,
        stream.n_tokens,
        tier.gpu.tokens,
        stream.time_s,
        stream.task,
    )


def _open_clock(tier: TierInput) -> Float64s:
    return np.array([first_time(tier.stream) + tier.settings.preset.evict_period_s])


def _collect_tally(
    tier: TierInput, n_slots: int, tally: tier_rules.Tally, decisions: gate.Decisions, rule_slots: int
) -> TierRun:
    return collect_run(
        tier,
        n_slots,
        tally.covered,
        tally.written,
        tally.evicted,
        tally.duplicates,
        tally.refused,
        decisions,
        rule_slots,
    )
