"""Run a stream through a tier under its preset's rules: one TierRun a capacity."""

import numpy as np

from capplan.kernels import clairvoyant, prefix_tier
from capplan.simulation.exclusive import simulate_exclusive
from capplan.simulation.gpu_queue import simulate_gpu_queue
from capplan.simulation.inclusive import simulate_inclusive
from capplan.simulation.next_uses import find_next_uses
from capplan.simulation.radix import simulate_radix
from capplan.simulation.tier_input import TierInput, collect_run, open_gate
from capplan.simulation.tier_run import TierRun


def simulate_tier(tier: TierInput, capacity_bytes: int) -> TierRun:
    """One capacity in bytes per rank."""
    preset, unit = tier.settings.preset, tier.stream.unit_tokens
    n_slots = preset.slots(capacity_bytes, unit, tier.kv_bytes_per_token)
    if tier.settings.policy == "belady":
        return simulate_clairvoyant(tier, n_slots)
    if preset.kind == "prefix":
        return simulate_prefixes(tier, n_slots, capacity_bytes)
    if preset.kind == "inclusive":
        return simulate_inclusive(tier, n_slots, capacity_bytes)
    if preset.kind == "gpu":
        return simulate_gpu_queue(tier)
    if preset.kind == "exclusive":
        return simulate_exclusive(tier, n_slots)
    return simulate_radix(tier, tier.gpu.n_slots * tier.gpu.block_tokens // unit, n_slots)


def simulate_prefixes(tier: TierInput, n_slots: int, capacity_bytes: int) -> TierRun:
    """An LRU tier of whole prefixes, run by run."""
    stream = tier.stream
    gate_rules, gates, decisions = open_gate(tier, capacity_bytes)
    covered, written, evicted, none = np.zeros((4, len(stream)), np.int32)
    prefix_tier.run_tier(
        stream.prompt_units, stream.previous, stream.shared, n_slots, stream.n_tokens, stream.time_s, stream.task,
        gate_rules, gates, decisions, covered, written, evicted,
    )  # fmt: skip
    return collect_run(tier, n_slots, covered, written, evicted, none, none, decisions, gate_rules.n_slots)


def simulate_clairvoyant(tier: TierInput, n_slots: int) -> TierRun:
    """The most a tier of prompts of this size could cover, whatever its policy."""
    uses = find_next_uses(tier.stream)
    covered, written, evicted, none = np.zeros((4, len(tier.stream)), np.int32)
    clairvoyant.run_tier(uses.offsets, uses.start, uses.length, uses.request, n_slots, covered, written, evicted)
    return collect_run(tier, n_slots, covered, written, evicted, none, none, None)
