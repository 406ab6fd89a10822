"""Parquet or JSONL with prefix-chained block hashes per request, and the block size."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import hashes, jsonl, tables
from capplan.readers.columns import INPUT_NAMES, find_counts, make_requests
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.tables import Batch
from capplan.schema import LARGEST_TOKENS

NAME = "block-hashes"
CARRIES = "Parquet or JSONL with block_ids, block_hashes or hash_ids, and block_size (or --block-size)"
ID_NAMES = ("block_ids", "block_hashes", "hash_ids")


class Row(msgspec.Struct):
    """One request; seconds for all times."""

    block_ids: list[int | str] | msgspec.UnsetType | None = msgspec.UNSET
    block_hashes: list[int | str] | msgspec.UnsetType | None = msgspec.UNSET
    hash_ids: list[int | str] | msgspec.UnsetType | None = msgspec.UNSET
    block_size: int | msgspec.UnsetType | None = msgspec.UNSET
    input_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    input_length: int | msgspec.UnsetType | None = msgspec.UNSET
    output_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    output_length: int | msgspec.UnsetType | None = msgspec.UNSET
    request_id: str | int | msgspec.UnsetType = msgspec.UNSET
    session_id: str | int | msgspec.UnsetType | None = msgspec.UNSET
    task_id: str | int | msgspec.UnsetType | None = msgspec.UNSET
    arrival_s: float | msgspec.UnsetType | None = msgspec.UNSET
    timestamp: float | msgspec.UnsetType | None = msgspec.UNSET
    start_s: float | msgspec.UnsetType | None = msgspec.UNSET
    gap_s: float | msgspec.UnsetType | None = msgspec.UNSET
    service_s: float | msgspec.UnsetType | None = msgspec.UNSET
    tail_gap_s: float | msgspec.UnsetType | None = msgspec.UNSET


def matches(sample: Sample) -> bool:
    """Whether there is a column of block hashes."""
    return sample.kind != "folder" and bool(sample.fields & set(ID_NAMES))


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    first_s: list[float] = []
    for batch in tables.read_batches(path, Row, ID_NAMES):
        block = find_block_size(batch, options)
        keys = read_hashes(batch)
        n_input = find_counts(batch, INPUT_NAMES)
        if n_input is None:
            n_input = np.array([ids.size * block for ids in keys], np.int64)
            account.assume("no prompt lengths: taken as block size times block hashes")
        keys = [
            ids[: hashes.count_full_blocks(n, ids.size, block, batch.where(k))]
            for k, (ids, n) in enumerate(zip(keys, n_input.tolist(), strict=True))
        ]
        flat, offsets = jsonl.flatten(keys)
        yield Prompts(make_requests(batch, n_input, None, account, first_s), flat, offsets, "hashes", block)


def read_hashes(batch: Batch) -> list[NDArray[np.uint64]]:
    """Block hashes of every row.

    Raises
    ------
    TraceError
        No such column, another type, a null, or a value that is no 64-bit number.
    """
    name = batch.find_name(ID_NAMES)
    if name is None:
        raise TraceError(f"{batch.where(0)}: no block hashes; accepted: {', '.join(ID_NAMES)}")
    lists: Any = batch.columns[name]
    if tables.is_parquet_series(lists):
        import polars as pl

        inner = lists.dtype.inner if isinstance(lists.dtype, pl.List) else pl.Unknown()
        if not inner.is_integer() and inner not in (pl.String, pl.Null):
            raise TraceError(
                f"{batch.where(0)}: {name} is {lists.dtype}; a list of integers or hexadecimal strings is accepted"
            )
        lists = lists.to_list()
    for k, ids in enumerate(lists):
        if ids is None or None in ids:
            raise TraceError(f"{batch.where(k)}: {name} is null; a list of block hashes on every row is accepted")
    return [hashes.to_keys(ids, batch.where(k)) for k, ids in enumerate(lists)]


def find_block_size(batch: Batch, options: Options) -> int:
    """Tokens per block: the source's, which must not contradict the caller's, else the caller's.

    Raises
    ------
    TraceError
        Neither says, they disagree, or the size changes between rows.
    """
    stated = batch.columns.get("block_size")
    if stated is None:
        if options.block_tokens is None:
            raise TraceError(f"{batch.where(0)}: no block_size; state the tokens per block hash with --block-size")
        return options.block_tokens
    block = stated[0] if options.block_tokens is None else options.block_tokens
    for k, size in enumerate(stated):
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_TOKENS:
            raise TraceError(
                f"{batch.where(k)}: block_size is {size!r}; a whole number from 1 to {LARGEST_TOKENS} is accepted"
            )
        if size != block:
            raise TraceError(f"{batch.where(k)}: block_size is {size} after {block}; one size per trace is accepted")
    return int(block)
