"""Run tables against direct LRU simulation: any order, chunk size, path and capacity."""

import dataclasses

import numpy as np
import pytest
from builders import in_order, link_tokens, token_prompts
from hypothesis import given
from hypothesis import strategies as st
from oracles import cover_sequentially, cut, simulate, stack_positions
from strategies import paths, split_paths

from capplan.curve import cover_requests
from capplan.errors import TraceError
from capplan.linking import link_prompts
from capplan.runs import find_runs, tabulate_runs
from capplan.tree import build_tree

shuffles = st.randoms(use_true_random=False)


def runs_of(trace, rows, chunk_tokens, path="prompt"):
    return find_runs(trace, build_tree(trace), in_order(rows), chunk_tokens, path)


def shuffled(n, random):
    return random.sample(range(n), n)


def check_coverage(runs, stream):
    """Every request's coverage at every capacity, both touch orders, both distances."""
    assert runs.n_chunks.tolist() == [len(chunks) for chunks in stream]
    assert runs.n_distinct == len({chunk for chunks in stream for chunk in chunks})
    for touch in ("leaf-first", "head-first"):
        for k in range(runs.n_distinct + 2):
            covered = (cover_requests(runs, k, touch) // runs.chunk_tokens).tolist()
            assert covered == simulate(stream, k, touch == "leaf-first")[0]
            sequential = (cover_requests(runs, k, touch, "sequential") // runs.chunk_tokens).tolist()
            assert sequential == cover_sequentially(stream, k, touch == "leaf-first")


@given(paths(), st.integers(1, 3), st.integers(1, 3), shuffles)
def test_coverage_is_that_of_a_real_lru_in_any_order(prompts, block, scale, random):
    rows, chunk = shuffled(len(prompts), random), block * scale
    runs = runs_of(link_tokens(prompts, block), rows, chunk)
    check_coverage(runs, [cut(prompts[row], chunk) for row in rows])


@given(split_paths(), st.integers(1, 2), st.integers(1, 2), shuffles)
def test_tiers_may_touch_prompts_or_outputs_too(made, block, scale, random):
    trace = link_tokens([path for path, _ in made], block, n_input=[n for _, n in made])
    rows, chunk = shuffled(len(made), random), block * scale
    touched = [path[: n + max(len(path) - n - 1, 0)] for path, n in made]
    check_coverage(runs_of(trace, rows, chunk), [cut(made[row][0][: made[row][1]], chunk) for row in rows])
    check_coverage(runs_of(trace, rows, chunk, "touched"), [cut(touched[row], chunk) for row in rows])


@given(paths(), st.integers(1, 2), shuffles)
def test_relinking_is_linking_the_reordered_prompts(prompts, chunk, random):
    rows = shuffled(len(prompts), random)
    relinked = runs_of(link_tokens(prompts), rows, chunk)
    linked = runs_of(link_tokens([prompts[row] for row in rows]), range(len(rows)), chunk)
    for field in dataclasses.fields(linked):
        np.testing.assert_array_equal(getattr(relinked, field.name), getattr(linked, field.name))


@given(paths(), st.integers(1, 3))
def test_resolution_of_linking_does_not_show_at_coarser_chunks(prompts, block):
    rows = range(len(prompts))
    fine, coarse = (
        runs_of(link_tokens(prompts, 1), rows, 2 * block),
        runs_of(link_tokens(prompts, block), rows, 2 * block),
    )
    for field in dataclasses.fields(fine):
        np.testing.assert_array_equal(getattr(fine, field.name), getattr(coarse, field.name))


def positions_per_chunk(runs, touch):
    """P and S of every reference from the table of docs/model.md section 2; -1 on first use."""
    position, sequential = [], []
    at_touch = runs.touch_positions(touch).tolist()
    for c, n in enumerate(runs.n_chunks.tolist()):
        p_values, s_values = [-1] * n, [-1] * n
        for k in range(runs.offsets[c], runs.offsets[c + 1]):
            for i in range(runs.length[k]):
                down = i if touch == "leaf-first" else runs.live[k] - 1 - i
                p_values[runs.start[k] + i] = int(runs.above[k] + down)
                s_values[runs.start[k] + i] = at_touch[k]
        position += p_values
        sequential += s_values
    return position, sequential


@pytest.mark.parametrize("touch", ["leaf-first", "head-first"])
@given(paths(), st.integers(1, 2))
def test_lookup_and_touch_positions_of_every_chunk(touch, prompts, chunk):
    stream = [cut(prompt, chunk) for prompt in prompts]
    expected = stack_positions(stream, touch == "leaf-first")
    assert positions_per_chunk(runs_of(link_tokens(prompts), range(len(prompts)), chunk), touch) == expected


@given(paths(), st.integers(1, 2), st.sampled_from(["leaf-first", "head-first"]))
def test_sequential_distance_is_never_below_the_position(prompts, chunk, touch):
    runs = runs_of(link_tokens(prompts), range(len(prompts)), chunk)
    position, sequential = positions_per_chunk(runs, touch)
    assert all(s >= p for p, s in zip(position, sequential, strict=True))


@given(paths(), st.data(), st.integers(1, 2))
def test_splitting_and_renaming_sessions_changes_nothing(prompts, data, chunk):
    names = st.lists(st.sampled_from("abc"), min_size=len(prompts), max_size=len(prompts))
    tables = [
        runs_of(link_prompts([token_prompts(prompts, 1, session=session)]), range(len(prompts)), chunk)
        for session in (data.draw(names), data.draw(names), ["one"] * len(prompts))
    ]
    for field in dataclasses.fields(tables[0]):
        for other in tables[1:]:
            np.testing.assert_array_equal(getattr(tables[0], field.name), getattr(other, field.name))


def test_one_agent_larger_than_its_tier():
    """Prompts of 60 chunks in a tier of 50: a lookup finds 50, the published convention says 0."""
    runs = runs_of(link_tokens([list(range(60))] * 2), [0, 1], 1)
    assert cover_requests(runs, 50).tolist() == [0, 50]
    assert cover_requests(runs, 50, distance="sequential").tolist() == [0, 0]
    assert cover_requests(runs, 50, "head-first").tolist() == [0, 0]


@pytest.mark.parametrize("chunk", [0, -16, 8, 24])
def test_chunks_off_the_resolution_are_refused(chunk):
    trace = dataclasses.replace(link_tokens([[1] * 40], 16), source="t")
    with pytest.raises(TraceError) as caught:
        runs_of(trace, [0], chunk)
    assert str(caught.value) == (
        f"t: chunks of {chunk} tokens cannot be cut from blocks of 16; multiples of 16 are accepted"
    )


BAD_LINKS = {
    "to itself": ([3], [0], [1]),
    "to a later position": ([3, 3], [1, -1], [1, 0]),
    "negative share": ([3, 3], [-1, 0], [0, -1]),
    "longer than its own path": ([5, 3], [-1, 0], [0, 4]),
    "longer than the earlier path": ([3, 5], [-1, 0], [0, 4]),
    "shared with nobody": ([3, 3], [-1, -1], [0, 1]),
}


@pytest.mark.parametrize(("n_chunks", "previous", "shared"), BAD_LINKS.values(), ids=BAD_LINKS)
def test_bad_links_never_reach_the_kernel(n_chunks, previous, shared):
    with pytest.raises(
        ValueError, match="links out of range: previous must be earlier, shared at most either path's chunks"
    ):
        tabulate_runs(np.array(n_chunks), np.array(previous), np.array(shared), 1)


def test_no_requests_make_an_empty_table():
    none = np.zeros(0, np.int64)
    runs = tabulate_runs(none, none, none, 1)
    assert (runs.n_distinct, runs.offsets.tolist(), runs.length.size) == (0, [0], 0)


def test_prompts_below_one_chunk_count_but_reference_nothing():
    runs = runs_of(link_tokens([[1, 2, 3], [1, 2, 3, 4, 5], []]), [0, 1, 2], 4)
    assert runs.n_chunks.tolist() == [0, 1, 0]
    assert cover_requests(runs, 9).tolist() == [0, 0, 0]
