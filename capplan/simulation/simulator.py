"""Run a stream through a tier under its preset's rules: one TierRun a capacity."""

from dataclasses import dataclass, field

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from capplan.errors import SpecError, TraceError
from capplan.kernels import arc, clairvoyant, extent_tier, extents, gate, inclusive, prefix_tier, recency
from capplan.order import Order
from capplan.simulation.exclusive import simulate_exclusive
from capplan.simulation.gpu_queue import simulate_gpu_queue
from capplan.simulation.next_uses import find_next_uses
from capplan.simulation.presets import End, Policy, Scope, TierPreset
from capplan.simulation.radix import simulate_radix
from capplan.simulation.rules import AdmissionRule, policy_number, read_rules
from capplan.simulation.stream import TierStream, cut_stream, fit_unit
from capplan.simulation.tier_run import TierRun
from capplan.tiers import GpuService
from capplan.trace import Trace
from capplan.tree import PrefixTree

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TierSettings:
    """What a user sets of a preset.

    Attributes
    ----------
    preset : TierPreset
    unit_tokens : int
    policy : Policy
    rule : AdmissionRule
    step_tokens : int
        Tokens of a prefill step, each of which stores; 0 stores a prompt in one call.
    min_offers : int
    """

    preset: TierPreset
    unit_tokens: int
    policy: Policy
    rule: AdmissionRule = field(default_factory=AdmissionRule)
    step_tokens: int = 0
    min_offers: int = 0

    @classmethod
    def of(cls, preset: TierPreset) -> "TierSettings":
        """A preset as it is released."""
        rule = AdmissionRule(preset.admission, preset.kappa)
        return cls(preset, preset.unit_tokens, preset.policy, rule, 0, preset.min_offers)

    def change(
        self,
        unit_tokens: int | None = None,
        policy: Policy | None = None,
        rule: AdmissionRule | None = None,
        step_tokens: int | None = None,
        min_offers: int | None = None,
        dedup: bool | None = None,
        stores: Scope | None = None,
        touch_order: End | None = None,
        insert_order: End | None = None,
    ) -> "TierSettings":
        """These settings with others where given.

        Raises
        ------
        SpecError
            A policy or a threshold the engine does not have.
        """
        preset = self.preset
        if policy is not None and policy not in (*preset.policies, "belady"):
            raise SpecError(
                f"tier {preset.name} has no policy '{policy}'; accepted: {', '.join(preset.policies)}, belady"
            )
        changed = {"dedup": dedup, "stores": stores, "touch_order": touch_order, "insert_order": insert_order}
        changed = {name: value for name, value in changed.items() if value is not None}
        if changed and preset.kind != "inclusive":
            raise SpecError(f"tier {preset.name} has {', '.join(changed)} of its own, which cannot be changed")
        preset = structs.replace(preset, **changed)
        if policy == "belady" and not preset.has_yardstick:
            raise SpecError(f"tier {preset.name}: Belady's policy is of prompts alone, looked up from token 0")
        if min_offers and not (preset.dedup and preset.kind == "inclusive"):
            raise SpecError(f"tier {preset.name} stores from the first offer on; a store threshold is of vllm-offload")
        return TierSettings(
            preset=preset,
            unit_tokens=self.unit_tokens if unit_tokens is None else unit_tokens,
            policy=self.policy if policy is None else policy,
            rule=self.rule if rule is None else rule,
            step_tokens=self.step_tokens if step_tokens is None else step_tokens,
            min_offers=self.min_offers if min_offers is None else min_offers,
        )

    @property
    def needs_times(self) -> bool:
        """Whether a rule looks at a clock."""
        return self.preset.evict_period_s > 0 or self.rule.kind == "conditioned"


@dataclass(frozen=True, slots=True)
class TierInput:
    """What every capacity of one preset shares: the stream in its units, and what the GPU serves.

    Attributes
    ----------
    stream : TierStream
    gpu : GpuService
    kv_bytes_per_token : int
        `beta`, of which a capacity in bytes holds slots.
    """

    stream: TierStream
    gpu: GpuService
    settings: TierSettings
    kv_bytes_per_token: int


def prepare_tier(
    trace: Trace, tree: PrefixTree, order: Order, gpu: GpuService, settings: TierSettings, kv_bytes_per_token: int
) -> TierInput:
    """Cut a stream for a preset.

    Raises
    ------
    TraceError
        Units that cannot be cut from the trace, or rules that look at a clock the order does not have.
    """
    if settings.needs_times and order.time_s is None:
        raise TraceError(
            f"{trace.source}: {settings.preset.name} looks at a clock, and the trace has none; accepted: arrival "
            "times, or tasks with --order pool"
        )
    unit = fit_unit(trace, settings.unit_tokens)
    return TierInput(cut_stream(trace, tree, order, unit), gpu, settings, kv_bytes_per_token)


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
    if preset.kind == "radix":
        return simulate_radix(tier, tier.gpu.n_slots * tier.gpu.block_tokens // unit, n_slots)
    raise NotImplementedError(preset.kind)


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


def simulate_units(tier: TierInput, rules: inclusive.Rules, capacity_bytes: int) -> TierRun:
    """The general path, unit by unit."""
    stream, settings = tier.stream, tier.settings
    policy = policy_number(settings.policy)
    n_lists = len(stream) + 1 if policy == recency.LFU else 1
    tracked = settings.preset.tracked_offers if settings.min_offers > 1 else 0
    gate_rules, gates, decisions = _open_gate(tier, rules.n_slots, capacity_bytes)
    tally = inclusive.open_tally(len(stream))
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
    return _collect_tally(tier, rules.n_slots, tally, decisions)


def simulate_arc(tier: TierInput, rules: inclusive.Rules, capacity_bytes: int) -> TierRun:
    """The same under ARC, whose lists are not one order."""
    stream, settings = tier.stream, tier.settings
    tracked = settings.preset.tracked_offers if settings.min_offers > 1 else 0
    gate_rules, gates, decisions = _open_gate(tier, rules.n_slots, capacity_bytes)
    tally = inclusive.open_tally(len(stream))
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
    return _collect_tally(tier, rules.n_slots, tally, decisions)


def simulate_extents(tier: TierInput, rules: inclusive.Rules, capacity_bytes: int, n_items: int = 0) -> TierRun:
    """The fast path; run again with twice the room where `n_items` extents were too few."""
    stream = tier.stream
    n_items = n_items or 2 * stream.chains.first.size + 1024
    while True:
        gate_rules, gates, decisions = _open_gate(tier, rules.n_slots, capacity_bytes)
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
            return _collect_tally(tier, rules.n_slots, inclusive.Tally(*tally), decisions)
        n_items *= 2


def _view(tier: TierInput) -> inclusive.Stream:
    stream = tier.stream
    return inclusive.Stream(
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
    return np.array([_first_time(tier.stream) + tier.settings.preset.evict_period_s])


def _collect_tally(tier: TierInput, n_slots: int, tally: inclusive.Tally, decisions: gate.Decisions) -> TierRun:
    return _collect(
        tier, n_slots, tally.covered, tally.written, tally.evicted, tally.duplicates, tally.refused, decisions
    )


def simulate_prefixes(tier: TierInput, n_slots: int, capacity_bytes: int) -> TierRun:
    """An LRU tier of whole prefixes, run by run."""
    stream = tier.stream
    gate_rules, gates, decisions = _open_gate(tier, n_slots, capacity_bytes)
    covered, written, evicted, none = np.zeros((4, len(stream)), np.int32)
    prefix_tier.run_tier(
        stream.prompt_units, stream.previous, stream.shared, n_slots, stream.n_tokens, stream.time_s, stream.task,
        gate_rules, gates, decisions, covered, written, evicted,
    )  # fmt: skip
    return _collect(tier, n_slots, covered, written, evicted, none, none, decisions)


def simulate_clairvoyant(tier: TierInput, n_slots: int) -> TierRun:
    """The most a tier of prompts of this size could cover, whatever its policy."""
    uses = find_next_uses(tier.stream)
    covered, written, evicted, none = np.zeros((4, len(tier.stream)), np.int32)
    clairvoyant.run_tier(uses.offsets, uses.start, uses.length, uses.request, n_slots, covered, written, evicted)
    return _collect(tier, n_slots, covered, written, evicted, none, none, None)


def _open_gate(tier: TierInput, n_slots: int, capacity_bytes: int) -> tuple[gate.GateRules, gate.Gate, gate.Decisions]:
    stream = tier.stream
    rules = tier.settings.rule.for_tier(capacity_bytes, tier.kv_bytes_per_token, n_slots)
    n_tasks = int(stream.task.max(initial=-1)) + 1
    gates = gate.open_gate(rules, len(stream), n_tasks, _first_time(stream))
    return rules, gates, gate.open_decisions(len(stream))


def _first_time(stream: TierStream) -> float:
    return float(stream.time_s[0]) if len(stream) else 0.0


def _collect(
    tier: TierInput,
    n_slots: int,
    covered: Int32s,
    written: Int32s,
    evicted: Int32s,
    duplicates: Int32s,
    refused: Int32s,
    decisions: gate.Decisions | None,
) -> TierRun:
    stream = tier.stream
    declined = np.zeros(len(stream), np.int64)
    if decisions is not None:
        declined = np.where(decisions.is_declined, stream.prompt_units - covered, 0)
    return TierRun(
        n_slots=n_slots,
        unit_tokens=stream.unit_tokens,
        n_tokens=stream.n_tokens,
        gpu_tokens=tier.gpu.tokens,
        gpu_forced_tokens=tier.gpu.forced_tokens,
        found_tokens=covered.astype(np.int64) * stream.unit_tokens,
        written=written,
        evicted=evicted,
        duplicates=duplicates,
        refused=refused,
        declined=declined,
        decisions=decisions,
        min_load_tokens=tier.settings.preset.min_load_tokens,
        full_hit_tokens=stream.unit_tokens if tier.settings.preset.full_hit == "unit" else 1,
    )
