"""aibrix workloads: a JSONL row per moment, in milliseconds, with the requests sent then."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import jsonl
from capplan.readers.calls import Call, pack, refuse_block_size
from capplan.readers.clock import Clock
from capplan.readers.lines import MS, Count, Milliseconds
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.tokenizing import find_tokenizer

NAME = "aibrix"
CARRIES = "JSONL with timestamp in ms and requests of prompt and Output Length; needs --tokenizer"


class Request(msgspec.Struct, rename={"named_input": "Prompt Length", "named_output": "Output Length"}):
    """One request; lengths under either of two names."""

    prompt: str | None = None
    named_input: Count | None = None
    named_output: Count | None = None
    prompt_length: Count | None = None
    output_length: Count | None = None
    session_id: str | int | None = None
    model: str | None = None


class Row(msgspec.Struct):
    """The requests of one moment."""

    timestamp: Milliseconds
    requests: list[Request]


def matches(sample: Sample) -> bool:
    """Whether the row has requests at a time, and is no session with blocks."""
    return sample.kind == "json" and {"timestamp", "requests"} <= sample.fields and "block_size" not in sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order, the requests of a row in theirs."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    clock = Clock(per_second=MS, account=account)

    def list_calls() -> Iterator[Call]:
        for number, row in jsonl.read_lines(path, Row):
            arrival = float(clock.read([row.timestamp])[0])
            if not row.requests:
                account.skipped["row without requests"] += 1
            for k, request in enumerate(row.requests):
                if request.prompt is None:
                    raise TraceError(f"{path}, line {number}, request {k}: prompt is missing; its text is needed")
                if not options.keeps_model(request.model, account):
                    continue
                session = None if request.session_id is None else str(request.session_id)
                account.found["prompt tokens by the source's count (comparison only)"] += (
                    request.named_input or request.prompt_length or 0
                )
                yield Call(
                    tokenizer.encode_prompt(request.prompt),
                    n_output=request.named_output or request.output_length or 0,
                    session=session,
                    task=session,
                    arrival_s=arrival,
                )

    yield from pack(list_calls(), account, outputs_known=False)
    account.assume("timestamps are milliseconds; output tokens are the source's count")
    account.assume("prompts are the text logged, without a chat template")
    tokenizer.annotate(account)
