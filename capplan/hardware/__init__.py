"""GPUs by name, or from a user's TOML file (the records are those of `capplan.hardware.gpu_spec`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan import spec_files
from capplan.errors import SpecError
from capplan.hardware.gpu_fields import ACCEPTED, NUMBERS, check_gpu, write_out
from capplan.hardware.gpu_spec import (
    Efficiency,
    EfficiencyCase,
    EfficiencyRange,
    GpuSpec,
    IncompleteGpu,
    MeasuredPrefill,
    Rate,
)
from capplan.hardware.prefill_spec import PrefillShares

__all__ = [
    "Efficiency",
    "EfficiencyCase",
    "EfficiencyRange",
    "GpuSpec",
    "IncompleteGpu",
    "MeasuredPrefill",
    "PrefillShares",
    "Rate",
    "list_gpus",
    "load_gpu",
]

# A measured prefill belongs to the peak and the shares it was measured with; own whole-model shares to no table.
_TIED_TO_MEASURED = ("bf16_dense_tflops", "fp8_dense_tflops", "efficiency", "prefill")


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
    own, base = spec_files.read_own(path, ACCEPTED)
    fields = write_out(own, str(path))
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


def _over(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's fields over those of a shipped GPU, without what no longer holds."""
    dropped = {"aliases", "notes"}
    if any(name in own for name in _TIED_TO_MEASURED):
        dropped.add("measured")
    if "efficiency" in own:
        dropped.add("prefill")
    kept = {name: value for name, value in base.items() if name not in dropped}
    kept["missing"] = [reason for reason in base.get("missing", []) if reason.split(":")[0] not in own]
    return {**kept, **own}


def _built(name: str, fields: Mapping[str, Any], where: str) -> GpuSpec:
    """Convert a GPU's fields, written out in full, to a `GpuSpec`; check what a type cannot say."""
    if missing := fields.get("missing"):
        raise SpecError(f"{where}: no usable {'; no usable '.join(missing)}; accepted: a .toml file that gives them")
    plain: dict[str, Any] = {"name": name, **fields, "sources": {}}
    plain.pop("missing", None)
    for number in filter(plain.__contains__, NUMBERS):
        plain[number], plain["sources"][number] = _value_and_source(plain[number], number, where)
    spec = spec_files.checked(plain, GpuSpec, where, ACCEPTED)
    check_gpu(spec, where)
    return spec


def _value_and_source(given: Mapping[str, Any], name: str, where: str) -> tuple[Any, Any]:
    if set(given) != {"value", "source"}:
        got = ", ".join(sorted(given)) or "nothing"
        raise SpecError(f"{where}: {name}: expected value and source, got {got}; accepted: {ACCEPTED[name]}")
    return given["value"], given["source"]
