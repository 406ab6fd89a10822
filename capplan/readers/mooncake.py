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

from capplan.errors import TraceError
from capplan.prompts import NumberNames, Prompts, Requests
from capplan.readers import jsonl, lines
from capplan.readers.id_lists import IdList
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
read_checked = attrgetter("timestamp", *EXTENSIONS)
NO_EXTENSIONS = (msgspec.UNSET,) * len(EXTENSIONS)


class Row(msgspec.Struct, gc=False):
    """One request; the extended dialects' fields change what the others mean."""

    timestamp: int | float
    input_length: Count
    output_length: Count
    hash_ids: IdList
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
    for batch in jsonl.read_batches(path, Row):
        rows = batch.rows
        for k, found in enumerate(map(read_checked, rows)):
            if found[1:] != NO_EXTENSIONS or abs(found[0]) > LARGEST_MS:
                _refuse_row(rows[k], batch.where(k))
        n_input = [row.input_length for row in rows]
        ids, offsets = lines.take_full_blocks([row.hash_ids for row in rows], "hash_ids", n_input, block, batch.where)
        times = np.array([row.timestamp for row in rows], np.float64)
        if first is None:
            first = float(times[0])
            account.origin_s = first / MS
        requests = Requests.of(
            np.array(n_input, np.int64),
            output_tokens=np.array([row.output_length for row in rows], np.int64),
            request_ids=NumberNames.starting_at(account.n_read, len(rows)),
            arrival_s=(times - first) / MS,
        )
        account.n_read += len(rows)
        yield Prompts(requests, ids, offsets, "hashes", block)
    account.assume(f"timestamps are milliseconds and blocks {block} tokens, as the Mooncake release defines them")


def _refuse_row(row: Row, where: str) -> None:
    """Raise TraceError for a row of another dialect, or out of the range of times."""
    for name in EXTENSIONS:
        if getattr(row, name) is not msgspec.UNSET:
            raise TraceError(
                f"{where}: field {name} belongs to another dialect (--from {DIALECTS[name]}); accepted: timestamp, "
                "input_length, output_length, hash_ids"
            )
    raise TraceError(f"{where}: timestamp is out of range; up to {LARGEST_MS:g} ms either way are accepted")
