"""Write admission: whether a request's new chunks go into the host tier, decided once, at its first lookup.

The rules `none`, `fixed` and `conditioned` of docs/admission.md as objects a serving connector can call:
plain Python (no numba, numpy or polars), constant time a decision but for what leaves a window, which
happens once to each entry. `capplan.kernels.gate` is the same rule for simulations; tests hold both equal.

Times are seconds on one clock that whoever decides and whoever reports share (`time.time()`). A clock that
is set back keeps entries in their windows for as much longer, and has the report read again at once.
Not modelled: what a store does with a request that is not declined. Not safe for threads without a lock.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import floor, inf
from numbers import Integral, Real
from typing import Any

REMEMBERED = 65_536
"""Requests whose decision is kept."""
WINDOW_S = 60.0
"""Age up to which a task counts as active, and an eviction as recent."""

MOST_BYTES = 2**63


def _check(name: str, value: Any, low: float, high: float = inf, *, whole: bool = False) -> None:
    """Raise ValueError unless `value` is a number (a whole one) from `low` to `high`."""
    is_number = isinstance(value, Integral if whole else Real)
    if not is_number or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        upper = f"to {high:g}" if high < inf else "up"
        raise ValueError(f"{name} is {value!r}; accepted is {kind} from {low:g} {upper}")


def _check_time(name: str, value: Any) -> None:
    is_number = isinstance(value, Real)
    if not is_number or not -inf < value < inf:
        raise ValueError(f"{name} is {value!r}; accepted are finite seconds")


@dataclass(frozen=True, slots=True)
class Report:
    """What the process that owns the tier publishes, about once a second.

    Attributes
    ----------
    time_s
        When it held.
    evictions
        Chunks evicted to make room within the window before.
    resident
        Chunks the tier holds.
    n_slots
        Chunks it can hold; None leaves that to the reader.
    """

    time_s: float
    evictions: int
    resident: int
    n_slots: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no tier can report."""
        _check_time("time_s", self.time_s)
        for name in ("evictions", "resident"):
            _check(name, getattr(self, name), 0, whole=True)
        if self.n_slots is not None:
            _check("n_slots", self.n_slots, 0, whole=True)


ReadReport = Callable[[], Report | None]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision and all it rested on; None is what the rule did not look at.

    Attributes
    ----------
    new_units
        u, full chunks of the prompt beyond the host's hit; can be 0 or less.
    is_declined
        Whether nothing of the request may be stored.
    is_pressured
        p, whether the rule sees the tier under pressure.
    is_fresh
        Whether a report counted; without one the estimate decides alone.
    tasks, mean_prompt_tokens, estimate_bytes
        A, N and the working set ``(A - 1) N beta``.
    evictions, resident
        The report's, where it counted.
    """

    new_units: int
    is_declined: bool
    is_pressured: bool
    is_fresh: bool = False
    tasks: int | None = None
    mean_prompt_tokens: float | None = None
    estimate_bytes: float | None = None
    evictions: int | None = None
    resident: int | None = None


class Admission(ABC):
    """What the rules have in common: one decision a request, for as long as its id is remembered.

    Parameters
    ----------
    chunk_tokens
        b, tokens of a chunk.
    remembered
        Ids kept, the first decided forgotten first.

    Raises
    ------
    ValueError
        A number is outside what is accepted; the message names both.
    """

    def __init__(self, chunk_tokens: int, *, remembered: int = REMEMBERED) -> None:
        _check("chunk_tokens", chunk_tokens, 1, whole=True)
        _check("remembered", remembered, 1, whole=True)
        self.chunk_tokens = chunk_tokens
        self.remembered = remembered
        self._decisions: OrderedDict[Hashable, Decision] = OrderedDict()

    def decide(
        self,
        request_id: Hashable,
        now: float,
        prompt_tokens: int,
        host_hit_tokens: int,
        task_id: Hashable | None = None,
        read_report: ReadReport | None = None,
    ) -> Decision:
        """Decide at a request's first lookup; a remembered id gets its first decision, and nothing is noted.

        Parameters
        ----------
        now : seconds
        prompt_tokens : n, length of the prompt
        host_hit_tokens : h, tokens the host tier holds of it, counted from token 0
        task_id : the task that makes the request; without one it counts for no task
        read_report : gives the latest report, or None where there is none

        Raises
        ------
        ValueError
            A time is not finite or a number of tokens negative; nothing has been noted.
        """
        known = self._decisions.get(request_id)
        if known is not None:
            return known
        _check_time("now", now)
        _check("prompt_tokens", prompt_tokens, 0, whole=True)
        _check("host_hit_tokens", host_hit_tokens, 0, whole=True)
        new_units = prompt_tokens // self.chunk_tokens - host_hit_tokens // self.chunk_tokens
        decision = self._judge(new_units, now, prompt_tokens, task_id, read_report)
        self._decisions[request_id] = decision
        if len(self._decisions) > self.remembered:
            self._decisions.popitem(last=False)
        return decision

    @abstractmethod
    def _judge(
        self,
        new_units: int,
        now: float,
        prompt_tokens: int,
        task_id: Hashable | None,
        read_report: ReadReport | None,
        /,
    ) -> Decision:
        """The decision of a request not seen before."""


class NoAdmission(Admission):
    """Everything is stored."""

    def _judge(self, new_units: int, /, *context: object) -> Decision:
        return Decision(new_units, is_declined=False, is_pressured=False)


class FixedThreshold(Admission):
    """Requests with more than `kappa` new chunks are not stored, at any load.

    Parameters as in `Admission`; `kappa` from 0.
    """

    def __init__(self, chunk_tokens: int, kappa: float = 8, *, remembered: int = REMEMBERED) -> None:
        super().__init__(chunk_tokens, remembered=remembered)
        _check("kappa", kappa, 0)
        self.kappa = kappa

    def _judge(self, new_units: int, /, *context: object) -> Decision:
        return Decision(new_units, is_declined=new_units > self.kappa, is_pressured=True)


class CapacityConditioned(Admission):
    """Requests with more than `kappa` new chunks are not stored while the tier is under pressure.

    Source: Shao et al., EfficientAgent (2026), Section 4; docs/admission.md.

    Parameters
    ----------
    capacity_bytes, kv_bytes_per_token, chunk_tokens
        C_H and beta of one rank, b.
    kappa
        New chunks that are always stored, from 0.
    theta
        Share of the slots from which on the tier counts as full, 0 to 1.
    window_s
        Age up to which a task counts as active.
    n_recent
        First lookups whose prompts make the mean.
    read_interval_s
        A report is read again once the last reading is older; 0 reads at every decision.
    max_age_s
        Age up to which a report counts. One from the future counts.
    n_slots
        Chunks the tier holds, where reports do not say; by default ``floor(C_H / (b beta))``.

    Attributes
    ----------
    failed_reads, last_read_error
        Readings that raised, or gave something else than a report or None, and the last one's error. Such
        a reading counts as no report: telemetry that breaks must not break serving.
    """

    def __init__(
        self,
        capacity_bytes: float,
        kv_bytes_per_token: float,
        chunk_tokens: int,
        *,
        kappa: float = 8,
        theta: float = 0.95,
        window_s: float = WINDOW_S,
        n_recent: int = 256,
        read_interval_s: float = 0.5,
        max_age_s: float = 5.0,
        remembered: int = REMEMBERED,
        n_slots: int | None = None,
    ) -> None:
        super().__init__(chunk_tokens, remembered=remembered)
        _check("capacity_bytes", capacity_bytes, 0, MOST_BYTES)
        _check("kv_bytes_per_token", kv_bytes_per_token, 1, MOST_BYTES)
        _check("kappa", kappa, 0)
        _check("theta", theta, 0, 1)
        _check("window_s", window_s, 0)
        _check("n_recent", n_recent, 1, whole=True)
        _check("read_interval_s", read_interval_s, 0)
        _check("max_age_s", max_age_s, 0)
        if n_slots is None:
            n_slots = int(capacity_bytes // (chunk_tokens * kv_bytes_per_token))
        _check("n_slots", n_slots, 0, whole=True)
        self.capacity_bytes, self.kv_bytes_per_token, self.n_slots = capacity_bytes, kv_bytes_per_token, n_slots
        self.kappa, self.theta, self.window_s, self.n_recent = kappa, theta, window_s, n_recent
        self.read_interval_s, self.max_age_s = read_interval_s, max_age_s
        self.failed_reads = 0
        self.last_read_error: str | None = None
        self._tasks: OrderedDict[Hashable, float] = OrderedDict()  # last first lookup of each, oldest first
        self._recent: deque[int] = deque()
        self._recent_tokens = 0
        self._report: Report | None = None
        self._read_at = -inf

    def _judge(
        self,
        new_units: int,
        now: float,
        prompt_tokens: int,
        task_id: Hashable | None,
        read_report: ReadReport | None,
        /,
    ) -> Decision:
        self._note_lookup(now, prompt_tokens, task_id)
        self._refresh_report(now, read_report)
        self._drop_old_tasks(now)
        tasks = len(self._tasks)
        mean = self._recent_tokens / len(self._recent)
        estimate = (tasks - 1) * mean * self.kv_bytes_per_token
        report = self._report
        if report is not None and not now - report.time_s <= self.max_age_s:
            report = None
        is_pressured = estimate > self.capacity_bytes and (report is None or self._is_full_and_evicting(report))
        return Decision(
            new_units=new_units,
            is_declined=is_pressured and new_units > self.kappa,
            is_pressured=is_pressured,
            is_fresh=report is not None,
            tasks=tasks,
            mean_prompt_tokens=mean,
            estimate_bytes=estimate,
            evictions=None if report is None else report.evictions,
            resident=None if report is None else report.resident,
        )

    def _note_lookup(self, now: float, prompt_tokens: int, task_id: Hashable | None) -> None:
        if task_id is not None:
            self._tasks[task_id] = now
            self._tasks.move_to_end(task_id)
        self._recent.append(prompt_tokens)
        self._recent_tokens += prompt_tokens
        if len(self._recent) > self.n_recent:
            self._recent_tokens -= self._recent.popleft()

    def _drop_old_tasks(self, now: float) -> None:
        while self._tasks and self._tasks[next(iter(self._tasks))] < now - self.window_s:
            self._tasks.popitem(last=False)

    def _refresh_report(self, now: float, read_report: ReadReport | None) -> None:
        if self.read_interval_s > 0 and 0 <= now - self._read_at <= self.read_interval_s:
            return
        self._read_at = now
        self._report = None
        try:
            report = None if read_report is None else read_report()
            if not isinstance(report, Report | None):
                raise TypeError(f"a report source gave {type(report).__name__}")
            self._report = report
        except Exception as error:  # whatever a source raises: it is telemetry, and serving goes on
            self.failed_reads += 1
            self.last_read_error = repr(error)

    def _is_full_and_evicting(self, report: Report) -> bool:
        n_slots = self.n_slots if report.n_slots is None else report.n_slots
        return report.evictions > 0 and report.resident >= self.theta * n_slots


class TierReporter:
    """The publishing side: evictions of a window, and a report whenever one is due.

    Parameters
    ----------
    n_slots
        Chunks the tier holds.
    start_s
        When the tier opened; the first report is due one period later.
    period_s
        Seconds between reports; 0 reports at every call.
    window_s
        Age up to which an eviction counts.
    """

    def __init__(self, n_slots: int, start_s: float, *, period_s: float = 1.0, window_s: float = WINDOW_S) -> None:
        _check("n_slots", n_slots, 0, whole=True)
        _check_time("start_s", start_s)
        _check("period_s", period_s, 0)
        _check("window_s", window_s, 0)
        self.n_slots, self.period_s, self.window_s = n_slots, period_s, window_s
        self._next_s = start_s + period_s
        self._evictions: deque[tuple[float, int]] = deque()
        self._evicted = 0

    def note_evictions(self, now: float, count: int) -> None:
        """Chunks evicted to make room at a time (not those of a clear, or of a failed load)."""
        if count > 0:
            self._drop_old_evictions(now)
            self._evictions.append((now, count))
            self._evicted += count

    def report(self, at: float, resident: int) -> Report:
        """The report of a time."""
        self._drop_old_evictions(at)
        return Report(at, self._evicted, resident, self.n_slots)

    def poll(self, now: float, resident: int) -> Report | None:
        """The report that fell due last, if one has since the last call, of the time it was due."""
        if self.period_s == 0:
            return self.report(now, resident)
        if now < self._next_s:
            return None
        due = self._next_s + floor((now - self._next_s) / self.period_s) * self.period_s
        self._next_s = due + self.period_s
        return self.report(due, resident)

    def _drop_old_evictions(self, at: float) -> None:
        while self._evictions and self._evictions[0][0] < at - self.window_s:
            self._evicted -= self._evictions.popleft()[1]
