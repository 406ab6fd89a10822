"""Parquet or JSONL with the token ids of every prompt, and of its output where known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import tables
from capplan.readers.columns import make_requests
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.tables import Batch

NAME = "token-ids"
CARRIES = "Parquet or JSONL with token_ids or prompt_token_ids, optionally output_token_ids"
RESOLUTION_TOKENS = 16
PROMPT_NAMES = ("token_ids", "prompt_token_ids")
OUTPUT_NAME = "output_token_ids"
LARGEST_ID = (1 << 32) - 1


class Row(msgspec.Struct):
    """One request; seconds for all times."""

    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    output_token_ids: list[int] | msgspec.UnsetType | None = msgspec.UNSET
    output_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
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
    """Whether there is a column of prompt token ids."""
    return sample.kind != "folder" and bool(sample.fields & set(PROMPT_NAMES))


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order; paths hold prompt and output where every row has the output's ids."""
    if options.block_tokens is not None:
        raise TraceError(
            f"{path}: --block-size is for block hashes; token ids are linked at {RESOLUTION_TOKENS} tokens"
        )
    first_s: list[float] = []
    for batch in tables.read_batches(path, Row, (*PROMPT_NAMES, OUTPUT_NAME)):
        name = batch.find_name(PROMPT_NAMES)
        if name is None:
            raise TraceError(f"{batch.where(0)}: no token ids; accepted: {' or '.join(PROMPT_NAMES)}")
        ids, lengths = read_ids(batch, name)
        n_output = None
        outputs_known = OUTPUT_NAME in batch.columns
        n_input = lengths
        if outputs_known:
            output_ids, n_output = read_ids(batch, OUTPUT_NAME)
            ids, lengths = interleave(ids, lengths, output_ids, n_output), lengths + n_output
        offsets = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        requests = make_requests(batch, n_input, n_output, account, first_s)
        yield Prompts(requests, ids, offsets, "tokens", RESOLUTION_TOKENS, outputs_known)


def read_ids(batch: Batch, name: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Flat uint32 ids and the length of every row's list.

    Raises
    ------
    TraceError
        A null list, a null id, or an id outside 0 .. 2^32 - 1.
    """
    lists = batch.columns[name]
    if tables.is_parquet_series(lists):
        return _read_series(lists, name, batch)
    for k, ids in enumerate(lists):
        if ids is None:
            raise TraceError(f"{batch.where(k)}: {name} is null; a list of token ids on every row is accepted")
    lengths = np.array([len(ids) for ids in lists], np.int64)
    try:
        flat = np.array([token for ids in lists for token in ids], np.int64)
    except OverflowError:
        flat = np.array([-1], np.int64)
    if flat.size and (flat.min() < 0 or flat.max() > LARGEST_ID):
        k = next(k for k, ids in enumerate(lists) if any(not 0 <= token <= LARGEST_ID for token in ids))
        raise TraceError(f"{batch.where(k)}: {name} holds an id outside 0 to {LARGEST_ID}")
    return flat.astype(np.uint32), lengths


def _read_series(column: Any, name: str, batch: Batch) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    import polars as pl

    if column.dtype == pl.List(pl.Null):
        column = column.cast(pl.List(pl.UInt32))
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_integer():
        raise TraceError(f"{batch.where(0)}: {name} is {column.dtype}; a list of integers is accepted")
    missing = column.is_null() | column.list.eval(pl.element().is_null().any()).list.first().fill_null(False)
    if missing.any():
        raise TraceError(
            f"{batch.where(missing.arg_max())}: {name} is null; a list of token ids on every row is accepted"
        )
    lengths = column.list.len().to_numpy().astype(np.int64)
    flat = column.filter(column.list.len() > 0).explode()
    outside = (flat < 0) | (flat > LARGEST_ID)
    if outside.any():
        row = int(np.searchsorted(np.cumsum(lengths), outside.arg_max(), side="right"))
        raise TraceError(f"{batch.where(row)}: {name} holds an id outside 0 to {LARGEST_ID}")
    return flat.cast(pl.UInt32).to_numpy(), lengths


def interleave(
    prompt_ids: NDArray[np.uint32],
    n_input: NDArray[np.int64],
    output_ids: NDArray[np.uint32],
    n_output: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Paths: every prompt followed by its own output, flat."""
    pieces = np.stack([n_input, n_output], axis=1).reshape(-1)
    is_output = np.repeat(np.arange(pieces.size) % 2 == 1, pieces)
    paths = np.empty(int(pieces.sum()), np.uint32)
    paths[~is_output] = prompt_ids
    paths[is_output] = output_ids
    return paths
