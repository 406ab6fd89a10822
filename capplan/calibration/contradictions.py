"""Measurements that cannot all be right, refused with the rows named."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capplan.calibration.cells import MeasurementError
from capplan.calibration.least_squares import Estimate, Solution
from capplan.calibration.measurements import Run, TtftPoint, name_row

REPEATS_APART = 0.2
"""Equal inputs may differ by this share of the slower one."""
FASTER_RUN, FASTER_POINT = 0.05, 0.2
"""By this share more computed tokens may be faster: runs average over many requests, a TTFT does not."""

REMEDY = "accepted: rows of one machine and engine, or use = check for the row that is not to be fitted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row reduced to what is compared: computed tokens, everything else that was given, seconds."""

    row: Run | TtftPoint
    computed_tokens: float
    others: tuple[Any, ...]
    seconds: float


def reduce_run(run: Run) -> Outcome:
    """Return a run's tokens and makespan."""
    others = (run.restored_tokens, run.moved_tokens, run.written_tokens, run.loads)
    return Outcome(run, run.computed_tokens, others, run.makespan_s)


def reduce_point(point: TtftPoint) -> Outcome:
    """Return a TTFT point's tokens and time."""
    others = (point.cached_tokens, point.is_on_host)
    return Outcome(point, point.computed_tokens, others, point.ttft_s)


def refuse_contradictions(outcomes: Sequence[Outcome], source: str, faster: float) -> None:
    """Refuse equal inputs with very different outcomes, and more computed tokens that took less time.

    Rows are compared where all they report besides computed tokens is the same; not reported equals only itself.

    Raises
    ------
    MeasurementError
        Names the two rows.
    """
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.others].append(outcome)
    for group in groups.values():
        group.sort(key=lambda outcome: outcome.computed_tokens)
        _refuse_repeats(group, source)
        if (pair := find_reversed(group)) and pair[1].seconds < pair[0].seconds * (1 - faster):
            fewer, more = pair
            what = f"computes {more.computed_tokens - fewer.computed_tokens:,.0f} tokens more than"
            raise MeasurementError(
                f"{source}: {name_row(more.row)} {what} {name_row(fewer.row)} with all else equal, yet takes "
                f"{more.seconds:g} s instead of {fewer.seconds:g} s; {REMEDY}"
            )


def _refuse_repeats(group: Sequence[Outcome], source: str) -> None:
    repeats = defaultdict(list)
    for outcome in group:
        repeats[outcome.computed_tokens].append(outcome)
    for same in repeats.values():
        fastest, slowest = min(same, key=lambda o: o.seconds), max(same, key=lambda o: o.seconds)
        if fastest.seconds < slowest.seconds * (1 - REPEATS_APART):
            first, second = sorted((fastest, slowest), key=lambda o: o.row.line)
            raise MeasurementError(
                f"{source}: {name_row(first.row)} and {name_row(second.row)} have the same inputs, yet take "
                f"{first.seconds:g} s and {second.seconds:g} s; {REMEDY}"
            )


def find_reversed(outcomes: Sequence[Outcome]) -> tuple[Outcome, Outcome] | None:
    """Return the fewer-computed and the more-computed row whose times most contradict their order, if any do."""
    slowest, worst, ratio = None, None, 1.0
    for outcome in sorted(outcomes, key=lambda o: o.computed_tokens):
        if (
            slowest is not None
            and outcome.computed_tokens > slowest.computed_tokens
            and outcome.seconds < slowest.seconds * ratio
        ):
            worst, ratio = (slowest, outcome), outcome.seconds / slowest.seconds
        if slowest is None or outcome.seconds > slowest.seconds:
            slowest = outcome
    return worst


def refuse_negative(
    solution: Solution, meanings: Mapping[str, str], positive: str, outcomes: Sequence[Outcome], source: str
) -> None:
    """Refuse a time that comes out negative beyond its interval, and a prefill that may take no time at all.

    Parameters
    ----------
    meanings : what each parameter that must not be negative is called in messages
    positive : the parameter that must be above 0 in the final solution
    outcomes : the rows fitted

    Raises
    ------
    MeasurementError
        Names the parameter, its value and interval, and the rows.
    """
    for name, meaning in meanings.items():
        estimate = solution.unrestricted[name]
        if name == positive:
            spans_zero = estimate.low is not None and estimate.low <= 0
            is_refused = spans_zero or estimate.value <= 0 or solution.estimates[name].value <= 0
        else:
            is_refused = estimate.value < 0 and (estimate.high is None or estimate.high < 0)
        if is_refused:
            pair = find_reversed(outcomes) if name == positive else None
            rows = [outcome.row for outcome in (pair or outcomes)]
            way_out = f"{REMEDY}, or --hold {name}" if name != positive else REMEDY
            raise MeasurementError(f"{source}: {_name_rows(rows)}: {meaning} {_describe(estimate)}; {way_out}")


def _name_rows(rows: Sequence[Run | TtftPoint]) -> str:
    named = ", ".join(name_row(row) for row in rows[:6])
    return f"{named} and {len(rows) - 6} more" if len(rows) > 6 else named


def _describe(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"comes out as {estimate.value:.3g} s (no interval)"
    return f"comes out as {estimate.value:.3g} s (95 % interval {estimate.low:.3g} to {estimate.high:.3g} s)"
