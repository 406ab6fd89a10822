"""NextUses: who uses each unit of a prompt next, and how far down the stack it then lies."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.runs import tabulate_runs
from capplan.simulation.stream import TierStream

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NextUses:
    """Units of every request that are used again, in stretches from the head to the tail.

    Attributes
    ----------
    offsets : (n + 1,) int64
        Stretches of request `r` are ``offsets[r]:offsets[r + 1]``.
    start, length : (stretches,) int64
        First unit and how many follow on, itself included.
    request : (stretches,) int64
        The later request that uses them next.
    position : (stretches,) int64
        Stack position `P` of the first unit at that request's lookup; each further unit lies one deeper.
    """

    offsets: Int64s
    start: Int64s
    length: Int64s
    request: Int64s
    position: Int64s


def find_next_uses(stream: TierStream) -> NextUses:
    """Turn a stream's runs round: a run of `c` last touched by `r` is a stretch of `r` next used by `c`."""
    runs = tabulate_runs(stream.prompt_units, stream.previous, stream.shared, stream.unit_tokens)
    order = np.argsort(runs.holder, kind="stable")
    request = np.repeat(np.arange(len(stream), dtype=np.int64), np.diff(runs.offsets))
    return NextUses(
        offsets=np.searchsorted(runs.holder[order], np.arange(len(stream) + 1)).astype(np.int64),
        start=runs.start[order],
        length=runs.length[order],
        request=request[order],
        position=runs.above[order],
    )
