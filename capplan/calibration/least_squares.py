"""Least squares for a handful of parameters that cannot be negative, some of which the data may not determine.

What is modelled: ``observed = sum of column x parameter``, errors of equal size after weighting. Columns are taken in
the order given; one that those before it already produce (to `COLLINEAR` of its length) determines nothing: its
parameter is held at a stated value. As such a column lies in the span of the fitted ones, the held value moves the
fitted parameters and not the fitted rows. Intervals are Student's, and there are none without a degree of freedom.
What is not: errors in the columns, errors that depend on each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Status = Literal["fitted", "held", "at zero"]

COLLINEAR = 1e-3
"""Share of a column's length that columns before it must leave unexplained for its parameter to be fitted."""
CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054
FEWEST_ROWS_FOR_INTERVAL = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One parameter: its column, one value a row, and the value it is held at where it is not determined."""

    name: str
    column: Float64s
    held_at: float = 0.0
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """A parameter's value, with its 95 % interval where there is one."""

    value: float
    status: Status
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Solution:
    """Estimates by name; `unrestricted` are those before negative ones were set to 0."""

    estimates: dict[str, Estimate]
    unrestricted: dict[str, Estimate]
    degrees_of_freedom: int


def solve(terms: Sequence[Term], observed: Float64s, weights: Float64s | None = None) -> Solution:
    """Fit the determined terms, none below 0, and hold the others.

    Parameters
    ----------
    terms : distinct names, those to fit first in front
    observed : one value a row
    weights : what each row's error is multiplied with; 1 by default
    """
    weights = np.ones(len(observed)) if weights is None else weights
    free = find_determined(terms, weights)
    first, _ = _fit(terms, free, free, observed, weights)
    best, n_fitted = first, len(free)
    if any(estimate.value < 0 for name, estimate in first.items() if name in free):
        best, n_fitted = _fit_non_negative(terms, free, observed, weights)
    return Solution(best, first, len(observed) - n_fitted)


def find_determined(terms: Sequence[Term], weights: Float64s) -> tuple[str, ...]:
    """Return the names of the terms the data determine, taking them in order (Gram-Schmidt)."""
    basis: list[Float64s] = []
    names = []
    for term in terms:
        column = term.column * weights
        length = float(np.linalg.norm(column))
        if term.is_held or length == 0:
            continue
        rest = column / length
        for _ in range(2):
            for direction in basis:
                rest = rest - (direction @ rest) * direction
        left = float(np.linalg.norm(rest))
        if left > COLLINEAR:
            basis.append(rest / left)
            names.append(term.name)
    return tuple(names)


def _fit_non_negative(
    terms: Sequence[Term], free: tuple[str, ...], observed: Float64s, weights: Float64s
) -> tuple[dict[str, Estimate], int]:
    """Try every set of parameters at 0; the best without a negative one is the solution."""
    best, least, n_fitted = None, math.inf, 0
    for size in range(len(free), -1, -1):
        for chosen in combinations(free, size):
            estimates, squares = _fit(terms, chosen, free, observed, weights)
            if squares < least and all(estimates[name].value >= 0 for name in chosen):
                best, least, n_fitted = estimates, squares, size
    if best is None:  # pragma: no cover - the empty set is never negative
        raise AssertionError("no set of parameters fits")
    return best, n_fitted


def _fit(
    terms: Sequence[Term], chosen: tuple[str, ...], free: tuple[str, ...], observed: Float64s, weights: Float64s
) -> tuple[dict[str, Estimate], float]:
    """Fit the chosen terms with the other free ones at 0 and the rest held; also the sum of squares left."""
    held = {term.name: term for term in terms if term.name not in free}
    target = (observed - sum((term.held_at * term.column for term in held.values()), np.zeros(len(observed)))) * weights
    columns = [term.column * weights for term in terms if term.name in chosen]
    values, errors, squares = _least_squares(columns, target)
    fitted = {
        name: Estimate(value, "fitted", *_interval(value, error))
        for name, value, error in zip((t.name for t in terms if t.name in chosen), values, errors, strict=True)
    }
    zero = Estimate(0.0, "at zero")
    return {
        term.name: Estimate(term.held_at, "held") if term.name in held else fitted.get(term.name, zero)
        for term in terms
    }, squares


def _interval(value: float, half_width: float) -> tuple[float | None, float | None]:
    return (None, None) if math.isnan(half_width) else (value - half_width, value + half_width)


def _least_squares(columns: Sequence[Float64s], target: Float64s) -> tuple[list[float], list[float], float]:
    """Return values, half widths of their intervals (NaN where there are none) and the squares left."""
    if not columns:
        return [], [], float(target @ target)
    matrix = np.stack(columns, axis=1)
    scale = np.linalg.norm(matrix, axis=0)
    scaled = matrix / scale
    values = np.linalg.lstsq(scaled, target, rcond=None)[0]
    left = target - scaled @ values
    squares = float(left @ left)
    n_rows, n_columns = matrix.shape
    widths = np.full(n_columns, math.nan)
    if n_rows >= FEWEST_ROWS_FOR_INTERVAL and n_rows > n_columns:
        inverse = np.linalg.inv(np.linalg.qr(scaled, mode="r"))
        spread = np.sqrt(np.sum(inverse**2, axis=1) * squares / (n_rows - n_columns))
        widths = student_quantile(n_rows - n_columns) * spread / scale
    return (values / scale).tolist(), widths.tolist(), squares


def student_quantile(degrees_of_freedom: int) -> float:
    """Return t such that 95 % of Student's distribution lies within +-t.

    Finite series for a whole number of degrees of freedom, inverted by bisection (Abramowitz and Stegun, 26.7.3 and
    26.7.4); above 1,000 the expansion of 26.7.5 to its first term, good to 1e-5 there.
    """
    if degrees_of_freedom > 1000:
        return NORMAL_QUANTILE + (NORMAL_QUANTILE**3 + NORMAL_QUANTILE) / (4 * degrees_of_freedom)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees_of_freedom) < CONFIDENCE else (low, middle)
    return math.sqrt(degrees_of_freedom) * math.tan(low)


def _within(angle: float, degrees_of_freedom: int) -> float:
    """Return the share of Student's distribution within t = sqrt(df) tan(angle)."""
    cosine, sine = math.cos(angle), math.sin(angle)
    is_odd = degrees_of_freedom % 2 == 1
    term = cosine if is_odd else 1.0
    total = term if degrees_of_freedom > 1 else 0.0
    for k in range(3 if is_odd else 2, degrees_of_freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
