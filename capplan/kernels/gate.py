"""Write admission rules in a simulation: the state of `capplan.admission`, in arrays.

Decisions are made at a request's first lookup (docs/model.md section 6), constant time each but for
what leaves the windows. The same rule as a plain object is `capplan.admission`; tests hold both equal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

NONE, FIXED, CONDITIONED = 0, 1, 2
# Places in `counts`: tasks in the window, lookups noted, their prompt tokens, first and last of each ring ...
TASKS, LOOKUPS, PROMPT_TOKENS, TASKS_FROM, TASKS_TO, EVICTED, EVICTIONS_FROM, EVICTIONS_TO = range(8)
# ... and the report a decision reads: evictions in the window, resident units, whether there is any.
READ_EVICTIONS, READ_RESIDENT, HAS_READ, SENT_EVICTIONS, SENT_RESIDENT, HAS_SENT = range(8, 14)
# Places in `times`.
READ_AT, READ_OF, SENT_OF, NEXT_REPORT = range(4)


class GateRules(NamedTuple):
    """Numbers of a rule; `kind` is NONE, FIXED or CONDITIONED. See `capplan.admission` for each."""

    kind: int
    kappa: float
    theta: float
    window_s: float
    n_recent: int
    report_period_s: float
    read_interval_s: float
    max_age_s: float
    capacity_bytes: float
    kv_bytes_per_token: float
    n_slots: int


class Gate(NamedTuple):
    """Windows of a conditioned rule: tasks by their last lookup, recent prompts, evictions, reports."""

    task_time: Float64s
    task_ring: Int64s
    time_ring: Float64s
    recent: Int64s
    eviction_time: Float64s
    eviction_count: Int64s
    counts: Int64s
    times: Float64s


class Decisions(NamedTuple):
    """What every decision rested on, (n,) each: the inputs a serving system could log.

    `is_pressured` is the rule's `p_t`; `is_fresh` whether a report counted; `estimate_bytes` the
    working set ``(A - 1) N beta``; `evictions` and `resident` the report's. -1 where unknown.
    """

    new_units: Int64s
    is_declined: NDArray[np.bool_]
    is_pressured: NDArray[np.bool_]
    is_fresh: NDArray[np.bool_]
    tasks: Int64s
    mean_prompt_tokens: Float64s
    estimate_bytes: Float64s
    evictions: Int64s
    resident: Int64s


def open_gate(rules: GateRules, n_requests: int, n_tasks: int, start_s: float) -> Gate:
    """Empty windows; rings have room for every request of a stream."""
    n = n_requests if rules.kind == CONDITIONED else 0
    times = np.array([-np.inf, -np.inf, -np.inf, start_s + rules.report_period_s])
    return Gate(
        task_time=np.full(n_tasks, -np.inf),
        task_ring=np.zeros(n, np.int64),
        time_ring=np.zeros(n),
        recent=np.zeros(max(1, rules.n_recent), np.int64),
        eviction_time=np.zeros(n),
        eviction_count=np.zeros(n, np.int64),
        counts=np.zeros(14, np.int64),
        times=times,
    )


def open_decisions(n_requests: int) -> Decisions:
    """Room for the decisions of a stream."""
    return Decisions(
        np.zeros(n_requests, np.int64),
        np.zeros(n_requests, np.bool_),
        np.zeros(n_requests, np.bool_),
        np.zeros(n_requests, np.bool_),
        np.full(n_requests, -1, np.int64),
        np.full(n_requests, np.nan),
        np.full(n_requests, np.nan),
        np.full(n_requests, -1, np.int64),
        np.full(n_requests, -1, np.int64),
    )


@kernel
def note_evictions(gate: Gate, now: float, count: int) -> None:
    """Capacity evictions of a store at `now`."""
    if count > 0 and gate.eviction_time.size > 0:
        k = gate.counts[EVICTIONS_TO]
        gate.eviction_time[k] = now
        gate.eviction_count[k] = count
        gate.counts[EVICTIONS_TO] = k + 1
        gate.counts[EVICTED] += count


@kernel
def drop_old_evictions(rules: GateRules, gate: Gate, at: float) -> None:
    """Keep evictions of age `window_s` and younger at a time."""
    k = gate.counts[EVICTIONS_FROM]
    while k < gate.counts[EVICTIONS_TO] and gate.eviction_time[k] < at - rules.window_s:
        gate.counts[EVICTED] -= gate.eviction_count[k]
        k += 1
    gate.counts[EVICTIONS_FROM] = k


@kernel
def send_report(rules: GateRules, gate: Gate, at: float, resident: int) -> None:
    """The tier's report of a time: capacity evictions of the window and resident units."""
    drop_old_evictions(rules, gate, at)
    gate.counts[SENT_EVICTIONS] = gate.counts[EVICTED]
    gate.counts[SENT_RESIDENT] = resident
    gate.counts[HAS_SENT] = 1
    gate.times[SENT_OF] = at


@kernel
def pass_time(rules: GateRules, gate: Gate, now: float, resident: int) -> None:
    """Send the report that was due last before `now`, of the state since the last event.

    Call it before anything changes at `now`. A period of 0 reports at every moment.
    """
    if rules.kind != CONDITIONED:
        return
    if rules.report_period_s == 0:
        send_report(rules, gate, now, resident)
    elif now >= gate.times[NEXT_REPORT]:
        missed = np.floor((now - gate.times[NEXT_REPORT]) / rules.report_period_s)
        due = gate.times[NEXT_REPORT] + missed * rules.report_period_s
        send_report(rules, gate, due, resident)
        gate.times[NEXT_REPORT] = due + rules.report_period_s


@kernel
def note_lookup(rules: GateRules, gate: Gate, now: float, task: int, n_tokens: int) -> None:
    """A first lookup: of a task (-1 none) and a prompt length."""
    counts = gate.counts
    if task >= 0:
        if gate.task_time[task] == -np.inf:
            counts[TASKS] += 1
        gate.task_time[task] = now
        k = counts[TASKS_TO]
        gate.task_ring[k] = task
        gate.time_ring[k] = now
        counts[TASKS_TO] = k + 1
    k = counts[LOOKUPS] % rules.n_recent
    counts[PROMPT_TOKENS] += n_tokens - gate.recent[k]
    gate.recent[k] = n_tokens
    counts[LOOKUPS] += 1


@kernel
def drop_old_tasks(rules: GateRules, gate: Gate, now: float) -> None:
    """Forget tasks whose last first lookup is older than `window_s`."""
    counts = gate.counts
    k = counts[TASKS_FROM]
    while k < counts[TASKS_TO] and gate.time_ring[k] < now - rules.window_s:
        task = gate.task_ring[k]
        if gate.task_time[task] == gate.time_ring[k]:
            gate.task_time[task] = -np.inf
            counts[TASKS] -= 1
        k += 1
    counts[TASKS_FROM] = k


@kernel
def read_report(rules: GateRules, gate: Gate, now: float) -> None:
    """Read the latest report again where the last reading is older than `read_interval_s`; 0: always."""
    if rules.report_period_s == 0 or rules.read_interval_s == 0 or now - gate.times[READ_AT] > rules.read_interval_s:
        gate.times[READ_AT] = now
        gate.times[READ_OF] = gate.times[SENT_OF]
        gate.counts[READ_EVICTIONS] = gate.counts[SENT_EVICTIONS]
        gate.counts[READ_RESIDENT] = gate.counts[SENT_RESIDENT]
        gate.counts[HAS_READ] = gate.counts[HAS_SENT]


@kernel
def is_under_pressure(rules: GateRules, gate: Gate, decisions: Decisions, c: int, now: float) -> bool:
    """`p_t` of a conditioned rule, with what it rests on noted as decision `c`."""
    counts = gate.counts
    n_recent = min(counts[LOOKUPS], rules.n_recent)
    mean = counts[PROMPT_TOKENS] / n_recent if n_recent > 0 else 0.0
    estimate = (counts[TASKS] - 1) * mean * rules.kv_bytes_per_token
    is_fresh = counts[HAS_READ] > 0 and now - gate.times[READ_OF] <= rules.max_age_s
    decisions.tasks[c] = counts[TASKS]
    decisions.mean_prompt_tokens[c] = mean
    decisions.estimate_bytes[c] = estimate
    decisions.is_fresh[c] = is_fresh
    is_occupied = True
    if is_fresh:
        decisions.evictions[c] = counts[READ_EVICTIONS]
        decisions.resident[c] = counts[READ_RESIDENT]
        is_full = counts[READ_RESIDENT] >= rules.theta * rules.n_slots
        is_occupied = counts[READ_EVICTIONS] > 0 and is_full
    return estimate > rules.capacity_bytes and is_occupied


@kernel
def decide(
    rules: GateRules, gate: Gate, decisions: Decisions, c: int, now: float, task: int, n_tokens: int, new_units: int
) -> bool:
    """Whether the writes of request `c` are declined, at its first lookup."""
    decisions.new_units[c] = new_units
    if rules.kind == NONE:
        return False
    is_pressured = True
    if rules.kind == CONDITIONED:
        note_lookup(rules, gate, now, task, n_tokens)
        read_report(rules, gate, now)
        drop_old_tasks(rules, gate, now)
        is_pressured = is_under_pressure(rules, gate, decisions, c, now)
    decisions.is_pressured[c] = is_pressured
    decisions.is_declined[c] = is_pressured and new_units > rules.kappa
    return bool(decisions.is_declined[c])
