"""Parquet or JSONL with prefix-chained block hashes per request, and the block size."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import hashes, jsonl, tables
from capplan.readers.columns import find_input_tokens, make_requests
from capplan.readers.sample import Account, Options, Sample

NAME = "block-hashes"
CARRIES = "Parquet or JSONL with block_ids, block_hashes or hash_ids, and block_size (or --block-size)"
ID_NAMES = ("block_ids", "block_hashes", "hash_ids")


class Row(msgspec.Struct):
    """One request; seconds for all times."""

    block_ids: list[int | str] | None | msgspec.UnsetType = msgspec.UNSET
    block_hashes: list[int | str] | None | msgspec.UnsetType = msgspec.UNSET
    hash_ids: list[int | str] | None | msgspec.UnsetType = msgspec.UNSET
    block_size: int | None | msgspec.UnsetType = msgspec.UNSET
    input_tokens: int | None | msgspec.UnsetType = msgspec.UNSET
    input_length: int | None | msgspec.UnsetType = msgspec.UNSET
    output_tokens: int | None | msgspec.UnsetType = msgspec.UNSET
    output_length: int | None | msgspec.UnsetType = msgspec.UNSET
    request_id: str | int | msgspec.UnsetType = msgspec.UNSET
    session_id: str | int | None | msgspec.UnsetType = msgspec.UNSET
    task_id: str | int | None | msgspec.UnsetType = msgspec.UNSET
    arrival_s: float | None | msgspec.UnsetType = msgspec.UNSET
    timestamp: float | None | msgspec.UnsetType = msgspec.UNSET
    start_s: float | None | msgspec.UnsetType = msgspec.UNSET
    gap_s: float | None | msgspec.UnsetType = msgspec.UNSET
    service_s: float | None | msgspec.UnsetType = msgspec.UNSET
    tail_gap_s: float | None | msgspec.UnsetType = msgspec.UNSET


def matches(sample: Sample) -> bool:
    """Whether there is a column of block hashes."""
    return sample.kind != "folder" and bool(sample.fields & set(ID_NAMES))


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    first_s: list[float] = []
    for unit, first, table in tables.read_tables(path, Row, ID_NAMES):
        where = f"{path}, {unit}"
        name = next((name for name in ID_NAMES if name in table), None)
        if name is None:
            raise TraceError(f"{where} {first}: no block hashes; accepted: {', '.join(ID_NAMES)}")
        block = find_block_size(table, options, where, first)
        keys = [_read_hashes(ids, name, f"{where} {first + k}") for k, ids in enumerate(table[name])]
        n_input = find_input_tokens(table, path, first)
        if n_input is None:
            n_input = np.array([ids.size * block for ids in keys], np.int64)
            account.assume("no prompt lengths: taken as block size times block hashes")
        keys = [
            ids[: hashes.count_full_blocks(int(n), ids.size, block, f"{where} {first + k}")]
            for k, (ids, n) in enumerate(zip(keys, n_input.tolist(), strict=True))
        ]
        flat, offsets = jsonl.flatten(keys)
        yield Prompts(make_requests(table, n_input, None, path, account, first_s), flat, offsets, "hashes", block)


def _read_hashes(ids: Any, name: str, where: str) -> NDArray[np.uint64]:
    if ids is None:
        raise TraceError(f"{where}: {name} is null; a list of block hashes on every row is accepted")
    values = ids.to_list() if tables.is_parquet_series(ids) else ids
    if any(value is None or isinstance(value, float) for value in values):
        raise TraceError(f"{where}: {name} holds a null or a float; integers or hexadecimal strings are accepted")
    return hashes.to_keys(values, where)


def find_block_size(table: dict[str, Sequence[Any]], options: Options, where: str, first: int) -> int:
    """Tokens per block: the source's, which must not contradict the caller's, else the caller's.

    Raises
    ------
    TraceError
        Neither says, they disagree, or the size changes between rows.
    """
    stated = table.get("block_size")
    if stated is None:
        if options.block_tokens is None:
            raise TraceError(f"{where} {first}: no block_size; state the tokens per block hash with --block-size")
        return options.block_tokens
    block = stated[0] if options.block_tokens is None else options.block_tokens
    for k, size in enumerate(stated):
        if not isinstance(size, int) or size < 1:
            raise TraceError(f"{where} {first + k}: block_size is {size!r}; a whole number from 1 up is accepted")
        if size != block:
            raise TraceError(f"{where} {first + k}: block_size is {size} after {block}; one size per trace is accepted")
    return int(block)
