"""Run all benchmarks: results to results.json and, with --write-readme, as tables into README.md.

Every ratio compares sides that took turns in one run on one machine; absolute numbers are that
machine's. What `readers` says of memory comes from bench_memory.py. Each bench_*.py also runs by itself.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import bench_memory
from harness import ROOT, Footprint, Measure, Result, Settings, SkippedError, add_options, to_settings
from tables import render_memory, render_table, replace_between

BENCHMARKS = ("engine", "predict", "mooncake", "hashing", "readers", "simulate", "start")
TARGET = Path(__file__).with_name("results.json")
HOW_MEMORY = (
    "Peak resident memory (`ru_maxrss`) of `capplan ingest FILE -o OUT`, a child process of its own for each "
    "generated JSONL file; the files are deleted afterwards. The inputs of 3 GB are measured with "
    "`python benchmarks/run.py --only readers --large`."
)
PACKAGES = ("numpy", "numba", "polars", "msgspec", "click", "xxhash")


def main() -> None:
    """Parse options, run, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_options(parser)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one (repeatable); keep the rest")
    parser.add_argument("-o", "--output", type=Path, default=TARGET, help="default: results.json beside this script")
    parser.add_argument("--write-readme", action="store_true", help="put the table between README.md's markers")
    given = parser.parse_args()
    settings, names = to_settings(given), given.only or BENCHMARKS
    if given.only and given.write_readme and given.output.is_file() and not is_ours(given.output):
        parser.error(f"{given.output} is of another machine or of tiny inputs; run all, without --only")
    kept = read_results(given.output) if given.only else {}
    results = {**kept, **run_benchmarks(names, settings)}
    results = {name: results[name] for name in BENCHMARKS if name in results}
    memory = join_memory(read_memory(given.output), measure_memory(settings) if "readers" in names else [])
    given.output.write_text(to_json(results, given.small, memory))
    text = render_report(results, memory)
    print(text)
    if given.write_readme:
        readme = ROOT / "README.md"
        readme.write_text(replace_between(readme.read_text(encoding="utf-8"), text), encoding="utf-8")


def run_benchmarks(names: Sequence[str], settings: Settings) -> dict[str, list[Result]]:
    """Results by benchmark; one that cannot run here is left out and named on stderr."""
    results = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            results[name] = import_module(f"bench_{name}").measure(settings)
        except SkippedError as reason:
            print(f"{name}: skipped: {reason}", file=sys.stderr)
    return results


def measure_memory(settings: Settings) -> list[Footprint]:
    """Peak memory of whole processes."""
    print("memory ...", file=sys.stderr, flush=True)
    return bench_memory.measure(settings)


def join_memory(kept: Sequence[Footprint], new: Sequence[Footprint]) -> list[Footprint]:
    """New measurements in the place of old ones of the same input; large ones stay until measured anew."""
    found = {run.what: run for run in (*kept, *new)}
    return [found[source.what] for source in bench_memory.SOURCES if source.what in found]


def render_report(results: dict[str, list[Result]], memory: Sequence[Footprint] = ()) -> str:
    """The tables, and what they were measured on."""
    machine = describe_machine()
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in PACKAGES)
    return (
        render_table([result for part in results.values() for result in part])
        + f"\n\nMedians, in brackets the smallest and the largest; sides took turns in one run, warm-up excluded. "
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, {packages}; "
        "made by `python benchmarks/run.py --write-readme`."
        + (f"\n\n{render_memory(memory)}\n\n{HOW_MEMORY}" if memory else "")
    )


def to_json(results: dict[str, list[Result]], is_small: bool, memory: Sequence[Footprint] = ()) -> str:
    """Everything measured, sample by sample."""
    benchmarks = {
        name: [{**asdict(result), "value": result.value, "is_met": result.is_met} for result in part]
        for name, part in results.items()
    }
    report = {"format": 1, "small": is_small, "machine": describe_machine(), "benchmarks": benchmarks}
    report["memory"] = [asdict(run) for run in memory]
    return json.dumps(report, indent=1) + "\n"


def read_results(path: Path) -> dict[str, list[Result]]:
    """Results of an earlier run on the same machine; nothing where there is none."""
    if not is_ours(path):
        return {}
    stored = json.loads(path.read_text())
    return {name: [to_result(fields) for fields in part] for name, part in stored["benchmarks"].items()}


def read_memory(path: Path) -> list[Footprint]:
    """Memory measured by an earlier run on the same machine; nothing where there is none."""
    return [Footprint(**fields) for fields in json.loads(path.read_text()).get("memory", [])] if is_ours(path) else []


def is_ours(path: Path) -> bool:
    """Whether results stand there that were measured on this machine, with these packages, at full size."""
    if not path.is_file():
        return False
    stored = json.loads(path.read_text())
    return stored["machine"] == describe_machine() and not stored["small"]


def to_result(fields: dict) -> Result:
    """A result out of its JSON."""
    fields = {name: value for name, value in fields.items() if name not in ("value", "is_met")}
    for name in ("ours", "other"):
        if fields[name] is not None:
            fields[name] = Measure(**{**fields[name], "samples": tuple(fields[name]["samples"])})
    return Result(**fields)


def describe_machine() -> dict:
    """Processor and versions, nothing that names the host."""
    return {
        "processor": find_processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: find_version(name) for name in PACKAGES},
    }


def find_version(package: str) -> str:
    """Installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def find_processor() -> str:
    """Name of the processor as the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
