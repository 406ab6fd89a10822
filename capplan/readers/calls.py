"""Model calls with token ids, one by one, gathered into Prompts."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, NumberNames, Prompts, Requests
from capplan.readers.sample import Account, Options

Tokens = NDArray[np.uint32]
Namespaces = Callable[[int], NDArray[np.uint64]]

RESOLUTION_TOKENS = 16
LARGEST_ID = (1 << 32) - 1
BATCH_TOKENS = 1 << 22
BATCH_ROWS = 4096
UNKNOWN = float("nan")
TIMES = ("arrival_s", "start_s", "gap_s", "service_s", "tail_gap_s")
NO_TOKENS = np.zeros(0, np.uint32)


@dataclass(slots=True)
class Call:
    """One request. Times in seconds, NaN where unknown; without a name it is numbered.

    Attributes
    ----------
    prompt, answer : (n,) uint32
        Token ids; no answer where its ids are unknown.
    n_output : int, optional
        Output tokens where they are not those of `answer`.
    """

    prompt: Tokens
    answer: Tokens = field(default_factory=lambda: NO_TOKENS)
    n_output: int | None = None
    name: str | None = None
    session: str | None = None
    task: str | None = None
    arrival_s: float = UNKNOWN
    start_s: float = UNKNOWN
    gap_s: float = UNKNOWN
    service_s: float = UNKNOWN
    tail_gap_s: float = UNKNOWN


def pack(
    calls: Iterable[Call], account: Account, *, outputs_known: bool, namespaces: Namespaces | None = None
) -> Iterator[Prompts]:
    """Prompts of some million tokens each, in the order of the calls; every call is counted as read.

    Parameters
    ----------
    outputs_known : bool
        Whether paths go on with the answers' ids; else an answer is only counted.
    namespaces : function of a number of rows, optional
        Namespaces of so many calls, where ids do not mean the same everywhere.
    """
    batch: list[Call] = []
    n_tokens = 0
    for call in calls:
        batch.append(call)
        n_tokens += call.prompt.size + call.answer.size
        if n_tokens >= BATCH_TOKENS or len(batch) >= BATCH_ROWS:
            yield _to_prompts(batch, account, outputs_known, namespaces)
            batch, n_tokens = [], 0
    if batch:
        yield _to_prompts(batch, account, outputs_known, namespaces)


def _to_prompts(batch: list[Call], account: Account, outputs_known: bool, namespaces: Namespaces | None) -> Prompts:
    pieces = [piece for call in batch for piece in ((call.prompt, call.answer) if outputs_known else (call.prompt,))]
    lengths = np.array([piece.size for piece in pieces], np.int64).reshape(len(batch), -1).sum(axis=1)
    offsets = np.zeros(len(batch) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    times = {name: np.array([getattr(call, name) for call in batch], np.float64) for name in TIMES}
    requests = Requests.of(
        np.array([call.prompt.size for call in batch], np.int64),
        output_tokens=np.array([_count_output(call) for call in batch], np.int64),
        request_ids=_name(batch, account.n_read),
        session=Labels.encode(call.session for call in batch),
        task=Labels.encode(call.task for call in batch),
        **{name: seconds for name, seconds in times.items() if not np.isnan(seconds).all()},
    )
    account.n_read += len(batch)
    spaces = None if namespaces is None else namespaces(len(batch))
    return Prompts(requests, np.concatenate(pieces), offsets, "tokens", RESOLUTION_TOKENS, outputs_known, spaces)


def _count_output(call: Call) -> int:
    return call.answer.size if call.n_output is None else call.n_output


def _name(batch: list[Call], first: int) -> Sequence[str]:
    if all(call.name is None for call in batch):
        return NumberNames.starting_at(first, len(batch))
    return [str(first + k) if call.name is None else call.name for k, call in enumerate(batch)]


def to_tokens(ids: list[int], name: str, where: str) -> Tokens:
    """Token ids as uint32; raises TraceError for one outside 0 .. 2^32 - 1."""
    try:
        return np.frombuffer(array("I", ids), np.uint32) if ids else NO_TOKENS
    except OverflowError:
        raise TraceError(f"{where}: {name} holds an id outside 0 to {LARGEST_ID}") from None


def refuse_block_size(path: Path, options: Options) -> None:
    """Raise where a block size is given for tokens."""
    if options.block_tokens is not None:
        raise TraceError(
            f"{path}: --block-size is for block hashes; token ids are linked at {RESOLUTION_TOKENS} tokens"
        )
