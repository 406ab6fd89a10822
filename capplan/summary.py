"""What a trace is: how much, who shares with whom, which clock, and what is odd about it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan.kernels.groups import share_in_groups
from capplan.prompts import Labels
from capplan.trace import Trace
from capplan.tree import PrefixTree, build_tree

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sharing:
    """Prompt tokens that an earlier path held already, by the nearest owner of such a path; in row order.

    Attributes
    ----------
    session_tokens, task_tokens, other_tokens : int
        Held by an earlier call of the same session; else by one of the same task; else by any other.
    new_tokens : int
        Held by none: first uses and what is left over of a block.
    """

    session_tokens: int
    task_tokens: int
    other_tokens: int
    new_tokens: int

    @property
    def shared_tokens(self) -> int:
        """Held by any earlier call."""
        return self.session_tokens + self.task_tokens + self.other_tokens


@dataclass(frozen=True, slots=True)
class Clock:
    """Which times a trace has.

    Attributes
    ----------
    n_arrivals, n_starts, n_gaps, n_services : int
        Rows with an arrival on the common clock; a start within the task; a gap after the session's
        previous response; a service time.
    span_s : float or None
        From the first arrival to the last.
    begins : str or None
        Date and time of arrival 0, in UTC, where the source's clock is absolute.
    n_back, n_ties : int
        Rows that arrive before the row in front of them, and at the same time as it.
    """

    n_arrivals: int
    n_starts: int
    n_gaps: int
    n_services: int
    span_s: float | None
    begins: str | None
    n_back: int
    n_ties: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A trace in numbers; `oddities` are counts of rows by what is odd about them, none of them 0."""

    trace: Trace
    n_sessions: int
    n_tasks: int
    input_tokens: int
    output_tokens: int
    longest_prompt_tokens: int
    distinct_tokens: int
    sharing: Sharing
    clock: Clock
    oddities: dict[str, int]


def summarise(trace: Trace) -> Summary:
    """Everything `capplan check` tells."""
    requests = trace.requests
    tree = build_tree(trace)
    return Summary(
        trace=trace,
        n_sessions=len(requests.session.names),
        n_tasks=len(requests.task.names),
        input_tokens=int(requests.input_tokens.sum()),
        output_tokens=int(requests.output_tokens.sum()),
        longest_prompt_tokens=int(requests.input_tokens.max()),
        distinct_tokens=int((tree.node_end - tree.node_begin).sum()) * trace.resolution_tokens,
        sharing=find_sharing(trace, tree),
        clock=describe_clock(trace),
        oddities=find_oddities(trace),
    )


def find_sharing(trace: Trace, tree: PrefixTree) -> Sharing:
    """Who held what every prompt begins with."""
    n = len(trace)
    requests = trace.requests
    anyone = _share(tree, Labels(np.zeros(n, np.int64), ("all",)))
    in_session = _share(tree, requests.session)
    in_task = np.maximum(_share(tree, requests.task), in_session)
    session, task, shared = (int(depth.sum()) * trace.resolution_tokens for depth in (in_session, in_task, anyone))
    return Sharing(session, task - session, shared - task, int(requests.input_tokens.sum()) - shared)


def _share(tree: PrefixTree, labels: Labels) -> Int64s:
    rows = np.argsort(labels.codes, kind="stable")
    rows = rows[labels.codes[rows] >= 0]
    codes = np.ascontiguousarray(labels.codes)
    return share_in_groups(rows, codes, tree.prompt_node, tree.touched_node, tree.node_parent, tree.node_end)


def describe_clock(trace: Trace) -> Clock:
    """Which times there are."""
    requests = trace.requests
    arrival = requests.arrival_s[~np.isnan(requests.arrival_s)]
    steps = np.diff(arrival)
    ledger: Any = trace.provenance.get("ledger")
    return Clock(
        n_arrivals=int(arrival.size),
        n_starts=_count_known(requests.start_s),
        n_gaps=_count_known(requests.gap_s),
        n_services=_count_known(requests.service_s),
        span_s=float(arrival.max() - arrival.min()) if arrival.size else None,
        begins=_find_begin(ledger) if isinstance(ledger, dict) else None,
        n_back=int((steps < 0).sum()),
        n_ties=int((steps == 0).sum()),
    )


def _count_known(seconds: NDArray[np.float64]) -> int:
    return int((~np.isnan(seconds)).sum())


def _find_begin(ledger: dict[str, Any]) -> str | None:
    origin, shift = ledger.get("origin_s"), ledger.get("shift_s", 0.0)
    if ledger.get("is_epoch") is not True or not all(isinstance(moment, int | float) for moment in (origin, shift)):
        return None
    try:
        return datetime.fromtimestamp(origin - shift, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def find_oddities(trace: Trace) -> dict[str, int]:
    """Rows that a planner may want to know of, by what they are."""
    requests = trace.requests
    n_input, resolution = requests.input_tokens, trace.resolution_tokens
    full = n_input // resolution * resolution
    counts = {
        "empty prompt": n_input == 0,
        "prompt shorter than a block": (n_input > 0) & (n_input < resolution),
        "prompt whose full blocks an earlier path holds all": (full > 0) & (trace.shared_tokens >= full),
        "no output tokens": requests.output_tokens == 0,
        "gap below 0: sent before the session's previous response ended": requests.gap_s < 0,
        "no session": (requests.session.codes < 0) & bool(requests.session.names),
        "no task": (requests.task.codes < 0) & bool(requests.task.names),
    }
    return {what: int(rows.sum()) for what, rows in counts.items() if rows.any()}
