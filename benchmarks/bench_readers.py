"""Reading: parsing and linking of every byte of a source, against its parser alone.

Both sides get a file in the page cache and end with it read: capplan with a checked, linked trace, the
parser with its objects. msgspec, which capplan uses, decodes into the fields a reader needs, ids as
lists; orjson, where it is installed, into dicts. Imports and compilation are excluded. The garbage
collector is on, as in a library, but passes over what was there before. Last, folders of files, with
two threads and with one.
"""

import gc
import gzip
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from harness import MIB, Measure, Result, Settings, interleave, run_alone
from hash_sources import CONVERSATIONS, FORMATS, Mooncake, write_lines
from streams import POOLED, TOKENS, make_prompts, shrink

from capplan.kernels.chain import chain_blocks
from capplan.prompts import Prompts
from capplan.readers import Options, Selection, link_sources, read_trace
from capplan.readers.canonical import write_trace
from capplan.synthetic import generate
from capplan.trace import Trace

try:
    import orjson
except ImportError:
    orjson = None

JSON_TARGET, PARQUET_TARGET = 1.7, 2.0
N_PARTS = 16
MOST_IDS = 150_000


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
        results = [*compare_published(settings), *compare_formats(folder, settings)]
        results += compare_generated(folder, settings)
        return results + compare_threads(folder, settings)


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


def compare_formats(folder: Path, settings: Settings) -> list[Result]:
    """Formats of block hashes, written from one synthetic trace."""
    results = []
    for form in FORMATS:
        trace = generate(shrink(CONVERSATIONS, 0.02 if settings.is_small else form.share))
        path = write_lines(folder / f"{form.name}.jsonl", form.list_rows(trace))
        what = f"{form.name}, {len(trace):,} requests"
        results += compare_json(what, path, read_lines(path, form.shape), settings, **dict(form.options))
        path.unlink()
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


def compare_json(
    what: str, source: Path, parse: Callable[[], object], settings: Settings, **options: str
) -> list[Result]:
    """Reading of a source against its parser; `parse` is msgspec's side, `options` are the reader's."""
    paths = sorted(source.glob("*.json")) if source.is_dir() else [source]
    n_bytes = sum(path.stat().st_size for path in paths)
    sides = {"capplan": lambda: read_trace(source, **options), "msgspec": parse}
    if orjson is not None:
        sides["orjson"] = lambda: [orjson.loads(text) for path in paths for text in split(path, source)]
    gc.collect()
    gc.freeze()
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


def list_token_rows(prompts: Prompts) -> Iterator[dict]:
    sessions, offsets = prompts.requests.session.decode(), prompts.offsets.tolist()
    for k in range(len(prompts.requests)):
        ids = prompts.ids[offsets[k] : offsets[k + 1]] % MOST_IDS
        yield {"token_ids": ids.tolist(), "session_id": sessions[k]}


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


def write_parquet(path: Path, prompts: Prompts) -> Path:
    rows = [row["token_ids"] for row in list_token_rows(prompts)]
    frame = pl.DataFrame({"token_ids": pl.Series(rows, dtype=pl.List(pl.UInt32))})
    frame.with_columns(session_id=pl.Series(prompts.requests.session.decode())).write_parquet(path)
    return path


def compare_threads(folder: Path, settings: Settings) -> list[Result]:
    """Folders of 16 files, plain and compressed, with two threads and with one; both must write the same bytes."""
    lines = (folder / "tokens.jsonl").read_bytes().splitlines(keepends=True)
    results = []
    for what, suffix, pack in (("gzip", ".jsonl.gz", lambda text: gzip.compress(text, 1)), ("plain", ".jsonl", bytes)):
        parts = folder / what
        parts.mkdir()
        step = max(1, len(lines) // N_PARTS)
        for number, first in enumerate(range(0, len(lines), step)):
            (parts / f"{number:03}{suffix}").write_bytes(pack(b"".join(lines[first : first + step])))
        sides = {n: lambda n=n, parts=parts: link_folder(parts, n) for n in (2, 1)}
        check_bytes(folder, sides[1](), sides[2]())
        two, one = (Measure(samples) for samples in interleave(sides, settings.rounds).values())
        what = f"folder of {N_PARTS} {what} files of token ids, two threads"
        results.append(Result(what, two, "one thread", one, "faster", note="same bytes"))
    return results


def link_folder(folder: Path, n_workers: int) -> Trace:
    return link_sources(folder, "auto", "chained", Options(), Selection(), n_workers)[0]


def check_bytes(folder: Path, one: Trace, two: Trace) -> None:
    """Raise AssertionError where the two are not written alike."""
    texts = []
    for trace in (one, two):
        write_trace(trace, folder / "linked.parquet")
        texts.append((folder / "linked.parquet").read_bytes())
    assert texts[0] == texts[1], "two threads write other bytes than one"


if __name__ == "__main__":
    run_alone(measure, __doc__)
