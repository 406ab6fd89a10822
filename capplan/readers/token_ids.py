"""Parquet or JSONL with the token ids of every prompt, and of its output where known."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import tables
from capplan.readers.columns import find_counts, make_requests
from capplan.readers.id_lists import LARGEST_SMALL, IdList, parse_small_ids
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.tables import Batch

if TYPE_CHECKING:
    import polars as pl

NAME = "token-ids"
CARRIES = "Parquet or JSONL with token_ids or prompt_token_ids, optionally output_token_ids"
RESOLUTION_TOKENS = 16
PROMPT_NAMES = ("token_ids", "prompt_token_ids")
OUTPUT_NAME = "output_token_ids"
NEEDED = "a list of token ids"
LARGEST_ID = LARGEST_SMALL


class Row(tables.Row, gc=False):
    """One request."""

    token_ids: IdList | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: IdList | msgspec.UnsetType = msgspec.UNSET
    output_token_ids: IdList | msgspec.UnsetType = msgspec.UNSET
    input_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    output_tokens: int | msgspec.UnsetType | None = msgspec.UNSET


def matches(sample: Sample) -> bool:
    """Whether there is a column of prompt token ids."""
    return sample.kind != "folder" and bool(sample.fields & set(PROMPT_NAMES))


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order; paths hold prompt and output where every row has the output's ids."""
    if options.block_tokens is not None:
        raise TraceError(
            f"{path}: --block-size is for block hashes; token ids are linked at {RESOLUTION_TOKENS} tokens"
        )
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
        _compare(batch, "input_tokens", n_input, account)
        if n_output is not None:
            _compare(batch, "output_tokens", n_output, account)
        requests = make_requests(batch, n_input, n_output, account)
        yield Prompts(requests, ids, offsets, "tokens", RESOLUTION_TOKENS, outputs_known)


def _compare(batch: Batch, name: str, n_ids: NDArray[np.int64], account: Account) -> None:
    """Count rows that state another number of tokens than they have ids."""
    stated = find_counts(batch, (name,))
    n_odd = 0 if stated is None else int((stated != n_ids).sum())
    if n_odd:
        account.found[f"request whose {name} differ from the number of its ids, which is taken"] += n_odd


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
    return parse_small_ids(lists, name, batch.where, NEEDED if name == OUTPUT_NAME else "")


def _read_series(column: "pl.Series", name: str, batch: Batch) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    import polars as pl

    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if column.dtype == pl.List(pl.Null):
        column = column.cast(pl.List(pl.UInt32))
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_integer():
        raise TraceError(f"{batch.where(0)}: {name} is {column.dtype}; a list of integers is accepted")
    flat = column.explode(empty_as_null=False, keep_nulls=False)
    if column.has_nulls() or flat.has_nulls():
        missing = column.is_null() | column.list.eval(pl.element().is_null().any()).list.first().fill_null(False)
        raise TraceError(f"{batch.where(missing.arg_max() or 0)}: {name} is null; {NEEDED} on every row is accepted")
    lengths = column.list.len().to_numpy().astype(np.int64)
    ids = flat.to_numpy()
    if ids.dtype != np.uint32:
        if ids.size and (ids.min() < 0 or ids.max() > LARGEST_ID):
            outside = (ids < 0) | (ids > LARGEST_ID)
            row = int(np.searchsorted(np.cumsum(lengths), outside.argmax(), side="right"))
            raise TraceError(f"{batch.where(row)}: {name} holds an id outside 0 to {LARGEST_ID}")
        ids = ids.astype(np.uint32)
    return ids, lengths


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
