"""Write admission: the object = the kernel = the rule looked up in the whole history, its sentences one by one,
constant time, an import without numba, and the example of its page."""

import re
import subprocess
import sys
from collections import OrderedDict, deque
from math import floor, inf, nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capplan import admission
from capplan.admission import CapacityConditioned, Decision, FixedThreshold, NoAdmission, Report, TierReporter
from capplan.kernels import gate as gates

ROOT = Path(__file__).parent.parent
CHUNK = 10

# Steps of time that meet every border: windows of 60 s, reports of age 5 s, readings of age 0.5 s.
SHORT_STEPS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 4.0])
LONG_STEPS = st.sampled_from([5.0, 5.25, 30.0, 59.75, 60.0, 60.25, 200.0])
STEPS = SHORT_STEPS | SHORT_STEPS | SHORT_STEPS | LONG_STEPS | st.floats(0, 70)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "step": STEPS,
            "is_lookup": st.sampled_from([True, True, True, False]),
            "task": st.integers(-1, 4),
            "prompt": st.integers(0, 60),
            "hit": st.just(0) | st.integers(0, 70),
            "evicted": st.sampled_from([0, 1, 3]),
            "resident": st.integers(0, 12),
        }
    ),
    min_size=8,
    max_size=40,
)
RULES = st.fixed_dictionaries(
    {
        "kappa": st.sampled_from([0, 1, 2.5]),
        "theta": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "window_s": st.sampled_from([0.0, 1.0, 60.0, 60.0]),
        "n_recent": st.sampled_from([1, 2, 3, 256]),
        "read_interval_s": st.sampled_from([0.0, 0.5, 3.0]),
        "max_age_s": st.sampled_from([0.0, 5.0]),
        "capacity_bytes": st.sampled_from([0, 20, 45.5, 90]),
        "kv_bytes_per_token": st.sampled_from([1, 2.5]),
        "n_slots": st.integers(0, 12),
    }
)
PERIODS = st.sampled_from([0.0, 0.3, 1.0, 7.0])
STARTS = st.sampled_from([0.0, 1.7e9])


def run_kernel(events, rules, period_s, start_s, kind=gates.CONDITIONED):
    """Decisions of the kernel, as records."""
    gate_rules = gates.GateRules(
        kind=kind,
        kappa=float(rules["kappa"]),
        theta=rules["theta"],
        window_s=rules["window_s"],
        n_recent=rules["n_recent"],
        report_period_s=period_s,
        read_interval_s=rules["read_interval_s"],
        max_age_s=rules["max_age_s"],
        capacity_bytes=float(rules["capacity_bytes"]),
        kv_bytes_per_token=float(rules["kv_bytes_per_token"]),
        n_slots=rules["n_slots"],
    )
    gate = gates.open_gate(gate_rules, len(events), 5, start_s)
    decisions = gates.open_decisions(len(events))
    made, now, resident = [], start_s, 0
    for c, event in enumerate(events):
        now += event["step"]
        gates.pass_time(gate_rules, gate, now, resident)
        if event["is_lookup"]:
            new_units = event["prompt"] // CHUNK - event["hit"] // CHUNK
            is_declined = gates.decide(gate_rules, gate, decisions, c, now, event["task"], event["prompt"], new_units)
            made.append(as_record(decisions, c))
            assert made[-1].is_declined == is_declined
        gates.note_evictions(gate, now, event["evicted"])
        resident = event["resident"]
    return made


def as_record(decisions, c):
    values = (column[c].item() for column in decisions)
    return Decision(*(None if value == -1 and k in (4, 7, 8) else known(value) for k, value in enumerate(values)))


def known(value):
    return None if value != value else value


def run_object(events, rules, period_s, start_s):
    """Decisions of the object; every id comes twice, the second time with something else."""
    policy = CapacityConditioned(
        chunk_tokens=CHUNK, **{**rules, "read_interval_s": rules["read_interval_s"] if period_s else 0.0}
    )
    reporter = TierReporter(rules["n_slots"], start_s, period_s=period_s, window_s=rules["window_s"])
    made, now, resident, latest = [], start_s, 0, None
    for c, event in enumerate(events):
        now += event["step"]
        latest = reporter.poll(now, resident) or latest
        if event["is_lookup"]:
            task = None if event["task"] < 0 else f"task {event['task']}"
            made.append(policy.decide(c, now, event["prompt"], event["hit"], task, lambda report=latest: report))
            assert policy.decide(c, now, 59, 0, "task 0", fail) is made[-1]
        reporter.note_evictions(now, event["evicted"])
        resident = event["resident"]
    assert policy.failed_reads == 0
    return made


def fail():
    raise AssertionError("a remembered decision reads no report")


def run_history(events, rules, period_s, start_s):
    """The rule by its definition: windows are looked up in everything that ever happened."""
    lookups, evictions, reports, made = [], [], [], []
    now, resident, read, read_at, n_due = start_s, 0, None, -inf, start_s + period_s
    for event in events:
        now += event["step"]
        if period_s == 0 or now >= n_due:
            due = now if period_s == 0 else n_due + floor((now - n_due) / period_s) * period_s
            count = sum(n for time_s, n in evictions if time_s >= due - rules["window_s"])
            reports.append((due, count, resident))
            n_due = due + period_s
        if event["is_lookup"]:
            lookups.append((now, event["task"], event["prompt"]))
            if 0 in (period_s, rules["read_interval_s"]) or now - read_at > rules["read_interval_s"]:
                read, read_at = reports[-1] if reports else None, now
            made.append(judge(event, lookups, read, rules, now))
        evictions.append((now, event["evicted"]))
        resident = event["resident"]
    return made


def judge(event, lookups, report, rules, now):
    new_units = event["prompt"] // CHUNK - event["hit"] // CHUNK
    tasks = len({task for time_s, task, _ in lookups if task >= 0 and time_s >= now - rules["window_s"]})
    prompts = [prompt for _, _, prompt in lookups][-rules["n_recent"] :]
    mean = sum(prompts) / len(prompts)
    estimate = (tasks - 1) * mean * rules["kv_bytes_per_token"]
    is_fresh = report is not None and now - report[0] <= rules["max_age_s"]
    evicted, resident = report[1:] if is_fresh else (None, None)
    is_occupied = not is_fresh or (evicted > 0 and resident >= rules["theta"] * rules["n_slots"])
    is_pressured = estimate > rules["capacity_bytes"] and is_occupied
    is_declined = is_pressured and new_units > rules["kappa"]
    return Decision(new_units, is_declined, is_pressured, is_fresh, tasks, mean, estimate, evicted, resident)


def at(*steps, evicted=1):
    """Lookups of tasks in turn after so many seconds each, every one of which evicts."""
    same = {"is_lookup": True, "prompt": 60, "hit": 0, "evicted": evicted, "resident": 12}
    return [{"step": step, "task": k % 5, **same} for k, step in enumerate(steps)]


LOADED = {"kappa": 1, "theta": 0.95, "window_s": 60.0, "n_recent": 256, "read_interval_s": 0.5, "max_age_s": 5.0}
LOADED |= {"capacity_bytes": 20, "kv_bytes_per_token": 1, "n_slots": 12}


@given(EVENTS, RULES, PERIODS, STARTS)
@example(at(0.0, 60.0), LOADED, 1.0, 0.0)  # an eviction of exactly 60 s
@example(at(0.0, 10.0, 4.5, 6.5), LOADED, 7.0, 0.0)  # reports of times between lookups
@example(at(0.0, 12.0), LOADED, 7.0, 0.0)  # a report of exactly 5 s
def test_object_kernel_and_history_agree_on_every_field_of_every_decision(events, rules, period_s, start_s):
    of_object = run_object(events, rules, period_s, start_s)
    assert of_object == run_kernel(events, rules, period_s, start_s)
    assert of_object == run_history(events, rules, period_s, start_s)


@given(EVENTS, RULES, st.sampled_from([(NoAdmission(CHUNK), gates.NONE), (None, gates.FIXED)]))
def test_rules_without_a_state_are_the_kernels(events, rules, kinds):
    rule, kind = kinds
    rule = rule or FixedThreshold(CHUNK, rules["kappa"])
    lookups = [event for event in events if event["is_lookup"]]
    made = [rule.decide(object(), 0.0, event["prompt"], event["hit"], "task") for event in lookups]
    assert made == run_kernel(events, rules, 1.0, 0.0, kind)
    assert [decision.is_declined for decision in made] == [
        kind == gates.FIXED and event["prompt"] // CHUNK - event["hit"] // CHUNK > rules["kappa"] for event in lookups
    ]


@given(EVENTS, RULES, PERIODS)
def test_a_stricter_rule_declines_less(events, rules, period_s):
    declined = [decision.is_declined for decision in run_object(events, rules, period_s, 0.0)]
    for change in ({"kappa": rules["kappa"] + 1}, {"capacity_bytes": 2 * rules["capacity_bytes"] + 1}):
        fewer = [decision.is_declined for decision in run_object(events, {**rules, **change}, period_s, 0.0)]
        assert all(before or not after for before, after in zip(declined, fewer, strict=True))


# Sentences of the rule, by hand: chunks of 10 tokens, 1 byte a token, kappa 2, a window of 60 s.


def policy(capacity_bytes=100, **options):
    return CapacityConditioned(capacity_bytes, 1, CHUNK, **{"kappa": 2, "n_slots": 10, **options})


def decide(rule, name, now=0.0, prompt=100, hit=0, task="same as id", report=None):
    task = name if task == "same as id" else task
    return rule.decide(name, now, prompt, hit, task, None if report is None else lambda: report)


def test_estimate_must_exceed_the_capacity():
    rule = policy()
    assert not decide(rule, "a").is_pressured
    second = decide(rule, "b")
    assert (second.tasks, second.mean_prompt_tokens, second.estimate_bytes) == (2, 100, 100)
    assert not second.is_pressured  # equal is not above
    third = decide(rule, "c", prompt=101)
    assert third.estimate_bytes == pytest.approx(2 * 301 / 3)
    assert third.is_pressured
    assert third.is_declined


@pytest.mark.parametrize(
    ("prompt", "hit", "new_units", "is_declined"),
    [(29, 0, 2, False), (30, 0, 3, True), (39, 10, 2, False), (39, 9, 3, True), (40, 40, 0, False), (9, 30, -3, False)],
)
@pytest.mark.parametrize("make", [lambda: FixedThreshold(CHUNK, 2), lambda: policy(capacity_bytes=0)])
def test_new_chunks_must_exceed_kappa(make, prompt, hit, new_units, is_declined):
    rule = make()
    decide(rule, "other")
    decision = decide(rule, "this", prompt=prompt, hit=hit)
    assert (decision.new_units, decision.is_pressured, decision.is_declined) == (new_units, True, is_declined)


def test_without_admission_everything_is_stored():
    assert decide(NoAdmission(CHUNK), "a", prompt=10**9) == Decision(10**8, is_declined=False, is_pressured=False)


def test_no_task_counts_for_none_and_one_task_is_no_pressure():
    rule = policy(capacity_bytes=0)
    nameless = decide(rule, 1, task=None)
    assert (nameless.tasks, nameless.estimate_bytes, nameless.is_pressured) == (0, -100, False)
    for k in range(5):
        alone = decide(rule, f"call {k}", task="alone")
        assert (alone.tasks, alone.estimate_bytes, alone.is_pressured) == (1, 0, False)
    assert decide(rule, 2, task=None).is_pressured is False  # its prompt counts, no task of its own does
    assert decide(rule, 3, task="other").is_pressured is True


def test_task_of_any_name_counts_even_an_empty_one():
    rule = policy(capacity_bytes=0)
    assert [decide(rule, k, task=task).tasks for k, task in enumerate(["", 0, ("a", 1), ""])] == [1, 2, 3, 3]


def test_task_drops_out_after_the_window_and_its_lookups_renew_it():
    rule = policy(capacity_bytes=0)
    decide(rule, 1, now=0.0, task="a")
    decide(rule, 2, now=1.0, task="b")
    assert decide(rule, 3, now=60.0, task=None).tasks == 2  # an age of exactly 60 s counts
    assert decide(rule, 4, now=60.5, task=None).tasks == 1
    decide(rule, 5, now=61.0, task="b")
    assert decide(rule, 6, now=121.0, task=None).tasks == 1
    assert decide(rule, 7, now=121.5, task=None).tasks == 0


def test_mean_is_of_the_last_256_first_lookups_however_old():
    rule = policy()
    decide(rule, "long", prompt=25_600)
    for k in range(255):
        decision = decide(rule, k, now=1e6 * k, prompt=0)
    assert decision.mean_prompt_tokens == 100
    assert decide(rule, "last", prompt=512, now=1e9).mean_prompt_tokens == 2


FULL = Report(0.0, evictions=1, resident=10)


@pytest.mark.parametrize(
    ("report", "is_pressured"),
    [
        (FULL, True),
        (Report(0.0, evictions=0, resident=10), False),  # full, and evicts nothing: there is room for what comes
        (Report(0.0, evictions=7, resident=9), False),  # 0.95 x 10 is more than 9
        (Report(0.0, evictions=1, resident=19, n_slots=20), True),  # what is reported goes before what is assumed
        (Report(0.0, evictions=1, resident=18, n_slots=20), False),
        (Report(0.0, evictions=0, resident=0, n_slots=0), False),
    ],
)
def test_fresh_report_must_say_full_and_evicting(report, is_pressured):
    rule = policy(capacity_bytes=0)
    decide(rule, "a")
    decision = decide(rule, "b", now=0.6, report=report)
    assert (decision.is_fresh, decision.is_pressured, decision.is_declined) == (True, is_pressured, is_pressured)
    assert (decision.evictions, decision.resident) == (report.evictions, report.resident)


def test_report_cannot_make_pressure_where_the_estimate_sees_none():
    assert not decide(policy(), "a", report=FULL).is_pressured


@pytest.mark.parametrize(("now", "is_fresh"), [(0.0, True), (5.0, True), (5.25, False), (-1e6, True)])
def test_report_counts_up_to_an_age_of_5_s_and_from_the_future(now, is_fresh):
    rule = policy(capacity_bytes=0)
    decide(rule, "a", now=now - 0.6)
    decision = decide(rule, "b", now=now, report=Report(0.0, evictions=0, resident=10))
    assert decision.is_fresh is is_fresh
    assert decision.is_pressured is not is_fresh  # a stale one says nothing: the estimate decides alone
    assert (decision.evictions is None) is not is_fresh


def test_report_is_read_again_after_half_a_second():
    rule, reports = policy(), []

    def read():
        reports.append(Report(0.0, evictions=0, resident=len(reports)))
        return reports[-1]

    seen = [rule.decide(k, now, 10, 0, None, read).resident for k, now in enumerate([0.0, 0.25, 0.5, 0.75, 1.0, 1.5])]
    assert seen == [0, 0, 0, 1, 1, 2]
    assert len(reports) == 3


def test_clock_set_back_reads_the_report_at_once():
    rule = policy()
    decide(rule, 1, now=1000.0, report=FULL)
    assert decide(rule, 2, now=10.0, report=Report(10.0, evictions=0, resident=3)).resident == 3


def broken_file():
    raise OSError("no such file")


@pytest.mark.parametrize(
    ("source", "failures", "error"),
    [
        (None, 0, None),
        (lambda: None, 0, None),
        (broken_file, 1, "OSError"),
        (lambda: Report(nan, 0, 0), 1, "time_s is nan"),
        (lambda: Report(time=3), 1, "TypeError"),
        (lambda: {"evictions": 0}, 1, "a report source gave dict"),
    ],
)
def test_missing_or_broken_report_leaves_the_estimate_alone(source, failures, error):
    rule = policy(capacity_bytes=0)
    decide(rule, "a", report=Report(0.0, evictions=0, resident=0))
    decision = rule.decide("b", 0.6, 100, 0, "b", source)  # what was read before no longer counts
    assert (decision.is_fresh, decision.is_declined) == (False, True)
    assert rule.failed_reads == failures
    assert (rule.last_read_error is None) == (error is None)
    assert error is None or error in rule.last_read_error
    rule.decide("c", 0.7, 100, 0, "c", source)
    assert rule.failed_reads == failures  # a broken source is asked no more often


def test_source_is_not_asked_to_stop():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policy().decide("a", 0.0, 1, 0, None, interrupted)


def test_decision_holds_for_the_life_of_a_request():
    rule = policy(capacity_bytes=0)
    decide(rule, "other")
    first = decide(rule, "a")
    assert first.is_declined
    after_preemption = rule.decide("a", 500.0, 100, 100, "third", broken_file)
    assert after_preemption is first
    assert rule.failed_reads == 0
    assert decide(rule, "b", now=0.1).tasks == 3  # neither its time nor its task was noted


@pytest.mark.parametrize("make", [NoAdmission, FixedThreshold, lambda b: CapacityConditioned(0, 1, b)])
def test_65536_decisions_are_remembered_the_first_forgotten_first(make):
    rule = make(CHUNK)
    first, second = rule.decide(0, 0.0, 10, 0), rule.decide(1, 0.0, 20, 0)
    for k in range(2, 65_536):
        rule.decide(k, 0.0, 10, 0)
    assert rule.decide(0, 0.0, 90, 0) is first  # asking again makes it no younger
    rule.decide(65_536, 0.0, 10, 0)
    assert rule.decide(1, 0.0, 90, 0) is second
    assert rule.decide(0, 0.0, 90, 0).new_units == 9


def test_defaults_are_the_published_ones():
    rule = CapacityConditioned(5 * 2**30, 24_576, 1024)
    assert (rule.kappa, rule.theta, rule.window_s, rule.n_recent) == (8, 0.95, 60, 256)
    assert (rule.read_interval_s, rule.max_age_s, rule.remembered) == (0.5, 5, 65_536)
    assert rule.n_slots == 213  # floor(5 GiB / 24 MiB)
    assert FixedThreshold(1024).kappa == 8


# The publishing side.


def test_reporter_counts_evictions_up_to_an_age_of_60_s():
    reporter = TierReporter(10, 0.0)
    reporter.note_evictions(0.0, 2)
    reporter.note_evictions(0.0, 0)
    reporter.note_evictions(30.0, 3)
    assert reporter.report(60.0, 7) == Report(60.0, evictions=5, resident=7, n_slots=10)
    assert reporter.report(60.5, 7).evictions == 3
    assert reporter.report(91.0, 7).evictions == 0


def test_reporter_reports_once_a_period_of_the_time_it_was_due():
    reporter = TierReporter(10, 100.0)
    times = [100.0, 100.75, 101.0, 101.5, 104.25, 104.5, 105.0]
    assert [report and report.time_s for report in (reporter.poll(now, 0) for now in times)] == [
        None, None, 101.0, None, 104.0, None, 105.0,
    ]  # fmt: skip
    at_once = TierReporter(10, 100.0, period_s=0)
    assert [at_once.poll(now, 0).time_s for now in (100.0, 100.0, 100.1)] == [100.0, 100.0, 100.1]


# Constant time: operations are counted.


class CountedWalk:
    """A container that counts the entries a walk over it visits."""

    visited = 0

    def __iter__(self):
        for entry in super().__iter__():
            CountedWalk.visited += 1
            yield entry


class CountedDict(CountedWalk, OrderedDict):
    pass


class CountedDeque(CountedWalk, deque):
    pass


def count_lines(call, limit=10**9):
    """Lines of Python that a call runs, and entries it visits."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace

    before, visited = sys.gettrace(), CountedWalk.visited
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines, CountedWalk.visited - visited


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(admission, "OrderedDict", CountedDict)
    monkeypatch.setattr(admission, "deque", CountedDeque)


@pytest.mark.parametrize("n_before", [300, 3000])
def test_decision_costs_the_same_after_any_history(counted, n_before):
    rule = policy(capacity_bytes=0, n_recent=100, remembered=200)
    for k in range(n_before):
        decide(rule, k, now=k * 1e-3)
    lines, visited = count_lines(lambda: decide(rule, "next", now=n_before * 1e-3))
    assert visited <= 1
    assert lines < 100


def test_entry_leaves_a_window_once(counted):
    rule = policy(capacity_bytes=0)
    n = 500
    for k in range(n):
        decide(rule, k, now=k * 1e-3)
    all_leave, visited = count_lines(lambda: decide(rule, "later", now=1000.0))
    assert n <= visited <= n + 1
    none_leaves, visited = count_lines(lambda: decide(rule, "after", now=1000.0))
    assert visited <= 1
    assert all_leave < none_leaves + 6 * n


@given(st.lists(st.tuples(STEPS, st.integers(0, 30)), max_size=60))
@example([(0.0, 1)] * 50)
def test_windows_hold_no_more_than_they_must(stream):
    rule, reporter, now, times = policy(n_recent=3, remembered=5), TierReporter(10, 0.0), 0.0, {}
    noted = []
    for k, (step, task) in enumerate(stream):
        now += step
        times[task] = now
        noted.append(now)
        decide(rule, k, now=now, task=task)
        reporter.note_evictions(now, 1)
        assert len(rule._tasks) == sum(time_s >= now - 60 for time_s in times.values())
        assert len(rule._recent) == min(3, k + 1)
        assert len(rule._decisions) == min(5, k + 1)
        assert len(reporter._evictions) == sum(time_s >= now - 60 for time_s in noted)


# Bad numbers.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NoAdmission(0), "chunk_tokens is 0; accepted is a whole number from 1 up"),
        (lambda: NoAdmission(1024.0), "chunk_tokens is 1024.0; accepted is a whole number from 1 up"),
        (lambda: NoAdmission(1, remembered=0), "remembered is 0; accepted is a whole number from 1 up"),
        (lambda: FixedThreshold(1, -1), "kappa is -1; accepted is a number from 0 up"),
        (lambda: FixedThreshold(1, "8"), "kappa is '8'; accepted is a number from 0 up"),
        (lambda: policy(capacity_bytes=-1), "capacity_bytes is -1; accepted is a number from 0 to"),
        (lambda: policy(capacity_bytes=inf), "capacity_bytes is inf; accepted is a number from 0 to"),
        (lambda: CapacityConditioned(1, 0, 1), "kv_bytes_per_token is 0; accepted is a number from 1 to"),
        (lambda: policy(theta=1.5), "theta is 1.5; accepted is a number from 0 to 1"),
        (lambda: policy(theta=nan), "theta is nan; accepted is a number from 0 to 1"),
        (lambda: policy(window_s=-1), "window_s is -1; accepted is a number from 0 up"),
        (lambda: policy(n_recent=0), "n_recent is 0; accepted is a whole number from 1 up"),
        (lambda: policy(read_interval_s=-1), "read_interval_s is -1; accepted is a number from 0 up"),
        (lambda: policy(max_age_s=None), "max_age_s is None; accepted is a number from 0 up"),
        (lambda: policy(n_slots=-1), "n_slots is -1; accepted is a whole number from 0 up"),
        (lambda: Report(inf, 0, 0), "time_s is inf; accepted are finite seconds"),
        (lambda: Report(0, -1, 0), "evictions is -1; accepted is a whole number from 0 up"),
        (lambda: Report(0, 0, 1.5), "resident is 1.5; accepted is a whole number from 0 up"),
        (lambda: Report(0, 0, 0, -1), "n_slots is -1; accepted is a whole number from 0 up"),
        (lambda: TierReporter(-1, 0), "n_slots is -1; accepted is a whole number from 0 up"),
        (lambda: TierReporter(1, nan), "start_s is nan; accepted are finite seconds"),
        (lambda: TierReporter(1, 0, period_s=-1), "period_s is -1; accepted is a number from 0 up"),
        (lambda: TierReporter(1, 0, window_s=-1), "window_s is -1; accepted is a number from 0 up"),
    ],
)
def test_bad_number_is_refused_with_what_is_accepted(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((nan, 1, 0), "now is nan; accepted are finite seconds"),
        ((0.0, -1, 0), "prompt_tokens is -1; accepted is a whole number from 0 up"),
        ((0.0, 1, None), "host_hit_tokens is None; accepted is a whole number from 0 up"),
    ],
)
def test_bad_lookup_is_refused_and_not_noted(arguments, message):
    rule = policy()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        rule.decide("a", *arguments, "task")
    decision = decide(rule, "a", prompt=30)
    assert (decision.tasks, decision.mean_prompt_tokens) == (1, 30)


def test_numbers_of_numpy_are_numbers():
    rule = CapacityConditioned(np.int64(100), np.float64(1), np.int32(CHUNK), theta=np.float32(0.5))
    assert rule.decide("a", np.float64(0), np.int64(45), np.int64(10)).new_units == 3


# What a connector needs.


def run_python(text):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=ROOT)


def test_import_brings_only_the_standard_library():
    result = run_python(
        "import sys; before = set(sys.modules); import capplan.admission;"
        "print({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    assert result.stdout == "{'capplan'}\n", result.stderr


def test_example_of_the_page_runs_and_prints_what_it_shows(tmp_path):
    page = (ROOT / "docs/admission.md").read_text(encoding="utf-8")
    (code,), (shown,) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text"))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.stdout == shown, result.stderr


def test_page_names_the_defaults():
    page = (ROOT / "docs/admission.md").read_text(encoding="utf-8")
    rule = CapacityConditioned(1, 1, 1)
    for name in ("kappa", "theta", "window_s", "n_recent", "read_interval_s", "max_age_s", "remembered"):
        assert f"| `{name}` | {getattr(rule, name):,g} |" in page
