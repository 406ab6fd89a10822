"""Mooncake JSONL as released with the FAST '25 paper: 512-token blocks, global chained ids, milliseconds.

The last id stands for a partial block wherever the prompt is no multiple of 512; it is dropped,
since only full blocks can be found again.
"""

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import NumberNames, Prompts, Requests
from capplan.readers import jsonl, lines
from capplan.readers.clock import tell_steps_back
from capplan.readers.id_lists import IdList
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import MS, Count
from capplan.readers.sample import Account, Options, Sample
from capplan.schema import LARGEST_S

NAME = "mooncake"
CARRIES = "JSONL with timestamp in ms, input_length, output_length, hash_ids of 512-token blocks"
BLOCK_TOKENS = 512
LARGEST_MS = LARGEST_S * MS
EXTENDED, DELTA, BAILIAN = "mooncake-extended", "mooncake-delta", "qwen-bailian"
DIALECTS = {
    "chat_id": BAILIAN,
    "group_id": DELTA,
    "is_restart": DELTA,
    "session_id": EXTENDED,
    "delay": EXTENDED,
    "delay_ms": EXTENDED,
    "wait_for": EXTENDED,
    "prefix_reset": EXTENDED,
    "messages": EXTENDED,
}
EXTENSIONS = tuple(DIALECTS)
read_extensions = attrgetter(*EXTENSIONS)
NO_EXTENSIONS = (msgspec.UNSET,) * len(EXTENSIONS)


class Plain(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One request as the release has it."""

    timestamp: int | float
    input_length: Count
    output_length: Count
    hash_ids: IdList


class Row(Plain, gc=False, forbid_unknown_fields=False):
    """One request with whatever else there is; the extended dialects' fields change what the others mean."""

    session_id: Any = msgspec.UNSET
    delay: Any = msgspec.UNSET
    delay_ms: Any = msgspec.UNSET
    wait_for: Any = msgspec.UNSET
    prefix_reset: Any = msgspec.UNSET
    group_id: Any = msgspec.UNSET
    is_restart: Any = msgspec.UNSET
    messages: Any = msgspec.UNSET
    chat_id: Any = msgspec.UNSET


def matches(sample: Sample) -> bool:
    """Whether the first row has Mooncake's fields, and no block size of its own."""
    needed = {"timestamp", "input_length", "output_length", "hash_ids"}
    return sample.kind == "json" and needed <= sample.fields and "block_size" not in sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of requests in file order."""
    block = options.block_tokens or BLOCK_TOKENS
    first: float | None = None
    for batch in jsonl.read_batches(path, Row, Plain):
        rows = batch.rows
        times = _read_times(batch)
        tell_steps_back(times, account)
        lengths = [row.input_length for row in rows]
        n_input, ids, offsets = lines.take_full_blocks(
            [row.hash_ids for row in rows], "hash_ids", lengths, block, batch.where, options, account
        )
        if first is None:
            first = float(times[0])
            account.origin_s = first / MS
        requests = Requests.of(
            n_input,
            output_tokens=np.array([row.output_length for row in rows], np.int64),
            request_ids=NumberNames.starting_at(account.n_read, len(rows)),
            arrival_s=(times - first) / MS,
        )
        account.n_read += len(rows)
        yield Prompts(requests, ids, offsets, "hashes", block)
    account.assume(f"timestamps are milliseconds and blocks {block} tokens, as the Mooncake release defines them")


def _read_times(batch: RowBatch[Plain]) -> NDArray[np.float64]:
    """Timestamps in ms; raises TraceError for a row of another dialect, or a time out of range."""
    rows, times = batch.rows, [row.timestamp for row in batch.rows]
    is_other = type(rows[0]) is not Plain and any(map(NO_EXTENSIONS.__ne__, map(read_extensions, rows)))
    if is_other or max(times) > LARGEST_MS or min(times) < -LARGEST_MS:
        for k, row in enumerate(batch.rows):
            _check_row(row, batch.where(k))
    return np.array(times, np.float64)


def _check_row(row: Plain, where: str) -> None:
    for name in EXTENSIONS:
        if getattr(row, name, msgspec.UNSET) is not msgspec.UNSET:
            raise TraceError(
                f"{where}: field {name} belongs to another dialect (--from {DIALECTS[name]}); accepted: timestamp, "
                "input_length, output_length, hash_ids"
            )
    if abs(row.timestamp) > LARGEST_MS:
        raise TraceError(f"{where}: timestamp is out of range; up to {LARGEST_MS:g} ms either way are accepted")
