"""Qwen-Bailian usage traces: JSONL of anonymised production chats, one hash per 16 tokens, seconds.

Hashes are salted per block, so whether they are prefix-chained is checked while linking, never
assumed. Every row carries its chat's whole history; chats that descend from one root are a session.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Labels, Prompts, Requests
from capplan.readers import jsonl, lines
from capplan.readers.clock import Clock
from capplan.readers.id_lists import IdList
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import Count, Seconds
from capplan.readers.sample import Account, Options, Sample

NAME = "qwen-bailian"
CARRIES = "JSONL with chat_id, parent_chat_id, timestamp in s, input_length, output_length, hash_ids of 16-token blocks"
BLOCK_TOKENS = 16
NO_PARENT = -1
ORPHAN = "chat whose parent is not in front of it: its session is that of a later one, else the parent itself"


class Row(msgspec.Struct, gc=False):
    """One turn of a chat, with the whole history in its prompt."""

    chat_id: int
    parent_chat_id: int
    timestamp: Seconds
    input_length: Count
    output_length: Count
    hash_ids: IdList
    turn: int | None = None


def matches(sample: Sample) -> bool:
    """Whether the first row names a chat and its parent beside block hashes."""
    return sample.kind == "json" and {"chat_id", "parent_chat_id", "hash_ids"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of turns in file order."""
    block = options.block_tokens or BLOCK_TOKENS
    clock = Clock(1, account)
    roots: dict[int, int] = {}
    turns: dict[int, int | None] = {}
    for batch in jsonl.read_batches(path, Row):
        sessions = find_roots(batch, roots, turns, account)
        rows = batch.rows
        lengths = [row.input_length for row in rows]
        n_input, ids, offsets = lines.take_full_blocks(
            [row.hash_ids for row in rows], "hash_ids", lengths, block, batch.where, options, account
        )
        requests = Requests.of(
            n_input,
            output_tokens=np.array([row.output_length for row in rows], np.int64),
            request_ids=[str(row.chat_id) for row in rows],
            session=sessions,
            task=sessions,
            arrival_s=clock.read(row.timestamp for row in rows),
        )
        account.n_read += len(rows)
        yield Prompts(requests, ids, offsets, "hashes", block)
    account.assume(f"timestamps are seconds and blocks {block} tokens, as the Qwen-Bailian release defines them")
    account.assume("chats that descend from one root chat are one session and one task")


def find_roots(batch: RowBatch[Row], roots: dict[int, int], turns: dict[int, int | None], account: Account) -> Labels:
    """The session of every row: the root of its chain of parents, kept in `roots` across batches.

    Raises
    ------
    TraceError
        A chat that stands twice, or is its own parent.
    """
    for k, row in enumerate(batch.rows):
        if row.chat_id in turns:
            raise TraceError(f"{batch.where(k)}: chat_id {row.chat_id} stands twice; names must be unique")
        if row.chat_id == row.parent_chat_id:
            raise TraceError(f"{batch.where(k)}: chat {row.chat_id} is its own parent; another chat or -1 is accepted")
        turns[row.chat_id] = row.turn
        if row.parent_chat_id == NO_PARENT:
            roots[row.chat_id] = row.chat_id
            continue
        if row.parent_chat_id not in roots:
            account.found[
                "chat whose parent is not in front of it: its session is that of a later one, else the parent itself"
            ] += 1
            roots[row.parent_chat_id] = row.parent_chat_id
        roots[row.chat_id] = roots[row.parent_chat_id]
        before = turns.get(row.parent_chat_id)
        if before is not None and row.turn is not None and row.turn != before + 1:
            account.found["chat whose turn does not follow its parent's"] += 1
    return Labels.encode(str(roots[row.chat_id]) for row in batch.rows)
