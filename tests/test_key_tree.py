"""The tree of keys as it grows: links are those of a search, whatever the keys and wherever the table is made anew."""

import numpy as np
import pytest
from builders import chain, hash_prompts, links
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from strategies import paths

from capplan import key_tree
from capplan.errors import TraceError
from capplan.kernels.key_table import SPREAD
from capplan.key_tree import FIRST_SLOTS, MANY_SLOTS, KeyTree, count_room, enlarge_table
from capplan.linking import Linker

UNSPREAD = pow(int(SPREAD), -1, 1 << 64)
LABELS = {  # what becomes of the n-th block id
    "small": lambda n: n,
    "one tag": lambda n: ((n << 32) * UNSPREAD) % (1 << 64),
    "one slot": lambda n: (n * UNSPREAD) % (1 << 64),
    "low bits 0": lambda n: n << 40,
    "from the top": lambda n: (1 << 64) - 1 - n,
}


def cut(items, places):
    places = sorted({min(place, len(items)) for place in places})
    return [items[a:b] for a, b in zip([0, *places], [*places, len(items)], strict=True)]


@given(
    paths(max_requests=10, max_piece=30),
    st.sampled_from(sorted(LABELS)),
    st.sampled_from([4, 9, 64, FIRST_SLOTS]),
    st.lists(st.integers(0, 10), max_size=3),
    st.booleans(),
)
def test_links_are_those_of_a_search_whatever_collides(prompts, labels, first_slots, cuts, resumes):
    keys = {}
    id_lists = [[LABELS[labels](key) for key in chain(prompt, 1, keys)] for prompt in prompts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_tree, "FIRST_SLOTS", first_slots)
        patch.setattr(key_tree, "MANY_SLOTS", 4 * first_slots)
        linker = Linker()
        for k, piece in enumerate(cut(id_lists, cuts)):
            if k and resumes and linker.kind is not None and linker.keys.starts.size > 1:
                linker = Linker.resume(linker.finish("earlier"), linker.keys)
            linker.feed(hash_prompts(piece, 1), "piece")
    assert links(linker.finish("all")) == link_by_search(id_lists, 1)
    assert linker.keys.segments.size == len(keys)


@given(st.integers(4, 2**32))
def test_a_table_keeps_a_free_slot_and_does_not_grow_by_much(n_slots):
    assert count_room(n_slots) < n_slots
    larger = enlarge_table(n_slots)
    assert n_slots < larger <= 2 * n_slots
    if n_slots >= MANY_SLOTS:
        assert 4 * larger <= 8.01 * count_room(n_slots)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.sampled_from([16, MANY_SLOTS]))
def test_growth_keeps_all_keys(steps, many_slots):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_tree, "FIRST_SLOTS", 4)
        patch.setattr(key_tree, "MANY_SLOTS", many_slots)
        tree = KeyTree.empty()
        assert tree.room == 0
        n_used = 0
        for n_more in steps:
            before = tree.table.size
            tree.add_room(n_used, n_more)
            assert tree.room >= n_used + n_more
            assert tree.table.size > before
            assert tree.segments.size >= tree.room
            assert tree.segments[:n_used].tolist() == list(range(n_used))
            assert np.count_nonzero(tree.table) == n_used
            tree.segments[n_used : n_used + n_more] = range(n_used, n_used + n_more)
            n_used += n_more


def test_a_table_given_up_comes_back_with_all_keys():
    linker = Linker()
    linker.feed(hash_prompts([[1, 2, 3]], 1), "first")
    assert links(linker.finish()) == ([-1], [0])
    linker.feed(hash_prompts([[1, 2, 4]], 1), "second")
    with pytest.raises(TraceError, match="second predecessor"):
        linker.feed(hash_prompts([[9, 4]], 1), "third")
    assert linker.keys.segments.tolist() == [1, 2, 3, 4]


def test_more_keys_than_places_are_refused():
    with pytest.raises(TraceError) as caught:
        KeyTree.empty().add_room(3 * 2**30 - 9, 10)
    assert str(caught.value) == "more than 3,221,225,472 distinct blocks; link the parts of the trace apart"
