"""The canonical prefix-linked table: its columns, declared once, and the one check at the door."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capplan.prompts import Requests

FORMAT_VERSION = 1
LARGEST_TOKENS = (1 << 31) - 1
LARGEST_S = 1e12


@dataclass(frozen=True, slots=True)
class Column:
    """Name, type, unit and meaning of one column."""

    name: str
    dtype: Literal["string", "float64", "int64"]
    nullable: bool
    unit: str
    meaning: str


COLUMNS = (
    Column("request_id", "string", False, "", "unique name of the model call"),
    Column("session_id", "string", True, "", "one append-mostly conversation; a sub-agent has its own"),
    Column("task_id", "string", True, "", "unit of a pool slot: the root session, also for its sub-agents"),
    Column("arrival_s", "float64", True, "s", "sending time on one clock common to the whole trace"),
    Column("start_s", "float64", True, "s", "sending time from the start of the task"),
    Column("gap_s", "float64", True, "s", "end of the session's previous response to this sending"),
    Column("service_s", "float64", True, "s", "recorded time from sending to the end of the response"),
    Column("tail_gap_s", "float64", True, "s", "on a task's last row: how long its slot is held after it"),
    Column("input_tokens", "int64", False, "tokens", "prompt length"),
    Column("output_tokens", "int64", False, "tokens", "generated tokens, 0 where unknown"),
    Column("parent", "int64", False, "row", "earlier row whose path shares the longest prefix; -1 none"),
    Column("shared_tokens", "int64", False, "tokens", "length of that shared prefix"),
)


def check_requests(requests: "Requests", where: str) -> None:
    """Refuse request columns that contradict themselves.

    Raises
    ------
    TraceError
        No rows, a number out of range, or a request name that stands twice.
    """
    if len(requests) == 0:
        raise TraceError(f"{where}: no requests; at least one is needed")
    for name in ("input_tokens", "output_tokens"):
        _refuse(getattr(requests, name) < 0, where, f"{name} is negative", "0 or more")
        _refuse(getattr(requests, name) > LARGEST_TOKENS, where, f"{name} is too large", f"up to {LARGEST_TOKENS}")
    for name in ("arrival_s", "start_s", "gap_s", "service_s", "tail_gap_s"):
        too_far = np.abs(getattr(requests, name)) > LARGEST_S
        _refuse(too_far, where, f"{name} is out of range", f"seconds up to {LARGEST_S:g} either way, or null")
    for name in ("service_s", "tail_gap_s"):
        _refuse(getattr(requests, name) < 0, where, f"{name} is negative", "seconds from 0 up, or null")
    seen: set[str] = set()
    if not _are_unique(requests.request_ids):
        for row, request_id in enumerate(requests.request_ids):
            if request_id in seen:
                raise TraceError(f"{where}, row {row}: request_id {request_id!r} stands twice; names must be unique")
            seen.add(request_id)


def _are_unique(names: "Sequence[str]") -> bool:
    """Whether no name stands twice; names that are not kept as strings know a shorter way."""
    ask = getattr(names, "are_unique", None)
    return bool(ask()) if ask is not None else len(set(names)) == len(names)


def check_links(
    requests: "Requests",
    parent: NDArray[np.int64],
    shared_tokens: NDArray[np.int64],
    resolution_tokens: int,
    outputs_known: bool,
    where: str,
) -> None:
    """Refuse links that no prefix tree can have.

    Raises
    ------
    TraceError
        A parent that is not an earlier row, a shared prefix longer than either path or off the
        resolution, or one without a parent.
    """
    if not 1 <= resolution_tokens <= LARGEST_TOKENS:
        raise TraceError(f"{where}: resolution_tokens is {resolution_tokens}; 1 to {LARGEST_TOKENS} is accepted")
    rows = np.arange(len(requests))
    _refuse((parent < -1) | (parent >= rows), where, "parent is not an earlier row", "-1 or a smaller row number")
    path = requests.input_tokens + (requests.output_tokens if outputs_known else 0)
    _refuse((shared_tokens < 0) | (shared_tokens > path), where, "shared_tokens exceeds the path", "0 to its length")
    linked = parent >= 0
    _refuse(~linked & (shared_tokens > 0), where, "shared_tokens without a parent", "0 where parent is -1")
    too_long = linked & (shared_tokens > path[np.where(linked, parent, 0)])
    _refuse(too_long, where, "shared_tokens exceeds the parent's path", "0 to its length")
    off = shared_tokens % resolution_tokens != 0
    _refuse(off, where, "shared_tokens is off the resolution", f"multiples of {resolution_tokens}")


def _refuse(bad: NDArray[np.bool_], where: str, what: str, accepted: str) -> None:
    """Raise for the first row where `bad` holds."""
    if bad.any():
        row = int(np.argmax(bad))
        raise TraceError(f"{where}, row {row}: {what}; accepted: {accepted}")
