"""The run kernel against the chunk-level engine: the same positions, run by run."""

import numpy as np
from builders import chain, flatten
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from strategies import paths

from capplan.kernels.positions import find_positions
from capplan.kernels.runs import find_runs


def expand(n_chunks, offsets, table, leaf_first):
    """P and S of every reference, head to tail, by the table of docs/model.md section 2; -1 on first use."""
    position, sequential = [], []
    for c, n in enumerate(n_chunks):
        p_values, s_values = [-1] * n, [-1] * n
        for start, length, above, live in table[offsets[c] : offsets[c + 1]].tolist():
            for i in range(start, start + length):
                p_values[i] = above + (i - start) if leaf_first else above + live - 1 - (i - start)
                s_values[i] = above + n - 1 - start if leaf_first else above + live - 1
        position += p_values
        sequential += s_values
    return position, sequential


def run_table(prompts, size):
    parents, shared = link_by_search(prompts, size)
    n_chunks = [len(prompt) // size for prompt in prompts]
    offsets, table, _ = find_runs(np.array(n_chunks), np.array(parents), np.array(shared) // size)
    return n_chunks, offsets, table


@given(paths(), st.integers(1, 3), st.booleans())
def test_expanded_runs_are_the_positions_of_every_chunk(prompts, size, leaf_first):
    keys = {}
    ids, id_offsets = flatten([chain(prompt, size, keys) for prompt in prompts], np.int64)
    position, sequential = find_positions(ids, id_offsets, leaf_first)
    assert expand(*run_table(prompts, size), leaf_first) == (position.tolist(), sequential.tolist())


@given(paths())
def test_runs_tile_the_shared_prefix_from_the_head(prompts):
    n_chunks, offsets, table = run_table(prompts, 1)
    shared = link_by_search(prompts, 1)[1]
    for c in range(len(n_chunks)):
        depth = 0
        for start, length, _, live in table[offsets[c] : offsets[c + 1]].tolist():
            assert start == depth
            assert 1 <= length <= live
            depth += length
        assert depth == shared[c]


def test_table_grows_beyond_its_first_room():
    n = 40
    lengths = [n, *range(n, 0, -1), n]  # every shorter prompt takes the head of the one before
    prompts = [list(range(k)) for k in lengths]
    _, offsets, table = run_table(prompts, 1)
    assert np.diff(offsets)[-1] == n
    assert len(table) == 2 * n
    assert table[offsets[-2] :, 0].tolist() == list(range(n))
    assert table[offsets[-2] :, 2].tolist() == list(range(n))
