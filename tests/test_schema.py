"""Every refusal at the door, with its exact text."""

import dataclasses

import numpy as np
import pytest

from capplan.errors import CapplanError, TraceError
from capplan.prompts import Requests
from capplan.schema import COLUMNS, check_links, check_requests
from capplan.trace import Trace

BIG = (1 << 31) - 1


def requests(n=3, **columns):
    made = Requests.of(np.full(n, 32))
    return dataclasses.replace(made, **columns)


def floats(*values):
    return np.array(values, np.float64)


REFUSED_REQUESTS = {
    "no rows": (lambda: requests(0), "x: no requests; at least one is needed"),
    "negative prompt": (
        lambda: requests(input_tokens=np.array([1, -1, -2])),
        "x, row 1: input_tokens is negative; accepted: 0 or more",
    ),
    "negative output": (
        lambda: requests(output_tokens=np.array([1, 1, -2])),
        "x, row 2: output_tokens is negative; accepted: 0 or more",
    ),
    "endless prompt": (
        lambda: requests(input_tokens=np.array([1, BIG, BIG + 1])),
        f"x, row 2: input_tokens is too large; accepted: up to {BIG}",
    ),
    "endless output": (
        lambda: requests(output_tokens=np.array([2**62, 0, 0])),
        f"x, row 0: output_tokens is too large; accepted: up to {BIG}",
    ),
    "name twice": (
        lambda: requests(request_ids=["a", "b", "a"]),
        "x, row 2: request_id 'a' stands twice; names must be unique",
    ),
}


@pytest.mark.parametrize(("make", "text"), REFUSED_REQUESTS.values(), ids=REFUSED_REQUESTS)
def test_refused_requests(make, text):
    with pytest.raises(TraceError) as caught:
        check_requests(make(), "x")
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["arrival_s", "start_s", "gap_s", "service_s", "tail_gap_s"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1.1e12, -1.1e12])
def test_seconds_out_of_range_are_refused(name, value):
    with pytest.raises(TraceError) as caught:
        check_requests(requests(**{name: floats(np.nan, 1e12, value)}), "x")
    assert str(caught.value) == (f"x, row 2: {name} is out of range; accepted: seconds up to 1e+12 either way, or null")


@pytest.mark.parametrize("name", ["service_s", "tail_gap_s"])
def test_durations_below_zero_are_refused(name):
    with pytest.raises(TraceError) as caught:
        check_requests(requests(**{name: floats(0, -0.5, np.nan)}), "x")
    assert str(caught.value) == f"x, row 1: {name} is negative; accepted: seconds from 0 up, or null"


@pytest.mark.parametrize("name", ["arrival_s", "start_s", "gap_s"])
def test_other_times_may_be_negative(name):
    check_requests(requests(**{name: floats(-5, np.nan, 3)}), "x")


LINKS = {"parent": [-1, 0, 0], "shared": [0, 16, 32], "resolution": 16, "outputs_known": False}
REFUSED_LINKS = {
    "parent is the row itself": (
        {"parent": [-1, 1, 0]},
        "row 1: parent is not an earlier row; accepted: -1 or a smaller row number",
    ),
    "parent comes later": (
        {"parent": [-1, 0, 3]},
        "row 2: parent is not an earlier row; accepted: -1 or a smaller row number",
    ),
    "parent below -1": (
        {"parent": [-2, 0, 0]},
        "row 0: parent is not an earlier row; accepted: -1 or a smaller row number",
    ),
    "negative share": ({"shared": [0, -16, 0]}, "row 1: shared_tokens exceeds the path; accepted: 0 to its length"),
    "share beyond the path": (
        {"shared": [0, 16, 48]},
        "row 2: shared_tokens exceeds the path; accepted: 0 to its length",
    ),
    "share without a parent": (
        {"parent": [-1, -1, 0]},
        "row 1: shared_tokens without a parent; accepted: 0 where parent is -1",
    ),
    "share off the resolution": (
        {"shared": [0, 8, 8]},
        "row 1: shared_tokens is off the resolution; accepted: multiples of 16",
    ),
}


def check(parent, shared, resolution, outputs_known, n_input=(32, 32, 32), n_output=(0, 0, 0)):
    made = requests(input_tokens=np.array(n_input), output_tokens=np.array(n_output))
    check_links(made, np.array(parent), np.array(shared), resolution, outputs_known, "x")


@pytest.mark.parametrize(("change", "text"), REFUSED_LINKS.values(), ids=REFUSED_LINKS)
def test_refused_links(change, text):
    with pytest.raises(TraceError) as caught:
        check(**(LINKS | change))
    assert str(caught.value) == f"x, {text}"


def test_share_beyond_the_parents_path_is_refused():
    with pytest.raises(TraceError) as caught:
        check(**LINKS, n_input=(16, 32, 32))
    assert str(caught.value) == "x, row 2: shared_tokens exceeds the parent's path; accepted: 0 to its length"


@pytest.mark.parametrize("resolution", [0, -1, BIG + 1])
def test_resolution_out_of_range_is_refused(resolution):
    with pytest.raises(TraceError) as caught:
        check(**(LINKS | {"resolution": resolution}))
    assert str(caught.value) == f"x: resolution_tokens is {resolution}; 1 to {BIG} is accepted"


def test_outputs_lengthen_paths_only_where_their_ids_are_known():
    longer = {"n_input": (16, 32, 32), "n_output": (16, 0, 0)}
    check(**(LINKS | {"outputs_known": True}), **longer)
    with pytest.raises(TraceError, match="parent's path"):
        check(**LINKS, **longer)


def test_trace_check_covers_requests_and_links():
    good = Trace(requests(), np.array([-1, 0, 0]), np.array([0, 16, 32]), 16)
    good.check("x")
    with pytest.raises(TraceError, match="stands twice"):
        dataclasses.replace(good, requests=requests(request_ids=["a", "a", "b"])).check("x")
    with pytest.raises(TraceError, match="off the resolution"):
        dataclasses.replace(good, resolution_tokens=32).check("x")


def test_columns_are_those_of_a_trace():
    trace = Trace(requests(), np.array([-1, 0, 0]), np.array([0, 16, 32]), 16)
    for column in COLUMNS:
        holder = {"request_id": "request_ids", "session_id": "session", "task_id": "task"}.get(column.name, column.name)
        values = getattr(trace.requests, holder, None) if hasattr(trace.requests, holder) else getattr(trace, holder)
        assert len(getattr(values, "codes", values)) == 3
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)


def test_trace_errors_are_capplan_errors():
    assert issubclass(TraceError, CapplanError)
