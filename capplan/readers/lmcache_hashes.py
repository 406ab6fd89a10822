"""LMCache lookup-hash logs: JSONL with the chained chunk hashes of every prompt an engine looked up.

A chunk is usually 256 tokens and only full ones are hashed. A waiting request may be looked up more
than once; equal lookups of one request are one call. Outputs are not logged.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts, Requests
from capplan.readers import hashes, jsonl
from capplan.readers.clock import Clock
from capplan.readers.id_lists import IdList, parse_hex_ids
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import BlockSize, Count, Seconds, keep_rows
from capplan.readers.sample import Account, Options, Sample

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

NAME = "lmcache-hashes"
CARRIES = "JSONL of LMCache lookups with timestamp in s, request_id, chunk_size, seq_len, chunk_hashes"


class Row(msgspec.Struct, gc=False):
    """One lookup."""

    timestamp: Seconds
    request_id: str | int
    chunk_size: BlockSize
    seq_len: Count
    chunk_hashes: IdList
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
        _check_sizes(batch, block)
        if options.model_filter is not None:
            batch = keep_rows(batch, [options.keeps_model(row.model_name, account) for row in batch.rows])
        if batch.rows:
            yield make_prompts(batch, block, clock, seen, account)
    account.assume("outputs are not logged: calls are taken to generate nothing")
    account.assume("sessions are not logged")


def _check_sizes(batch: RowBatch[Row], block: int) -> None:
    for k, row in enumerate(batch.rows):
        if row.chunk_size != block:
            raise TraceError(
                f"{batch.where(k)}: chunk_size is {row.chunk_size} after {block}; one size per trace is accepted"
            )


def make_prompts(batch: RowBatch[Row], block: int, clock: Clock, seen: dict[str, int], account: Account) -> Prompts:
    """The Prompts of one batch, possibly none, without lookups that repeat; `seen` holds what was looked up."""
    rows = batch.rows
    names = [str(row.request_id) for row in rows]
    n_input = np.array([row.seq_len for row in rows], np.int64)
    ids, offsets = parse_hex_ids([row.chunk_hashes for row in rows], "chunk_hashes", batch.where)
    new = find_new(names, digest_rows(n_input, ids, offsets), seen, batch.where)
    full, full_offsets = hashes.keep_full_blocks(ids, offsets, n_input, block, batch.where)
    requests = Requests.of(n_input, request_ids=names)
    prompts = Prompts(requests, full, full_offsets, "hashes", block).take(new)
    account.n_read += new.size
    if new.size < len(rows):
        account.skipped["repeated lookup of a request"] += len(rows) - new.size
    sent = clock.read(rows[k].timestamp for k in new.tolist())
    return replace(prompts, requests=replace(prompts.requests, arrival_s=sent))


def digest_rows(n_input: Int64s, ids: UInt64s, offsets: Int64s) -> list[int]:
    """A number for what every lookup asked for; equal ones have equal numbers."""
    text = ids.tobytes()
    ends = (8 * offsets).tolist()
    return [hash((n, text[begin:end])) for n, begin, end in zip(n_input.tolist(), ends[:-1], ends[1:], strict=True)]


def find_new(names: list[str], contents: list[int], seen: dict[str, int], where: Callable[[int], str]) -> Int64s:
    """Rows that are the first lookup of their request, which go into `seen`.

    Raises
    ------
    TraceError
        A request that asks for something else than before.
    """
    new = []
    for k, (name, content) in enumerate(zip(names, contents, strict=True)):
        if name not in seen:
            seen[name] = content
            new.append(k)
        elif seen[name] != content:
            raise TraceError(f"{where(k)}: request_id {name!r} stands twice with other chunks; names must be unique")
    return np.array(new, np.int64)
