"""Fenwick tree against a plain list."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capplan.kernels import fenwick


@given(st.integers(1, 40), st.data())
def test_prefix_sums_follow_every_addition(size, data):
    additions = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(-9, 9)), max_size=30))
    tree, plain = np.zeros(size + 1, np.int64), [0] * size
    for index, weight in additions:
        fenwick.add(tree, index, weight)
        plain[index] += weight
        sums = [int(fenwick.prefix_sum(tree, k)) for k in range(-1, size)]
        assert sums == [sum(plain[: k + 1]) for k in range(-1, size)]
