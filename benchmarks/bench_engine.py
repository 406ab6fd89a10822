"""The run kernel against chunk-level engines, on a pool-256 stream of about 80 million 16-token references.

All sides end in the coverage curve at every capacity, and the curves must be equal. Timed is the engine:
from links to the run table, re-linked for the pool's order, against from dense chunk ids, made
beforehand, to the references at every stack position. A second pair of lines goes on to the curve.
"""

import numpy as np
from chunk_engines import count_with_bitmap, count_with_fenwick, curve_from_counts
from harness import Measure, Result, Settings, interleave, run_alone
from streams import POOLED, Stream, make_stream, shrink

from capplan.curve import CoverageCurve, build_curve
from capplan.order import fill_pool
from capplan.runs import Runs, find_runs
from capplan.synthetic import generate

POOL = 256
ENGINES = {"Fenwick tree over chunks, Numba": count_with_fenwick, "death bitmap over chunks, Numba": count_with_bitmap}
TARGETS = dict(zip(ENGINES, (100, 50), strict=True))


def measure(settings: Settings) -> list[Result]:
    workload = shrink(POOLED, 0.01) if settings.is_small else POOLED
    trace = generate(workload)
    return compare(make_stream(trace, fill_pool(trace, POOL)), settings.rounds)


def compare(stream: Stream, rounds: int) -> list[Result]:
    """Time all engines in turn; raises AssertionError where a curve differs."""
    check_equal(stream)
    counters = {name: lambda count=count: run_engine(stream, count) for name, count in ENGINES.items()}
    sides = {"table": lambda: tabulate(stream), "curve": lambda: build_curve(tabulate(stream)), **counters}
    seconds = interleave(sides, rounds)
    n_references = stream.ids.size / 1e6
    measures = {name: Measure(samples, "s", n_references, "million references") for name, samples in seconds.items()}
    size = f"{n_references:.1f} million references"
    return [
        Result(f"run kernel, {size}", measures["table"], name, measures[name], "faster", at_least=TARGETS[name])
        for name in ENGINES
    ] + [
        Result(f"run kernel and both curves, {size}", measures["curve"], name, measures[name], "faster")
        for name in ENGINES
    ]


def tabulate(stream: Stream) -> Runs:
    return find_runs(stream.trace, stream.tree, stream.order, stream.trace.resolution_tokens)


def run_engine(stream: Stream, count) -> np.ndarray:
    return count(stream.ids, stream.offsets, stream.n_distinct)


def check_equal(stream: Stream) -> CoverageCurve:
    """The curve all engines agree on, at every capacity."""
    curve = build_curve(tabulate(stream))
    for name, count in ENGINES.items():
        covered = curve_from_counts(run_engine(stream, count))
        assert np.array_equal(covered, curve.covered_chunks), f"{name}: the curve differs from the run kernel's"
    return curve


if __name__ == "__main__":
    run_alone(measure, __doc__)
