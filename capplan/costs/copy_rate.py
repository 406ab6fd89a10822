"""Rate of copies from pinned host memory by way of copying and size of the fragment.

A fragment takes the wire's time at the GPU's own contiguous rate, and on top of it what the measured table
shows a fragment of its size to cost beyond the wire. That cost is a call's and does not shrink on a faster
link, so the rate rises with the fragment, scales with the link only where the wire dominates, and is never
above the contiguous rate.
"""

import math
from itertools import pairwise

from capplan.costs.restore_spec import METHODS, CopyTable, RestoreTables
from capplan.errors import SpecError
from capplan.units import GB

Ends = tuple[float, float, float]

ENDS = ("low", "typical", "high")


def effective_rates(
    method: str, fragment_bytes: float, contiguous: Ends, tables: RestoreTables, vendor: str = ""
) -> Ends:
    """Return the rates of restores in bytes per second: low, typical, high.

    Parameters
    ----------
    method : one of `METHODS`
    contiguous : rates of large contiguous copies, bytes per second
    vendor : of the GPU, where tables differ

    Raises
    ------
    SpecError
        `method` is unknown, or the fragment is empty.
    """
    if method not in METHODS:
        raise SpecError(f"restore method '{method}': accepted: {', '.join(METHODS)}")
    if not fragment_bytes > 0:
        raise SpecError(f"fragment of {fragment_bytes:g} bytes: accepted: more than 0")
    if method == "contiguous":
        return contiguous
    table = tables.table_for(method, vendor)
    low, typical, high = (
        fragment_bytes / (_call_seconds(table, fragment_bytes, end) + fragment_bytes / (rate * table.contiguous_share))
        for end, rate in zip(ENDS, contiguous, strict=True)
    )
    return low, typical, high


def _call_seconds(table: CopyTable, size: float, end: str) -> float:
    """Seconds a fragment costs on top of the wire; below the first size as much as there."""
    if size >= table.beyond_bytes:
        return _beyond_seconds(table, end)
    at = max(size, table.bytes[0])
    return at / (_interpolate(table, at, end) * GB) - at / (table.limit_gb_per_s * GB)


def _beyond_seconds(table: CopyTable, end: str) -> float:
    return float(getattr(table.beyond_us, end)) * 1e-6


def _interpolate(table: CopyTable, size: float, end: str) -> float:
    """GB/s at a size between the first and `beyond_bytes`: a power of the size between neighbours."""
    beyond = table.beyond_bytes
    last = beyond / (_beyond_seconds(table, end) + beyond / (table.limit_gb_per_s * GB)) / GB
    measured: tuple[float, ...] = getattr(table, end)
    points = zip((*table.bytes, beyond), (*measured, last), strict=True)
    for (size_0, rate_0), (size_1, rate_1) in pairwise(points):
        if size <= size_1:
            weight = math.log(size / size_0) / math.log(size_1 / size_0)
            return math.exp((1 - weight) * math.log(rate_0) + weight * math.log(rate_1))
    return last
