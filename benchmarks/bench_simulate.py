"""`capplan simulate` of a linked trace of 46,000 requests at 20 capacities, against `capplan predict` of the same."""

import tempfile
from pathlib import Path

from bench_predict import describe
from harness import Result, Settings, capplan, interleave_commands, peak_of, run_alone, seconds_of
from streams import LONG, shrink

from capplan.readers.canonical import write_trace
from capplan.synthetic import generate

TIERS = ("lmcache-paper", "efficientagent", "vllm-offload", "sglang-hicache")
TARGET = "lmcache-paper"
N_CAPACITIES = 20


def measure(settings: Settings) -> list[Result]:
    trace = generate(shrink(LONG, 0.02) if settings.is_small else LONG)
    tiers = TIERS[:1] if settings.is_small else TIERS
    # Capacities where the curve moves; a deployment with a GPU tier that holds the longest request.
    gib = ",".join(f"{5 * k:g}" for k in range(1, N_CAPACITIES + 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.parquet")
        write_trace(trace, path)
        base = (str(path), "--gpu", "h20", "--host-gib", gib)
        commands = {"predict": capplan("predict", *base)}
        commands |= {tier: capplan("simulate", *base, "--tier", tier) for tier in tiers}
        runs = interleave_commands(commands, settings.rounds)
    results = []
    for tier in tiers:
        what = f"capplan simulate --tier {tier}, {N_CAPACITIES} capacities, {describe(trace)}"
        results.append(
            Result(what, seconds_of(runs[tier]), "capplan predict", seconds_of(runs["predict"]), "the time",
                   at_most=5 if tier == TARGET else None)
        )  # fmt: skip
        results.append(Result(f"{what}: peak memory", peak_of(runs[tier]), at_most=1000 if tier == TARGET else None))
    return results


if __name__ == "__main__":
    run_alone(measure, __doc__)
