"""The table of keys against a dictionary, with keys chosen to fall into one slot and to have one tag."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capplan.kernels.key_table import SPREAD, fill_table, find_place, find_slot
from capplan.kernels.link import MATCHED, append_keys

WORD = 1 << 64
UNSPREAD = pow(int(SPREAD), -1, WORD)


def unspread(spread):
    """The key that is spread to these bits: the upper ones choose the slot, of the lower ones some are the tag."""
    return spread * UNSPREAD % WORD


ANY = st.integers(0, WORD - 1)
ONE_TAG = st.integers(0, 2**32 - 1).map(lambda high: unspread(high << 32))
ONE_SLOT = st.integers(0, 2**32 - 1).map(unspread)
ONE_SLOT_AND_TAG = st.integers(0, 2**20 - 1).map(lambda middle: unspread(middle << 32))
KEYS = st.lists(ANY | ONE_TAG | ONE_SLOT | ONE_SLOT_AND_TAG | st.integers(0, 9), unique=True, max_size=24)


def make_table(n_slots):
    """A table, and the mask of the places of as many keys as the tests put into it."""
    return np.zeros(n_slots, np.uint32), np.uint64(31)


def find_all(table, places, segments, keys):
    with np.errstate(over="ignore"):
        return [int(find_place(table, places, segments, np.uint64(key))) for key in keys]


@given(KEYS, st.sampled_from([25, 32, 63, 4097]), st.lists(ANY | ONE_TAG | ONE_SLOT | ONE_SLOT_AND_TAG, max_size=9))
def test_every_key_is_found_where_it_was_put_and_no_other(keys, n_slots, others):
    table, places = make_table(n_slots)
    segments = np.zeros(len(keys), np.uint64)
    with np.errstate(over="ignore"):
        assert append_keys(table, places, segments, 0, np.array(keys, np.uint64), 0, len(keys)) == MATCHED
    assert find_all(table, places, segments, keys) == list(range(len(keys)))
    known = dict(zip(keys, range(len(keys)), strict=True))
    assert find_all(table, places, segments, others) == [known.get(key, -1) for key in others]


@given(KEYS, st.sampled_from([25, 32, 63, 4097]))
def test_a_table_made_anew_is_the_one_that_grew(keys, n_slots):
    grown, places = make_table(n_slots)
    filled, _ = make_table(n_slots)
    segments = np.zeros(len(keys), np.uint64)
    with np.errstate(over="ignore"):
        append_keys(grown, places, segments, 0, np.array(keys, np.uint64), 0, len(keys))
        fill_table(filled, places, segments, len(keys))
    assert filled.tolist() == grown.tolist()


@given(KEYS.filter(bool), st.data())
def test_a_key_that_is_there_already_is_named_and_not_put_twice(keys, data):
    known = data.draw(st.integers(0, len(keys) - 1))
    table, places = make_table(64)
    segments = np.zeros(len(keys) + 1, np.uint64)
    with np.errstate(over="ignore"):
        assert append_keys(table, places, segments, 0, np.array([*keys, keys[known]], np.uint64), 0, len(keys) + 1) == (
            len(keys)
        )
    assert np.count_nonzero(table) == len(keys)


@given(ONE_SLOT_AND_TAG, ANY)
def test_an_unknown_key_belongs_into_an_empty_slot(known, other):
    table, places = make_table(16)
    segments = np.array([known], np.uint64)
    with np.errstate(over="ignore"):
        fill_table(table, places, segments, 1)
        slot = int(find_slot(table, places, segments, np.uint64(other)))
    assert (table[slot] == 0) == (other != known)
