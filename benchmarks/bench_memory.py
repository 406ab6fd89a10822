"""Peak memory of `capplan ingest` on generated JSONL: whole child processes, each with one file, deleted afterwards.

Memory is to grow with what differs, not with how often it is asked for: of two inputs with the same
distinct blocks the larger one may need more for its requests only. Run as part of `readers`.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from harness import Footprint, Settings, capplan, run_alone, run_process
from streams import POOLED, make_prompts, shrink
from tables import render_memory

from capplan.readers import read_trace
from capplan.synthetic import generate

GB = 10**9
LIMIT_MB = 1500
MOST_IDS = 150_000

Writer = Callable[[BinaryIO, int], None]


def measure(settings: Settings) -> list[Footprint]:
    wanted = [source for source in SOURCES if settings.is_large or not source.is_large]
    return [take_in(source, settings) for source in wanted]


@dataclass(frozen=True, slots=True)
class Source:
    """A generated input: its writer, and how many bytes at least."""

    what: str
    write: Writer
    n_bytes: int
    is_large: bool = False


def take_in(source: Source, settings: Settings) -> Footprint:
    """Write the file, ingest it in a process of its own, and count what was in it."""
    with tempfile.TemporaryDirectory() as folder:
        path, linked = Path(folder, "source.jsonl"), Path(folder, "linked.parquet")
        with path.open("wb") as file:
            source.write(file, source.n_bytes // 500 if settings.is_small else source.n_bytes)
        size = os.path.getsize(path)
        run = run_process(capplan("ingest", str(path), "-o", str(linked)))
        trace = read_trace(linked)
    n_blocks = trace.requests.input_tokens // trace.resolution_tokens
    n_shared = trace.shared_tokens // trace.resolution_tokens
    n_references = int(n_blocks.sum())
    counts = len(trace), n_references, n_references - int(n_shared.sum())
    return Footprint(source.what, size, *counts, run.seconds, run.peak_mb, LIMIT_MB, source.is_large)


def write_tokens(file: BinaryIO, n_bytes: int) -> None:
    """Token ids of agents' prompts of about 32k tokens, of ever new tasks."""
    number = 0
    while file.tell() < n_bytes:
        prompts = make_prompts(generate(shrink(POOLED, 0.01), number), seed=number)
        sessions, offsets = prompts.requests.session.decode(), prompts.offsets.tolist()
        for k, session in enumerate(sessions):
            ids = prompts.ids[offsets[k] : offsets[k + 1]] % MOST_IDS
            file.write(msgspec.json.encode({"token_ids": ids.tolist(), "session_id": f"{number}-{session}"}) + b"\n")
        number += 1


def write_agents(file: BinaryIO, n_bytes: int, n_times: int = 1) -> None:
    """Mooncake rows of agents whose prompts grow by 14 blocks a call up to 400; every agent runs so many times."""
    next_id = 1
    while file.tell() < n_bytes:
        agents = [[[0, *range(next_id + 392 * k, next_id + 392 * k + 14 * n)] for n in range(1, 29)] for k in range(32)]
        next_id += 32 * 392
        for _ in range(n_times):
            for call in range(28):
                for agent in agents:
                    write_row(file, agent[call])


def write_agents_thrice(file: BinaryIO, n_bytes: int) -> None:
    """As `write_agents`, every agent three times: as many distinct blocks as in a third of the bytes."""
    write_agents(file, n_bytes, 3)


def write_conversations(file: BinaryIO, n_bytes: int) -> None:
    """Mooncake rows of about 24 blocks of which 15 are new, as in the published conversation trace, without end."""
    generator = np.random.default_rng(0)
    next_id, recent = 1, [[0]] * 500
    while file.tell() < n_bytes:
        for k, which, cut, n_new in generator.integers((0, 0, 0, 4), (500, 500, 18, 27), (10_000, 4)).tolist():
            recent[k] = ids = [*recent[which][:cut], *range(next_id, next_id + n_new)]
            next_id += n_new
            write_row(file, ids)


def write_row(file: BinaryIO, ids: list[int]) -> None:
    row = {"timestamp": ids[-1], "input_length": 512 * len(ids), "output_length": 300, "hash_ids": ids}
    file.write(msgspec.json.encode(row) + b"\n")


SOURCES = (
    Source("Mooncake rows of agents", write_agents, GB),
    Source("the same agents, each three times", write_agents_thrice, 3 * GB, is_large=True),
    Source("Mooncake rows of agents, three times as many", write_agents, 3 * GB, is_large=True),
    Source("token ids of agents", write_tokens, 3 * GB, is_large=True),
    Source("Mooncake rows of conversations, most blocks new", write_conversations, GB),
)

if __name__ == "__main__":
    run_alone(measure, __doc__, render_memory)
