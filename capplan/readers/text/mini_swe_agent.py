"""mini-swe-agent trajectories (`.traj.json`): one file per task, append-only messages, times in whole seconds.

A call's prompt is all messages before its answer. The provider's own token counts stand beside each
answer; they are kept for comparison and never used.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.calls import UNKNOWN, Call, pack, refuse_block_size
from capplan.readers.documents import read_document
from capplan.readers.lines import Seconds
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.text.conversations import ANSWERING, APPEND_ONLY, encode_log, find_calls, note_rendering
from capplan.readers.text.messages import clean_messages
from capplan.readers.text.tokenizing import find_tokenizer
from capplan.readers.text.usage import Usage, note_usage

NAME = "mini-swe-agent"
CARRIES = "trajectory file .traj.json with messages and trajectory_format; needs --tokenizer"
VERSIONS = ("mini-swe-agent-1", "mini-swe-agent-1.1")
SUFFIX = ".traj.json"


class Response(msgspec.Struct):
    """What the provider sent back, but for the text."""

    created: Seconds | None = None
    model: str | None = None
    usage: Usage | None = None


class Extra(msgspec.Struct):
    """What an answer carries besides its text."""

    response: Response | None = None


class Stamp(msgspec.Struct):
    """A message without its text."""

    role: str
    extra: Extra | None = None


class Outline(msgspec.Struct):
    """A file without its texts."""

    messages: list[Stamp]
    trajectory_format: str


class Trajectory(msgspec.Struct):
    """The texts of a file."""

    messages: list[dict[str, Any]]


def matches(sample: Sample) -> bool:
    """Whether the object states the format."""
    stated = sample.first.get("trajectory_format")
    return sample.kind == "json" and isinstance(stated, str) and stated.startswith("mini-swe-agent")


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """The calls of one file, in its order."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, NAME)
    outline = read_document(path, Outline, account)
    trajectory = read_document(path, Trajectory, account) if outline else None
    if outline is None or trajectory is None:
        return
    if outline.trajectory_format not in VERSIONS:
        raise TraceError(
            f"{path}: trajectory_format is {outline.trajectory_format[:40]!r}; accepted: {', '.join(VERSIONS)}"
        )
    messages = clean_messages(trajectory.messages, str(path), account)
    positions = find_calls(messages)
    responses = [_find_response(outline.messages[k]) for k in positions]
    times = _read_times(responses, account)
    session = path.name.removesuffix(path.suffix).removesuffix(".traj")

    def list_calls() -> Iterator[Call]:
        for k, call in enumerate(encode_log(tokenizer, messages, positions, str(path))):
            note_usage(responses[k].usage, account)
            if options.keeps_model(responses[k].model, account):
                yield Call(call.prompt, call.answer, None, f"{session}:{k}", session, session, times[k])

    yield from pack(list_calls(), account, outputs_known=True)
    account.assume(APPEND_ONLY)
    account.assume("times are whole seconds: when the provider made the response")
    note_rendering(tokenizer, account)


def _find_response(message: Stamp) -> Response:
    response = message.extra.response if message.role == ANSWERING and message.extra else None
    return response or Response()


def _read_times(responses: list[Response], account: Account) -> list[float]:
    """Seconds since the first answer of the file; NaN, counted, where one has no time."""
    known = [response.created for response in responses if response.created is not None]
    n_back = sum(after < before for before, after in pairwise(known))
    if n_back:
        account.found["answer older than the one before it: calls keep the order of the file"] += n_back
    if len(known) < len(responses):
        account.found["call without a time"] += len(responses) - len(known)
    if not known:
        return [UNKNOWN] * len(responses)
    first = min(known)
    account.origin_s, account.is_epoch = first, True
    return [UNKNOWN if response.created is None else response.created - first for response in responses]
