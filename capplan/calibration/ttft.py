"""Fit of TTFT points: engine floor, prefill scale and restore time from single requests on an idle engine.

What is modelled: ``ttft = max(floor, scale T(c, n)) + [host] ((beta / B + 0.5 us) c + tau)``: ``T(c, n)`` the
profile's formula for tokens c to n (docs/model.md section 5), c the cached tokens. The floor is the engine's fixed
time to a first token. Rows that compute at most `FULL_HIT_TOKENS` show it; others do where their scaled prefill would
be shorter. Errors are taken as shares of the TTFT. What is not: a floor that grows with the prompt, queueing, chunks
of prefill that take turns with decode.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from capplan.calibration.baseline import Baseline
from capplan.calibration.contradictions import FASTER_POINT, reduce_point, refuse_contradictions, refuse_negative
from capplan.calibration.fits import Fit, Parameter, Row, explain_no_interval
from capplan.calibration.least_squares import Float64s, Solution, Term, solve
from capplan.calibration.measurements import TtftPoint
from capplan.calibration.runs import explain_held

FULL_HIT_TOKENS = 256
"""A request that computes no more than this shows the engine's floor."""
NAMES = ("floor", "scale", "restore", "load")
MEANINGS = {
    "scale": "fitted prefill scale",
    "restore": "fitted restore time per token",
    "load": "fitted time per loading request",
}
HOLDS = {"prefill": "scale", "restore": "restore", "load": "load"}
"""What ``--hold`` names here."""

Bools = NDArray[np.bool_]


def fit_points(points: Sequence[TtftPoint], source: str, base: Baseline, forced: Collection[str] = ()) -> Fit | None:
    """Fit the TTFT points that are to be fitted, and predict all; None without any to fit.

    Parameters
    ----------
    forced : parameters to hold, by the names of ``--hold``

    Raises
    ------
    MeasurementError
        The points contradict each other.
    """
    fitted = [point for point in points if point.is_fit]
    if not fitted:
        return None
    outcomes = [reduce_point(point) for point in fitted]
    refuse_contradictions(outcomes, source, FASTER_POINT)
    held_names = {HOLDS[name] for name in forced if name in HOLDS}
    solution, terms = _fit_regimes(fitted, base, held_names)
    refuse_negative(solution, MEANINGS, "scale", outcomes, source)
    parameters = _describe(solution, terms, held_names)
    n_fitted = sum(parameter.is_fitted for parameter in parameters.values())
    return Fit(
        parameters=parameters,
        rows=tuple(_predict(point, parameters, base) for point in points),
        degrees_of_freedom=solution.degrees_of_freedom,
        no_interval=explain_no_interval(len(fitted), n_fitted, "TTFT point"),
    )


def list_scaled(fit: Fit, points: Sequence[TtftPoint], base: Baseline) -> list[tuple[float, float]]:
    """Return (mean position, seconds per token) where fitted points show prefill, positions 10 % apart or more."""
    scale, floor = fit.value("scale"), fit.value("floor")
    seen = sorted(
        (point.cached_tokens + point.prompt_tokens) / 2
        for point in points
        if point.is_fit
        and point.computed_tokens > FULL_HIT_TOKENS
        and scale * base.suffix_s(point.cached_tokens, point.prompt_tokens) > floor
    )
    kept: list[float] = []
    for position in seen:
        if not kept or position >= 1.1 * kept[-1]:
            kept.append(position)
    return [(position, scale * base.formula_s(position)) for position in kept]


def _fit_regimes(points: Sequence[TtftPoint], base: Baseline, held: Collection[str]) -> tuple[Solution, Sequence[Term]]:
    """Fit, move rows whose scaled prefill is below the floor to it, and fit again until none is."""
    ttft = np.array([point.ttft_s for point in points])
    formula = np.array([base.suffix_s(point.cached_tokens, point.prompt_tokens) for point in points])
    is_floor = np.array([point.computed_tokens <= FULL_HIT_TOKENS for point in points])
    while True:
        terms = _make_terms(points, base, formula, is_floor, held)
        solution = solve(terms, ttft, 1 / ttft)
        below = solution.estimates["scale"].value * formula < solution.estimates["floor"].value
        if not (below & ~is_floor).any():
            return solution, terms
        is_floor |= below


def _make_terms(
    points: Sequence[TtftPoint], base: Baseline, formula: Float64s, is_floor: Bools, held: Collection[str]
) -> list[Term]:
    on_host = np.array([point.is_on_host for point in points], np.float64)
    cached = np.array([point.cached_tokens for point in points])
    return [
        Term("floor", is_floor.astype(np.float64)),
        Term("scale", np.where(is_floor, 0.0, formula), 1.0, "scale" in held),
        Term("restore", on_host * cached, base.restore_s, "restore" in held),
        Term("load", on_host, base.load_s, "load" in held),
    ]


def _describe(solution: Solution, terms: Sequence[Term], forced: Collection[str]) -> dict[str, Parameter]:
    free = [name for name, estimate in solution.unrestricted.items() if estimate.status == "fitted"]
    parameters = {}
    for term in terms:
        estimate = solution.estimates[term.name]
        reason = ""
        if estimate.status == "held":
            reason = "--hold" if term.name in forced else _explain_point_held(term, free)
        elif estimate.status == "at zero":
            reason = f"the fit without this bound gives {solution.unrestricted[term.name].value:.3g} s"
        parameters[term.name] = Parameter(
            term.name, estimate.value, estimate.status, estimate.low, estimate.high, reason
        )
    return parameters


def _explain_point_held(term: Term, free: Sequence[str]) -> str:
    if term.column.any():
        return explain_held(term.column, free)
    return {
        "floor": f"no row computes at most {FULL_HIT_TOKENS} tokens",
        "scale": "no row shows prefill above the floor",
    }.get(term.name, "no row is cached on the host")


def _predict(point: TtftPoint, parameters: dict[str, Parameter], base: Baseline) -> Row:
    prefill = parameters["scale"].value * base.suffix_s(point.cached_tokens, point.prompt_tokens)
    seconds = max(parameters["floor"].value, prefill)
    if point.is_on_host:
        seconds += parameters["restore"].value * point.cached_tokens + parameters["load"].value
    return Row(point.line, point.label, point.is_fit, point.ttft_s, seconds)
