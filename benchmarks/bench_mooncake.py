"""Mooncake traces: the exact curve at every capacity against kvcache-simulator at 20 and at 60 capacities.

Both are whole warm processes on one JSONL file. Before timing, every hit count the simulator prints is
compared with what capplan's run table gives under the simulator's own scoring rule (peer_scoring.py).
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import Result, Settings, SkippedError, find_script, interleave_commands, run_alone, run_process, seconds_of
from peer_scoring import read_scored

PEER = "kvcache-simulator"
FILES = ("conversation_trace.jsonl", "synthetic_trace.jsonl")
CURVE = Path(__file__).with_name("mooncake_curve.py")
BUDGETS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048)
N_MANY = 60
TARGETS = {len(BUDGETS): 2, N_MANY: 4}


def measure(settings: Settings) -> list[Result]:
    paths = [settings.mooncake / name for name in FILES]
    for path in paths:
        if not path.is_file():
            raise SkippedError(
                f"{path.name} is not in {settings.mooncake.name}/; it is in FAST25-release/traces of "
                "https://github.com/kvcache-ai/Mooncake (name its folder with --mooncake)"
            )
    peer = find_script(PEER)
    if peer is None:
        raise SkippedError(f"{PEER} is not installed; `pip install {PEER}==0.1.3`")
    many = np.geomspace(BUDGETS[0], BUDGETS[-1], N_MANY).round(2)
    n_equal = {path.stem: check_hits(path, ask_peer(peer, path, BUDGETS)) for path in paths}
    n_equal[paths[0].stem] += check_hits(paths[0], ask_peer(peer, paths[0], many))
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "capplan": [sys.executable, str(CURVE), str(paths[0]), str(Path(folder, "curve.npy"))],
            **{f"{len(budgets)}": ask_peer(peer, paths[0], budgets) for budgets in (BUDGETS, many)},
        }
        runs = interleave_commands(commands, settings.rounds)
        n_capacities = np.load(Path(folder, "curve.npy")).size
    note = "hit tokens equal at " + " and ".join(f"{n} points of {name}" for name, n in n_equal.items())
    return [
        Result(
            f"Mooncake conversation JSONL to the curve at all {n_capacities:,} capacities",
            seconds_of(runs["capplan"]),
            f"{PEER} at {n} capacities",
            seconds_of(runs[str(n)]),
            "faster",
            at_least=target,
            note=note if n == len(BUDGETS) else "",
        )
        for n, target in TARGETS.items()
    ]


def ask_peer(peer: str, path: Path, budgets) -> list[str]:
    """The simulator's command for a trace and capacities in GiB."""
    return [
        peer, "run", "--trace", str(path), "--model", "deepseek-v3", "--block-size", "512", "--budgets-gib",
        ",".join(f"{gib:g}" for gib in budgets), "--policies", "lru", "--no-progress", "--format", "json",
    ]  # fmt: skip


def check_hits(path: Path, command: list[str]) -> int:
    """Points at which hit tokens are equal; raises AssertionError at the first that are not.

    The simulator leaves out capacities that are not full when it begins to score.
    """
    answer = json.loads(run_process(command).stdout)
    scored = read_scored(path)
    assert scored.scored_tokens == answer["metadata"]["totalMeasuredTokens"]
    for point in answer["points"]:
        ours, theirs = scored.hit_tokens(point["cacheBlocks"]), point["results"]["lru"]["hitTokens"]
        assert ours == theirs, f"{path.name}, {point['cacheBlocks']} blocks: {ours} hit tokens, {PEER} has {theirs}"
    return len(answer["points"])


if __name__ == "__main__":
    run_alone(measure, __doc__)
