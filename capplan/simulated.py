"""What a simulated tier does at every capacity asked for, beside the one-pass curve and the best policy."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from capplan.costs import Triple
from capplan.curve import CoverageCurve
from capplan.prediction import Measured, Prediction
from capplan.simulation.parallel import map_parallel
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import TierInput
from capplan.simulation.tier_run import TierTotals, sum_run
from capplan.tiers import TierCurves
from capplan.units import gib_to_bytes

Int64s = NDArray[np.int64]
# A tier that a sweep keeps below its watermark needs more than every unit once.
ENDLESS_FACTOR = 2


@dataclass(frozen=True, slots=True)
class SimulatedCapacity:
    """One capacity of a simulated tier.

    Attributes
    ----------
    host_gib_per_rank : float
    slots : int
        Units it holds.
    totals : TierTotals
    saved_s : Triple
        Seconds of prefill saved against the GPU tier alone.
    curve_computed_tokens : int
        Computed prefill of the one-pass curve at this capacity.
    best_computed_tokens : int or None
        Computed prefill under the policy that covers most prompt tokens in this room (Belady's, with bypass);
        None where the tier has no such yardstick (`find_best`).
    """

    host_gib_per_rank: float
    slots: int
    totals: TierTotals
    saved_s: Triple
    curve_computed_tokens: int
    best_computed_tokens: int | None

    @property
    def gap_tokens(self) -> int:
        """Tokens it computes beyond the one-pass curve; negative where it computes fewer."""
        return self.totals.computed_tokens - self.curve_computed_tokens

    @property
    def policy_tokens(self) -> int | None:
        """Tokens computed beyond those of the policy that covers most; below 0 where the GPU serves what that keeps."""
        return None if self.best_computed_tokens is None else self.totals.computed_tokens - self.best_computed_tokens

    @property
    def measured(self) -> Measured:
        """In the terms of a prediction."""
        t = self.totals
        return Measured(
            t.host_covered_tokens,
            t.gpu_tokens,
            t.restored_tokens,
            t.moved_tokens,
            t.loading_requests,
            t.written_tokens,
            t.forced_recompute_tokens,
            self.saved_s,
        )


@dataclass(frozen=True, slots=True)
class SimulatedTier:
    """A tier at several capacities, and what there is without it.

    Attributes
    ----------
    settings : TierSettings
    unit_tokens : int
        The tier's unit, or the trace's resolution where that is coarser.
    base : TierTotals
        Without a host tier.
    without_s : Triple
        Seconds of prefill without it.
    capacities : tuple of SimulatedCapacity
        Sorted.
    """

    settings: TierSettings
    unit_tokens: int
    base: TierTotals
    without_s: Triple
    capacities: tuple[SimulatedCapacity, ...]


def simulate_capacities(
    tier: TierInput, prediction: Prediction, gib_per_rank: Sequence[float], first_request: int = 0
) -> SimulatedTier:
    """Simulate every capacity, on all cores.

    Parameters
    ----------
    tier : TierInput
    prediction : Prediction
        The one-pass curve of the same stream, unit and deployment.
    gib_per_rank : floats
    first_request : int
        Stream position from which on requests are counted.
    """
    best = find_best(tier)
    savings, counted = prediction.savings, slice(first_request, None)
    base = simulate_tier(tier, 0)

    def simulate(gib: float) -> SimulatedCapacity:
        n_bytes = gib_to_bytes(gib)
        run = simulate_tier(tier, n_bytes)
        ideal = None if best is None else sum_run(simulate_tier(best, n_bytes), first_request).computed_tokens
        k = min(run.n_slots, prediction.tiers.n_distinct)
        return SimulatedCapacity(
            host_gib_per_rank=gib,
            slots=run.n_slots,
            totals=sum_run(run, first_request),
            saved_s=savings.seconds_saved(base.known_tokens, run.known_tokens, run.n_tokens, first_request),
            curve_computed_tokens=int(prediction.tiers.computed_tokens[k]),
            best_computed_tokens=ideal,
        )

    without = (float(times.seconds_from(base.known_tokens, base.n_tokens)[counted].sum()) for times in savings.ends)
    return SimulatedTier(
        settings=tier.settings,
        unit_tokens=tier.stream.unit_tokens,
        base=sum_run(base, first_request),
        without_s=Triple(*without),
        capacities=tuple(map_parallel(simulate, sorted(set(gib_per_rank)))),
    )


def find_best(tier: TierInput) -> TierInput | None:
    """The same tier under the policy that covers most prompt tokens.

    None where it keeps more than prompts, or looks up from the GPU's end: a tier that need not hold heads can
    do better than any that covers prompts from token 0.
    """
    preset = tier.settings.preset
    if not preset.has_yardstick:
        return None
    return replace(tier, settings=replace(tier.settings, policy="belady"))


def endless_gib(tier: TierInput, prediction: Prediction) -> float:
    """GiB per rank at which the tier never runs out of room."""
    factor = ENDLESS_FACTOR if tier.settings.preset.watermark < 1 else 1
    return prediction.gib_at(factor * max(tier.stream.n_units, 1))


def step_prediction(prediction: Prediction, tier: SimulatedTier, limit_gib: float = math.inf) -> Prediction:
    """A prediction whose curves hold the simulated values, constant from each capacity to the next.

    Below the first capacity the host tier does nothing; the curves end at `limit_gib` at the latest, beyond
    which nothing changes (`endless_gib`).
    """
    capacities = [found for found in tier.capacities if found.host_gib_per_rank <= limit_gib]
    slots = np.array([0, *(prediction.slots_at(found.host_gib_per_rank) for found in capacities)], np.int64)
    at = np.searchsorted(slots, np.arange(int(slots[-1]) + 1), side="right") - 1
    base = tier.base
    totals = [base, *(found.totals for found in capacities)]

    def spread(values: Iterable[int]) -> Int64s:
        return np.array(list(values), np.int64)[at]

    def spread_seconds(end: int) -> NDArray[np.float64]:
        return np.array([0.0, *(found.saved_s[end] for found in capacities)])[at]

    chunk = prediction.tiers.chunk_tokens
    tiers = TierCurves(
        chunk_tokens=chunk,
        n_requests=base.requests,
        prompt_tokens=base.prompt_tokens,
        gpu_tokens=base.gpu_tokens,
        coverage=CoverageCurve(
            chunk,
            spread(total.host_covered_tokens // chunk for total in totals),
            spread(total.written_tokens // chunk for total in totals),
        ),
        restored_tokens=spread(base.computed_tokens - total.computed_tokens for total in totals),
        moved_tokens=spread(total.moved_tokens for total in totals),
        loads=spread(total.loading_requests for total in totals),
        forced_tokens=spread(total.forced_recompute_tokens for total in totals),
    )
    savings = replace(
        prediction.savings,
        saved_s=(spread_seconds(0), spread_seconds(1), spread_seconds(2)),
        without_s=tier.without_s,
    )
    return replace(prediction, tiers=tiers, savings=savings)
