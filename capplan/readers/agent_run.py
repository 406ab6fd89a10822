"""EfficientAgent agent runs: `tasks/*.json` and, for every attempt, a log of its calls with token ids.

The attempt a task names is read. Calls that failed, or whose token ids were not verified, are left out;
their time stays in the gaps. Times are on one wall clock, so the recorded order is known.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import files, jsonl
from capplan.readers.calls import Call, Tokens, pack, refuse_block_size, to_tokens
from capplan.readers.sample import Account, Options, Sample

NAME = "agent-run"
CARRIES = "folder with tasks/*.json and attempts/TASK/attempt_NN/telemetry/llm_requests.jsonl of token ids"
LOG = "telemetry/llm_requests.jsonl"
NS = 10**9

Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Timing(msgspec.Struct):
    """When a slot took the task and gave it back."""

    assigned_ns: Nanoseconds
    finished_ns: Nanoseconds


class Task(msgspec.Struct):
    """A file of `tasks`."""

    task_timing: Timing
    attempt_index: Annotated[int, msgspec.Meta(ge=0, le=9999)] | None = None
    trial_id: str | int | None = None


class Request(msgspec.Struct):
    """A line of a log."""

    request_sequence: int
    start_wall_ns: Nanoseconds
    end_wall_ns: Nanoseconds
    prompt_token_ids: list[int] | None = None
    generated_token_ids: list[list[int]] | None = None
    trial_id: str | int | None = None
    error: Any = None
    token_identity_verified: bool = True
    client_elapsed_ns: Nanoseconds | None = None


def matches(sample: Sample) -> bool:
    """Whether the folder holds records of tasks, and logs of their calls."""
    return (
        sample.kind == "folder"
        and any(name.startswith("tasks/") for name in sample.names)
        and any(name.startswith("attempts/") and LOG in name for name in sample.names)
    )


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches task by task in the order they were assigned, ties by name; paths hold prompt and output."""
    refuse_block_size(path, options)
    tasks = _read_tasks(path)
    first_ns = min((task.task_timing.assigned_ns for task in tasks.values()), default=0)
    order = sorted(tasks, key=lambda name: (tasks[name].task_timing.assigned_ns, name))

    def list_calls() -> Iterator[Call]:
        for name in order:
            attempt = f"attempt_{tasks[name].attempt_index or 0:02d}"
            log = path / "attempts" / name / attempt / LOG
            yield from _read_log(log, name, tasks[name], first_ns, account)

    account.origin_s, account.is_epoch = first_ns / NS, True
    yield from pack(list_calls(), account, outputs_known=True)
    account.assume("arrivals count from the first assignment of a task")


def _read_tasks(path: Path) -> dict[str, Task]:
    decoder = msgspec.json.Decoder(Task)
    found = sorted((path / "tasks").glob("*.json"))
    if not found or not (path / "attempts").is_dir():
        raise TraceError(f"{path}: no tasks/*.json, or no attempts beside them; a folder of one agent run is accepted")
    return {file.stem: jsonl.decode_row(decoder, files.read_bytes(file), str(file)) for file in found}


def _read_log(log: Path, name: str, task: Task, first_ns: int, account: Account) -> Iterator[Call]:
    """Calls in their sequence; the last one carries the time until the slot was given back."""
    rows = list(jsonl.read_lines(log, Request))
    for number, row in rows:
        if row.trial_id != task.trial_id:
            raise TraceError(
                f"{log}, line {number}: trial_id is {row.trial_id!r}, but the task's is {task.trial_id!r}; calls of "
                "one trial are accepted"
            )
    assigned, free = task.task_timing.assigned_ns, task.task_timing.assigned_ns
    held: Call | None = None
    seen: set[int] = set()
    for number, row in sorted(rows, key=lambda item: item[1].request_sequence):
        where = f"{log}, line {number}"
        if row.error is not None:
            account.skipped["failed call: its time stays in the gaps"] += 1
            continue
        if not row.token_identity_verified:
            account.skipped["call with unverified token ids: its time stays in the gaps"] += 1
            continue
        if row.request_sequence in seen:
            raise TraceError(
                f"{where}: request_sequence {row.request_sequence} stands twice; each call once is accepted"
            )
        seen.add(row.request_sequence)
        if row.end_wall_ns < row.start_wall_ns:
            raise TraceError(f"{where}: end_wall_ns is before start_wall_ns; a call ends after its start")
        if held is not None:
            yield held
        prompt, answer = _read_ids(row, where)
        service = row.end_wall_ns - row.start_wall_ns if row.client_elapsed_ns is None else row.client_elapsed_ns
        held = Call(
            prompt,
            answer,
            name=f"{name}:{row.request_sequence}",
            session=name,
            task=name,
            arrival_s=(row.start_wall_ns - first_ns) / NS,
            start_s=(row.start_wall_ns - assigned) / NS,
            gap_s=max(0, row.start_wall_ns - free) / NS,
            service_s=service / NS,
        )
        free = row.end_wall_ns
    if held is None:
        account.skipped["task without calls"] += 1
        return
    held.tail_gap_s = max(0, task.task_timing.finished_ns - free) / NS
    yield held


def _read_ids(row: Request, where: str) -> tuple[Tokens, Tokens]:
    if row.prompt_token_ids is None or not row.generated_token_ids:
        raise TraceError(
            f"{where}: prompt_token_ids or generated_token_ids is missing; both are needed for a call that succeeded"
        )
    return (
        to_tokens(row.prompt_token_ids, "prompt_token_ids", where),
        to_tokens(row.generated_token_ids[0], "generated_token_ids", where),
    )
