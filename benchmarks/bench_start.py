"""Start-up: `capplan --help` against importing click, and the first run after installation.

The first run has an empty cache directory, so that every kernel it needs is compiled; it must say so.
"""

import tempfile
from pathlib import Path

from harness import (
    ROOT,
    ProcessRun,
    Result,
    Settings,
    capplan,
    interleave_commands,
    python,
    run_alone,
    run_process,
    seconds_of,
)
from streams import TOKENS

from capplan.readers.canonical import write_trace
from capplan.synthetic import generate

IMPORT = "import click"
BUNDLED = ROOT / "data" / "synthetic" / "coding_agents.parquet"
ANNOUNCEMENT = "compiling kernels"


def measure(settings: Settings) -> list[Result]:
    runs = interleave_commands({"help": capplan("--help"), "import": python(IMPORT)}, 2 * settings.rounds)
    first, second = run_first_and_second(1 if settings.is_small else min(3, settings.rounds))
    return [
        Result("capplan --help", seconds_of(runs["help"]), IMPORT, seconds_of(runs["import"]), "the time", at_most=2),
        Result("first capplan predict, empty kernel cache", seconds_of(first), at_most=20),
        Result("second capplan predict", seconds_of(second)),
    ]


def run_first_and_second(rounds: int) -> tuple[list[ProcessRun], list[ProcessRun]]:
    """Runs that compile and say so, and those after them, which do neither."""
    first, second = [], []
    with tempfile.TemporaryDirectory() as folder:
        source = BUNDLED
        if not source.is_file():
            source = Path(folder, "agents.parquet")
            write_trace(generate(TOKENS), source)
        command = capplan("predict", str(source), "--gpu", "h20")
        for number in range(rounds):
            env = {"NUMBA_CACHE_DIR": str(Path(folder, f"cache-{number}"))}
            first.append(run_process(command, env))
            second.append(run_process(command, env))
            assert ANNOUNCEMENT in first[-1].stderr, "the first run does not say that it compiles"
            assert ANNOUNCEMENT not in second[-1].stderr, "the second run compiles again"
            assert first[-1].stdout == second[-1].stdout
    return first, second


if __name__ == "__main__":
    run_alone(measure, __doc__)
