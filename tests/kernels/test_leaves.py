"""The set that gives its oldest node, against a plain list."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capplan.kernels import leaves

N = 24
steps = st.tuples(st.sampled_from(["add", "remove", "access"]), st.integers(0, N - 1))


@given(st.integers(0, 2**32 - 1), st.lists(steps, max_size=60))
def test_nodes_come_out_oldest_first(seed, done):
    """All nodes are there at first, in an order that is far from sorted."""
    accessed = np.random.default_rng(seed).permutation(N)
    heap, held, clock = leaves.open_leaves(N), set(), N
    for what, node in [*(("add", node) for node in range(N)), *done]:
        if what == "add":
            leaves.add(heap, accessed, node)
            held.add(node)
        elif what == "remove":
            leaves.remove(heap, accessed, node)
            held.discard(node)
        else:
            clock += 1
            accessed[node] = clock
            if node in held:
                leaves.sink(heap, accessed, node)
    assert heap.n_items[0] == len(held)
    for expected in sorted(held, key=lambda node: accessed[node]):
        assert leaves.find_oldest(heap) == expected
        leaves.remove(heap, accessed, expected)
    assert leaves.find_oldest(heap) == -1
