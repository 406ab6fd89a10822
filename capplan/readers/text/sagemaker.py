"""SageMaker data capture: JSONL with what an endpoint got and sent, as JSON texts, and when."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import jsonl
from capplan.readers.calls import Call, pack, refuse_block_size
from capplan.readers.clock import Clock, to_epoch
from capplan.readers.sample import DECODE_ERRORS, Account, Options, Sample
from capplan.readers.text.conversations import encode_prompt, note_rendering
from capplan.readers.text.messages import clean_messages, write_plainly
from capplan.readers.text.tokenizing import Tokenizer, Tokens, find_tokenizer

NAME = "sagemaker-capture"
CARRIES = "JSONL with captureData and eventMetadata; needs --tokenizer"


class Part(msgspec.Struct):
    """One direction."""

    data: str
    encoding: str | None = None


class Capture(msgspec.Struct, rename="camel"):
    """Both directions."""

    endpoint_input: Part
    endpoint_output: Part | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """Name and time."""

    inference_time: str
    event_id: str | None = None


class Row(msgspec.Struct, rename="camel"):
    """One request."""

    capture_data: Capture
    event_metadata: Metadata


def matches(sample: Sample) -> bool:
    """Whether the row is a capture."""
    return sample.kind == "json" and "captureData" in sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    clock = Clock(per_second=1, account=account, is_epoch=True)

    def list_calls() -> Iterator[Call]:
        for number, row in jsonl.read_lines(path, Row):
            where = f"{path}, line {number}"
            call = Call(_encode(tokenizer, _open(row.capture_data.endpoint_input, where), where, account))
            call.n_output = _count_output(tokenizer, row.capture_data.endpoint_output, where, account)
            call.name = row.event_metadata.event_id
            call.arrival_s = float(clock.read([_read_time(row.event_metadata.inference_time, where)])[0])
            yield call

    yield from pack(list_calls(), account, outputs_known=False)
    note_rendering(tokenizer, account)


def _open(part: Part, where: str) -> Any:
    try:
        text = base64.b64decode(part.data, validate=True) if part.encoding == "BASE64" else part.data
        return msgspec.json.decode(text)
    except (ValueError, *DECODE_ERRORS) as error:
        raise TraceError(f"{where}: captured data is not JSON ({error}); a JSON request is needed") from error


def _encode(tokenizer: Tokenizer, body: Any, where: str, account: Account) -> Tokens:
    if isinstance(body, dict):
        messages, tools = body.get("messages"), body.get("tools")
        if isinstance(messages, list):
            return encode_prompt(
                tokenizer, clean_messages(messages, where, account), where, tools if isinstance(tools, list) else None
            )
        text = body.get("inputs", body.get("prompt"))
        if isinstance(text, str):
            return tokenizer.encode_prompt(text)
    raise TraceError(f"{where}: no prompt in the captured request; messages, or a text in inputs or prompt, is needed")


def _count_output(tokenizer: Tokenizer, part: Part | None, where: str, account: Account) -> int:
    """Tokens of the generated text; 0, counted, where there is none to be found."""
    body = None if part is None or not part.data else _open(part, where)
    first = body[0] if isinstance(body, list) and body else body
    text = first.get("generated_text") if isinstance(first, dict) else None
    choices = first.get("choices") if isinstance(first, dict) else None
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        text = choices[0].get("text") if message is None else _write(message, where, account)
    if not isinstance(text, str):
        account.found["request without an answer: no output tokens"] += 1
        return 0
    return int(tokenizer.encode_whole(text).size)


def _write(message: Any, where: str, account: Account) -> str:
    (cleaned,) = clean_messages([message], f"{where}, answer", account)
    return write_plainly(cleaned)


def _read_time(text: str, where: str) -> float:
    try:
        return to_epoch(text)
    except ValueError as error:
        raise TraceError(f"{where}: inferenceTime is {text[:40]!r}; an ISO 8601 date and time is accepted") from error
