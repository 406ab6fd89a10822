"""What a trace's fingerprint depends on, and its columns."""

import dataclasses

import numpy as np
import pytest

from capplan.prompts import Labels, Requests, join_labels, join_requests
from capplan.trace import Trace


def make_trace(**columns):
    given = {
        "output_tokens": np.array([5, 6, 7]),
        "request_ids": ["a", "b", "c"],
        "session": Labels.encode(["s", "t", None]),
        "task": Labels.encode(["u", "u", "v"]),
        "arrival_s": np.array([0.0, 1.0, np.nan]),
        "start_s": np.array([0.0, 0.5, np.nan]),
        "gap_s": np.array([np.nan, 0.25, 1.0]),
        "service_s": np.array([1.0, 2.0, 3.0]),
        "tail_gap_s": np.array([np.nan, np.nan, 9.0]),
    }
    links = {"parent": np.array([-1, 0, 0]), "shared_tokens": np.array([0, 16, 32])}
    for name in links:
        links[name] = columns.pop(name, links[name])
    resolution, outputs = columns.pop("resolution_tokens", 16), columns.pop("outputs_known", False)
    n_input = columns.pop("input_tokens", np.array([32, 48, 64]))
    requests = Requests.of(n_input, **(given | columns))
    return Trace(requests, **links, resolution_tokens=resolution, outputs_known=outputs)


RENAMED = {
    "requests": {"request_ids": ["x", "y", "z"]},
    "sessions": {"session": Labels.encode(["t", "s", None])},
    "sessions, numbered otherwise": {"session": Labels(np.array([7, 2, -1]), tuple("abcdefgh"))},
    "tasks": {"task": Labels.encode(["v", "v", "u"])},
}


@pytest.mark.parametrize("change", RENAMED.values(), ids=RENAMED)
def test_renaming_keeps_the_fingerprint(change):
    assert make_trace(**change).fingerprint == make_trace().fingerprint


def test_source_and_notes_are_no_content():
    other = dataclasses.replace(make_trace(), source="elsewhere", notes=("read twice",))
    assert other.fingerprint == make_trace().fingerprint


CHANGED = {
    "input_tokens": np.array([32, 48, 65]),
    "output_tokens": np.array([5, 6, 8]),
    "parent": np.array([-1, 0, 1]),
    "shared_tokens": np.array([0, 16, 16]),
    "resolution_tokens": 8,
    "outputs_known": True,
    "arrival_s": np.array([0.0, 1.0, 2.0]),
    "start_s": np.array([0.0, 0.5, 0.0]),
    "gap_s": np.array([0.0, 0.25, 1.0]),
    "service_s": np.array([1.0, 2.0, 3.5]),
    "tail_gap_s": np.array([np.nan, 0.0, 9.0]),
    "session": Labels.encode(["s", "s", None]),
    "task": Labels.encode(["u", "v", "v"]),
}


@pytest.mark.parametrize("name", CHANGED)
def test_any_change_of_content_changes_the_fingerprint(name):
    assert make_trace(**{name: CHANGED[name]}).fingerprint != make_trace().fingerprint


def test_a_null_session_is_not_a_session():
    assert make_trace(session=Labels.encode(["s", "t", "r"])).fingerprint != make_trace().fingerprint


def test_moving_a_value_to_another_column_changes_the_fingerprint():
    one = make_trace(arrival_s=np.array([1.0, 2, 3]), start_s=np.array([4.0, 5, 6]))
    other = make_trace(arrival_s=np.array([4.0, 5, 6]), start_s=np.array([1.0, 2, 3]))
    assert one.fingerprint != other.fingerprint


def test_every_null_is_the_same_null():
    other = np.array([0.0, 1.0, np.copysign(np.nan, -1)])
    assert make_trace(arrival_s=other).fingerprint == make_trace().fingerprint


# --- the columns of prompts


def test_labels_round_trip_with_nulls():
    values = ["b", None, "a", "b"]
    labels = Labels.encode(values)
    assert labels.codes.tolist() == [0, -1, 1, 0]
    assert labels.decode() == values
    assert not labels.is_complete
    assert Labels.encode(["a"]).is_complete
    assert Labels.missing(2).decode() == [None, None]


def test_joined_labels_keep_equal_names_one_label():
    parts = [["a", None], ["b", "a"], [None], []]
    joined = join_labels([Labels.encode(part) for part in parts])
    assert joined.decode() == [name for part in parts for name in part]
    assert joined.names == ("a", "b")
    assert join_labels([]).decode() == []


def test_joined_requests_are_one_after_the_other():
    requests = make_trace().requests
    joined = join_requests([requests.take(np.array([2])), requests.take(np.array([0, 1]))])
    again = joined.take(np.array([1, 2, 0]))
    for field in dataclasses.fields(Requests):
        left, right = getattr(again, field.name), getattr(requests, field.name)
        if isinstance(left, Labels):
            left, right = left.decode(), right.decode()
        np.testing.assert_array_equal(left, right)


def test_missing_columns_are_null_and_outputs_zero():
    requests = Requests.of(np.array([3, 4]))
    assert len(requests) == 2
    assert list(requests.request_ids) == ["0", "1"]
    assert requests.output_tokens.tolist() == [0, 0]
    assert requests.session.decode() == requests.task.decode() == [None, None]
    assert np.isnan([requests.arrival_s, requests.start_s, requests.gap_s, requests.service_s]).all()
