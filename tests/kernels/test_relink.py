"""Links in a new order against links found by comparing prompts in that order."""

import numpy as np
import pytest
from builders import link_tokens
from hypothesis import given
from hypothesis import strategies as st
from oracles import common_prefix, link_by_search
from strategies import paths

from capplan.kernels import relink
from capplan.tree import build_tree


@given(paths(), st.randoms(use_true_random=False))
def test_shared_depth_in_any_order_is_that_of_the_reordered_prompts(prompts, random):
    tree = build_tree(link_tokens(prompts))
    rows = list(range(len(prompts)))
    random.shuffle(rows)
    previous, depth = relink.relink(np.array(rows), tree.prompt_node, tree.node_parent, tree.node_end)
    reordered = [prompts[row] for row in rows]
    assert depth.tolist() == link_by_search(reordered, 1)[1]
    for position, (earlier, shared) in enumerate(zip(previous.tolist(), depth.tolist(), strict=True)):
        assert earlier < position
        if shared:
            assert common_prefix(reordered[earlier], reordered[position]) >= shared
        else:
            assert earlier == -1


def test_segment_row_owns_the_depth():
    parent, shared = np.array([-1, 0, 1, 1]), np.array([0, 4, 6, 2])
    rows, depths = np.array([2, 2, 2, 2, 3, 3, 3]), np.array([7, 6, 5, 4, 3, 2, 0])
    assert relink.find_segment_rows(parent, shared, rows, depths).tolist() == [2, 1, 1, 0, 3, 0, -1]


@pytest.mark.parametrize("n_requests", [0, 3])
def test_empty_paths_share_nothing(n_requests):
    rows, none = np.arange(n_requests), np.zeros(0, np.int64)
    previous, depth = relink.relink(rows, np.full(n_requests, -1), none, none)
    assert previous.tolist() == [-1] * n_requests
    assert depth.tolist() == [0] * n_requests
