"""Costs: seconds to compute tokens again, and seconds to bring them back, on one deployment.

Every uncertain input is a triple of a low, a typical and a high value. Modelled (docs/model.md
section 5): prefill as FLOPs at the shares of the peak that kernels sustain, by length and position; a
restore moves whole chunks over every rank's own link at the rate its copies reach; a loading request
costs a fixed time and a scheduling time per token. Not modelled: queueing, and stores that hold up
the forward pass.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.costs.prefill import PrefillModel, build_prefill, seconds
from capplan.costs.restore import DEFAULT_ENGINE, RestoreRate, estimate_rate
from capplan.deployment import Deployment
from capplan.economics import TAU_LOAD_HIGH_S, TAU_LOAD_LOW_S, TAU_LOAD_PER_TOKEN_S, TAU_LOAD_S
from capplan.errors import SpecError
from capplan.hardware.gpu_spec import MeasuredPrefill
from capplan.units import GB, format_number

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

POSITION_TOLERANCE = 0.2
MEASURED_BAND = 0.1
METHODS = ("per-fragment", "batched", "kernel", "contiguous")


class Triple(NamedTuple):
    """Low, typical and high value of an uncertain input."""

    low: float
    typical: float
    high: float


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user knows better, in place of what profiles say.

    Attributes
    ----------
    prefill_tokens_per_s : float
        Of the whole tensor-parallel group.
    h2d_gb_per_s : float
        What one rank's restores reach, copies included.
    load_latency_s : float
        Fixed time of a loading request.
    restore_method : str
        "per-fragment", "batched", "kernel" or "contiguous".
    """

    prefill_tokens_per_s: float | None = None
    h2d_gb_per_s: float | None = None
    load_latency_s: float | None = None
    restore_method: str | None = None


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """Prefill time: a model at each end of what is plausible, or a time per token that is known.

    Attributes
    ----------
    models : (low, typical, high) or None
        Least, typical and most time; None where every token costs the same.
    known_s_per_token : float or None
        A given or measured mean time per token that the models are scaled to.
    known_position : float or None
        Mean attended position it holds at; None is the mean of what a host tier restores.
    band : Triple
        Factors of the three ends.
    origin : "formula", "measured" or "given"
    notes : tuple of str
    """

    models: tuple[PrefillModel, PrefillModel, PrefillModel] | None
    known_s_per_token: float | None
    known_position: float | None
    band: Triple
    origin: Literal["formula", "measured", "given"]
    notes: tuple[str, ...]

    def scale_at(self) -> float:
        """Factor from the typical model to a known time at a known position; 1 where there is none."""
        if self.models is None or self.known_s_per_token is None or self.known_position is None:
            return 1.0
        end = 2 * self.known_position
        return self.known_s_per_token / (float(seconds(self.models[1], 0, end)) / end)


@dataclass(frozen=True, slots=True)
class Costs:
    """Time of prefill and of restores.

    Attributes
    ----------
    prefill : PrefillCost
    h2d_bytes_per_s : Triple
        Rate one rank's restores reach.
    load_s : Triple
        Fixed time of a loading request.
    load_s_per_token : float
        Scheduling time per token moved.
    kv_bytes_per_token : int
        `beta`.
    restore : RestoreRate or None
        What the rate follows from; None where the user gave it.
    by_method : dict of str to Triple
        The rate every way of copying would reach; none where the profile states what restores reach.
    notes : tuple of str
        Where the numbers come from, in words.
    """

    prefill: PrefillCost
    h2d_bytes_per_s: Triple
    load_s: Triple
    load_s_per_token: float
    kv_bytes_per_token: int
    restore: RestoreRate | None
    by_method: dict[str, Triple]
    notes: tuple[str, ...]

    def restore_seconds(self, moved_tokens: Int64s, loads: Int64s, rate: float, load_s: float) -> Float64s:
        """Seconds of link and latency for so many tokens moved by so many loading requests."""
        per_token = self.kv_bytes_per_token / rate + self.load_s_per_token
        return np.asarray(moved_tokens * per_token + loads * load_s, np.float64)

    def restore_s_per_token(self, rate: float) -> float:
        """Seconds per token moved, without the fixed time of a load."""
        return self.kv_bytes_per_token / rate + self.load_s_per_token


def estimate_costs(
    deployment: Deployment, position: float, overrides: Overrides | None = None, engine: str = DEFAULT_ENGINE
) -> Costs:
    """Costs of a deployment; the user's numbers first, then measured ones, then the formulas.

    Parameters
    ----------
    deployment : Deployment
    position : float
        Mean position of the tokens a host tier restores: measured points near it are used.
    overrides : Overrides, optional
    engine : str
        How the host tier copies and lays out its KV.

    Raises
    ------
    SpecError
        An engine or a way of copying that is unknown, or a way beside a rate that has it inside.
    """
    overrides = Overrides() if overrides is None else overrides
    rate, restore, notes = _choose_rates(deployment, overrides, engine)
    load_s = Triple(TAU_LOAD_LOW_S, TAU_LOAD_S, TAU_LOAD_HIGH_S)
    if overrides.load_latency_s is not None:
        load_s = Triple(*(overrides.load_latency_s,) * 3)
    span = f"{1e3 * load_s.low:g}-{1e3 * load_s.high:g}" if load_s.high > load_s.low else f"{1e3 * load_s.typical:g}"
    loads = f"a load costs {span} ms and {1e6 * TAU_LOAD_PER_TOKEN_S:g} us per token on top of the copies"
    methods = {}
    if not deployment.gpu.h2d_gb_per_s.effective:
        methods = {method: Triple(*_estimate(deployment, engine, method).ends) for method in METHODS}
    return Costs(
        prefill=_choose_prefill(deployment, position, overrides),
        h2d_bytes_per_s=rate,
        load_s=load_s,
        load_s_per_token=TAU_LOAD_PER_TOKEN_S,
        kv_bytes_per_token=deployment.kv_bytes_per_token,
        restore=restore,
        by_method=methods,
        notes=(*notes, loads),
    )


def _choose_prefill(deployment: Deployment, position: float, overrides: Overrides) -> PrefillCost:
    same = Triple(1.0, 1.0, 1.0)
    if overrides.prefill_tokens_per_s is not None:
        per_token = 1 / overrides.prefill_tokens_per_s
        return PrefillCost(None, per_token, None, same, "given", (f"--prefill-tok-s {1 / per_token:g}",))
    models = build_prefill(deployment.gpu, deployment.model, deployment.tp, deployment.weight_dtype)
    typical = models.typical
    point = find_measured(deployment, position)
    if point is None:
        return PrefillCost((models.low, typical, models.high), None, None, same, "formula", typical.notes)
    at = "position not reported" if point.position is None else f"at mean position {point.position:,.0f}"
    share = MEASURED_BAND * (2 if point.position_estimated else 1)
    low = 1 - share if point.us_low is None else point.us_low / point.us_per_token
    high = 1 + share if point.us_high is None else point.us_high / point.us_per_token
    band = Triple(low, 1.0, high)
    known = point.us_low is not None or point.us_high is not None
    width = "its interval" if known else f"+-{100 * share:.0f} % is assumed"
    estimated = " (estimated)" if point.position_estimated else ""
    note = f"measured, {point.us_per_token:g} us per token, {at}{estimated}; {width}"
    return PrefillCost(
        (typical, typical, typical), point.us_per_token * 1e-6, point.position, band, "measured", (note,)
    )


def find_measured(deployment: Deployment, position: float) -> MeasuredPrefill | None:
    """The profile's measured point for this model, TP and weight type, nearest within 20 % of the position.

    A point whose position is not reported matches any.
    """
    dtype = deployment.gpu.compute_dtype(deployment.weight_dtype)
    points = [p for p in deployment.gpu.measured_for(deployment.model.name, deployment.tp) if p.weight_dtype == dtype]
    apart = [math.inf if p.position is None else abs(p.position - position) for p in points]
    nearest = int(np.argmin(apart)) if points else 0
    if points and apart[nearest] <= POSITION_TOLERANCE * position:
        return points[nearest]
    return next((point for point in points if point.position is None), None)


def _choose_rates(
    deployment: Deployment, overrides: Overrides, engine: str
) -> tuple[Triple, RestoreRate | None, tuple[str, ...]]:
    if overrides.h2d_gb_per_s is not None:
        rate = overrides.h2d_gb_per_s * GB
        return Triple(rate, rate, rate), None, (f"restores at {overrides.h2d_gb_per_s:g} GB/s per GPU: --h2d-gbps",)
    known = deployment.gpu.h2d_gb_per_s
    if known.effective:
        if overrides.restore_method is not None:
            raise SpecError(
                f"--restore {overrides.restore_method}: the profile of {deployment.gpu.name} states the rate that "
                "restores reach, copies included; accepted: no --restore, or a profile of the link's rate"
            )
        note = f"restores at {known.low:g} / {known.typical:g} / {known.high:g} GB/s per GPU: {known.basis}"
        return Triple(known.low * GB, known.typical * GB, known.high * GB), None, (note,)
    restore = _estimate(deployment, engine, overrides.restore_method)
    low, typical, high = (format_number(rate / GB) for rate in restore.ends)
    return Triple(*restore.ends), restore, (f"restores at {low} / {typical} / {high} GB/s per GPU", *restore.notes)


def _estimate(deployment: Deployment, engine: str, method: str | None) -> RestoreRate:
    return estimate_rate(deployment.gpu, deployment.model, deployment.tp, deployment.kv_dtype, method, engine=engine)
