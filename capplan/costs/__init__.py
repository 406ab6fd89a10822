"""Costs: seconds to compute a token again, and seconds to bring it back, on one deployment.

Modelled (docs/model.md section 5): one prefill time per token at one stated mean position; a restore
moves whole chunks over every rank's own link at once, and every loading request costs a fixed time
and a scheduling time per token. Not modelled here: how the rate depends on the size of the copies,
stores running at the same time, the spread of positions.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.deployment import Deployment
from capplan.economics import TAU_LOAD_PER_TOKEN_S, TAU_LOAD_S, prefill_seconds_per_token
from capplan.hardware.gpu_spec import MeasuredPrefill
from capplan.units import GB, format_number

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

POSITION_TOLERANCE = 0.2


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user knows better: tokens/s of the TP group, GB/s per GPU, seconds per loading request."""

    prefill_tokens_per_s: float | None = None
    h2d_gb_per_s: float | None = None
    load_latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Time of prefill and of restores.

    Attributes
    ----------
    prefill_s_per_token : float
        `t_pf`, of the whole tensor-parallel group.
    position : float
        Mean position the prefill time is for, tokens; NaN where it does not depend on one.
    h2d_bytes_per_s : (low, typical, high)
        Rate one rank's restores reach.
    load_s, load_s_per_token : float
        Fixed time of a loading request, and scheduling time per token moved.
    kv_bytes_per_token : int
        `beta`.
    notes : tuple of str
        Where the numbers come from, in words.
    """

    prefill_s_per_token: float
    position: float
    h2d_bytes_per_s: tuple[float, float, float]
    load_s: float
    load_s_per_token: float
    kv_bytes_per_token: int
    notes: tuple[str, ...]

    def restore_seconds(self, moved_tokens: Int64s, loads: Int64s, rate: float) -> Float64s:
        """Seconds of link and latency for so many tokens moved by so many loading requests."""
        per_token = self.kv_bytes_per_token / rate + self.load_s_per_token
        return np.asarray(moved_tokens * per_token + loads * self.load_s, np.float64)

    def prefill_seconds(self, tokens: Int64s) -> Float64s:
        """Seconds to compute so many tokens."""
        return np.asarray(tokens * self.prefill_s_per_token, np.float64)

    def break_even_rate(self, saved_tokens: Int64s, moved_tokens: Int64s, loads: Int64s) -> float:
        """Restore rate, bytes/s, above which some capacity gains time; infinite where none does at any rate."""
        spare = self.prefill_seconds(saved_tokens) - loads * self.load_s - moved_tokens * self.load_s_per_token
        gains = (spare > 0) & (moved_tokens > 0)
        if not gains.any():
            return math.inf
        return float((moved_tokens[gains] * float(self.kv_bytes_per_token) / spare[gains]).min())


def estimate_costs(deployment: Deployment, position: float, overrides: Overrides | None = None) -> Costs:
    """Costs of a deployment for tokens at a mean position; the user's numbers first, then measured ones."""
    overrides = Overrides() if overrides is None else overrides
    prefill_s, prefill_note, positioned = _choose_prefill(deployment, position, overrides)
    rates, rate_note = _choose_rates(deployment, overrides)
    load_s = TAU_LOAD_S if overrides.load_latency_s is None else overrides.load_latency_s
    load_note = f"a load costs {1e3 * load_s:g} ms and {1e6 * TAU_LOAD_PER_TOKEN_S:g} us per token on top of the link"
    return Costs(
        prefill_s_per_token=prefill_s,
        position=position if positioned else math.nan,
        h2d_bytes_per_s=rates,
        load_s=load_s,
        load_s_per_token=TAU_LOAD_PER_TOKEN_S,
        kv_bytes_per_token=deployment.kv_bytes_per_token,
        notes=(prefill_note, rate_note, load_note),
    )


def _choose_prefill(deployment: Deployment, position: float, overrides: Overrides) -> tuple[float, str, bool]:
    if overrides.prefill_tokens_per_s is not None:
        rate = overrides.prefill_tokens_per_s
        return 1 / rate, f"prefill {1e6 / rate:.1f} us per token: --prefill-tok-s {rate:g}", False
    point = find_measured(deployment, position)
    if point is not None:
        at = "position not reported" if point.position is None else f"at position {point.position:,.0f}"
        return point.us_per_token * 1e-6, f"prefill {point.us_per_token:g} us per token: measured, {at}", False
    gpu, model = deployment.gpu, deployment.model
    share = gpu.efficiency_for(model.kind, deployment.tp, deployment.weight_dtype)
    seconds = prefill_seconds_per_token(
        model.linear_params,
        model.attention_flops,
        position,
        deployment.tp,
        gpu.peak_flops(deployment.weight_dtype),
        share.typical,
    )
    note = (
        f"prefill {1e6 * seconds:.1f} us per token at mean position {position:,.0f}: formula at {share.typical:.2f} of "
        f"the {gpu.compute_dtype(deployment.weight_dtype)} peak (range {share.low:g}-{share.high:g}, "
        f"confidence {share.confidence})"
    )
    return seconds, note, True


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


def _choose_rates(deployment: Deployment, overrides: Overrides) -> tuple[tuple[float, float, float], str]:
    if overrides.h2d_gb_per_s is not None:
        rate = overrides.h2d_gb_per_s * GB
        return (rate, rate, rate), f"restores at {overrides.h2d_gb_per_s:g} GB/s per GPU: --h2d-gbps"
    known = deployment.gpu.h2d_gb_per_s
    kind = "estimated" if known.estimated else "measured"
    note = (
        f"restores at {format_number(known.low)} / {format_number(known.typical)} / {format_number(known.high)} GB/s "
        f"per GPU, {kind} for contiguous copies; many small copies are slower"
    )
    return (known.low * GB, known.typical * GB, known.high * GB), note
