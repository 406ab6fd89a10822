"""Times of any unit and origin become seconds; gaps run from a session's previous response."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.readers.clock import BACKWARDS, Clock, Responses, to_epoch
from capplan.readers.sample import Account

UNKNOWN = float("nan")
times = st.none() | st.integers(-(10**15), 10**15)


@given(st.lists(times), st.integers(1, 5), st.sampled_from([1, 1000, 10**9]))
def test_batches_change_nothing(values, size, per_second):
    whole, parts = Account(), Account()
    expected = Clock(per_second, whole).read(values)
    clock = Clock(per_second, parts)
    found = [second for k in range(0, len(values), size) for second in clock.read(values[k : k + size])]
    np.testing.assert_array_equal(found, expected)
    assert (parts.found, parts.origin_s) == (whole.found, whole.origin_s)
    known = [value for value in values if value is not None]
    assert whole.found[BACKWARDS] == sum(after < before for before, after in pairwise(known))
    assert whole.origin_s == (known[0] / per_second if known else None)
    np.testing.assert_array_equal(
        expected, [UNKNOWN if value is None else (value - known[0]) / per_second for value in values]
    )


def test_epochs_are_told_and_sessions_files_need_no_order():
    account = Account()
    assert Clock(1000, account, is_epoch=True, is_stream=False).read([5000, 4000]).tolist() == [0, -1]
    assert (account.origin_s, account.is_epoch, account.found) == (5, True, {})


def test_gaps_run_from_the_end_of_the_sessions_previous_response():
    responses = Responses()
    first = responses.find_gaps(["a", "b", "a", None], np.array([0, 1, 5, 6.0]), np.array([2, UNKNOWN, 1, 1]))
    second = responses.find_gaps(["b", "a"], np.array([7, 5.5]), np.array([1.0, 1]))
    np.testing.assert_array_equal(first, [UNKNOWN, UNKNOWN, 3, UNKNOWN])
    np.testing.assert_array_equal(second, [UNKNOWN, -0.5])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01 00:00:01", 1),
        ("1970-01-01T01:00:01.2500009+01:00", 1.25),
        ("1970-01-02", 86400),
    ],
)
def test_dates(text, seconds):
    assert to_epoch(text) == seconds
