"""The chunk-level engine against a recency list, also on ids that are not prefix-chained."""

import numpy as np
import pytest
from builders import flatten
from hypothesis import given
from hypothesis import strategies as st
from oracles import cut, stack_positions
from strategies import paths

from capplan.kernels.positions import find_positions

unchained = st.lists(st.lists(st.integers(0, 7), max_size=6, unique=True), max_size=12)


def measure(stream, leaf_first):
    numbers = {}
    ids, offsets = flatten(
        [[numbers.setdefault(chunk, len(numbers)) for chunk in chunks] for chunks in stream], np.int64
    )
    position, sequential = find_positions(ids, offsets, leaf_first)
    return position.tolist(), sequential.tolist()


@pytest.mark.parametrize("leaf_first", [True, False])
@given(paths(), st.integers(1, 3))
def test_positions_on_prefix_trees(leaf_first, prompts, size):
    stream = [cut(prompt, size) for prompt in prompts]
    assert measure(stream, leaf_first) == stack_positions(stream, leaf_first)


@pytest.mark.parametrize("leaf_first", [True, False])
@given(unchained)
def test_positions_on_unchained_ids(leaf_first, stream):
    assert measure(stream, leaf_first) == stack_positions(stream, leaf_first)
