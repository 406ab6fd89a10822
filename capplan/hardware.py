"""GPUs by name, or from a user's TOML file (the records are those of `capplan.gpu_spec`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan import spec_files
from capplan.errors import SpecError
from capplan.gpu_spec import (
    Efficiency,
    EfficiencyCase,
    EfficiencyRange,
    GpuSpec,
    IncompleteGpu,
    MeasuredPrefill,
    Rate,
)

__all__ = [
    "Efficiency",
    "EfficiencyCase",
    "EfficiencyRange",
    "GpuSpec",
    "IncompleteGpu",
    "MeasuredPrefill",
    "Rate",
    "list_gpus",
    "load_gpu",
]

_NUMBERS = ("bf16_dense_tflops", "fp8_dense_tflops", "hbm_gib", "hbm_gb_per_s", "link_gb_per_s", "gpus_per_node")
_NUMBER = "a number greater than 0, or {value, source}"
_ACCEPTED = {
    **dict.fromkeys(_NUMBERS, _NUMBER),
    "gpus_per_node": "a whole number from 1, or {value, source}",
    "h2d_gb_per_s": "GB/s > 0: a number, or {low, high, typical, basis, source, estimated}, low <= typical <= high",
    "efficiency": "a share of the peak, 0 < share <= 1.2: a number, or {low, high, basis, confidence, source, "
    "estimated, cases}, low <= high, each case the same and {kind, tp_min, tp_max, weight_dtype}",
    "measured": "a list of {model, tp, us_per_token, source, position, weight_dtype}",
    **dict.fromkeys(("title", "name", "link", "vendor"), "text"),
    **dict.fromkeys(("aliases", "notes"), "a list of texts"),
}
# A measured prefill belongs to the peak and the efficiency it was measured with.
_TIED_TO_MEASURED = ("bf16_dense_tflops", "fp8_dense_tflops", "efficiency")


def load_gpu(name: str, file: str | Path | None = None) -> GpuSpec:
    """Return a GPU by name, or from a user's TOML file.

    Parameters
    ----------
    name : canonical name, alias, or path of a user's file, ending in ``.toml``
    file : a user's file whose fields override those of the GPU `name`

    Raises
    ------
    SpecError
        The name is unknown or ambiguous, the GPU lacks numbers planning needs, or the file is wrong.
    """
    raw = spec_files.read_shipped("gpus")
    if file is None and not name.lower().endswith(".toml"):
        canonical = spec_files.resolve(name, "gpu", raw)
        return _built(canonical, raw[canonical], f"gpu '{canonical}'")
    path = name if file is None else file
    own, base = spec_files.read_own(path, _ACCEPTED)
    fields = _written_out(own, str(path))
    base = name if base is None and file is not None else base
    if base is not None:
        fields = _over(fields, raw[spec_files.resolve_base(base, "gpu", raw, str(path))])
    return _built(Path(path).stem, fields, str(path))


def list_gpus() -> list[GpuSpec | IncompleteGpu]:
    """Return every GPU that ships with capplan, by name."""
    return [_listed(name, fields) for name, fields in spec_files.read_shipped("gpus").items()]


def _listed(name: str, fields: Mapping[str, Any]) -> GpuSpec | IncompleteGpu:
    if "missing" in fields:
        return IncompleteGpu(name, fields["title"], tuple(fields["missing"]), tuple(fields["aliases"]))
    return _built(name, fields, f"gpu '{name}'")


def _written_out(own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Write a user's short forms out in full, with the file as their source."""
    given = {"basis": "given by the user", "source": f"given in {where}"}
    fields = dict(own)
    for name in _NUMBERS:
        if name in own and not isinstance(own[name], dict):
            fields[name] = {"value": own[name], "source": given["source"]}
    for name in ("h2d_gb_per_s", "efficiency"):
        if isinstance(own.get(name), int | float):
            fields[name] = {"low": own[name], "high": own[name]}
    if isinstance(rate := fields.get("h2d_gb_per_s"), dict):
        fields["h2d_gb_per_s"] = {**given, **_middle(rate), **rate}
    if isinstance(share := fields.get("efficiency"), dict):
        fields["efficiency"] = _with_defaults(share, given | {"confidence": "given"})
    return fields


def _middle(rate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typical rate a user may leave out; a wrong end stays for the check to name."""
    low, high = rate.get("low"), rate.get("high")
    if isinstance(low, int | float) and isinstance(high, int | float):
        return {"typical": (low + high) / 2}
    return {"typical": low} if low is not None and high is None else {}


def _with_defaults(share: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    cases = share.get("cases", [])
    if isinstance(cases, list):
        cases = [{**given, **case} if isinstance(case, dict) else case for case in cases]
    return {**given, **share, "cases": cases}


def _over(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's fields over those of a shipped GPU, without what no longer holds."""
    dropped = {"aliases", "notes"}
    if any(name in own for name in _TIED_TO_MEASURED):
        dropped.add("measured")
    kept = {name: value for name, value in base.items() if name not in dropped}
    kept["missing"] = [reason for reason in base.get("missing", []) if reason.split(":")[0] not in own]
    return {**kept, **own}


def _built(name: str, fields: Mapping[str, Any], where: str) -> GpuSpec:
    """Convert a GPU's fields, written out in full, to a `GpuSpec`; check what a type cannot say."""
    if missing := fields.get("missing"):
        raise SpecError(f"{where}: no usable {'; no usable '.join(missing)}; accepted: a .toml file that gives them")
    plain: dict[str, Any] = {"name": name, **fields, "sources": {}}
    plain.pop("missing", None)
    for number in filter(plain.__contains__, _NUMBERS):
        plain[number], plain["sources"][number] = _value_and_source(plain[number], number, where)
    spec = spec_files.checked(plain, GpuSpec, where, _ACCEPTED)
    _check_order(spec, where)
    return spec


def _value_and_source(given: Mapping[str, Any], name: str, where: str) -> tuple[Any, Any]:
    if set(given) != {"value", "source"}:
        got = ", ".join(sorted(given)) or "nothing"
        raise SpecError(f"{where}: {name}: expected value and source, got {got}; accepted: {_ACCEPTED[name]}")
    return given["value"], given["source"]


def _check_order(spec: GpuSpec, where: str) -> None:
    rate, share = spec.h2d_gb_per_s, spec.efficiency
    if not rate.low <= rate.typical <= rate.high:
        got = f"low {rate.low:g}, typical {rate.typical:g}, high {rate.high:g} are out of order"
        raise SpecError(f"{where}: h2d_gb_per_s: {got}; accepted: {_ACCEPTED['h2d_gb_per_s']}")
    for limits in (share, *share.cases):
        if limits.low > limits.high:
            got = f"low {limits.low:g} is above high {limits.high:g}"
            raise SpecError(f"{where}: efficiency: {got}; accepted: {_ACCEPTED['efficiency']}")
