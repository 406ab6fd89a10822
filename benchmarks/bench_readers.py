"""Reading: parsing and linking of every byte of a source, against its parser alone.

Both sides get a file in the page cache and end with it read: capplan with a checked, linked trace, the
parser with its objects. msgspec decodes into the shape the reader needs, ids as lists; orjson, where it
is installed, into dicts. Imports and compilation are excluded, the garbage collector is on, as in a
library. Last, whole processes ingest generated files of some gigabytes and report their peak memory.
"""

import gzip
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from harness import MIB, Measure, Result, Settings, capplan, interleave, run_alone, run_process
from streams import POOLED, TOKENS, make_prompts, shrink

from capplan.kernels.chain import chain_blocks
from capplan.prompts import Prompts
from capplan.readers import Options, Selection, link_sources, read_trace
from capplan.readers.key_file import read_keys
from capplan.synthetic import generate

try:
    import orjson
except ImportError:
    orjson = None

JSON_TARGET, PARQUET_TARGET, MEMORY_MB = 1.7, 2.0, 1500
GIB = 1 << 30
MOST_IDS = 150_000


class Mooncake(msgspec.Struct):
    """A Mooncake row."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


class Blocks(msgspec.Struct):
    """A row of block hashes."""

    block_ids: list[int]
    block_size: int
    input_tokens: int
    output_tokens: int
    session_id: str
    arrival_s: float


class Tokens(msgspec.Struct):
    """A row of token ids."""

    token_ids: list[int]
    session_id: str


class Call(msgspec.Struct, rename={"n_input": "in", "n_output": "out"}):
    """A kv-cache-tester call or sub-agent."""

    t: float
    type: str
    n_input: int | None = None
    n_output: int | None = None
    hash_ids: list[int] | None = None
    api_time: float | None = None
    think_time: float | None = None
    model: str | None = None
    agent_id: str | None = None
    requests: "list[Call] | None" = None


class Session(msgspec.Struct):
    """A kv-cache-tester file."""

    block_size: int
    requests: list[Call]
    hash_id_scope: str | None = None


def measure(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [*compare_published(settings), *compare_generated(folder, settings)]
        results += compare_threads(folder, settings)
        return results + measure_memory(folder, settings)


def compare_published(settings: Settings) -> list[Result]:
    """Mooncake and kv-cache-tester as published, where they are at hand."""
    results = []
    mooncake = settings.mooncake / "conversation_trace.jsonl"
    if mooncake.is_file():
        results += compare_json("Mooncake JSONL, conversation", mooncake, read_lines(mooncake, Mooncake), settings)
    sessions = settings.mooncake.parent / "kv-cache-tester" / "sessions"
    if sessions.is_dir():
        decoder = msgspec.json.Decoder(Session)
        paths = sorted(sessions.glob("*.json"))
        parse = lambda: [decoder.decode(path.read_bytes()) for path in paths]  # noqa: E731
        results += compare_json("kv-cache-tester folder, 77 files", sessions, parse, settings)
    return results


def compare_generated(folder: Path, settings: Settings) -> list[Result]:
    """Token ids and block hashes of a generated agent trace, as JSONL and as Parquet."""
    trace = generate(shrink(TOKENS, 0.25) if settings.is_small else shrink(POOLED, 0.02))
    prompts = make_prompts(trace)
    tokens = write_lines(folder / "tokens.jsonl", list_token_rows(prompts))
    blocks = write_lines(folder / "blocks.jsonl", list_block_rows(prompts))
    parquet = write_parquet(folder / "tokens.parquet", prompts)
    results = compare_json("token ids, JSONL", tokens, read_lines(tokens, Tokens), settings)
    results += compare_json("block hashes of 16 tokens, JSONL", blocks, read_lines(blocks, Blocks), settings)
    seconds = interleave(
        {"capplan": lambda: read_trace(parquet), "polars": lambda: pl.read_parquet(parquet, columns=["token_ids"])},
        settings.rounds,
    )
    n_ids = prompts.ids.size / 1e6
    ours, other = (Measure(samples, "s", n_ids, "million ids") for samples in seconds.values())
    what = f"token ids, Parquet, {n_ids:,.0f} million: read, linked and checked"
    return [*results, Result(what, ours, "polars reads the column", other, "the time", at_most=PARQUET_TARGET)]


def compare_json(what: str, source: Path, parse: Callable[[], object], settings: Settings) -> list[Result]:
    """Reading of a source against its parser; `parse` is msgspec's side."""
    paths = sorted(source.glob("*.json")) if source.is_dir() else [source]
    n_bytes = sum(path.stat().st_size for path in paths)
    sides = {"capplan": lambda: read_trace(source), "msgspec": parse}
    if orjson is not None:
        sides["orjson"] = lambda: [orjson.loads(text) for path in paths for text in split(path, source)]
    seconds = interleave(sides, settings.rounds)
    measures = {name: Measure(samples, "s", n_bytes / 1e6, "MB") for name, samples in seconds.items()}
    what = f"{what}, {n_bytes / MIB:,.0f} MiB: parsed, linked and checked"
    return [
        Result(what, measures["capplan"], f"{name} parses it", measures[name], "the time", at_most=target)
        for name, target in (("msgspec", JSON_TARGET), ("orjson", None))
        if name in measures
    ]


def read_lines(path: Path, shape: type) -> Callable[[], object]:
    decoder = msgspec.json.Decoder(shape)
    return lambda: decoder.decode_lines(path.read_bytes())


def split(path: Path, source: Path) -> list[bytes]:
    text = path.read_bytes()
    return [text] if source.is_dir() else text.splitlines()


def list_token_rows(prompts: Prompts, first: int = 0) -> Iterator[dict]:
    sessions, offsets = prompts.requests.session.decode(), prompts.offsets.tolist()
    for k in range(len(prompts.requests)):
        ids = prompts.ids[offsets[k] : offsets[k + 1]] % MOST_IDS
        yield {"token_ids": ids.tolist(), "session_id": f"{first}-{sessions[k]}"}


def list_block_rows(prompts: Prompts) -> Iterator[dict]:
    """Rows whose ids are 64-bit keys of prefixes, as a serving engine would log them."""
    sessions, offsets = prompts.requests.session.decode(), prompts.offsets.tolist()
    for k in range(len(prompts.requests)):
        n_blocks = (offsets[k + 1] - offsets[k]) // 16
        keys = np.empty(n_blocks, np.uint64)
        chain_blocks(prompts.ids, offsets[k], 16, np.uint64(0), keys, n_blocks)
        yield {
            "block_ids": keys.tolist(),
            "block_size": 16,
            "input_tokens": n_blocks * 16,
            "output_tokens": int(prompts.requests.output_tokens[k]),
            "session_id": sessions[k],
            "arrival_s": 0.5 * k,
        }


def write_lines(path: Path, rows: Iterator[dict]) -> Path:
    with path.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
    return path


def write_parquet(path: Path, prompts: Prompts) -> Path:
    rows = [row["token_ids"] for row in list_token_rows(prompts)]
    frame = pl.DataFrame({"token_ids": pl.Series(rows, dtype=pl.List(pl.UInt32))})
    frame.with_columns(session_id=pl.Series(prompts.requests.session.decode())).write_parquet(path)
    return path


def compare_threads(folder: Path, settings: Settings) -> list[Result]:
    """A folder of compressed files with two threads and with one; the traces must be the same."""
    lines = (folder / "tokens.jsonl").read_bytes().splitlines(keepends=True)
    parts = folder / "parts"
    parts.mkdir()
    step = max(1, len(lines) // 16)
    for number, first in enumerate(range(0, len(lines), step)):
        (parts / f"{number:03}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[first : first + step]), 1))

    def read(n_workers: int):
        return link_sources(parts, "auto", "chained", Options(), Selection(), n_workers)[0]

    assert read(1).fingerprint == read(2).fingerprint
    seconds = interleave({"two": lambda: read(2), "one": lambda: read(1)}, settings.rounds)
    two, one = (Measure(samples) for samples in seconds.values())
    return [Result("folder of 16 gzip files of token ids, two threads", two, "one thread", one, "faster")]


def measure_memory(folder: Path, settings: Settings) -> list[Result]:
    """Peak memory of `capplan ingest` on one large file of each kind."""
    source, target = folder / "large.jsonl", folder / "large.parquet"
    results = []
    for what, write, n_bytes in LARGE:
        with source.open("wb") as file:
            write(file, 4 * MIB if settings.is_small else n_bytes)
        run = run_process(capplan("ingest", str(source), "-o", str(target), "--keep-keys"))
        size = source.stat().st_size
        trace = read_trace(target)
        n_keys = read_keys(trace, target).segments.size
        note = f"{len(trace):,} requests, {n_keys / 1e6:,.1f} million distinct blocks"
        what = f"capplan ingest, {size / GIB:.2f} GiB of {what}, JSONL"
        results.append(Result(f"{what}: peak memory", Measure((run.peak_mb,), "MB"), at_most=MEMORY_MB, note=note))
        results.append(Result(f"{what}: whole process", Measure((run.seconds,), "s", size / 1e6, "MB")))
        source.unlink()
    return results


def write_large_tokens(file, n_bytes: int) -> None:
    """Agent prompts of about 32k tokens, of ever new tasks."""
    workload = shrink(POOLED, 0.01)
    number = 0
    while file.tell() < n_bytes:
        prompts = make_prompts(generate(workload, number), seed=number)
        for row in list_token_rows(prompts, number):
            file.write(msgspec.json.encode(row) + b"\n")
            if file.tell() >= n_bytes:
                return
        number += 1


def write_large_agents(file, n_bytes: int) -> None:
    """Mooncake rows of agents whose prompts grow by 14 blocks a call up to 400, 200 on average."""
    next_id = 1
    while file.tell() < n_bytes:
        agents = [[0]] * 32
        for _ in range(28):
            for k, path in enumerate(agents):
                agents[k] = [*path, *range(next_id, next_id + 14)]
                next_id += 14
                write_row(file, agents[k], next_id)


def write_large_conversation(file, n_bytes: int) -> None:
    """Mooncake rows of about 24 blocks of which 15 are new, as in the published conversation trace, without end."""
    generator = np.random.default_rng(0)
    next_id, recent = 1, [[0]] * 500
    while file.tell() < n_bytes:
        for k, which, cut, n_new in generator.integers((0, 0, 0, 4), (500, 500, 18, 27), (10_000, 4)).tolist():
            ids = [*recent[which][:cut], *range(next_id, next_id + n_new)]
            next_id += n_new
            recent[k] = ids
            write_row(file, ids, next_id)


def write_row(file, ids: list[int], at: int) -> None:
    row = {"timestamp": at, "input_length": 512 * len(ids), "output_length": 300, "hash_ids": ids}
    file.write(msgspec.json.encode(row) + b"\n")


LARGE = (
    ("token ids of agents", write_large_tokens, 3 * GIB),
    ("block hashes of agents", write_large_agents, 3 * GIB),
    ("block hashes, two thirds of them new", write_large_conversation, GIB),
)

if __name__ == "__main__":
    run_alone(measure, __doc__)
