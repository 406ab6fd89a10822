"""LMCache lookup-hash logs: JSONL with the chained chunk hashes of every prompt an engine looked up.

A chunk is usually 256 tokens and only full ones are hashed. A waiting request may be looked up more
than once; equal lookups of one request are one call. Outputs are not logged.
"""

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts, Requests
from capplan.readers import hashes, jsonl
from capplan.readers.clock import Clock
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import BlockSize, Count, Seconds, keep_rows
from capplan.readers.sample import Account, Options, Sample

NAME = "lmcache-hashes"
CARRIES = "JSONL of LMCache lookups with timestamp in s, request_id, chunk_size, seq_len, chunk_hashes"


class Row(msgspec.Struct, gc=False):
    """One lookup."""

    timestamp: Seconds
    request_id: str | int
    chunk_size: BlockSize
    seq_len: Count
    chunk_hashes: list[int | str]
    model_name: str | None = None


def matches(sample: Sample) -> bool:
    """Whether the first row is a lookup."""
    return sample.kind == "json" and {"chunk_hashes", "chunk_size", "seq_len"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of lookups in file order."""
    if options.block_tokens is not None:
        raise TraceError(f"{path}: --block-size is given, but LMCache lookups state their own chunk_size")
    clock = Clock(1, account, is_epoch=True)
    seen: dict[str, int] = {}
    block: int | None = None
    for batch in jsonl.read_batches(path, Row):
        block = batch.rows[0].chunk_size if block is None else block
        batch = keep_rows(batch, [_is_new(batch, k, block, seen, options, account) for k in range(len(batch.rows))])
        rows = batch.rows
        if not rows:
            continue
        n_input = [row.seq_len for row in rows]
        ids, offsets = parse_hashes([row.chunk_hashes for row in rows], batch.where)
        ids, offsets = hashes.keep_full_blocks(ids, offsets, np.array(n_input, np.int64), block, batch.where)
        requests = Requests.of(
            np.array(n_input, np.int64),
            request_ids=[str(row.request_id) for row in rows],
            arrival_s=clock.read(row.timestamp for row in rows),
        )
        account.n_read += len(rows)
        yield Prompts(requests, ids, offsets, "hashes", block)
    account.assume("outputs are not logged: calls are taken to generate nothing")
    account.assume("sessions are not logged")


def parse_hashes(
    lists: list[list[int | str]], where: Callable[[int], str]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hexadecimal hashes of all rows, flat, and their (n + 1,) offsets; of longer ones the low 64 bits."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(keys) for keys in lists], out=offsets[1:])
    try:
        texts: Any = chain.from_iterable(lists)
        return np.fromiter(map(int, texts, repeat(16)), np.uint64, int(offsets[-1])), offsets
    except (TypeError, ValueError, OverflowError):
        return hashes.flatten_keys([_parse(keys, where, k) for k, keys in enumerate(lists)], where)


def _parse(keys: list[int | str], where: Callable[[int], str], k: int) -> list[int]:
    try:
        return [(int(key, 16) if isinstance(key, str) else key) & hashes.MASK for key in keys]
    except ValueError:
        return [int(key) for key in hashes.to_keys(keys, where(k))]


def _is_new(batch: RowBatch[Row], k: int, block: int, seen: dict[str, int], options: Options, account: Account) -> bool:
    """Whether a row is the first lookup of a wanted request; raises TraceError where it contradicts earlier ones."""
    row = batch.rows[k]
    if row.chunk_size != block:
        raise TraceError(
            f"{batch.where(k)}: chunk_size is {row.chunk_size} after {block}; one size per trace is accepted"
        )
    if not options.keeps_model(row.model_name, account):
        return False
    content = hash((row.seq_len, *row.chunk_hashes))
    name = str(row.request_id)
    if name not in seen:
        seen[name] = content
        return True
    if seen[name] != content:
        raise TraceError(f"{batch.where(k)}: request_id {name!r} stands twice with other chunks; names must be unique")
    account.skipped["repeated lookup of a request"] += 1
    return False
