"""Mooncake JSONL as released with the FAST '25 paper: 512-token blocks, global chained ids, milliseconds.

The last id stands for a partial block wherever the prompt is no multiple of 512; it is dropped,
since only full blocks can be found again.
"""

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Prompts, Requests
from capplan.readers import hashes, jsonl
from capplan.readers.sample import Account, Options, Sample
from capplan.schema import LARGEST_S, LARGEST_TOKENS

NAME = "mooncake"
CARRIES = "JSONL with timestamp in ms, input_length, output_length, hash_ids of 512-token blocks"
BLOCK_TOKENS = 512
MS = 1000.0
EXTENSIONS = ("session_id", "delay", "delay_ms", "wait_for", "prefix_reset", "group_id", "is_restart", "messages")
read_extensions = attrgetter(*EXTENSIONS)
NO_EXTENSIONS = (msgspec.UNSET,) * len(EXTENSIONS)

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOKENS)]


class Row(msgspec.Struct):
    """One request; the extended dialects' fields change what the others mean."""

    timestamp: int | float
    input_length: Count
    output_length: Count
    hash_ids: list[int | str]
    session_id: Any = msgspec.UNSET
    delay: Any = msgspec.UNSET
    delay_ms: Any = msgspec.UNSET
    wait_for: Any = msgspec.UNSET
    prefix_reset: Any = msgspec.UNSET
    group_id: Any = msgspec.UNSET
    is_restart: Any = msgspec.UNSET
    messages: Any = msgspec.UNSET


def matches(sample: Sample) -> bool:
    """Whether the first row has Mooncake's fields, and no block size of its own."""
    needed = {"timestamp", "input_length", "output_length", "hash_ids"}
    return sample.kind == "json" and needed <= sample.fields and "block_size" not in sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of requests in file order."""
    block = options.block_tokens or BLOCK_TOKENS
    first: float | None = None
    for batch in jsonl.in_batches(jsonl.read_lines(path, Row)):
        rows = [row for _, row in batch]
        full = [_check_row(row, block, f"{path}, line {number}") for number, row in batch]
        ids, offsets = hashes.flatten_keys(
            [row.hash_ids[:n] for row, n in zip(rows, full, strict=True)], partial(_locate, path, batch)
        )
        times = np.array([row.timestamp for row in rows], np.float64)
        first = float(times[0]) if first is None else first
        requests = Requests.of(
            np.array([row.input_length for row in rows], np.int64),
            output_tokens=np.array([row.output_length for row in rows], np.int64),
            request_ids=[str(account.n_read + k) for k in range(len(rows))],
            arrival_s=(times - first) / MS,
        )
        account.n_read += len(rows)
        yield Prompts(requests, ids, offsets, "hashes", block)
    account.assume(f"timestamps are milliseconds and blocks {block} tokens, as the Mooncake release defines them")


def _locate(path: Path, batch: list[tuple[int, Row]], k: int) -> str:
    return f"{path}, line {batch[k][0]}"


def _check_row(row: Row, block: int, where: str) -> int:
    """Number of full blocks of a row that is as released; raises TraceError for another dialect's."""
    if read_extensions(row) != NO_EXTENSIONS:
        name = next(name for name in EXTENSIONS if getattr(row, name) is not msgspec.UNSET)
        raise TraceError(
            f"{where}: field {name} belongs to an extended Mooncake dialect; accepted: timestamp, input_length, "
            "output_length, hash_ids"
        )
    if abs(row.timestamp) > LARGEST_S * MS:
        raise TraceError(f"{where}: timestamp is out of range; up to {LARGEST_S * MS:g} ms either way are accepted")
    return hashes.count_full_blocks(row.input_length, len(row.hash_ids), block, where)
