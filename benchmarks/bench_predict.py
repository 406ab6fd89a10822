"""`capplan predict` of a linked trace of 46,000 requests, a whole warm process, against importing numba and polars."""

import tempfile
from pathlib import Path

from harness import Result, Settings, capplan, interleave_commands, peak_of, python, run_alone, seconds_of
from streams import LONG, shrink

from capplan.readers.canonical import write_trace
from capplan.synthetic import generate
from capplan.trace import Trace

IMPORTS = "import numba, polars"


def measure(settings: Settings) -> list[Result]:
    trace = generate(shrink(LONG, 0.02) if settings.is_small else LONG)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.parquet")
        write_trace(trace, path)
        commands = {"predict": capplan("predict", str(path), "--gpu", "h20"), "import": python(IMPORTS)}
        runs = interleave_commands(commands, settings.rounds)
    what = f"capplan predict, {describe(trace)}"
    return [
        Result(what, seconds_of(runs["predict"]), IMPORTS, seconds_of(runs["import"]), "the time", at_most=2),
        Result(f"{what}: peak memory", peak_of(runs["predict"]), f"{IMPORTS}: {peak_of(runs['import']).describe()}",
               at_most=400),
    ]  # fmt: skip


def describe(trace: Trace) -> str:
    return f"{len(trace):,} requests of {trace.requests.input_tokens.mean():,.0f} tokens on average"


if __name__ == "__main__":
    run_alone(measure, __doc__)
