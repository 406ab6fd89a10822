"""Fields of a GPU file: what each accepts in words, a user's short forms written out, what a type cannot check."""

from collections.abc import Mapping
from typing import Any

from capplan.errors import SpecError
from capplan.hardware.gpu_spec import GpuSpec

NUMBERS = ("bf16_dense_tflops", "fp8_dense_tflops", "hbm_gib", "hbm_gb_per_s", "link_gb_per_s", "gpus_per_node")
_NUMBER = "a number greater than 0, or {value, source}"
_RATE = "GB/s > 0: a number, or {low, high, typical, basis, source, estimated, effective}, low <= typical <= high"
ACCEPTED = {
    **dict.fromkeys(NUMBERS, _NUMBER),
    "gpus_per_node": "a whole number from 1, or {value, source}",
    **dict.fromkeys(("h2d_gb_per_s", "allreduce_gb_per_s"), _RATE),
    "prefill": "{dense, moe, attention, scheduling, basis, source, estimated}, each of the first three shares of the "
    "peak, 0 < share <= 1.2: a number, {low, high, typical}, or {at, low, typical, high} with lists over ascending "
    "tokens; dense and moe also a list of such with weight_dtype, and tp",
    "efficiency": "a share of the peak, 0 < share <= 1.2: a number, or {low, high, basis, confidence, source, "
    "estimated, cases}, low <= high, each case the same and {kind, tp_min, tp_max, weight_dtype}",
    "measured": "a list of {model, tp, us_per_token, source, position, weight_dtype}",
    **dict.fromkeys(("title", "name", "link", "vendor"), "text"),
    **dict.fromkeys(("aliases", "notes"), "a list of texts"),
}
_RATES = ("h2d_gb_per_s", "allreduce_gb_per_s")
_OPTIONAL = ("allreduce_gb_per_s", "prefill")
_ANY_SIZE = 1


def write_out(own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Write a user's short forms out in full, with the file as their source.

    Raises
    ------
    SpecError
        A field that may be left out is neither a table nor one of its short forms.
    """
    given = {"basis": "given by the user", "source": f"given in {where}"}
    fields = dict(own)
    for name in NUMBERS:
        if name in own and not isinstance(own[name], dict):
            fields[name] = {"value": own[name], "source": given["source"]}
    for name in (*_RATES, "efficiency"):
        if _is_number(own.get(name)):
            fields[name] = {"low": own[name], "high": own[name]}
    for name in _RATES:
        if isinstance(rate := fields.get(name), dict):
            fields[name] = {**given, **_middle(rate), **rate}
    if isinstance(share := fields.get("efficiency"), dict):
        fields["efficiency"] = _with_defaults(share, given | {"confidence": "given"})
    if isinstance(shares := fields.get("prefill"), dict):
        fields["prefill"] = {**given, **_write_out_prefill(shares)}
    for name in _OPTIONAL:
        if name in fields and not isinstance(fields[name], dict):
            raise SpecError(f"{where}: {name}: expected a table; accepted: {ACCEPTED[name]}")
    return fields


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


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


def _write_out_prefill(shares: Mapping[str, Any]) -> dict[str, Any]:
    """A user's shares: without a scheduling factor they are those of whole prefills."""
    written = dict(shares)
    written["scheduling"] = _spread(shares.get("scheduling", 1))
    for name in ("dense", "moe"):
        if name in shares:
            tables = shares[name] if isinstance(shares[name], list) else [shares[name]]
            written[name] = [_as_table(table) for table in tables]
    if "attention" in shares:
        written["attention"] = _as_table(shares["attention"])
    return written


def _spread(given: Any) -> Any:
    if _is_number(given):
        return {"low": given, "typical": given, "high": given}
    return {**_middle(given), **given} if isinstance(given, dict) else given


def _as_table(given: Any) -> Any:
    """One share for every size as a table of one size."""
    spread = _spread(given)
    if not isinstance(spread, dict) or "at" in spread:
        return spread
    ends = {end: [spread[end]] for end in ("low", "typical", "high") if end in spread}
    return {**spread, "at": [_ANY_SIZE], **ends}


def check_gpu(spec: GpuSpec, where: str) -> None:
    """Check that the numbers of a GPU fit each other.

    Raises
    ------
    SpecError
        Ends of a range are out of order, or a table contradicts itself.
    """
    for name in _RATES:
        rate = getattr(spec, name)
        if rate and not rate.low <= rate.typical <= rate.high:
            got = f"low {rate.low:g}, typical {rate.typical:g}, high {rate.high:g} are out of order"
            raise SpecError(f"{where}: {name}: {got}; accepted: {ACCEPTED[name]}")
    for limits in (spec.efficiency, *spec.efficiency.cases):
        if limits.low > limits.high:
            got = f"low {limits.low:g} is above high {limits.high:g}"
            raise SpecError(f"{where}: efficiency: {got}; accepted: {ACCEPTED['efficiency']}")
    if spec.prefill and (said := spec.prefill.problem()):
        raise SpecError(f"{where}: prefill.{said}; accepted: {ACCEPTED['prefill']}")
