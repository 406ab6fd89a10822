"""A calibration as a table to read and as JSON: fitted and held values, and every row measured and predicted."""

import json
from typing import Any

from capplan.calibration.fits import Fit, Parameter
from capplan.calibration.pipeline import Calibration
from capplan.calibration.profile import describe_rate, list_advice, list_notes, say_unfitted, write_profile
from capplan.report.layout import Table, fold, make_table, print_tables
from capplan.units import format_number

FORMAT_VERSION = 1
FORMATS = ("table", "json")
LONG_S = 600.0
POOR = 0.1
"""Share of its measurement by which a fitted row may be missed without a word."""
MEANINGS = {
    "intercept": ("all else, per run", "s", 1.0),
    "prefill": ("per computed token", "us", 1e6),
    "restore": ("per moved token", "us", 1e6),
    "load": ("per loading request", "ms", 1e3),
    "write": ("per written token", "us", 1e6),
    "floor": ("under any TTFT", "ms", 1e3),
    "scale": ("times the formula", "", 1.0),
}


def render(calibration: Calibration, format: str = "table", width: int = 80, shows_profile: bool = False) -> str:
    """Return the report, ending in a newline; `shows_profile` appends the TOML to a table (JSON always has it)."""
    if format == "json":
        return json.dumps(describe(calibration), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if format != "table":
        raise ValueError(f"format is {format!r}; accepted: {', '.join(FORMATS)}")
    blocks = ["\n".join(fold(line, width) for line in summarise(calibration))]
    for fit, noun in ((calibration.runs, "Runs"), (calibration.points, "TTFT points")):
        if fit is not None:
            tables = print_tables([tabulate_parameters(fit, noun, calibration.is_net), tabulate_rows(fit, noun)])
            blocks += [tables[0], "\n".join(fold(line, width) for line in explain(fit)), tables[1]]
            blocks += ["\n".join(fold(line, width) for line in _explain_rows(fit))]
    if shows_profile:
        blocks.append(f"Profile (-o FILE.toml writes it):\n\n{write_profile(calibration).rstrip()}")
    return "\n\n".join(block for block in blocks if block) + "\n"


def summarise(calibration: Calibration) -> list[str]:
    """Return what was found, in a few lines."""
    base, runs, points = calibration.base, calibration.runs, calibration.points
    lines = [f"{base.gpu.title}, {base.model.title}, TP{base.tp}: calibrated from {calibration.measured.name}"]
    if runs is not None and runs.parameters["prefill"].is_fitted:
        seconds = runs.value("prefill")
        per = "avoided" if calibration.is_net else "computed"
        lines.append(
            f"  prefill  {format_number(1e6 * seconds)} us per {per} token, {format_number(1 / seconds)} tokens/s"
            f"{_say_scale(calibration.prefill_scale)}"
        )
    if points is not None and points.parameters["scale"].is_fitted:
        lines.append(f"  prefill  {format_number(points.value('scale'))} x the profile's formula, from TTFT points")
    rate = describe_rate(calibration)
    if rate is None:
        kept = base.gpu.h2d_gb_per_s.typical
        lines.append(f"  restore  not fitted: the profile's {format_number(kept)} GB/s per GPU is kept")
    else:
        limits = "" if rate["low"] == rate["high"] else f" ({rate['low']:.3g} to {rate['high']:.3g})"
        lines.append(f"  restore  {format_number(rate['typical'])} GB/s per GPU{limits}")
    return lines + [f"  note: {line}" for line in (*list_advice(calibration), *_list_unused(calibration))]


def _list_unused(calibration: Calibration) -> list[str]:
    measured = calibration.measured
    kinds = (("run", measured.runs, calibration.runs), ("TTFT point", measured.points, calibration.points))
    return [f"no {noun} is to be fitted, so none is predicted" for noun, rows, fit in kinds if rows and fit is None]


def _say_scale(scale: float | None) -> str:
    return "" if scale is None else f", {scale:.3f} x the profile's"


def tabulate_parameters(fit: Fit, noun: str, is_net: bool) -> Table:
    """Return a row a parameter: value, 95 % interval, and whether it is fitted."""
    title = f"{noun}: {fit.n_fit} of {len(fit.rows)} rows fitted"
    table = make_table(title, ("parameter", "", "value", "95 % interval", "unit", "status"), 2)
    for name, parameter in fit.parameters.items():
        meaning, unit, factor = MEANINGS[name]
        if name == "prefill" and is_net:
            meaning = "per avoided token"
        interval = "none" if parameter.is_fitted else ""
        if parameter.low is not None and parameter.high is not None:
            interval = f"{format_number(factor * parameter.low)} to {format_number(factor * parameter.high)}"
        table.add_row(name, meaning, format_number(factor * parameter.value), interval, unit, parameter.status)
    return table


def explain(fit: Fit) -> list[str]:
    """Return why values have no interval or are not fitted, and where the fit is poor."""
    unfitted = [say_unfitted(parameter) for parameter in fit.parameters.values() if not parameter.is_fitted]
    return [line for line in (fit.no_interval, *unfitted, _say_worst(fit)) if line]


def _say_worst(fit: Fit) -> str:
    """Say which fitted row the model misses most, if by more than `POOR`."""
    shares = {row.line: row.error_share for row in fit.rows if row.is_fit and row.error_share is not None}
    worst = max(shares, key=lambda line: abs(shares[line]))
    if abs(shares[worst]) <= POOR:
        return ""
    side = "low" if shares[worst] < 0 else "high"
    return f"poor fit: line {worst} is predicted {100 * abs(shares[worst]):.0f} % too {side}"


def tabulate_rows(fit: Fit, noun: str) -> Table:
    """Return a row a measurement: measured, predicted, difference."""
    is_long = max(row.measured_s for row in fit.rows) >= LONG_S
    factor, unit, digits = (1 / 60, "min", 1) if is_long else (1.0, "s", 3)
    headings = ("line", "label", "use", f"measured {unit}", f"predicted {unit}", f"difference {unit}", "%")
    table = make_table(f"{noun}: measured and predicted", headings, 3)
    for row in fit.rows:
        cells = ["n/a", "n/a", "n/a"]
        if row.predicted_s is not None and row.error_share is not None:
            apart = row.predicted_s - row.measured_s
            cells = [
                f"{round(factor * row.predicted_s, 9):,.{digits}f}",
                _signed(factor * apart, digits),
                _signed(100 * row.error_share, 1),
            ]
        use = "fit" if row.is_fit else "check"
        table.add_row(str(row.line), row.label, use, f"{factor * row.measured_s:,.{digits}f}", *cells)
    return table


def _signed(value: float, digits: int) -> str:
    """Write a difference with its sign, and none where it rounds to 0."""
    return f"{0:.{digits}f}" if round(value, digits) == 0 else f"{value:+,.{digits}f}"


def _explain_rows(fit: Fit) -> list[str]:
    return [f"line {row.line} is not predicted: {row.reason}" for row in fit.rows if row.predicted_s is None]


def describe(calibration: Calibration) -> dict[str, Any]:
    """Return the calibration as plain values: SI units in the names, no time stamp."""
    base = calibration.base
    return {
        "format": FORMAT_VERSION,
        "measurements": calibration.measured.name,
        "gpu": base.gpu.name,
        "model": base.model.name,
        "tp": base.tp,
        "kv_dtype": base.kv_dtype,
        "weight_dtype": base.weight_dtype,
        "position_tokens": base.position,
        "kv_bytes_per_token_per_rank": base.beta,
        "prefill_profile_s_per_token": base.prefill_s,
        "prefill_scale": calibration.prefill_scale,
        "is_prefill_net_of_restores": calibration.is_net,
        "restore_gb_per_s": _describe_rate(calibration),
        "runs": _describe_fit(calibration.runs),
        "ttft_points": _describe_fit(calibration.points),
        "notes": list_notes(calibration),
        "profile_toml": write_profile(calibration),
    }


def _describe_rate(calibration: Calibration) -> dict[str, Any]:
    rate, kept = describe_rate(calibration), calibration.base.gpu.h2d_gb_per_s
    if rate is None:
        return {"low": kept.low, "typical": kept.typical, "high": kept.high, "is_fitted": False}
    return {name: rate[name] for name in ("low", "typical", "high")} | {"is_fitted": True}


def _describe_fit(fit: Fit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "rows_fitted": fit.n_fit,
        "degrees_of_freedom": fit.degrees_of_freedom,
        "no_interval": fit.no_interval or None,
        "parameters": {name: _describe_parameter(parameter) for name, parameter in fit.parameters.items()},
        "rows": [
            {
                "line": row.line,
                "label": row.label or None,
                "use": "fit" if row.is_fit else "check",
                "measured_s": row.measured_s,
                "predicted_s": row.predicted_s,
                "not_predicted": row.reason or None,
            }
            for row in fit.rows
        ],
    }


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    unit = {"intercept": "s", "floor": "s", "load": "s_per_request", "scale": "factor"}
    return {
        "value": parameter.value,
        "unit": unit.get(parameter.name, "s_per_token"),
        "low": parameter.low,
        "high": parameter.high,
        "status": parameter.status,
        "reason": parameter.reason or None,
    }
