"""The calibrated profile: TOML that ``--gpu my-gpu.toml`` reads, over a shipped profile as its base."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from capplan.calibration.fits import Fit, Parameter
from capplan.calibration.pipeline import Calibration
from capplan.calibration.ttft import list_scaled
from capplan.hardware.gpu_spec import MeasuredPrefill
from capplan.units import GB, format_number

DIGITS = 6


def write_profile(calibration: Calibration) -> str:
    """Return the profile as TOML text: base, notes, restore rate and prefill points where fitted."""
    base = calibration.base
    head = [
        f"# Written by capplan calibrate from {calibration.measured.name}, over the profile '{base.gpu.name}'.",
        f"base = {_dump(base.gpu.name)}",
        "notes = [",
        *(f"  {_dump(note)}," for note in list_notes(calibration)),
        "]",
    ]
    tables = []
    if (rate := describe_rate(calibration)) is not None:
        tables.append(_dump_table("[h2d_gb_per_s]", rate))
    tables += [_dump_table("[[measured]]", point) for point in list_measured(calibration)]
    return "\n".join(["\n".join(head), *tables]) + "\n"


def list_measured(calibration: Calibration) -> list[dict[str, Any]]:
    """Return the prefill points: the fitted ones, and the base's of other models, sizes and weight types."""
    base = calibration.base
    own = {"model": base.model.name, "tp": base.tp, "weight_dtype": base.compute_dtype}
    fitted = []
    for seconds, position, source, ends in _list_fitted(calibration):
        point = {**own, "us_per_token": _rounded(1e6 * seconds), "source": source}
        point |= {name: _rounded(1e6 * end) for name, end in zip(("us_low", "us_high"), ends, strict=False)}
        fitted.append(point if position is None else {**point, "position": _rounded(position)})
    kept = [_plain(point) for point in base.gpu.measured if not _is_same(point, own)]
    return [*fitted, *kept] if fitted else []


def _list_fitted(calibration: Calibration) -> list[tuple[float, float | None, str, tuple[float, ...]]]:
    """Return (seconds per token, position, source, ends of the interval if there is one) of the fitted points."""
    name = calibration.measured.name
    found: list[tuple[float, float | None, str, tuple[float, ...]]] = []
    runs, points = calibration.runs, calibration.points
    ends: tuple[float, ...]
    if runs is not None and runs.parameters["prefill"].is_fitted:
        per = "avoided" if calibration.is_net else "computed"
        what = f"{name}: slope of makespan per {per} prefill token, {_count(runs, 'run')}"
        source = f"{what}; {say_interval(runs.parameters['prefill'], runs, 1e6, 'us')}"
        low, high = runs.parameters["prefill"].low, runs.parameters["prefill"].high
        ends = () if low is None or high is None else (low, high)
        found.append((runs.value("prefill"), calibration.base.position, source, ends))
    if points is not None and points.parameters["scale"].is_fitted:
        scale = points.parameters["scale"]
        what = f"{name}: formula at this position times {format_number(scale.value)}, {_count(points, 'TTFT point')}"
        source = f"{what}; {say_interval(scale, points, 1.0, '')}"
        scaled = list_scaled(points, calibration.measured.points, calibration.base)
        ends = () if scale.low is None or scale.high is None else (scale.low, scale.high)
        found += [
            (seconds, position, source, tuple(seconds * end / scale.value for end in ends))
            for position, seconds in scaled
        ]
    return found


def describe_rate(calibration: Calibration) -> dict[str, Any] | None:
    """Return the restore rate, GB/s, over its interval; None where the base's is kept."""
    parameter, typical = calibration.restore, calibration.restore_rate
    if parameter is None or typical is None:
        return None
    base, runs = calibration.base, calibration.runs
    is_from_runs = runs is not None and runs.parameters["restore"] is parameter
    low, high = typical, typical
    if parameter.low is not None and parameter.high is not None:
        low = base.restore_rate(parameter.high) or typical
        fastest = base.restore_rate(max(parameter.low, 0.0)) or base.gpu.link_bytes_per_s
        high = min(fastest, base.gpu.link_bytes_per_s)
    fit = runs if is_from_runs else calibration.points
    interval = "95 % interval" if parameter.low is not None else fit.no_interval if fit is not None else ""
    return {
        "low": _rounded(low / GB),
        "typical": _rounded(typical / GB),
        "high": _rounded(high / GB),
        "estimated": False,
        "effective": True,
        "basis": f"fitted to {'runs' if is_from_runs else 'TTFT points'}, copies of their size and all; {interval}",
        "source": f"measured: {calibration.measured.name}",
    }


def list_notes(calibration: Calibration) -> list[str]:
    """Return what was fitted, what was held and why, and what a profile has no field for."""
    base = calibration.base
    kind = f"{base.model.name} at TP{base.tp}, {base.compute_dtype} compute, {base.kv_dtype} KV"
    notes = [f"calibrated for {kind}; times of other models are the base's"]
    for fit, noun in ((calibration.runs, "run"), (calibration.points, "TTFT point")):
        if fit is not None:
            fitted = ", ".join(name for name, parameter in fit.parameters.items() if parameter.is_fitted)
            notes.append(f"fitted to {_count(fit, noun)}: {fitted}; {fit.no_interval or '95 % intervals'}")
            notes += [say_unfitted(parameter) for parameter in fit.parameters.values() if not parameter.is_fitted]
    return notes + list_advice(calibration)


def list_advice(calibration: Calibration) -> list[str]:
    """Return what the numbers mean for planning, and what the profile cannot carry."""
    base, runs, points = calibration.base, calibration.runs, calibration.points
    advice = []
    if calibration.is_net:
        advice.append("the slope is time gained per avoided token: prefill takes at least that per computed token")
    if calibration.restore is not None and calibration.restore_rate is None:
        advice.append("restores came out faster than the host link can be: the base's rate is kept")
    if runs is not None and runs.value("prefill") < base.formula_s(0.0, 1.0):
        advice.append("prefill came out faster than the GPU's peak allows: check tokens, seconds, --tp")
    load = next((f.parameters["load"] for f in calibration.fits if f.parameters["load"].is_fitted), None)
    if load is not None and _is_above_zero(load):
        latency = format_number(1e3 * load.value)
        option = f"--load-latency-ms {latency.replace(',', '')}"
        advice.append(f"a loading request costs {latency} ms: predict with {option}")
    if runs is not None and _is_above_zero(runs.parameters["write"]):
        cost = format_number(1e6 * runs.value("write"))
        advice.append(f"a written token costs {cost} us, which predictions do not count")
    if points is not None and points.parameters["floor"].is_fitted:
        floor = format_number(1e3 * points.value("floor"))
        advice.append(f"the engine's floor under any TTFT is {floor} ms, which predictions do not count")
    return advice


def _is_above_zero(parameter: Parameter) -> bool:
    """Say whether a fitted value's interval, where it has one, leaves 0 out."""
    return parameter.is_fitted and (parameter.low is None or parameter.low > 0)


def say_unfitted(parameter: Parameter) -> str:
    """Say at what a parameter stands that is not fitted, and why."""
    value = _say_value(parameter)
    if parameter.status == "left out":
        return f"{parameter.name} is not fitted, stays {value}: {parameter.reason}"
    where = "at 0, its bound" if parameter.status == "at zero" else f"held at {value}"
    return f"{parameter.name} {where}: {parameter.reason}"


def _say_value(parameter: Parameter) -> str:
    if parameter.name == "scale":
        return f"{format_number(parameter.value)} x the formula"
    if parameter.name in ("floor", "load"):
        return f"{format_number(1e3 * parameter.value)} ms"
    if parameter.name == "intercept":
        return f"{format_number(parameter.value)} s"
    return f"{format_number(1e6 * parameter.value)} us per token"


def say_interval(parameter: Parameter, fit: Fit, factor: float, unit: str) -> str:
    """Say a parameter's interval, or why there is none."""
    if parameter.low is None or parameter.high is None:
        return fit.no_interval or "no interval"
    limits = f"{format_number(factor * parameter.low)} to {format_number(factor * parameter.high)}"
    return f"95 % interval {limits} {unit}".rstrip()


def _count(fit: Fit, noun: str) -> str:
    return f"{fit.n_fit} {noun}{'' if fit.n_fit == 1 else 's'}"


def _is_same(point: MeasuredPrefill, own: Mapping[str, object]) -> bool:
    return all(getattr(point, name) == value for name, value in own.items())


def _plain(point: MeasuredPrefill) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(point).items() if value is not None}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _dump_table(heading: str, fields: Mapping[str, Any]) -> str:
    return "\n".join(["", heading, *(f"{name} = {_dump(value)}" for name, value in fields.items())])


def _dump(value: object) -> str:
    """Write text, a number or a flag as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
