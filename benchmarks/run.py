"""Run all benchmarks: results to results.json and, with --write-readme, as a table into README.md.

Every ratio compares sides that took turns in one run on one machine; absolute numbers are that
machine's. Each bench_*.py also runs by itself.
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

from harness import ROOT, Measure, Result, Settings, SkippedError, add_options, to_settings
from tables import render_table, replace_between

BENCHMARKS = ("engine", "predict", "mooncake", "hashing", "readers", "start")
TARGET = Path(__file__).with_name("results.json")
PACKAGES = ("numpy", "numba", "polars", "msgspec", "click", "xxhash")


def main() -> None:
    """Parse options, run, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_options(parser)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one (repeatable); keep the rest")
    parser.add_argument("-o", "--output", type=Path, default=TARGET, help="default: results.json beside this script")
    parser.add_argument("--write-readme", action="store_true", help="put the table between README.md's markers")
    given = parser.parse_args()
    kept = read_results(given.output) if given.only else {}
    results = {**kept, **run_benchmarks(given.only or BENCHMARKS, to_settings(given))}
    results = {name: results[name] for name in BENCHMARKS if name in results}
    given.output.write_text(to_json(results, given.small))
    text = render_report(results)
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


def render_report(results: dict[str, list[Result]]) -> str:
    """The table, and what it was measured on."""
    machine = describe_machine()
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in PACKAGES)
    return (
        render_table([result for part in results.values() for result in part])
        + f"\n\nMedians, in brackets the smallest and the largest; sides took turns in one run, warm-up excluded. "
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, {packages}; "
        "made by `python benchmarks/run.py --write-readme`."
    )


def to_json(results: dict[str, list[Result]], is_small: bool) -> str:
    """Everything measured, sample by sample."""
    benchmarks = {
        name: [{**asdict(result), "value": result.value, "is_met": result.is_met} for result in part]
        for name, part in results.items()
    }
    report = {"format": 1, "small": is_small, "machine": describe_machine(), "benchmarks": benchmarks}
    return json.dumps(report, indent=1) + "\n"


def read_results(path: Path) -> dict[str, list[Result]]:
    """Results of an earlier run on the same machine; nothing where there is none."""
    if not path.is_file():
        return {}
    stored = json.loads(path.read_text())
    if stored["machine"] != describe_machine() or stored["small"]:
        return {}
    return {name: [to_result(fields) for fields in part] for name, part in stored["benchmarks"].items()}


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
