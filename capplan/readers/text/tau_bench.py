"""tau-bench results: one JSON list of conversations, one per task and trial, without times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.calls import Call, pack, refuse_block_size
from capplan.readers.documents import read_document
from capplan.readers.files import stem_of
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import APPEND_ONLY, encode_log, find_calls, note_rendering
from capplan.readers.text.messages import clean_messages
from capplan.readers.text.tokenizing import Tokenizer, find_tokenizer

NAME = "tau-bench"
CARRIES = "JSON list of task_id, trial and traj messages; needs --tokenizer"


class Item(msgspec.Struct):
    """One conversation."""

    task_id: int | str
    traj: list[Any]
    trial: int | str = 0


def matches(sample: Sample) -> bool:
    """Whether the items are conversations of tasks."""
    return sample.kind == "json" and {"task_id", "traj"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in the order of the items."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    items = read_document(path, list[Item], account)
    if items is not None:
        yield from pack(_list_calls(tokenizer, items, path, account), account, outputs_known=True)
    account.assume(APPEND_ONLY)
    account.assume("the log holds no tool schemas: prompts are shorter than those sent, and share less")
    note_rendering(tokenizer, account)


def _list_calls(tokenizer: Tokenizer, items: list[Item], path: Path, account: Account) -> Iterator[Call]:
    seen: set[str] = set()
    for number, item in enumerate(items):
        where = f"{path}, item {number}"
        session = f"{stem_of(path)}:{item.task_id}:{item.trial}"
        if session in seen:
            raise TraceError(
                f"{where}: task {item.task_id}, trial {item.trial} stands twice; one item for each is accepted"
            )
        seen.add(session)
        messages = clean_messages(item.traj, where, account)
        positions = find_calls(messages)
        if not positions:
            account.skipped["conversation without an answer"] += 1
        for k, call in enumerate(encode_log(tokenizer, messages, positions, where)):
            yield Call(call.prompt, call.answer, None, f"{session}:{k}", session, session)
