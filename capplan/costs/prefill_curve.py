"""Shares of the peak by size for one model kind, tensor-parallel size and weight type, from a GPU's tables."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.hardware.gpu_spec import GpuSpec
from capplan.hardware.prefill_spec import PrefillShares, Scheduling, ShareTable

Float64s = NDArray[np.float64]

# Ends of a range, in order of prefill time.
BEST, TYPICAL, WORST = 0, 1, 2
_ENDS = ("high", "typical", "low")


class Curve(NamedTuple):
    """Shares at sizes: logarithms (base 2) of tokens, ascending, and shares of the peak, scheduling included."""

    log2_at: Float64s
    share: Float64s


Curve3 = tuple[Curve, Curve, Curve]


@dataclass(frozen=True, slots=True)
class Curves:
    """Shares of plain products, expert products and attention, each at the best, typical and worst end.

    `holds_allreduce` is true where the shares are those of whole models, all-reduces included.
    """

    dense: Curve3
    moe: Curve3
    attention: Curve3
    holds_allreduce: bool
    estimated: bool
    notes: tuple[str, ...]


def find_curves(gpu: GpuSpec, kind: str, tp: int, dtype: str) -> Curves:
    """Return the shares of a GPU, from its operator tables or, where it has none, from its whole-model range."""
    whole = _whole_model(gpu, kind, tp, dtype)
    if gpu.prefill is None:
        note = f"prefill shares of {gpu.name}: no operator table; whole-model range, {_said(gpu, kind, tp, dtype)}"
        return Curves(whole, whole, whole, holds_allreduce=True, estimated=True, notes=(note,))
    shares = gpu.prefill
    dense_table = shares.dense_for(dtype)
    found = {
        "dense": _sustained(dense_table, shares.scheduling) if dense_table else None,
        "moe": _at_tp(shares, tp, dtype) if kind == "moe" else whole,
        "attention": _sustained(shares.attention, shares.scheduling) if shares.attention else None,
    }
    absent = [name for name, curves in found.items() if curves is None]
    moe_tables = shares.moe_for(dtype) if kind == "moe" else ()
    used = [table for table in (dense_table, shares.attention, *moe_tables) if table]
    notes = [f"prefill shares of {gpu.name}: {shares.basis}", *(table.basis for table in used if table.basis)]
    if absent:
        notes.append(f"no table of {' and '.join(absent)}: whole-model range, {_said(gpu, kind, tp, dtype)}")
    return Curves(
        dense=found["dense"] or whole,
        moe=found["moe"] or whole,
        attention=found["attention"] or whole,
        holds_allreduce=False,
        estimated=shares.estimated or bool(absent) or any(table.estimated for table in used),
        notes=tuple(dict.fromkeys(notes)),
    )


def _said(gpu: GpuSpec, kind: str, tp: int, dtype: str) -> str:
    limits = gpu.efficiency_for(kind, tp, dtype)
    return f"{limits.low:g}-{limits.high:g} of the peak, confidence {limits.confidence}"


def _whole_model(gpu: GpuSpec, kind: str, tp: int, dtype: str) -> Curve3:
    limits = gpu.efficiency_for(kind, tp, dtype)
    return _curves(np.zeros(1), [np.array([share]) for share in (limits.high, limits.typical, limits.low)])


def _curves(log2_at: Float64s, shares: list[Float64s]) -> Curve3:
    best, typical, worst = shares
    return Curve(log2_at, best), Curve(log2_at, typical), Curve(log2_at, worst)


def _sustained(table: ShareTable, scheduling: Scheduling) -> Curve3:
    shares = [np.array(getattr(table, end)) * getattr(scheduling, end) for end in _ENDS]
    return _curves(np.log2(np.array(table.at)), shares)


def _at_tp(shares: PrefillShares, tp: int, dtype: str) -> Curve3 | None:
    """Expert products at a tensor-parallel size: between two tables linear in the logarithm of the size."""
    tables = shares.moe_for(dtype)
    if not tables:
        return None
    below = next((table for table in reversed(tables) if table.tp <= tp), tables[0])
    above = next((table for table in tables if table.tp >= tp), tables[-1])
    small, large = _sustained(below, shares.scheduling), _sustained(above, shares.scheduling)
    if below.tp == above.tp:
        return small
    weight = np.log2(tp / below.tp) / np.log2(above.tp / below.tp)
    at = np.union1d(small[0].log2_at, large[0].log2_at)
    mixed = [(1 - weight) * np.interp(at, *a) + weight * np.interp(at, *b) for a, b in zip(small, large, strict=True)]
    return _curves(at, mixed)
