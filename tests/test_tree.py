"""The prefix tree rebuilt from links alone."""

import dataclasses

import numpy as np
from builders import in_order, link_tokens
from hypothesis import given
from hypothesis import strategies as st
from oracles import common_prefix
from strategies import paths, split_paths

from capplan.runs import find_runs
from capplan.tree import build_tree, count_touched_tokens


def walk(tree, node):
    """Blocks from the root to the end of a node, each named by (node, depth)."""
    blocks = []
    while node >= 0:
        begin, end = int(tree.node_begin[node]), int(tree.node_end[node])
        blocks = [(node, depth) for depth in range(begin + 1, end + 1)] + blocks
        node = int(tree.node_parent[node])
    return blocks


def check_against_paths(tree, end_nodes, ends):
    """Every path has as many blocks as its prompt, and two share exactly their common prefix."""
    walks = [walk(tree, node) for node in end_nodes.tolist()]
    for a, left in enumerate(ends):
        assert len(walks[a]) == len(left)
        for b, right in enumerate(ends[:a]):
            assert common_prefix(walks[a], walks[b]) == common_prefix(left, right)


def in_blocks(path, block):
    return [tuple(path[k * block : (k + 1) * block]) for k in range(len(path) // block)]


@given(paths(), st.integers(1, 3))
def test_tree_paths_share_what_the_prompts_share(prompts, block):
    tree = build_tree(link_tokens(prompts, block))
    ends = [in_blocks(prompt, block) for prompt in prompts]
    check_against_paths(tree, tree.prompt_node, ends)
    check_against_paths(tree, tree.touched_node, ends)


@given(split_paths(), st.integers(1, 3))
def test_prompt_and_touched_ends_where_outputs_are_known(made, block):
    whole = [path for path, _ in made]
    trace = link_tokens(whole, block, n_input=[n for _, n in made])
    tree = build_tree(trace)
    touched = [path[: n + max(len(path) - n - 1, 0)] for path, n in made]
    assert count_touched_tokens(trace).tolist() == [len(path) for path in touched]
    check_against_paths(tree, tree.prompt_node, [in_blocks(path[:n], block) for path, n in made])
    check_against_paths(tree, tree.touched_node, [in_blocks(path, block) for path in touched])


@given(paths(), st.integers(1, 3))
def test_nodes_are_numbered_after_their_parents_and_never_empty(prompts, block):
    tree = build_tree(link_tokens(prompts, block))
    assert (tree.node_parent < np.arange(tree.node_parent.size)).all()
    assert (tree.node_end > tree.node_begin).all()
    inner = tree.node_parent >= 0
    assert (tree.node_begin[inner] == tree.node_end[tree.node_parent[inner]]).all()
    assert (tree.node_begin[~inner] == 0).all()


@given(paths(), st.integers(1, 2), st.integers(1, 2), st.randoms(use_true_random=False))
def test_any_row_with_the_same_prefix_will_do_as_parent(prompts, block, scale, random):
    trace = link_tokens(prompts, block)
    parent = trace.parent.copy()
    for row, shared in enumerate(trace.shared_tokens.tolist()):
        if shared:
            same = [q for q in range(row) if prompts[q][:shared] == prompts[row][:shared]]
            parent[row] = random.choice(same)
    other = dataclasses.replace(trace, parent=parent)
    other.check("other links")
    order = in_order(random.sample(range(len(prompts)), len(prompts)))
    found = [find_runs(t, build_tree(t), order, block * scale) for t in (trace, other)]
    for field in dataclasses.fields(found[0]):
        np.testing.assert_array_equal(getattr(found[0], field.name), getattr(found[1], field.name))


def test_empty_paths_have_no_node():
    tree = build_tree(link_tokens([[], []]))
    assert tree.prompt_node.tolist() == [-1, -1]
    assert tree.node_end.size == 0


def test_prompts_that_end_inside_others_cut_them():
    tree = build_tree(link_tokens([[1, 2, 3, 4], [1, 2], [1, 2, 3, 9]]))
    assert sorted(zip(tree.node_begin.tolist(), tree.node_end.tolist(), strict=True)) == [
        (0, 2),
        (2, 3),
        (3, 4),
        (3, 4),
    ]
