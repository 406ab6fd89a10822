"""AIPerf `inputs.json`: the payloads of a benchmark, session by session, without times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.calls import Call, pack, refuse_block_size
from capplan.readers.documents import read_document
from capplan.readers.lines import Count
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import encode_prompt, note_rendering
from capplan.readers.text.messages import clean_messages
from capplan.readers.text.tokenizing import Tokenizer, find_tokenizer

NAME = "aiperf-inputs"
CARRIES = "JSON with data of session_id and payloads (messages or prompt); needs --tokenizer"


class Payload(msgspec.Struct):
    """One request."""

    messages: list[Any] | None = None
    prompt: str | None = None
    tools: list[Any] | None = None
    model: str | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    ignore_eos: bool | None = None


class Session(msgspec.Struct):
    """The requests of one conversation, in order."""

    session_id: str
    payloads: list[Payload]


class Inputs(msgspec.Struct):
    """The file."""

    data: list[Session]


def matches(sample: Sample) -> bool:
    """Whether the first session has payloads."""
    data = sample.first.get("data")
    first = data[0] if isinstance(data, list) and data else None
    return sample.kind == "json" and isinstance(first, dict) and "payloads" in first


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches session by session, in file order."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    inputs = read_document(path, Inputs, account) or Inputs([])

    def list_calls() -> Iterator[Call]:
        for session in inputs.data:
            for k, payload in enumerate(session.payloads):
                where = f"{path}, session {session.session_id[:40]!r}, payload {k}"
                if options.keeps_model(payload.model, account):
                    yield _encode(tokenizer, payload, session.session_id, where, account)

    yield from pack(list_calls(), account, outputs_known=False)
    account.assume("requests carry no times; those of a session follow one another")
    note_rendering(tokenizer, account)


def _encode(tokenizer: Tokenizer, payload: Payload, session: str, where: str, account: Account) -> Call:
    if payload.messages is not None:
        prompt = encode_prompt(tokenizer, clean_messages(payload.messages, where, account), where, payload.tools)
    elif payload.prompt is not None:
        prompt = tokenizer.encode_prompt(payload.prompt)
    else:
        raise TraceError(f"{where}: neither messages nor prompt; one of them is needed")
    limit = payload.max_tokens if payload.max_completion_tokens is None else payload.max_completion_tokens
    is_forced = bool(payload.ignore_eos) and limit is not None
    if is_forced:
        account.assume("output tokens are max_tokens where ignore_eos forces that length, else 0 for unknown")
    return Call(prompt, n_output=limit if is_forced else 0, session=session, task=session)
