"""LMCache agent traces: JSONL with a session's prompts as text and their real arrivals.

Three variants: one text per prompt with microsecond timestamps; the same with a whole chat flattened
into the text (`.openai_chat.jsonl`); and lists of messages with the pause before each call (`pre_gap`).
Rows are not in time order in their files: they are sorted by time, ties in file order.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import jsonl
from capplan.readers.calls import UNKNOWN, Call, pack, refuse_block_size
from capplan.readers.lines import Count, Seconds
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import encode_prompt, note_rendering
from capplan.readers.text.messages import clean_messages
from capplan.readers.text.tokenizing import Tokenizer, find_tokenizer
from capplan.schema import LARGEST_S

NAME = "lmcache-agent"
CARRIES = "JSONL with input, session_id, and timestamp in us or pre_gap in s; needs --tokenizer"
US = 10**6
SORTED = "step back in time inside a file: its rows are sorted by time, ties in file order"

Microseconds = Annotated[int, msgspec.Meta(ge=0, le=int(LARGEST_S) * US)]


class Row(msgspec.Struct):
    """One call."""

    input: str | list[Any]
    session_id: str | int | None = None
    timestamp: Microseconds | None = None
    output: str | None = None
    output_length: Count | None = None
    pre_gap: Seconds | None = None
    model: str | None = None


def matches(sample: Sample) -> bool:
    """Whether rows hold a prompt, its session and a time."""
    return (
        sample.kind == "json"
        and {"input", "session_id"} <= sample.fields
        and bool(sample.fields & {"timestamp", "pre_gap"})
    )


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in the order of the times."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    rows = list(jsonl.read_lines(path, Row))
    outputs_known = bool(rows) and rows[0][1].output is not None
    times = _read_times(rows, path, account)

    def list_calls() -> Iterator[Call]:
        for k in sorted(range(len(rows)), key=times.__getitem__) if times else range(len(rows)):
            number, row = rows[k]
            where = f"{path}, line {number}"
            if outputs_known != (row.output is not None):
                raise TraceError(f"{where}: output is on some rows only; on every row, or on none, is accepted")
            if options.keeps_model(row.model, account):
                call = _encode(tokenizer, row, where, account)
                call.arrival_s = (times[k] - min(times)) / US if times else UNKNOWN
                yield call

    yield from pack(list_calls(), account, outputs_known=outputs_known)
    note_rendering(tokenizer, account)


def _read_times(rows: list[tuple[int, Row]], path: Path, account: Account) -> list[int]:
    """Microseconds of every row; none where no row has a time."""
    if all(row.timestamp is None for _, row in rows):
        return []
    times = []
    for number, row in rows:
        if row.timestamp is None:
            raise TraceError(
                f"{path}, line {number}: timestamp is missing; microseconds on every row, or on none, are accepted"
            )
        times.append(row.timestamp)
    account.origin_s, account.is_epoch = min(times) / US, True
    account.assume("timestamps are microseconds since 1970")
    n_back = sum(after < before for before, after in pairwise(times))
    if n_back:
        account.found[SORTED] += n_back
    return times


def _encode(tokenizer: Tokenizer, row: Row, where: str, account: Account) -> Call:
    if isinstance(row.input, str):
        prompt = tokenizer.encode_prompt(row.input)
        account.assume("prompts are the text logged, without a chat template")
    else:
        prompt = encode_prompt(tokenizer, clean_messages(row.input, where, account), where)
    if not prompt.size:
        account.found["empty prompt"] += 1
    if row.output == "":
        account.found["empty output"] += 1
    call = Call(prompt, tokenizer.encode_whole(row.output or ""))
    if row.output is None:
        call.n_output = row.output_length or 0
    call.session = call.task = None if row.session_id is None else str(row.session_id)
    call.gap_s = UNKNOWN if row.pre_gap is None else row.pre_gap
    return call
