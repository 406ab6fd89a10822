"""Timing side by side: sides take turns (A B A B), the first round warms up and is not counted.

A `Result` states one comparison with the spread of what was measured; ratios are of medians. Memory is
the peak resident set of a child process.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

ROOT = Path(__file__).resolve().parents[1]
CHILD = Path(__file__).with_name("child.py")
MIB = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How much to measure.

    Attributes
    ----------
    rounds : int
        Counted rounds of each comparison.
    is_small : bool
        Tiny inputs: shows that the comparisons run and agree; the ratios mean nothing.
    is_large : bool
        Also what takes minutes and gigabytes of disk.
    mooncake : Path
        Folder with the published Mooncake traces.
    """

    rounds: int = 5
    is_small: bool = False
    is_large: bool = False
    mooncake: Path = ROOT.parent / "shared" / "traces" / "mooncake"


@dataclass(frozen=True, slots=True)
class Measure:
    """Samples of one quantity, and how much work one sample did ("" where a rate says nothing)."""

    samples: tuple[float, ...]
    unit: Literal["s", "MB"] = "s"
    work: float = 0.0
    work_unit: str = ""

    @property
    def median(self) -> float:
        """Middle sample."""
        return statistics.median(self.samples)

    def describe(self) -> str:
        """Median, spread, and the rate at the median."""
        low, high = min(self.samples), max(self.samples)
        text = format_amount(self.median, self.unit)
        if len(self.samples) > 1:
            text += f" ({format_amount(low, self.unit)} to {format_amount(high, self.unit)})"
        if self.work_unit:
            text += f", {format_digits(self.work / self.median)} {self.work_unit}/s"
        return text


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table: what capplan took, what the other side took, and the target.

    `kind` says what `value` is: how many times "faster" capplan is, how many times "the time" of the
    other side it takes, or its own "median" in the unit of its measure.
    """

    what: str
    ours: Measure
    other_name: str = ""
    other: Measure | None = None
    kind: Literal["faster", "the time", "median"] = "median"
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The number the target is about."""
        if self.other is None:
            return self.ours.median
        ratio = self.other.median / self.ours.median
        return ratio if self.kind == "faster" else 1 / ratio

    @property
    def is_met(self) -> bool | None:
        """Whether the target holds; None without one."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    def describe_value(self) -> str:
        """The value in words."""
        if self.other is None:
            return format_amount(self.value, self.ours.unit)
        return f"{format_digits(self.value)}x {self.kind}"

    def describe_target(self) -> str:
        """The target in words, "" without one."""
        bound = self.at_least if self.at_least is not None else self.at_most
        if bound is None:
            return ""
        limit = f"{bound:g}x" if self.other is not None else f"{bound:g} {self.ours.unit}"
        return f"at {'least' if self.at_least is not None else 'most'} {limit}{'' if self.is_met else ': missed'}"


@dataclass(frozen=True, slots=True)
class Footprint:
    """One line of the memory table: a whole process that took in a generated file.

    `n_references` counts the blocks of all prompts, `n_distinct` those of them that differ; `is_large`
    marks what is measured with `Settings.is_large` only.
    """

    what: str
    n_bytes: int
    n_requests: int
    n_references: int
    n_distinct: int
    seconds: float
    peak_mb: float
    at_most_mb: float | None = None
    is_large: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether it stays within its limit; None without one."""
        return None if self.at_most_mb is None else self.peak_mb <= self.at_most_mb


def format_digits(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_amount(value: float, unit: str) -> str:
    """A number with its unit, seconds below one as ms."""
    if unit == "s" and value < 1:
        return f"{format_digits(1e3 * value)} ms"
    return f"{format_digits(value)} {unit}"


class SkippedError(Exception):
    """A benchmark that cannot run here, with what it needs."""


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """A finished child process."""

    seconds: float
    peak_mb: float
    stdout: str
    stderr: str


def interleave(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, ...]]:
    """Seconds of every side, the sides taking turns; one more round before warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, call in sides.items():
            begin = time.perf_counter()
            call()
            elapsed = time.perf_counter() - begin
            if number:
                seconds[name].append(elapsed)
    return {name: tuple(samples) for name, samples in seconds.items()}


def interleave_commands(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[ProcessRun]]:
    """Whole processes, the commands taking turns; one more round before warms up."""
    runs: dict[str, list[ProcessRun]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            run = run_process(command)
            if number:
                runs[name].append(run)
    return runs


def run_process(command: Sequence[str], env: Mapping[str, str] | None = None) -> ProcessRun:
    """Run a command, given by its path, to its end.

    Raises
    ------
    RuntimeError
        The command failed; with the end of what it wrote to stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(CHILD), str(report), *command],
            capture_output=True,
            text=True,
            env=None if env is None else {**os.environ, **env},
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        measured = json.loads(report.read_text())
    return ProcessRun(measured["seconds"], measured["peak_mb"], done.stdout, done.stderr)


def seconds_of(runs: Sequence[ProcessRun]) -> Measure:
    """Wall time of whole processes."""
    return Measure(tuple(run.seconds for run in runs))


def peak_of(runs: Sequence[ProcessRun]) -> Measure:
    """Peak memory of whole processes, in MB of 10^6 bytes."""
    return Measure(tuple(run.peak_mb for run in runs), "MB")


def python(code: str) -> list[str]:
    """Command that runs a line of Python with this interpreter."""
    return [sys.executable, "-c", code]


def find_script(name: str) -> str | None:
    """Path of a console script of this interpreter's environment, else of the search path; None if neither."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def capplan(*arguments: str) -> list[str]:
    """The capplan command with arguments."""
    script = find_script("capplan")
    return [*([script] if script else [sys.executable, "-m", "capplan"]), *arguments]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of every benchmark script."""
    default = Settings()
    parser.add_argument("--rounds", type=int, default=default.rounds, help="counted rounds (default %(default)s)")
    parser.add_argument("--small", action="store_true", help="tiny inputs; the ratios mean nothing")
    parser.add_argument("--large", action="store_true", help="also inputs of 3 GB: some minutes, 4 GB of disk")
    parser.add_argument("--mooncake", type=Path, default=default.mooncake, help="folder with the Mooncake traces")


def to_settings(given: argparse.Namespace) -> Settings:
    """Settings out of parsed options; a trace file stands for its folder."""
    mooncake = given.mooncake.parent if given.mooncake.is_file() else given.mooncake
    return Settings(max(1, given.rounds), given.small, given.large, mooncake)


def run_alone(
    measure: Callable[[Settings], list[T]], description: str | None, render: Callable[[list[T]], str] | None = None
) -> None:
    """Main function of a script that is run by itself: measure and print."""
    from tables import render_table

    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    add_options(parser)
    try:
        print((render or render_table)(measure(to_settings(parser.parse_args()))))
    except SkippedError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
