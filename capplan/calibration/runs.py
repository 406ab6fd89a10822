"""Fit of runs: makespan over computed, moved and written tokens and loading requests (docs/model.md section 5).

What is modelled: ``makespan = intercept + t_pf computed + (beta / B + 0.5 us) moved + tau loads + w written``, one
intercept for all runs: what the runs have in common, such as decode and waiting for tools. What is not: overlap of
restores with prefill, queueing, prefill time that depends on where the computed tokens stand. Tokens that some fitted
row does not report are left out of the fit, and their time stays in the slope and the intercept: without restored
tokens the slope is the time gained per avoided token, prefill less what replaced it, and prefill takes at least that.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capplan.calibration.baseline import Baseline
from capplan.calibration.cells import MeasurementError
from capplan.calibration.contradictions import FASTER_RUN, reduce_run, refuse_contradictions, refuse_negative
from capplan.calibration.fits import Fit, Parameter, Row, explain_no_interval
from capplan.calibration.least_squares import COLLINEAR, Float64s, Solution, Term, find_determined, solve
from capplan.calibration.measurements import Run, name_row

COLUMN_OF = {
    "prefill": "computed_prefill_tokens",
    "restore": "restored_tokens",
    "load": "loading_requests",
    "write": "written_tokens",
}
MEANINGS = {
    "prefill": "fitted prefill time per computed token",
    "restore": "fitted restore time per moved token",
    "load": "fitted time per loading request",
    "write": "fitted time per written token",
}


@dataclass(frozen=True, slots=True)
class Held:
    """Values to hold parameters at, seconds; `from_points` are those that TTFT points determine, not the profile."""

    values: Mapping[str, float]
    from_points: Collection[str] = ()


def fit_runs(runs: Sequence[Run], source: str, held: Held, forced: Collection[str] = ()) -> Fit:
    """Fit the runs that are to be fitted, and predict all.

    Parameters
    ----------
    held : values of the parameters that the runs may not determine (`choose_held`)
    forced : parameters to hold even if they do

    Raises
    ------
    MeasurementError
        There are too few runs, or they contradict each other.
    """
    fitted = [run for run in runs if run.is_fit]
    if len(fitted) < 2:
        what = f"{len(fitted)} run{'' if len(fitted) == 1 else 's'} to fit"
        raise MeasurementError(f"{source}: {what}; accepted: 2 or more that differ in computed_prefill_tokens")
    outcomes = [reduce_run(run) for run in fitted]
    refuse_contradictions(outcomes, source, FASTER_RUN)
    reported = [name for name in COLUMN_OF if all(_amount(run, name) is not None for run in fitted)]
    terms = [Term("intercept", np.ones(len(fitted)))]
    terms += [Term(name, _column(fitted, name), held.values.get(name, 0.0), name in forced) for name in reported]
    _require_prefill(terms, held.values, source)
    solution = solve(terms, np.array([run.makespan_s for run in fitted]))
    meanings = {name: MEANINGS[name] for name in reported}
    refuse_negative(solution, meanings, "prefill", outcomes, source)
    parameters = _describe(solution, terms, held, forced, fitted)
    n_fitted = sum(parameter.is_fitted for parameter in parameters.values())
    return Fit(
        parameters=parameters,
        rows=tuple(_predict(run, parameters, reported) for run in runs),
        degrees_of_freedom=solution.degrees_of_freedom,
        no_interval=explain_no_interval(len(fitted), n_fitted, "run"),
    )


def choose_held(base: Baseline, points: Fit | None) -> Held:
    """Return the values to hold parameters at: those of TTFT points that determine them, else the profile's.

    There is none for the prefill time where the profile has none.
    """
    values = {"restore": base.restore_s, "load": base.load_s, "write": 0.0}
    if base.prefill_s is not None:
        values["prefill"] = base.prefill_s
    found = () if points is None else [name for name in ("restore", "load") if points.parameters[name].is_fitted]
    if points is not None:
        values |= {name: points.value(name) for name in found}
    return Held(values, found)


def _require_prefill(terms: Sequence[Term], held: Mapping[str, float], source: str) -> None:
    if "prefill" in held or "prefill" in find_determined(terms, np.ones(len(terms[0].column))):
        return
    raise MeasurementError(
        f"{source}: prefill is not fitted (computed_prefill_tokens is the same in every run, or --hold prefill), and "
        "the profile has no time measured for this model and --tp; accepted: --position TOKENS for its formula, or "
        "runs that differ in computed_prefill_tokens"
    )


def _amount(run: Run, name: str) -> float | None:
    return {
        "prefill": run.computed_tokens,
        "restore": run.moved_tokens,
        "load": run.loads,
        "write": run.written_tokens,
    }[name]


def _column(runs: Sequence[Run], name: str) -> Float64s:
    return np.array([_amount(run, name) for run in runs], np.float64)


def _describe(
    solution: Solution, terms: Sequence[Term], held: Held, forced: Collection[str], runs: Sequence[Run]
) -> dict[str, Parameter]:
    columns = {term.name: term.column for term in terms}
    free = [COLUMN_OF.get(name, name) for name, one in solution.unrestricted.items() if one.status == "fitted"]
    parameters = {}
    for name in ("intercept", *COLUMN_OF):
        if name not in columns:
            parameters[name] = _leave_out(name, held, runs)
            continue
        estimate = solution.estimates[name]
        reason = ""
        if estimate.status == "held":
            reason = "--hold" if name in forced else explain_held(columns[name], free)
            reason += _say_origin(name, held)
        elif estimate.status == "at zero":
            reason = f"the fit without this bound gives {solution.unrestricted[name].value:.3g} s"
        parameters[name] = Parameter(name, estimate.value, estimate.status, estimate.low, estimate.high, reason)
    return parameters


def _leave_out(name: str, held: Held, runs: Sequence[Run]) -> Parameter:
    blank = next(run for run in runs if _amount(run, name) is None)
    where = f"{COLUMN_OF[name]} is not reported at {name_row(blank)}"
    reason = f"{where}; its time stays in the slope and the intercept{_say_origin(name, held)}"
    return Parameter(name, held.values[name], "left out", reason=reason)


def _say_origin(name: str, held: Held) -> str:
    return "; the value is that of the TTFT points" if name in held.from_points else ""


def explain_held(column: Float64s, free: Sequence[str]) -> str:
    """Say why a column determines nothing beside the fitted ones, given by what messages call them."""
    if not column.any():
        return "none in any row"
    if np.ptp(column) <= COLLINEAR * column.max():
        return "the same in every row"
    if len(free) >= len(column):
        return f"{len(column)} rows determine no more than {len(column)} parameters"
    return f"follows from {', '.join(free)} in these rows"


def _predict(run: Run, parameters: dict[str, Parameter], reported: Sequence[str]) -> Row:
    seconds = parameters["intercept"].value
    for name in reported:
        amount = _amount(run, name)
        if amount is None:
            reason = f"{COLUMN_OF[name]} is not reported"
            return Row(run.line, run.label, run.is_fit, run.makespan_s, None, reason)
        seconds += parameters[name].value * amount
    return Row(run.line, run.label, run.is_fit, run.makespan_s, seconds)
