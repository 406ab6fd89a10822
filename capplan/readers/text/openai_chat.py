"""OpenAI-style chat requests, one JSON object per line: messages, tools, and what the caller adds to them.

Sessions and times are the caller's; none are inferred. Token counts of a provider's `usage` are kept
for comparison, but for the length of an answer whose text is not there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import jsonl
from capplan.readers.calls import UNKNOWN, Call, pack, refuse_block_size
from capplan.readers.clock import Clock
from capplan.readers.lines import Seconds, Wait
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import ANSWERING, encode_prompt, note_rendering
from capplan.readers.text.messages import Message, clean_message, clean_messages, write_plainly
from capplan.readers.text.tokenizing import Tokenizer, find_tokenizer
from capplan.readers.text.usage import Usage, note_usage

NAME = "openai-chat"
CARRIES = "JSONL of chat requests with messages, maybe session_id and arrival_s; needs --tokenizer"
OTHERS = {"trajectory_format", "hash_ids", "input_length", "delay"}


class Choice(msgspec.Struct):
    """One answer."""

    message: dict[str, Any] | None = None


class Response(msgspec.Struct):
    """What the server sent back."""

    choices: list[Choice] | None = None
    usage: Usage | None = None


class Body(msgspec.Struct):
    """What the server was sent."""

    messages: list[Any] | None = None
    tools: list[Any] | None = None
    model: str | None = None


class Row(msgspec.Struct):
    """One request, or a line of a batch file with the request in `body`."""

    messages: list[Any] | None = None
    tools: list[Any] | None = None
    model: str | None = None
    body: Body | None = None
    response: Response | str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    request_id: str | int | None = None
    custom_id: str | None = None
    session_id: str | int | None = None
    task_id: str | int | None = None
    arrival_s: Seconds | None = None
    timestamp: Seconds | None = None
    gap_s: Seconds | None = None
    service_s: Wait | None = None


def matches(sample: Sample) -> bool:
    """Whether the object is a chat request, and no log of another format."""
    body = sample.first.get("body")
    has_messages = "messages" in sample.fields or (isinstance(body, dict) and "messages" in body)
    return sample.kind == "json" and sample.layout != "list" and has_messages and not sample.fields & OTHERS


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    clock = Clock(per_second=1, account=account)

    def list_calls() -> Iterator[Call]:
        for number, row in jsonl.read_lines(path, Row):
            call = _read_row(tokenizer, row, f"{path}, line {number}", options, account)
            if call is not None:
                call.arrival_s = float(clock.read([_find_time(row, account)])[0])
                yield call

    yield from pack(list_calls(), account, outputs_known=False)
    note_rendering(tokenizer, account)


def _read_row(tokenizer: Tokenizer, row: Row, where: str, options: Options, account: Account) -> Call | None:
    body = row.body or Body(row.messages, row.tools, row.model)
    if body.messages is None:
        raise TraceError(f"{where}: no messages; a list of them is needed")
    if not options.keeps_model(body.model, account):
        return None
    messages = clean_messages(body.messages, where, account)
    answer = _find_answer(row, where, account)
    if answer is None and messages and messages[-1]["role"] == ANSWERING:
        answer = messages.pop()
        account.found["row that ends with an assistant's message: taken as the call's answer"] += 1
    prompt = encode_prompt(tokenizer, messages, where, body.tools)
    call = Call(prompt, n_output=_count_output(tokenizer, row, answer, account))
    name = row.custom_id if row.request_id is None else row.request_id
    call.name = None if name is None else str(name)
    call.session = None if row.session_id is None else str(row.session_id)
    call.task = call.session if row.task_id is None else str(row.task_id)
    call.gap_s = UNKNOWN if row.gap_s is None else row.gap_s
    call.service_s = UNKNOWN if row.service_s is None else row.service_s
    return call


def _find_answer(row: Row, where: str, account: Account) -> Message | None:
    if isinstance(row.response, str):
        return {"role": ANSWERING, "content": row.response}
    choices = row.response.choices if row.response and row.response.choices else row.choices
    if choices and choices[0].message is not None:
        return clean_message({"role": ANSWERING, **choices[0].message}, f"{where}, answer", account)
    return None


def _count_output(tokenizer: Tokenizer, row: Row, answer: Message | None, account: Account) -> int:
    """Tokens of the answer's text; the provider's count where there is none, and 0 where nothing says."""
    usage = row.usage or (row.response.usage if isinstance(row.response, Response) else None)
    note_usage(usage, account)
    if answer is not None:
        return int(tokenizer.encode_whole(write_plainly(answer)).size)
    if usage and usage.completion_tokens is not None:
        account.assume("output tokens of answers without a text are the provider's count")
        return usage.completion_tokens
    account.found["request without an answer: no output tokens"] += 1
    return 0


def _find_time(row: Row, account: Account) -> float | None:
    if row.arrival_s is None and row.timestamp is not None:
        account.assume("timestamp is read as seconds")
    return row.timestamp if row.arrival_s is None else row.arrival_s
