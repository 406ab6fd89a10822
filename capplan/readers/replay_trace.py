"""EfficientAgent replay traces: a folder of `*.jsonl.gz`, one per task, token ids as changes of the prompt.

A task's first line names it and says how long its slot is held at the end. Every other line is a call:
the pause before it, how many tokens it keeps of the task's previous prompt, the tokens behind them, and
the recorded output. Tasks follow each other in the order of the file names.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import files, jsonl
from capplan.readers.calls import NO_TOKENS, UNKNOWN, Call, pack, refuse_block_size, to_tokens
from capplan.readers.documents import EMPTY
from capplan.readers.first_look import find_files
from capplan.readers.lines import Count, Wait
from capplan.readers.sample import DECODE_ERRORS, Account, Options, Sample

NAME = "replay-trace"
CARRIES = "folder of JSONL(.gz), one per task: instance_id and tail_gap_s, then calls with prompt_suffix and output"
MANIFEST = "trace_manifest.json"
VERSIONS = ("efficientagent.replay_trace.v1",)


class Header(msgspec.Struct):
    """A task."""

    instance_id: str
    tail_gap_s: Wait
    order: int | None = None


class Step(msgspec.Struct):
    """A call."""

    seq: int
    gap_before_s: Wait
    prompt_shared: Count
    prompt_suffix: list[int]
    prompt_len: Count
    output: list[int]
    output_len: Count
    recorded_client_elapsed_s: Wait | None = None


class Manifest(msgspec.Struct):
    """What stands beside the tasks."""

    schema: str | None = None


def matches(sample: Sample) -> bool:
    """Whether the first line is a task's."""
    return sample.kind in ("json", "folder") and {"instance_id", "tail_gap_s"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches task by task; paths hold prompt and output."""
    refuse_block_size(path, options)
    _check_manifest(path)
    found = find_files(path, (".jsonl",)) if path.is_dir() else [path]
    seen: dict[str, Path] = {}
    orders: list[int] = []

    def list_calls() -> Iterator[Call]:
        for file in found:
            lines = jsonl.read_lines(file, msgspec.Raw)
            number, text = next(lines, (0, msgspec.Raw()))
            if number == 0:
                account.skipped[EMPTY] += 1
                continue
            task = jsonl.decode_row(msgspec.json.Decoder(Header), bytes(text), f"{file}, line {number}")
            if task.instance_id in seen:
                raise TraceError(
                    f"{file}, line {number}: instance_id {task.instance_id[:60]!r} stands in "
                    f"{seen[task.instance_id].name} too; one file per task is accepted"
                )
            seen[task.instance_id] = file
            orders.append(len(orders) if task.order is None else task.order)
            yield from _read_task(task, lines, file, account)

    yield from pack(list_calls(), account, outputs_known=True)
    if orders != sorted(orders):
        account.assume("tasks follow the order of the file names, which is not the one in their headers")
    account.assume("gaps are recorded, arrivals are not: the order comes from the pool")


def _read_task(task: Header, lines: Iterator[tuple[int, msgspec.Raw]], file: Path, account: Account) -> Iterator[Call]:
    """Calls in file order; the last one carries the tail gap."""
    decoder = msgspec.json.Decoder(Step)
    prompt, held, seen = NO_TOKENS, None, set()
    for number, text in lines:
        where = f"{file}, line {number}"
        step = jsonl.decode_row(decoder, bytes(text), where)
        if step.seq in seen:
            raise TraceError(f"{where}: seq {step.seq} stands twice in the task; one line per call is accepted")
        seen.add(step.seq)
        if step.prompt_shared > prompt.size:
            raise TraceError(
                f"{where}: prompt_shared is {step.prompt_shared}, but the previous prompt has {prompt.size} tokens; "
                "up to that is accepted"
            )
        prompt = np.concatenate([prompt[: step.prompt_shared], to_tokens(step.prompt_suffix, "prompt_suffix", where)])
        for name, stated, n in (
            ("prompt_len", step.prompt_len, prompt.size),
            ("output_len", step.output_len, len(step.output)),
        ):
            if stated != n:
                raise TraceError(f"{where}: {name} is {stated}, but there are {n} tokens; the same number is accepted")
        if held is not None:
            yield held
        held = Call(
            prompt,
            to_tokens(step.output, "output", where),
            name=f"{task.instance_id}:{step.seq}",
            session=task.instance_id,
            task=task.instance_id,
            gap_s=step.gap_before_s,
            service_s=step.recorded_client_elapsed_s or UNKNOWN,
        )
    if held is None:
        account.skipped["task without calls"] += 1
        return
    held.tail_gap_s = task.tail_gap_s
    yield held


def _check_manifest(path: Path) -> None:
    manifest = path / MANIFEST
    if not manifest.is_file():
        return
    try:
        schema = msgspec.json.decode(files.read_bytes(manifest), type=Manifest).schema
    except DECODE_ERRORS as error:
        raise TraceError(f"{manifest}: not a manifest ({error}); a JSON object is accepted") from error
    if schema is not None and schema not in VERSIONS:
        raise TraceError(f"{manifest}: schema is {schema[:60]!r}; accepted: {', '.join(VERSIONS)}")
