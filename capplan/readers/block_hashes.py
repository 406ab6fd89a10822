"""Parquet or JSONL with prefix-chained block hashes per request, and the block size."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import hashes, tables
from capplan.readers.columns import INPUT_NAMES, find_counts, make_requests
from capplan.readers.id_lists import IdList, parse_ids
from capplan.readers.lengths import fit_lengths
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.tables import Batch
from capplan.schema import LARGEST_TOKENS

if TYPE_CHECKING:
    import polars as pl

NAME = "block-hashes"
CARRIES = "Parquet, Arrow or JSONL with block_ids, block_hashes or hash_ids, and block_size (or --block-size)"
NEEDED = "a list of block hashes"
ID_NAMES = ("block_ids", "block_hashes", "hash_ids")


class Row(tables.Row, gc=False):
    """One request."""

    block_ids: IdList | msgspec.UnsetType = msgspec.UNSET
    block_hashes: IdList | msgspec.UnsetType = msgspec.UNSET
    hash_ids: IdList | msgspec.UnsetType = msgspec.UNSET
    block_size: int | msgspec.UnsetType | None = msgspec.UNSET
    input_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    input_length: int | msgspec.UnsetType | None = msgspec.UNSET
    output_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    output_length: int | msgspec.UnsetType | None = msgspec.UNSET


def matches(sample: Sample) -> bool:
    """Whether there is a column of block hashes."""
    return sample.kind != "folder" and bool(sample.fields & set(ID_NAMES))


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    for batch in tables.read_batches(path, Row, ID_NAMES):
        block = find_block_size(batch, options)
        ids, offsets = read_hashes(batch)
        n_input = find_counts(batch, INPUT_NAMES)
        if n_input is None:
            n_input = np.diff(offsets) * block
            account.assume("no prompt lengths: taken as block size times block hashes")
        n_input = fit_lengths(n_input, offsets, block, options, account)
        ids, offsets = hashes.keep_full_blocks(ids, offsets, n_input, block, batch.where)
        yield Prompts(make_requests(batch, n_input, None, account), ids, offsets, "hashes", block)


def read_hashes(batch: Batch) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Block hashes of all rows, flat, and their (n + 1,) offsets.

    Raises
    ------
    TraceError
        No such column, another type, a null, or a value that is no 64-bit number.
    """
    name = batch.find_name(ID_NAMES)
    if name is None:
        raise TraceError(f"{batch.where(0)}: no block hashes; accepted: {', '.join(ID_NAMES)}")
    lists = batch.columns[name]
    if tables.is_parquet_series(lists):
        return read_series(lists, name, batch)
    return parse_ids(lists, name, batch.where, NEEDED)


def read_series(column: "pl.Series", name: str, batch: Batch) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """As `read_hashes`, of a column of a Parquet or Arrow file; `name` is its name."""
    import polars as pl

    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else pl.Unknown()
    if not inner.is_integer() and inner not in (pl.String, pl.Null):
        raise TraceError(
            f"{batch.where(0)}: {name} is {column.dtype}; a list of integers or hexadecimal strings is accepted"
        )
    flat = column.explode(empty_as_null=False, keep_nulls=False)
    if column.has_nulls() or flat.has_nulls():
        missing = column.is_null() | column.list.eval(pl.element().is_null().any()).list.first().fill_null(False)
        raise TraceError(f"{batch.where(missing.arg_max() or 0)}: {name} is null; {NEEDED} on every row is accepted")
    if not inner.is_integer():
        return hashes.flatten_keys(column.to_list(), batch.where)
    offsets = np.zeros(column.len() + 1, np.int64)
    np.cumsum(column.list.len().to_numpy(), out=offsets[1:])
    return flat.to_numpy().astype(np.uint64), offsets


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
    if set(map(type, stated)) == {int} and set(stated) == {block} and 1 <= block <= LARGEST_TOKENS:
        return int(block)
    for k, size in enumerate(stated):
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_TOKENS:
            raise TraceError(
                f"{batch.where(k)}: block_size is {size!r}; a whole number from 1 to {LARGEST_TOKENS} is accepted"
            )
        if size != block:
            raise TraceError(f"{batch.where(k)}: block_size is {size} after {block}; one size per trace is accepted")
    return int(block)
