"""What rules of write admission do at every capacity: prefill lost and gained, writes saved, time, and which rule.

Every rule and capacity is simulated, unless another value of kappa or theta is known to give the very same
decisions: a run also tells between which values none of its decisions would have changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from capplan.admission_advice import NO_TIER, advise
from capplan.admission_candidates import Candidate
from capplan.admission_outcome import Outcome, find_ranges, split_declined
from capplan.costs import Triple
from capplan.prediction import Prediction
from capplan.simulation.next_uses import NextUses, find_next_uses
from capplan.simulation.parallel import map_parallel
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import TierInput
from capplan.simulation.tier_run import TierRun, sum_run
from capplan.units import gib_to_bytes

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CapacityStudy:
    """All rules at one capacity, the tier without one first.

    `best` is the label of the outcome to set, or `NO_TIER`, and `advice` says why; `alone_tokens` are computed
    without a host tier.
    """

    host_gib_per_rank: float
    slots: int
    alone_tokens: int
    outcomes: tuple[Outcome, ...]
    best: str
    advice: str

    @property
    def none(self) -> Outcome:
        """The tier without a rule."""
        return self.outcomes[0]

    @property
    def best_tokens(self) -> int:
        """Tokens computed if the advice is followed."""
        if self.best == NO_TIER:
            return self.alone_tokens
        return next(outcome.totals.computed_tokens for outcome in self.outcomes if outcome.label == self.best)


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """One GPU's part of a study."""

    prediction: Prediction
    tier: TierInput
    capacities: tuple[CapacityStudy, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What every capacity shares: the run without a host tier, next uses, and from where requests count."""

    alone: TierRun
    uses: NextUses
    first_request: int


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """Decisions of one simulated rule at one capacity, in stream order."""

    host_gib_per_rank: float
    label: str
    rule: AdmissionRule
    run: TierRun


def study_capacities(
    tier: TierInput,
    prediction: Prediction,
    gib_per_rank: Sequence[float],
    candidates: Sequence[Candidate],
    first_request: int = 0,
) -> tuple[CapacityStudy, ...]:
    """Every candidate at every capacity, on all cores; the first candidate is what others are compared with."""
    alone = simulate_tier(replace(tier, settings=candidates[0].settings), 0)
    baseline = Baseline(alone, find_next_uses(tier.stream), first_request)

    def study(gib: float) -> CapacityStudy:
        return _study(tier, prediction, gib, candidates, baseline)

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
    tier: TierInput, prediction: Prediction, gib: float, candidates: Sequence[Candidate], baseline: Baseline
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
        outcomes.append(_measure(prediction, candidate, run, none, baseline, gib_to_bytes(gib)))
    can_restore = bool(prediction.tiers.restored_tokens[-1])
    best, advice = advise(outcomes, prediction.savings.without_s, can_restore)
    alone = sum_run(baseline.alone, baseline.first_request).computed_tokens
    return CapacityStudy(gib, n_slots, alone, tuple(outcomes), best, advice)


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
    prediction: Prediction, candidate: Candidate, run: TierRun, none: TierRun, baseline: Baseline, capacity_bytes: int
) -> Outcome:
    rule, first = candidate.settings.rule, baseline.first_request
    totals = sum_run(run, first)
    costs, seconds_saved = prediction.costs, prediction.savings.seconds_saved
    copied = totals.written_tokens + totals.duplicate_tokens
    beta_s = costs.kv_bytes_per_token / costs.h2d_bytes_per_s.typical
    change = (run.known_tokens - none.known_tokens)[first:]
    kappa_range, theta_range = find_ranges(run, rule, capacity_bytes)
    return Outcome(
        label=candidate.label,
        rule=rule,
        is_simulated=True,
        totals=totals,
        saved_s=seconds_saved(baseline.alone.known_tokens, run.known_tokens, run.n_tokens, first),
        copy_s=Triple(*(totals.moved_tokens * costs.restore_s_per_token(rate) for rate in costs.h2d_bytes_per_s)),
        load_s=Triple(*(totals.loading_requests * load_s for load_s in costs.load_s)),
        link_s=(copied + totals.moved_tokens) * beta_s,
        write_s=copied * beta_s,
        declined=split_declined(run, baseline.uses, first),
        lost_tokens=int(-change[change < 0].sum()),
        gained_tokens=int(change[change > 0].sum()),
        kappa_range=kappa_range,
        theta_range=theta_range,
        is_setting=candidate.is_setting,
    )
