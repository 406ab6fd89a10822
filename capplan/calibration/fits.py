"""Records of a fit: its parameters, and what it says of every row."""

from dataclasses import dataclass
from typing import Literal

from capplan.calibration.least_squares import FEWEST_ROWS_FOR_INTERVAL

Status = Literal["fitted", "held", "at zero", "left out"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, in seconds (per token or request; the TTFT scale is a factor).

    Attributes
    ----------
    value : float
        Fitted, held, or 0; of a parameter that is left out, the value the profile has.
    status : str
        ``fitted``; ``held`` at a value the data do not determine; ``at zero``, its bound; ``left out`` of the fit
        because a row does not report its tokens.
    low, high : float or None
        95 % interval.
    reason : str
        Why it is not fitted, and where the value comes from; empty if fitted.
    """

    name: str
    value: float
    status: Status
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def is_fitted(self) -> bool:
        """Whether the data determine it."""
        return self.status == "fitted"


@dataclass(frozen=True, slots=True)
class Row:
    """A row measured and predicted, seconds; `predicted_s` is None where `reason` says what is missing."""

    line: int
    label: str
    is_fit: bool
    measured_s: float
    predicted_s: float | None
    reason: str = ""

    @property
    def error_share(self) -> float | None:
        """Predicted over measured, less 1."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters by name in the order fitted, every row of the kind, and why there is no interval (empty if any)."""

    parameters: dict[str, Parameter]
    rows: tuple[Row, ...]
    degrees_of_freedom: int
    no_interval: str

    @property
    def n_fit(self) -> int:
        """Rows fitted."""
        return sum(row.is_fit for row in self.rows)

    def value(self, name: str) -> float:
        """Value of a parameter."""
        return self.parameters[name].value


def explain_no_interval(n_rows: int, n_fitted: int, noun: str) -> str:
    """Say why there are no intervals; empty where there are."""
    if n_rows >= FEWEST_ROWS_FOR_INTERVAL and n_rows > n_fitted:
        return ""
    rows = f"{n_rows} {noun}{'' if n_rows == 1 else 's'}"
    parameters = f"{n_fitted} fitted parameter{'' if n_fitted == 1 else 's'}"
    needed = max(FEWEST_ROWS_FOR_INTERVAL, n_fitted + 1)
    return f"no interval: {rows} for {parameters}; {needed} {noun}s would give one"
