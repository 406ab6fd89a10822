"""Mooncake JSONL with sessions, delays and dependencies: whole prompts, 512-token blocks, milliseconds.

The extended rows of AIPerf and the agentic rows of Dynamo are read alike. A row's block ids stand for
its whole prompt, so `prefix_reset` and `branches` change no link. A call's delay and tool wait count
from the last response it waits for. A session whose first call waits for another session's, or is
launched by it, is a sub-agent: it belongs to that session's task.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, NumberNames, Prompts, Requests
from capplan.readers import hashes, jsonl
from capplan.readers.clock import Clock
from capplan.readers.id_lists import NULL, is_null, parse_ids
from capplan.readers.jsonl import RowBatch
from capplan.readers.lengths import fit_lengths
from capplan.readers.lines import MS, to_names
from capplan.readers.mooncake import BLOCK_TOKENS
from capplan.readers.mooncake_sessions import Call, Row, Sessions
from capplan.readers.sample import Account, Options, Sample

NAME = "mooncake-extended"
CARRIES = "Mooncake JSONL with session_id, delay, created_time or, agentic, request_id, wait_for, tool_wait_ms"
OWN_FIELDS = frozenset(
    ("session_id", "delay", "delay_ms", "created_time", "wait_for", "branches", "prefix_reset", "tool_wait_ms")
)
DELTA_FIELDS = ("group_id", "is_restart")
TEXT_FIELDS = ("messages", "text_input", "payload")
HEADER_FIELDS = ("schema", "version")
FOREIGN_FIELDS = (*DELTA_FIELDS, *TEXT_FIELDS, *HEADER_FIELDS)
read_foreign = attrgetter(*FOREIGN_FIELDS)
NO_FOREIGN = (msgspec.UNSET,) * len(FOREIGN_FIELDS)
SCHEMA = "dynamo.agentic_mooncake"


def matches(sample: Sample) -> bool:
    """Whether the first row has block ids, a length and a field that only the extended rows have."""
    if sample.kind != "json":
        return False
    fields = sample.fields
    return sample.first.get("schema") == SCHEMA or (
        "hash_ids" in fields
        and bool(fields & {"input_length", "output_length"})
        and bool(fields & OWN_FIELDS)
        and not fields & {"block_size", "arrival_s", *DELTA_FIELDS}
    )


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of calls in file order."""
    block = options.block_tokens or BLOCK_TOKENS
    clock = Clock(MS, account)
    known = Sessions(account)
    for batch in jsonl.read_batches(path, Row, Call):
        _check_dialects(batch)
        yield make_prompts(batch, block, clock, known, options, account)
    known.check_end()
    account.assume(f"timestamps and delays are milliseconds and blocks {block} tokens, as Mooncake rows define them")


def _check_dialects(batch: RowBatch[Call]) -> None:
    rows = batch.rows
    is_other = type(rows[0]) is Row and any(map(NO_FOREIGN.__ne__, map(read_foreign, rows)))
    if is_other or NULL in [row.hash_ids for row in rows]:
        for k, row in enumerate(rows):
            if type(row) is Row:
                _check_dialect(row, batch.where(k))
            if is_null(row.hash_ids):
                raise TraceError(f"{batch.where(k)}: hash_ids is missing; a list of block ids on every row is accepted")


def _check_dialect(row: Row, where: str) -> None:
    if row.schema is not msgspec.UNSET or row.version is not msgspec.UNSET:
        raise TraceError(
            f"{where}: schema {row.schema!r}, version {row.version!r} is not known; agentic Mooncake rows without a "
            "header are accepted"
        )
    for name in DELTA_FIELDS:
        if getattr(row, name) is not msgspec.UNSET:
            raise TraceError(
                f"{where}: field {name} belongs to rows that hold only what is new; --from mooncake-delta reads them"
            )
    for name in TEXT_FIELDS:
        if getattr(row, name) is not msgspec.UNSET and is_null(row.hash_ids):
            raise TraceError(f"{where}: {name} holds text and there are no hash_ids; rows with hash_ids are accepted")


def make_prompts(
    batch: RowBatch[Call], block: int, clock: Clock, known: Sessions, options: Options, account: Account
) -> Prompts:
    """The Prompts of one batch."""
    rows = batch.rows
    ids, offsets = parse_ids([row.hash_ids for row in rows], "hash_ids", batch.where)
    n_input = _find_lengths(rows, np.diff(offsets) * block, account)
    n_input = fit_lengths(n_input, offsets, block, options, account)
    n_output = [row.output_tokens if row.output_length is None else row.output_length for row in rows]
    if None in n_output:
        account.assume("calls without an output length are taken to generate nothing")
    sessions = Labels.encode(to_names([row.session_id for row in rows]))
    known.compare_heads(sessions, ids, offsets)
    ids, offsets = hashes.keep_full_blocks(ids, offsets, n_input, block, batch.where)
    names = _name_calls(rows, account.n_read)
    gap_s = known.add(batch, names, sessions)
    requests = Requests.of(
        n_input,
        output_tokens=np.array([n or 0 for n in n_output], np.int64),
        request_ids=names,
        session=sessions,
        task=known.find_tasks(sessions),
        arrival_s=clock.read([row.created_time if row.timestamp is None else row.timestamp for row in rows]),
        gap_s=gap_s,
    )
    account.n_read += len(rows)
    return Prompts(requests, ids, offsets, "hashes", block)


def _name_calls(rows: Sequence[Call], first: int) -> Sequence[str]:
    """Names of calls; those without one are numbered."""
    names = to_names([row.request_id for row in rows])
    n_missing = names.count(None)
    if n_missing == len(names):
        return NumberNames.starting_at(first, len(names))
    if n_missing:
        names = [str(first + k) if name is None else name for k, name in enumerate(names)]
    return cast(list[str], names)


def _find_lengths(rows: Sequence[Call], full: NDArray[np.int64], account: Account) -> NDArray[np.int64]:
    """Prompt lengths as stated, else those of `full` blocks."""
    stated = [row.input_tokens if row.input_length is None else row.input_length for row in rows]
    if None not in stated:
        return np.array(stated, np.int64)
    account.assume("calls without an input length are taken to fill their blocks")
    return np.array([n if length is None else length for n, length in zip(full.tolist(), stated, strict=True)])
