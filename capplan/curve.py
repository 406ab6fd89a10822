"""CoverageCurve: what a tier covers and writes at every capacity, from one run table."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import spread
from capplan.order import Order, choose_order
from capplan.runs import Distance, Runs, Touch, find_runs
from capplan.trace import Trace
from capplan.tree import build_tree

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CoverageCurve:
    """Tokens covered and chunks written at every number of slots.

    Attributes
    ----------
    chunk_tokens : int
    covered_chunks, written_chunks : (D + 1,) int64
        Totals at `K` = 0 .. D slots, `D` the distinct chunks; constant beyond.
    """

    chunk_tokens: int
    covered_chunks: Int64s
    written_chunks: Int64s

    @property
    def n_distinct(self) -> int:
        """Distinct chunks `D`: from here on more slots change nothing."""
        return self.covered_chunks.size - 1

    def covered_tokens(self, n_slots: int | Int64s) -> Int64s:
        """Tokens of leading resident chunks, summed over requests, at the given slots."""
        return self.covered_chunks[np.minimum(n_slots, self.n_distinct)] * self.chunk_tokens

    def written(self, n_slots: int | Int64s) -> Int64s:
        """Chunks written at the given slots."""
        return self.written_chunks[np.minimum(n_slots, self.n_distinct)]

    def find_slots(self, covered_tokens: int) -> int | None:
        """Smallest number of slots that covers at least so many tokens; None if none does."""
        needed = -(-covered_tokens // self.chunk_tokens)
        if needed > self.covered_chunks[-1]:
            return None
        return int(np.searchsorted(self.covered_chunks, needed))


def sum_up_to(difference: Int64s) -> Int64s:
    """Totals over positions below each `K`, (size,), in place of a difference array over positions."""
    spread.sum_twice(difference)
    return difference


def build_curve(
    runs: Runs, touch: Touch = "leaf-first", distance: Distance = "lookup", first_request: int = 0
) -> CoverageCurve:
    """Coverage and writes of one LRU tier at every capacity (docs/model.md sections 2 and 3).

    Parameters
    ----------
    runs : Runs
    touch : "leaf-first" or "head-first"
    distance : "lookup" or "sequential"
        Judge residency by `P`, as a lookup finds it, or by `S`, the published convention.
    first_request : int
        Stream position from which on requests are counted; earlier ones only fill the tier.
    """
    counted = slice(int(runs.offsets[first_request]), None)
    base, slope = runs.positions(touch, distance)
    covered, touched = np.zeros((2, runs.n_distinct + 1), np.int64)
    spread.count_at_positions(covered, runs.length[counted], base[counted], slope)
    spread.count_at_positions(touched, runs.length[counted], runs.touch_positions(touch)[counted], 0)
    kept = sum_up_to(touched)
    written = int(runs.n_chunks[first_request:].sum()) - kept
    written[0] = 0
    return CoverageCurve(runs.chunk_tokens, sum_up_to(covered), written)


def cover_requests(runs: Runs, n_slots: int, touch: Touch = "leaf-first", distance: Distance = "lookup") -> Int64s:
    """Tokens each request finds in a tier of `n_slots` slots at its lookup, (n,) in stream order."""
    base, slope = runs.positions(touch, distance)
    return spread.cover_requests(runs.offsets, runs.length, base, slope, n_slots) * runs.chunk_tokens


def measure_coverage(
    trace: Trace,
    chunk_tokens: int = 1024,
    order: Order | None = None,
    touch: Touch = "leaf-first",
    distance: Distance = "lookup",
) -> CoverageCurve:
    """Tokens covered by one LRU tier at every capacity, without any GPU or model.

    Parameters
    ----------
    trace : Trace
    chunk_tokens : int
        Multiple of the trace's resolution.
    order : Order, optional
        Default: `choose_order(trace)`.
    """
    order = choose_order(trace) if order is None else order
    return build_curve(find_runs(trace, build_tree(trace), order, chunk_tokens), touch, distance)
