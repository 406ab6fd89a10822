"""Mooncake JSONL whose rows hold only what is new, as AIPerf's agentic-code generator writes it.

A session's first row describes a whole prompt. Every later prompt is the one before it, the output
that followed, and the row's new tokens; their block ids are cut from the new tokens alone, so they
stand at no block of the prompt and serve only as a check. What comes after a first prompt is the
session's own. `prefix_reset`, or `is_restart` on a later row, starts a session over.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.namespaces import ID_BITS
from capplan.prompts import Labels, NumberNames, Prompts, Requests
from capplan.readers import hashes, jsonl
from capplan.readers.clock import Clock
from capplan.readers.growth import GrowingPaths, check_length, in_one_file
from capplan.readers.id_lists import IdList, parse_ids
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import MS, Count, Milliseconds, WaitMs
from capplan.readers.mooncake import BLOCK_TOKENS
from capplan.readers.sample import Account, Options, Sample

NAME = "mooncake-delta"
CARRIES = "Mooncake JSONL of session_id, input_length, output_length, hash_ids where later rows hold only what is new"

FIRST_OWN = 1 << (ID_BITS - 1)


class Row(msgspec.Struct, gc=False):
    """One call; the lengths and ids of a later row are those of its new tokens."""

    session_id: str | int
    input_length: Count
    output_length: Count
    hash_ids: IdList
    timestamp: Milliseconds | None = None
    delay: WaitMs | None = None
    delay_ms: WaitMs | None = None
    is_restart: bool | None = None
    prefix_reset: bool | None = None


def matches(sample: Sample) -> bool:
    """Whether the first row has the marks only the generator of such rows leaves."""
    return sample.kind == "json" and "hash_ids" in sample.fields and bool(sample.fields & {"group_id", "is_restart"})


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of calls in file order; paths go on with the output, which the next prompt repeats."""
    block = options.block_tokens or BLOCK_TOKENS
    clock = Clock(MS, account)
    paths = GrowingPaths(block, FIRST_OWN)
    n_before: dict[str, int] = {}
    for batch in jsonl.read_batches(path, Row):
        yield make_prompts(batch, block, clock, paths, n_before, account)
    account.assume("a prompt is its session's previous prompt and output and the row's new tokens")
    account.assume("what follows a session's first prompt is shared within the session only")
    account.assume(f"timestamps and delays are milliseconds and blocks {block} tokens, as Mooncake rows define them")


def make_prompts(
    batch: RowBatch[Row], block: int, clock: Clock, paths: GrowingPaths, n_before: dict[str, int], account: Account
) -> Prompts:
    """The Prompts of one batch; `n_before` holds the tokens of every session's last prompt and output."""
    rows = batch.rows
    sessions = [str(row.session_id) for row in rows]
    own, own_offsets = parse_ids([row.hash_ids for row in rows], "hash_ids", batch.where)
    own, own_offsets = hashes.keep_full_blocks(
        own, own_offsets, np.array([row.input_length for row in rows], np.int64), block, batch.where
    )
    _check_ids(own, own_offsets, batch)
    n_input, gaps, keys = [], [], []
    for k, (row, session) in enumerate(zip(rows, sessions, strict=True)):
        where = batch.where(k)
        is_first = session not in n_before
        starts_over = is_first or bool(row.is_restart or row.prefix_reset)
        n_old = 0 if starts_over else n_before[session]
        n_path = n_old + row.input_length + row.output_length
        check_length(n_path, where)
        head = own[own_offsets[k] : own_offsets[k + 1]]
        keys.append(paths.start(session, head, n_path) if starts_over else paths.grow(session, n_old, n_path))
        n_before[session] = n_path
        n_input.append(n_old + row.input_length)
        wait = row.delay if row.delay is not None else row.delay_ms
        gaps.append(math.nan if is_first or wait is None else wait / MS)
        if is_first and row.is_restart:
            account.found["session that goes on from an earlier one (is_restart): it shares what its ids say"] += 1
        elif starts_over and not is_first:
            account.found["call that starts its session over (prefix_reset or is_restart)"] += 1
    ids, offsets = jsonl.flatten(keys)
    requests = Requests.of(
        np.array(n_input, np.int64),
        output_tokens=np.array([row.output_length for row in rows], np.int64),
        request_ids=NumberNames.starting_at(account.n_read, len(rows)),
        session=Labels.encode(sessions),
        task=Labels.encode(sessions),
        arrival_s=clock.read(row.timestamp for row in rows),
        gap_s=np.array(gaps, np.float64),
    )
    account.n_read += len(rows)
    return Prompts(requests, ids, offsets, "hashes", block, outputs_known=True, namespaces=in_one_file(len(rows)))


def _check_ids(ids: NDArray[np.uint64], offsets: NDArray[np.int64], batch: RowBatch[Row]) -> None:
    is_large = ids >= FIRST_OWN
    if is_large.any():
        at = int(is_large.argmax())
        k = int(np.searchsorted(offsets, at, side="right")) - 1
        raise TraceError(f"{batch.where(k)}: block id {int(ids[at])} is too large; ids below {FIRST_OWN} are accepted")
