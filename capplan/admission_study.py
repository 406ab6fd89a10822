"""What rules of write admission do at every capacity: hits lost and gained, writes saved, time, and which rule.

Every rule and capacity is simulated, unless another value of kappa or theta is known to give the very same
decisions: a run also tells between which values none of its decisions would have changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.costs import Triple
from capplan.errors import SpecError
from capplan.kernels.gate import Decisions
from capplan.prediction import BEST, TYPICAL, WORST, Corner, Prediction
from capplan.simulation.next_uses import NextUses, find_next_uses
from capplan.simulation.parallel import map_parallel
from capplan.simulation.presets import list_presets, load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import TierInput
from capplan.simulation.tier_run import TierRun, TierTotals, sum_run
from capplan.units import format_seconds, gib_to_bytes

Int64s = NDArray[np.int64]
Range = tuple[float, float]

EVERY: Range = (-math.inf, math.inf)
# A rule is worth setting where it gains this share of all prefill time, or costs less than that and saves
# this share of the writes.
GAIN_SHARE = 0.01
WRITES_SHARE = 0.25


class Candidate(NamedTuple):
    """A way to limit writes: what it is called, and the tier it makes."""

    label: str
    settings: TierSettings


class Declined(NamedTuple):
    """Declined units by their next use, as an LRU stack of the whole stream has it.

    `never` are not used again, `beyond` are used again from a stack position `P >= K`, `would_hit` from a
    nearer one: what the rule may cost (Proposition 1 of the paper).
    """

    never: int
    beyond: int
    would_hit: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.never + self.beyond + self.would_hit


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rule at one capacity, against the tier without admission.

    Attributes
    ----------
    label : str
    rule : AdmissionRule
    is_simulated : bool
        False where another run's decisions hold for it too.
    totals : TierTotals
    saved_s : Triple
        Seconds of prefill saved against the GPU tier alone.
    restore_s : three of float
        Seconds of restores at the worst, typical and best corner.
    write_s : float
        Seconds of writes, at the typical rate of restores: copies of what was stored, and stored twice.
    declined : Declined
        In units.
    lost_tokens, gained_tokens : int
        Covered tokens, by request, below and above those without admission.
    kappa_range : (low, high)
        Whole values of kappa that make the same decisions, both included.
    theta_range : (low, high)
        Values of theta that do: above `low`, up to `high`.
    """

    label: str
    rule: AdmissionRule
    is_simulated: bool
    totals: TierTotals
    saved_s: Triple
    restore_s: tuple[float, float, float]
    write_s: float
    declined: Declined
    lost_tokens: int
    gained_tokens: int
    kappa_range: Range
    theta_range: Range

    def net_s(self, corner: Corner = TYPICAL) -> float:
        """Prefill time saved less restore time."""
        return self.saved_s[corner.prefill] - self.restore_s[(WORST, TYPICAL, BEST).index(corner)]


@dataclass(frozen=True, slots=True)
class CapacityStudy:
    """All rules at one capacity, the one without admission first; `advice` names a label and says why."""

    host_gib_per_rank: float
    slots: int
    outcomes: tuple[Outcome, ...]
    best: str
    advice: str

    @property
    def none(self) -> Outcome:
        """The tier without admission."""
        return self.outcomes[0]


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """One GPU's part of a study."""

    prediction: Prediction
    tier: TierInput
    capacities: tuple[CapacityStudy, ...]


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """Decisions of one simulated rule at one capacity, in stream order."""

    host_gib_per_rank: float
    label: str
    rule: AdmissionRule
    run: TierRun


def list_candidates(
    base: TierSettings, kappas: Sequence[float], thetas: Sequence[float], thresholds: Sequence[int]
) -> tuple[Candidate, ...]:
    """The tier as released, what else its connector changes, then every rule.

    A connector that leaves resident units out of a store does so under every rule but none: that effect
    gets a row of its own.

    Raises
    ------
    SpecError
        A tier beside which no rule can stand: it is not written request by request.
    """
    if base.preset.kind == "radix":
        return list_write_policies(base)
    if base.preset.kind not in ("prefix", "inclusive"):
        kinds = ("prefix", "inclusive", "radix")
        names = ", ".join(preset.name for preset in list_presets() if preset.kind in kinds)
        raise SpecError(f"tier {base.preset.name} is not written request by request: no rule; accepted: {names}")
    rule = base.rule
    none = replace(rule, kind="none")
    found: list[Candidate] = []
    if base.preset.kind == "inclusive" and base.preset.overflow == "keep-prefix":
        found.append(Candidate("none", base.change(rule=none, dedup=False)))
        base = base.change(dedup=True)
        found.append(Candidate("none, dedup", base.change(rule=none)))
    else:
        found.append(Candidate("none", base.change(rule=none)))
    if base.preset.kind == "inclusive":
        if base.preset.stores != "prompts":
            found.append(Candidate("prompts only", base.change(rule=none, stores="prompts")))
        found += [Candidate(f"{k} offers", base.change(rule=none, min_offers=k)) for k in thresholds]
    found += [Candidate(f"fixed {k:g}", base.change(rule=replace(rule, kind="fixed", kappa=k))) for k in kappas]
    for theta in thetas:
        suffix = f" @{theta:g}" if len(thetas) > 1 else ""
        for k in kappas:
            chosen = replace(rule, kind="conditioned", kappa=k, theta=theta)
            found.append(Candidate(f"conditioned {k:g}{suffix}", base.change(rule=chosen)))
    return tuple(found)


def list_write_policies(base: TierSettings) -> tuple[Candidate, ...]:
    """What a radix tree knows instead of rules: copy at once, at the second hit, or when the GPU evicts."""
    others = (("second hit", "sglang-hicache-selective"), ("on eviction", "sglang-hicache-writeback"))
    found = [Candidate("none", TierSettings.of(load_preset("sglang-hicache")).change(unit_tokens=base.unit_tokens))]
    for label, name in others:
        found.append(Candidate(label, TierSettings.of(load_preset(name)).change(unit_tokens=base.unit_tokens)))
    return tuple(found)


def study_capacities(
    tier: TierInput,
    prediction: Prediction,
    gib_per_rank: Sequence[float],
    candidates: Sequence[Candidate],
    first_request: int = 0,
) -> tuple[CapacityStudy, ...]:
    """Every candidate at every capacity, on all cores; the first candidate is what others are compared with."""
    uses = find_next_uses(tier.stream)

    def study(gib: float) -> CapacityStudy:
        return _study(tier, prediction, gib, candidates, uses, first_request)

    return tuple(map_parallel(study, sorted(set(gib_per_rank))))


def simulate_logs(tier: TierInput, gib_per_rank: Sequence[float], candidates: Sequence[Candidate]) -> list[DecisionLog]:
    """Every decision of every rule that makes any, simulated again: only what is written is kept."""
    ruled = [candidate for candidate in candidates if candidate.settings.rule.kind != "none"]
    pairs = [(gib, candidate) for gib in sorted(set(gib_per_rank)) for candidate in ruled]

    def log(pair: tuple[float, Candidate]) -> DecisionLog:
        gib, candidate = pair
        run = simulate_tier(replace(tier, settings=candidate.settings), gib_to_bytes(gib))
        return DecisionLog(gib, candidate.label, candidate.settings.rule, run)

    return map_parallel(log, pairs)


def _study(
    tier: TierInput,
    prediction: Prediction,
    gib: float,
    candidates: Sequence[Candidate],
    uses: NextUses,
    first_request: int,
) -> CapacityStudy:
    none: TierRun | None = None
    outcomes: list[Outcome] = []
    n_slots = 0
    for candidate in candidates:
        known = _find_known(outcomes, candidate)
        if known is not None:
            outcomes.append(replace(known, label=candidate.label, rule=candidate.settings.rule, is_simulated=False))
            continue
        run = simulate_tier(replace(tier, settings=candidate.settings), gib_to_bytes(gib))
        none = run if none is None else none
        n_slots = run.n_slots
        ranges = find_ranges(run, candidate.settings.rule, gib_to_bytes(gib))
        outcomes.append(_measure(prediction, candidate, run, none, uses, first_request, ranges))
    best, advice = advise(outcomes, prediction.savings.without_s.typical)
    return CapacityStudy(gib, n_slots, tuple(outcomes), best, advice)


def _find_known(outcomes: Sequence[Outcome], candidate: Candidate) -> Outcome | None:
    """An earlier outcome whose decisions hold for this rule as well."""
    rule = candidate.settings.rule
    if rule.kind == "none":
        return None
    for outcome in outcomes:
        same = replace(outcome.rule, kappa=rule.kappa, theta=rule.theta) == rule
        low, high = outcome.kappa_range
        above, up_to = outcome.theta_range
        holds_kappa = outcome.rule.kappa == rule.kappa or low <= math.floor(rule.kappa) <= high
        holds_theta = outcome.rule.theta == rule.theta or above < rule.theta <= up_to
        # Only one of the two may move: each range was found with the other as it was.
        moved = (outcome.rule.kappa != rule.kappa) + (outcome.rule.theta != rule.theta)
        if same and outcome.is_simulated and moved <= 1 and holds_kappa and holds_theta:
            return outcome
    return None


def _measure(
    prediction: Prediction,
    candidate: Candidate,
    run: TierRun,
    none: TierRun,
    uses: NextUses,
    first_request: int,
    ranges: tuple[Range, Range],
) -> Outcome:
    counted = slice(first_request, None)
    totals = sum_run(run, first_request)
    costs = prediction.costs
    restore = tuple(
        totals.moved_tokens * costs.restore_s_per_token(costs.h2d_bytes_per_s[corner.rate])
        + totals.loading_requests * costs.load_s[corner.load]
        for corner in (WORST, TYPICAL, BEST)
    )
    copied = totals.written_tokens + totals.duplicate_tokens
    change = (run.known_tokens - none.known_tokens)[counted]
    return Outcome(
        label=candidate.label,
        rule=candidate.settings.rule,
        is_simulated=True,
        totals=totals,
        saved_s=prediction.savings.seconds_saved(run.gpu_tokens, run.known_tokens, run.n_tokens, first_request),
        restore_s=(restore[0], restore[1], restore[2]),
        write_s=copied * costs.kv_bytes_per_token / costs.h2d_bytes_per_s.typical,
        declined=split_declined(run, uses, first_request),
        lost_tokens=int(-change[change < 0].sum()),
        gained_tokens=int(change[change > 0].sum()),
        kappa_range=ranges[0],
        theta_range=ranges[1],
    )


def find_ranges(run: TierRun, rule: AdmissionRule, capacity_bytes: int) -> tuple[Range, Range]:
    """Values of kappa, and of theta, under which a run would have been the very same."""
    if run.decisions is None or rule.kind == "none":
        return EVERY, EVERY
    kappas = find_kappa_range(run.decisions, rule.kappa)
    return kappas, find_theta_range(run.decisions, rule, run.n_slots, capacity_bytes)


def split_declined(run: TierRun, uses: NextUses, first_request: int = 0) -> Declined:
    """Declined units by whether, and from how far down the stack, they are used next.

    Parameters
    ----------
    run : TierRun
    uses : NextUses
        Of the stream the run saw.
    first_request : int
        Stream position from which on requests are counted.
    """
    n = run.n_tokens.size
    declined = run.declined.copy()
    declined[:first_request] = 0
    request = np.repeat(np.arange(n), np.diff(uses.offsets))
    found = run.found_tokens[request] // run.unit_tokens
    begin = np.maximum(uses.start, found)
    length = np.where(declined[request] > 0, np.maximum(uses.start + uses.length - begin, 0), 0)
    position = uses.position + (begin - uses.start)
    would_hit = int(np.clip(run.n_slots - position, 0, length).sum())
    used = int(length.sum())
    return Declined(int(declined.sum()) - used, used - would_hit, would_hit)


def find_kappa_range(decisions: Decisions, kappa: float) -> Range:
    """Whole values of kappa under which every decision would have been the same: the run would be too."""
    pressured = decisions.new_units[decisions.is_pressured]
    saved, declined = pressured[pressured <= kappa], pressured[pressured > kappa]
    low = float(saved.max()) if saved.size else -math.inf
    high = float(declined.min()) - 1 if declined.size else math.inf
    return low, high


def find_theta_range(decisions: Decisions, rule: AdmissionRule, n_slots: int, capacity_bytes: int) -> Range:
    """Values of theta under which every decision would have been the same: above the first, up to the second.

    Only decisions count that theta could turn: a report is fresh and holds evictions, the estimate says
    pressure, and the request has more than kappa new units.
    """
    if rule.kind != "conditioned" or n_slots == 0:
        return EVERY
    turns = decisions.is_fresh & (decisions.evictions > 0) & (decisions.new_units > rule.kappa)
    turns &= decisions.is_pressured | (decisions.estimate_bytes > capacity_bytes)
    filled = decisions.resident[turns] / n_slots
    pressured = decisions.is_pressured[turns]
    low = float(filled[~pressured].max()) if (~pressured).any() else -math.inf
    high = float(filled[pressured].min()) if pressured.any() else math.inf
    return low, high


def advise(outcomes: Sequence[Outcome], without_s: float) -> tuple[str, str]:
    """Which rule to set at a capacity, and why.

    The one with the most net time, where it gains 1 % of all prefill time on none; else one that costs less
    than that and saves a quarter of the writes; else none.
    """
    none = outcomes[0]
    enough = GAIN_SHARE * without_s
    best = max(outcomes, key=lambda outcome: (outcome.net_s(), -outcome.totals.written_tokens))
    gain = best.net_s() - none.net_s()
    if gain > enough:
        sure = min(best.net_s(corner) - none.net_s(corner) for corner in (WORST, BEST))
        doubt = "" if sure > 0 else ", not at every end of the uncertain inputs"
        return best.label, f"saves {format_seconds(gain)} more than none{doubt}"
    written = none.totals.written_tokens + none.totals.duplicate_tokens
    spared = [
        (written - outcome.totals.written_tokens - outcome.totals.duplicate_tokens, outcome)
        for outcome in outcomes[1:]
        if none.net_s() - outcome.net_s() < enough / 10
    ]
    most, sparing = max(spared, key=lambda pair: pair[0], default=(0, none))
    if written and most > WRITES_SHARE * written:
        return sparing.label, f"same time as none within 0.1 % of prefill, {100 * most / written:.0f} % fewer writes"
    return "none", "no rule gains 1 % of prefill time, or saves a quarter of the writes at no cost"
