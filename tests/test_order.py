"""Streams: recorded, and a pool of slots worked through by hand."""

import dataclasses

import numpy as np
import pytest
from builders import link_tokens
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import TraceError
from capplan.order import Order, choose_order, count_open_tasks, fill_pool, find_starts, follow_record
from capplan.prompts import Labels, Requests
from capplan.readers import read_trace
from capplan.trace import Trace

NAN = float("nan")


def make_trace(n, **columns):
    """A trace of `n` one-token prompts with the given columns as lists."""
    columns = {
        name: Labels.encode(values) if name in ("task", "session") else np.array(values, np.float64)
        for name, values in columns.items()
    }
    requests = Requests.of(np.ones(n, np.int64), **columns)
    return Trace(requests, np.full(n, -1, np.int64), np.zeros(n, np.int64), 1, source="t")


# --- recorded order


def test_recorded_order_sorts_by_arrival_and_keeps_ties_in_row_order():
    order = follow_record(make_trace(6, arrival_s=[5, 1, 5, 0, 1, 5], service_s=[1, 9.5, NAN, 0, 0, 4]))
    assert order.rows.tolist() == [3, 1, 4, 0, 2, 5]
    assert order.time_s.tolist() == [0, 1, 1, 5, 5, 5]
    assert order.end_s == 10.5
    assert order.kind == "recorded"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_recorded_order_is_stable(arrivals):
    order = follow_record(make_trace(len(arrivals), arrival_s=arrivals))
    assert order.rows.tolist() == sorted(range(len(arrivals)), key=lambda row: arrivals[row])
    assert order.is_identity == (arrivals == sorted(arrivals))


def test_without_any_arrival_rows_follow_each_other():
    order = follow_record(make_trace(3))
    assert (order.rows.tolist(), order.time_s, order.end_s) == ([0, 1, 2], None, None)
    assert order.assumptions == ("no arrival times: requests follow row order",)


def test_some_arrivals_missing_are_refused():
    with pytest.raises(TraceError) as caught:
        follow_record(make_trace(3, arrival_s=[0, 1, NAN]))
    assert str(caught.value) == (
        "t, row 2: arrival_s is missing; a recorded order needs it on every row (--order pool uses tasks instead)"
    )


def test_recorded_times_are_the_default_where_complete_and_else_a_pool_of_16():
    timed = make_trace(2, arrival_s=[1, 0], task=["a", "b"], start_s=[0, 0])
    assert choose_order(timed).kind == "recorded"
    assert choose_order(timed, pool_size=3).pool_size == 3
    assert choose_order(timed, "pool").pool_size == 16
    assert choose_order(make_trace(2, arrival_s=[1, NAN], task=["a", "b"])).kind == "pool"
    assert choose_order(make_trace(2, task=["a", "b"]), "recorded").kind == "recorded"


def test_unknown_order_is_refused():
    with pytest.raises(ValueError, match="order is 'random'; accepted: 'recorded', 'pool'"):
        choose_order(make_trace(1), "random")


# --- pool


def test_tasks_take_the_slot_that_frees_first_and_ties_go_to_the_lowest():
    trace = make_trace(
        5, task=["a", "b", "c", "d", "e"], start_s=[0, 0, 0, 0, 0], service_s=[4, 4, 2, 1, 1]
    )  # a: slot 0 to 4, b: slot 1 to 4, c: slot 0 at 4 to 6, d: slot 1 at 4 to 5, e: slot 1 at 5
    order = fill_pool(trace, 2)
    assert order.rows.tolist() == [0, 1, 2, 3, 4]
    assert order.time_s.tolist() == [0, 0, 4, 4, 5]
    assert (order.end_s, order.pool_size, order.kind) == (6, 2, "pool")


def test_requests_of_concurrent_tasks_interleave_by_time_then_row():
    trace = make_trace(5, task=["a", "a", "b", "b", "a"], start_s=[0, 3, 0, 3, 1])
    assert fill_pool(trace, 2).rows.tolist() == [0, 2, 4, 1, 3]
    assert fill_pool(trace, 1).rows.tolist() == [0, 4, 1, 2, 3]


def test_slot_frees_at_the_latest_response_of_all_sessions_of_the_task():
    trace = make_trace(4, task=["a", "a", "a", "b"], start_s=[0, 2, 1, 0], service_s=[1, 1, 9, 1])
    assert fill_pool(trace, 1).time_s.tolist() == [0, 1, 2, 10]


def test_tail_gap_of_the_tasks_last_row_holds_the_slot():
    trace = make_trace(3, task=["a", "a", "b"], start_s=[0, 1, 0], service_s=[1, NAN, 1], tail_gap_s=[50, 2.5, NAN])
    assert fill_pool(trace, 1).time_s.tolist() == [0, 1, 3.5]


def test_tasks_begin_in_the_order_of_their_first_rows():
    trace = make_trace(4, task=["b", "a", "b", "a"], start_s=[0, 0, 1, 1], service_s=[1, 1, 1, 1])
    assert fill_pool(trace, 1).rows.tolist() == [0, 2, 1, 3]
    numbered_otherwise = Labels(np.array([1, 0, 1, 0]), ("a", "b"))
    requests = dataclasses.replace(trace.requests, task=numbered_otherwise)
    assert fill_pool(dataclasses.replace(trace, requests=requests), 1).rows.tolist() == [0, 2, 1, 3]


@given(st.data())
def test_pool_of_as_many_slots_as_tasks_starts_all_at_zero(data):
    tasks = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
    starts = data.draw(st.lists(st.integers(0, 5), min_size=len(tasks), max_size=len(tasks)))
    order = fill_pool(make_trace(len(tasks), task=tasks, start_s=starts), 3)
    assert order.rows.tolist() == sorted(range(len(tasks)), key=lambda row: starts[row])
    assert order.time_s.tolist() == sorted(starts)


def simulate_pool(tasks, lengths, pool_size):
    """Begin of every task, slot by slot, without a heap."""
    free = [0.0] * pool_size
    begin = {}
    for task in dict.fromkeys(tasks):
        slot = free.index(min(free))
        begin[task] = free[slot]
        free[slot] += lengths[task]
    return begin


@given(st.data(), st.integers(1, 4))
def test_pool_is_that_of_a_list_of_slots(data, pool_size):
    tasks = data.draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=20))
    starts = data.draw(st.lists(st.integers(0, 5), min_size=len(tasks), max_size=len(tasks)))
    services = data.draw(st.lists(st.integers(0, 3), min_size=len(tasks), max_size=len(tasks)))
    ends = list(zip(tasks, starts, services, strict=True))
    lengths = {task: max(start + service for own, start, service in ends if own == task) for task in set(tasks)}
    begin = simulate_pool(tasks, lengths, pool_size)
    sent = [begin[task] + start for task, start in zip(tasks, starts, strict=True)]
    order = fill_pool(make_trace(len(tasks), task=tasks, start_s=starts, service_s=services), pool_size)
    assert order.rows.tolist() == sorted(range(len(tasks)), key=lambda row: sent[row])
    assert order.time_s.tolist() == sorted(sent)


def test_pool_needs_a_task_on_every_row():
    with pytest.raises(TraceError) as caught:
        fill_pool(make_trace(3, task=["a", None, "b"], start_s=[0, 0, 0]), 4)
    assert str(caught.value) == (
        "t, row 1: no task id, so a pool cannot be formed; accepted: task_id or session_id on every row, or arrival "
        "times with --order recorded"
    )


def test_pool_needs_a_slot():
    with pytest.raises(ValueError, match="pool size is 0; 1 or more is accepted"):
        fill_pool(make_trace(1, task=["a"]), 0)


# --- starts


def test_recorded_starts_need_no_assumption():
    assert find_starts(make_trace(2, task=["a", "a"], start_s=[0, 4]).requests)[1] == ()


def test_starts_from_arrivals_are_counted_from_the_tasks_first():
    requests = make_trace(4, task=["a", "b", "a", "b"], arrival_s=[10, 12, 11, 15], start_s=[NAN, NAN, 7, NAN]).requests
    starts, assumptions = find_starts(requests)
    assert starts.tolist() == [0, 0, 7, 3]
    assert assumptions == ()


def test_starts_from_gaps_add_up_per_session():
    requests = make_trace(
        5,
        task=["a", "a", "a", "a", "b"],
        session=["m", "m", "sub", "m", "n"],
        gap_s=[NAN, 2, 5, 1, NAN],
        service_s=[3, 4, 1, 1, 1],
    ).requests
    starts, assumptions = find_starts(requests)
    assert starts.tolist() == [0, 5, 5, 10, 0]
    assert assumptions == (
        "start times of 5 requests are built from gaps and service times (2 of them unknown, taken as 0 s)",
    )


def test_a_recorded_start_carries_the_gaps_after_it():
    requests = make_trace(
        3, task=["a"] * 3, session=["m"] * 3, start_s=[NAN, 20, NAN], gap_s=[0, 1, 2], service_s=[1, 1, 1]
    ).requests
    starts, assumptions = find_starts(requests)
    assert starts.tolist() == [0, 20, 23]
    assert assumptions == ("start times of 2 requests are built from gaps and service times",)


def test_pool_reports_what_it_assumed():
    assert fill_pool(make_trace(2, task=["a", "a"]), 1).assumptions == (
        "start times of 2 requests are built from gaps and service times (2 of them unknown, taken as 0 s)",
    )


# --- open tasks


def test_open_tasks_of_a_pool_are_its_slots():
    trace = make_trace(2, task=["a", "b"], start_s=[0, 0])
    assert count_open_tasks(trace, fill_pool(trace, 5)) == 5


def test_open_tasks_of_a_record_are_averaged_over_time():
    trace = make_trace(4, task=["a", "b", "a", "b"], arrival_s=[0, 1, 3, 9], service_s=[1, 1, 1, 1])
    assert count_open_tasks(trace, follow_record(trace)) == pytest.approx((4 + 9) / 10)


@pytest.mark.parametrize(
    "columns",
    [
        {"task": ["a", "b"]},
        {"arrival_s": [0, 1]},
        {"task": ["a", None], "arrival_s": [0, 1]},
        {"task": ["a", "b"], "arrival_s": [3, 3]},
    ],
    ids=["no clock", "no tasks", "a task missing", "no time passes"],
)
def test_open_tasks_are_unknown(columns):
    trace = make_trace(2, **columns)
    assert count_open_tasks(trace, follow_record(trace)) is None


def test_span_from_a_position_ends_with_the_last_response():
    order = Order("recorded", np.arange(3), np.array([0.0, 2.0, 5.0]), 9.0)
    assert [order.span_from(k) for k in (0, 2, 3)] == [9.0, 4.0, None]
    assert follow_record(make_trace(2)).span_from(0) is None


# --- real sessions


@pytest.fixture(scope="module")
def sessions(real_traces):
    return read_trace(real_traces / "kv-cache-tester" / "sessions")


def count_ties(order):
    return int((np.diff(order.time_s) == 0).sum())


def begin_of(trace, order, name):
    task = trace.requests.task
    sent = np.empty(len(trace))
    sent[order.rows] = order.time_s
    rows = task.codes == task.names.index(name)
    return float((sent - trace.requests.start_s)[rows].min())


@pytest.mark.parametrize(
    ("pool_size", "name", "begin_s", "end_s", "n_ties"),
    [(8, "trace_0034", 368.59, 39_090.26, 29), (16, "trace_0056", 131.72, 26_133.51, 51)],
)
def test_pool_of_real_sessions(sessions, pool_size, name, begin_s, end_s, n_ties):
    order = choose_order(sessions, pool_size=pool_size)
    assert begin_of(sessions, order, name) == pytest.approx(begin_s, abs=1e-6)
    assert order.end_s == pytest.approx(end_s, abs=1e-6)
    assert count_ties(order) == n_ties
    waiting = sessions.requests.task.names.index(name)
    assert all(begin_of(sessions, order, earlier) == 0 for earlier in sessions.requests.task.names[:pool_size])
    assert waiting == pool_size  # the first task that has to wait


def test_recorded_ties_of_a_real_trace(real_traces):
    trace = read_trace(real_traces / "mooncake" / "synthetic_trace.jsonl")
    order = choose_order(trace)
    assert count_ties(order) == 11
    assert order.is_identity


def test_linked_tokens_have_no_clock():
    assert choose_order(link_tokens([[1], [1]]), "recorded").time_s is None
