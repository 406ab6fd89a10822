"""OpenHands completion logs: one JSON file per model call, in a folder per instance.

The files of an instance are one session, ordered by the time they carry, else by name. That time is
when the entry was written, after the response.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from capplan.prompts import Prompts
from capplan.readers.calls import UNKNOWN, Call, pack, refuse_block_size
from capplan.readers.documents import read_document
from capplan.readers.first_look import find_files
from capplan.readers.lines import Seconds
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import ANSWERING, encode_answered, note_rendering
from capplan.readers.text.messages import clean_message, clean_messages
from capplan.readers.text.tokenizing import Tokenizer, Tokens, find_tokenizer
from capplan.readers.text.usage import Usage, note_usage

NAME = "openhands"
CARRIES = "folder of one JSON file per completion with messages and response; needs --tokenizer"
MARKS = {"args", "kwargs", "fncall_messages", "cost"}


class Choice(msgspec.Struct):
    """One answer."""

    message: dict[str, Any] | None = None


class Response(msgspec.Struct):
    """What the model sent back."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    model: str | None = None


class Sent(msgspec.Struct):
    """What was sent besides the messages."""

    model: str | None = None
    tools: list[Any] | None = None


class Stamp(msgspec.Struct):
    """A completion without its texts."""

    timestamp: Seconds | None = None


class Completion(msgspec.Struct):
    """A file."""

    messages: list[Any]
    response: Response | None = None
    kwargs: Sent | None = None
    tools: list[Any] | None = None


def matches(sample: Sample) -> bool:
    """Whether the object is a completion with its response."""
    return (
        sample.kind in ("json", "folder") and {"messages", "response"} <= sample.fields and bool(sample.fields & MARKS)
    )


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches instance by instance, in the order of the folders' names."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    found = find_files(path, (".json",)) if path.is_dir() else [path]
    stamps = {file: read_document(file, Stamp, account) for file in found}
    times = {file: stamp.timestamp for file, stamp in stamps.items() if stamp is not None}
    first = min((time for time in times.values() if time is not None), default=None)
    if first is not None:
        account.origin_s, account.is_epoch = first, True

    def list_calls() -> Iterator[Call]:
        for session, own in _sort(path, times, account).items():
            for k, file in enumerate(own):
                completion = read_document(file, Completion, account)
                if completion is not None and options.keeps_model(_find_model(completion), account):
                    prompt, answer = _encode(tokenizer, completion, str(file), account)
                    time = times[file]
                    arrival = UNKNOWN if time is None or first is None else time - first
                    yield Call(prompt, answer, None, f"{session}:{k}", session, session, arrival)

    yield from pack(list_calls(), account, outputs_known=True)
    account.assume("times are those of the log entries, written when the response was complete")
    note_rendering(tokenizer, account)


def _sort(path: Path, times: dict[Path, float | None], account: Account) -> dict[str, list[Path]]:
    """Files of every instance in the order of their times; of one with a time missing, by name."""
    instances: dict[str, list[Path]] = defaultdict(list)
    for file in times:
        inside = file.parent.relative_to(path).as_posix() if path.is_dir() else "."
        instances[file.parent.name if inside == "." else inside].append(file)
    for name, own in instances.items():
        known = {file: time for file in own if (time := times[file]) is not None}
        if len(known) < len(own):
            account.found["completion without a time: its instance is ordered by file name"] += len(own) - len(known)
            continue
        instances[name] = sorted(own, key=known.__getitem__)
        if instances[name] != own:
            account.found["instance whose file names are not in time order: sorted by time, ties by name"] += 1
    return instances


def _find_model(completion: Completion) -> str | None:
    sent = completion.kwargs.model if completion.kwargs else None
    return sent or (completion.response.model if completion.response else None)


def _encode(tokenizer: Tokenizer, completion: Completion, where: str, account: Account) -> tuple[Tokens, Tokens]:
    """Prompt and answer."""
    response = completion.response or Response()
    note_usage(response.usage, account)
    tools = completion.tools or (completion.kwargs.tools if completion.kwargs else None)
    messages = clean_messages(completion.messages, where, account)
    message = response.choices[0].message if response.choices else None
    answer = clean_message({"role": ANSWERING, **(message or {})}, f"{where}, answer", account)
    prompt, text = encode_answered(tokenizer, messages, answer, where, tools)
    if message is None:
        account.found["completion without an answer: no output tokens"] += 1
        return prompt, text[:0]
    return prompt, text
