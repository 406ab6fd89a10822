"""One LRU tier of whole prefixes at one capacity, run by run: stack distances under write admission.

Lookup first, then every chunk is touched leaf-first, one at a time, absent ones inserted. The tier then
always holds whole prefixes, so what a request touched last is one stretch of its path: chunks
``taken[q] .. limit[q] - 1`` of position `q`. Stretches are evicted oldest position first, each from its
tail. A declined request touches what is resident and inserts nothing (docs/model.md sections 3 and 6).
Cost: a few steps a request and a run, not a chunk.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import gate as gates
from capplan.kernels._jit import kernel
from capplan.kernels.runs import find_holder, grow

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

RESIDENT, OLDEST, EVICTED = 0, 1, 2  # places in `totals`


class Stretches(NamedTuple):
    """What every position still holds, and who took over its leading chunks last."""

    taken: Int64s
    limit: Int64s
    owner: Int64s
    totals: Int64s


@kernel
def evict_or_use(state: Stretches, n_slots: int, wanted: int) -> int:
    """Free slots for up to `wanted` chunks, from one stretch at most; how many."""
    free = n_slots - state.totals[RESIDENT]
    if free > 0:
        state.totals[RESIDENT] += min(free, wanted)
        return int(min(free, wanted))
    oldest = state.totals[OLDEST]
    while state.limit[oldest] <= state.taken[oldest]:
        oldest += 1
    state.totals[OLDEST] = oldest
    n = min(wanted, state.limit[oldest] - state.taken[oldest])
    state.limit[oldest] -= n
    state.totals[EVICTED] += n
    return int(n)


@kernel
def insert_down_to(state: Stretches, n_slots: int, c: int, holder: int, bottom: int) -> int:
    """Insert absent chunks of request `c`, which holds its path from ``taken[c]`` on, towards the head.

    Stops at `bottom`, or at what `holder` (-1 nobody) still has; how many were written.
    """
    written = 0
    while True:
        stop = bottom if holder < 0 else max(bottom, state.limit[holder])
        absent = state.taken[c] - stop
        if absent <= 0:
            return written
        n = evict_or_use(state, n_slots, absent)
        state.taken[c] -= n
        written += n


@kernel
def cover(state: Stretches, starts: Int64s, holders: Int64s, count: int, shared: int) -> int:
    """Leading resident chunks of a path cut into `count` runs, listed from the tail to the head."""
    covered = 0
    for k in range(count - 1, -1, -1):
        stop = starts[k - 1] if k > 0 else shared
        covered = min(max(state.limit[holders[k]], starts[k]), stop)
        if covered < stop:
            break
    return covered


@kernel
def run_tier(
    n_chunks: Int64s,
    previous: Int64s,
    shared: Int64s,
    n_slots: int,
    n_tokens: Int64s,
    time_s: Float64s,
    task: Int64s,
    gate_rules: gates.GateRules,
    gate: gates.Gate,
    decisions: gates.Decisions,
    covered: Int32s,
    written: Int32s,
    evicted: Int32s,
) -> None:
    """Run a stream, given as links in chunks (`find_runs`), through an empty tier of `n_slots` slots."""
    n = n_chunks.size
    state = Stretches(np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64), np.zeros(3, np.int64))
    starts = np.empty(16, np.int64)
    holders = np.empty(16, np.int64)
    for c in range(n):
        gates.pass_time(gate_rules, gate, time_s[c], state.totals[RESIDENT])
        count = 0
        depth = shared[c]
        q = previous[c]
        while depth > 0:
            q = find_holder(state.taken, state.owner, q, depth)
            if count == starts.size:
                starts = grow(starts.reshape(-1, 1)).reshape(-1)
                holders = grow(holders.reshape(-1, 1)).reshape(-1)
            starts[count] = state.taken[q]
            holders[count] = q
            depth = state.taken[q]
            count += 1
        found = cover(state, starts, holders, count, shared[c])
        covered[c] = found
        is_declined = gates.decide(gate_rules, gate, decisions, c, time_s[c], task[c], n_tokens[c], n_chunks[c] - found)
        before = state.totals[EVICTED]
        is_stored = n_slots > 0 and not is_declined
        if is_stored:
            state.taken[c] = n_chunks[c]
            state.limit[c] = n_chunks[c]
            written[c] = insert_down_to(state, n_slots, c, -1, shared[c])
        for k in range(count):
            q = holders[k]
            if is_stored:
                written[c] += insert_down_to(state, n_slots, c, q, starts[k])
                state.taken[c] = starts[k]
            state.taken[q] = starts[k - 1] if k > 0 else shared[c]
            state.owner[q] = c
        state.taken[c] = 0
        if not is_stored:
            state.limit[c] = found
        evicted[c] = state.totals[EVICTED] - before
        gates.note_evictions(gate, time_s[c], evicted[c])
