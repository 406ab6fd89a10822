"""Types and columns that rows of several formats have in common, first of all their block ids."""

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Annotated, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.readers import hashes
from capplan.readers.id_lists import IdList, parse_ids
from capplan.readers.jsonl import RowBatch
from capplan.readers.lengths import fit_lengths
from capplan.readers.sample import Account, Options
from capplan.schema import LARGEST_S, LARGEST_TOKENS

MS = 1000.0

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOKENS)]
BlockSize = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TOKENS)]
Seconds = Annotated[float, msgspec.Meta(ge=-LARGEST_S, le=LARGEST_S)]
Milliseconds = Annotated[float, msgspec.Meta(ge=-LARGEST_S * MS, le=LARGEST_S * MS)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_S)]
WaitMs = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_S * MS)]

Row = TypeVar("Row")

NO_IDS = msgspec.Raw(b"null")


def keep_rows(batch: RowBatch[Row], wanted: Sequence[bool]) -> RowBatch[Row]:
    """The rows of a batch whose flag is set, possibly none."""
    kept = [k for k, keep in enumerate(wanted) if keep]
    if len(kept) == len(batch.rows):
        return batch
    return RowBatch(batch.path, [batch.numbers[k] for k in kept], [batch.rows[k] for k in kept])


def to_names(values: list[str | int | None]) -> list[str | None]:
    """Names, of which some may be numbers, as strings."""
    if set(map(type, values)) <= {str, NoneType}:
        return cast(list[str | None], values)
    return [None if value is None else str(value) for value in values]


def take_full_blocks(
    lists: Sequence[IdList],
    name: str,
    n_tokens: Sequence[int],
    block: int,
    where: Callable[[int], str],
    options: Options,
    account: Account,
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Prompt lengths, ids of full blocks, flat, and their offsets; a last id may stand for a partial block.

    Raises
    ------
    TraceError
        A number of ids that contradicts the length, unless the ids are to be believed, or something that is no
        list of ids; `name` is the field.
    """
    ids, offsets = parse_ids(lists, name, where)
    lengths = fit_lengths(np.array(n_tokens, np.int64), offsets, block, options, account)
    return lengths, *hashes.keep_full_blocks(ids, offsets, lengths, block, where)
