"""SWE-agent trajectories (`.traj`): the prompt of every step where it is recorded, else the history before it.

History processors may have shortened what was really sent. Where a step has no `query`, its prompt is
all messages of the agent before its answer, which overstates reuse wherever something was left out.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.calls import UNKNOWN, Call, pack, refuse_block_size
from capplan.readers.documents import read_document
from capplan.readers.files import stem_of
from capplan.readers.lines import Wait
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import ANSWERING, encode_answered, encode_log, find_calls, note_rendering
from capplan.readers.text.messages import Message, clean_messages
from capplan.readers.text.tokenizing import Tokenizer, find_tokenizer

NAME = "swe-agent"
CARRIES = "trajectory file .traj with trajectory steps and history; needs --tokenizer"


class Step(msgspec.Struct):
    """One step: what was sent, if it is recorded, what came back, and how long the action took."""

    response: str | None = None
    query: list[Any] | None = None
    execution_time: Wait | None = None


class Trajectory(msgspec.Struct):
    """A file."""

    trajectory: list[Step]
    history: list[Any] | None = None


def matches(sample: Sample) -> bool:
    """Whether the object is a trajectory."""
    return sample.kind == "json" and "trajectory" in sample.fields and bool(sample.fields & {"history", "environment"})


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """The calls of one file, agent by agent."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    trajectory = read_document(path, Trajectory, account)
    if trajectory is None:
        return
    session = stem_of(path)
    if trajectory.trajectory and all(step.query for step in trajectory.trajectory):
        calls = list(_read_queries(tokenizer, trajectory.trajectory, session, path, account))
    else:
        calls = list(_read_history(tokenizer, trajectory, session, path, account))
    _set_gaps(calls, trajectory.trajectory, account)
    yield from pack(calls, account, outputs_known=True)
    note_rendering(tokenizer, account)


def _read_queries(
    tokenizer: Tokenizer, steps: Sequence[Step], session: str, path: Path, account: Account
) -> Iterator[Call]:
    for k, step in enumerate(steps):
        where = f"{path}, step {k}"
        messages = clean_messages(step.query or [], where, account)
        answer = {"role": ANSWERING, "content": step.response or ""}
        prompt, text = encode_answered(tokenizer, messages, answer, where)
        yield Call(prompt, text, None, f"{session}:{k}", session, session)


def _read_history(
    tokenizer: Tokenizer, trajectory: Trajectory, session: str, path: Path, account: Account
) -> Iterator[Call]:
    if trajectory.history is None:
        raise TraceError(f"{path}: neither history nor a query on every step; one of them is needed for the prompts")
    where = f"{path}, history"
    streams = _split_agents(clean_messages(trajectory.history, where, account), session)
    n_calls = sum(len(positions) for _, positions in streams.values())
    if n_calls != len(trajectory.trajectory):
        account.found["trajectory with another number of steps than its history has answers: the history is read"] += 1
    account.assume(
        "prompts are made from the history: what a history processor left out is still in them, which overstates reuse"
    )
    k = 0
    for stream, (messages, positions) in streams.items():
        for call in encode_log(tokenizer, messages, positions, where):
            yield Call(call.prompt, call.answer, None, f"{session}:{k}", stream, session)
            k += 1


def _split_agents(messages: Sequence[Message], session: str) -> dict[str, tuple[list[Message], list[int]]]:
    """Messages of every agent and the positions of its answers; the first agent is the session itself."""
    agents: dict[str, list[Message]] = {}
    for message in messages:
        agents.setdefault(str(message.get("agent")), []).append(message)
    streams = {}
    for number, (agent, own) in enumerate(agents.items()):
        positions = [k for k in find_calls(own) if not own[k].get("is_demo")]
        streams[f"{session}#{agent}" if number else session] = (own, positions)
    return streams


def _set_gaps(calls: Sequence[Call], steps: Sequence[Step], account: Account) -> None:
    """The time of a step's action is the gap before the next call; the last one holds the task's slot."""
    seconds = [UNKNOWN if step.execution_time is None else step.execution_time for step in steps]
    if not calls or len(calls) != len(steps) or all(map(math.isnan, seconds)):
        return
    for call, gap in zip(calls[1:], seconds, strict=False):
        call.gap_s = gap
    calls[-1].tail_gap_s = seconds[-1]
    account.assume("gaps are the execution times of the actions alone")
