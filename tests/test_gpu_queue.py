"""The GPU's queue of free blocks: what vLLM's classes do, a plain list, and the stack without its extras."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_queue import FreeQueue
from strategies import split_paths
from tier_runs import Calls, set_tier, touched

from capplan.curve import cover_requests
from capplan.errors import SpecError
from capplan.kernels import gpu_queue
from capplan.order import fill_pool
from capplan.readers import read_trace
from capplan.runs import find_runs
from capplan.simulation.gpu_queue import run_pool
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.stream import cut_stream
from capplan.tiers import GpuService, serve_from_gpu
from capplan.tree import build_tree

PRESETS = {"gpu-only": True, "gpu-only-0.13": False}
KEEPS_ALL = gpu_queue.Rules(16, True, True, False)


def list_queue(pool):
    """Free blocks, next to be taken first."""
    found, block = [], pool.queue.newer[pool.queue.n_units]
    while block < pool.queue.n_units:
        found.append(int(block))
        block = pool.queue.newer[block]
    return found


def name_queue(pool, names):
    """What free blocks hold, next to be taken first; "-" for nothing."""
    return [names[pool.unit[block]] if pool.unit[block] >= 0 else "-" for block in list_queue(pool)]


def fill(pool, units):
    """Take a block for each unit and put it there; the blocks."""
    blocks = []
    for unit in units:
        block = gpu_queue.take(pool)
        if pool.unit[block] >= 0:
            gpu_queue.forget(pool, block)
        gpu_queue.cache(pool, block, unit)
        blocks.append(block)
    return np.array(blocks)


def test_free_queue_as_observed_on_vllm():
    names = ["A0", "A1", "A2", "A3", "B0", "B1", "C0", "C1", "C2", "C3", "C4"]
    pool = gpu_queue.open_pool(8, len(names))
    gpu_queue.release(pool, KEEPS_ALL, fill(pool, range(4)), 4)
    assert name_queue(pool, names) == ["-", "-", "-", "-", "A3", "A2", "A1", "A0"]
    gpu_queue.release(pool, KEEPS_ALL, fill(pool, [4, 5]), 2)
    assert name_queue(pool, names) == ["-", "-", "A3", "A2", "A1", "A0", "B1", "B0"]
    hit = np.array([pool.first[0], pool.first[1]])
    for block in hit:
        gpu_queue.recency.unlink(pool.queue, block)
    gpu_queue.release(pool, KEEPS_ALL, hit, 2)
    assert name_queue(pool, names) == ["-", "-", "A3", "A2", "B1", "B0", "A1", "A0"]
    fill(pool, range(6, 11))
    assert name_queue(pool, names) == ["B0", "A1", "A0"]


def test_copies_of_a_unit_are_forgotten_in_any_order():
    pool = gpu_queue.open_pool(4, 6)
    for block in (0, 1, 2):
        gpu_queue.cache(pool, block, 5)
    assert list(follow(pool, pool.first[5])) == [0, 1, 2]
    gpu_queue.forget(pool, 2)
    gpu_queue.cache(pool, 3, 5)
    assert list(follow(pool, pool.first[5])) == [0, 1, 3]
    gpu_queue.forget(pool, 1)
    gpu_queue.forget(pool, 0)
    assert list(follow(pool, pool.first[5])) == [3]
    gpu_queue.forget(pool, 3)
    assert pool.first[5] == pool.last[5] == -1


def test_free_queue_as_observed_on_vllm_through_requests():
    """The same four steps as prompts of one token a block; the last two tokens of a hit are computed again."""
    a, b = [10, 11, 12, 13], [20, 21]
    plain = FreeQueue(8, 1, twins=False)
    stream, calls = [], [(a, []), (b, []), (a[:2], []), ([30, 31, 32, 33, 34], [])]
    for prompt, output in calls:
        plain.run(prompt, touched(prompt, output))
        stream.append([plain.holds.get(block, [0])[-1] for block in plain.queue])
    assert stream == [
        [0, 0, 0, 0, 13, 12, 11, 10],
        [0, 0, 13, 12, 11, 10, 21, 20],
        [0, 0, 13, 12, 21, 20, 11, 10],
        [20, 11, 10, 34, 33, 32, 31, 30],
    ]
    pool, stream, _ = run_kernel(calls, 1, 8, gpu_queue.Rules(1, True, False, False))
    assert list_queue(pool) == plain.queue


def run_kernel(calls, block_tokens, n_blocks, rules):
    made = Calls(calls)
    stream = cut_stream(made.trace, made.tree, made.order, block_tokens)
    tally = gpu_queue.open_tally(len(stream))
    return run_pool(stream, rules, n_blocks, tally), stream, tally


def longest(calls, block_tokens):
    return max(-(-len(touched(*call)) // block_tokens) for call in calls)


@st.composite
def calls_in_a_pool(draw):
    split = draw(split_paths(max_requests=16))
    calls = [(path[:n], path[n:]) for path, n in split]
    block_tokens = draw(st.integers(1, 3))
    least = max(longest(calls, block_tokens), 1)
    return calls, block_tokens, draw(st.integers(least, least + 12))


@given(calls_in_a_pool(), st.booleans(), st.booleans(), st.booleans())
def test_kernel_equals_a_plain_list(drawn, tails, twins, tails_first):
    calls, block_tokens, n_blocks = drawn
    plain = FreeQueue(n_blocks, block_tokens, tails_first, tails, twins)
    served = [plain.run(prompt, touched(prompt, output)) for prompt, output in calls]
    pool, _, tally = run_kernel(calls, block_tokens, n_blocks, gpu_queue.Rules(block_tokens, tails, twins, tails_first))
    assert (tally.hit * block_tokens).tolist() == served
    assert list_queue(pool) == plain.queue
    assert (tally.cached + tally.twins).sum() == plain.filled
    assert tally.evicted.sum() == plain.evicted
    assert (pool.unit >= 0).sum() == plain.filled - plain.evicted
    chained = [int(block) for first in pool.first for block in follow(pool, first)]
    assert sorted(chained) == np.flatnonzero(pool.unit >= 0).tolist()


def follow(pool, block):
    while block >= 0:
        yield block
        block = pool.twin[block]


@given(calls_in_a_pool())
def test_without_tails_and_twins_it_is_the_stack(drawn):
    """Equal to the stack distances of `serve_from_gpu`, whatever the block."""
    calls, block_tokens, n_blocks = drawn
    made = Calls(calls)
    _, stream, tally = run_kernel(calls, block_tokens, n_blocks, gpu_queue.Rules(block_tokens, False, False, False))
    runs = find_runs(made.trace, made.tree, made.order, block_tokens, "touched")
    n_input = stream.n_tokens
    covered = np.minimum(cover_requests(runs, n_blocks), n_input // block_tokens * block_tokens)
    assert (tally.held * block_tokens).tolist() == covered.tolist()
    served = np.minimum(covered, np.maximum(n_input - 1, 0) // block_tokens * block_tokens)
    assert (tally.hit * block_tokens).tolist() == served.tolist()
    assert tally.twins.sum() == 0


@pytest.mark.compiled_only
@pytest.mark.parametrize("pool_size", [8, 16])
def test_without_tails_and_twins_it_serves_what_the_stack_serves_of_agents(pool_size):
    trace = read_trace(Path(__file__).parents[1] / "data" / "synthetic" / "coding_agents.parquet")
    tree, order = build_tree(trace), fill_pool(trace, pool_size)
    stream = cut_stream(trace, tree, order, 16)
    stack = serve_from_gpu(trace, tree, order, 300_000 // 16)
    tally = gpu_queue.open_tally(len(stream))
    run_pool(stream, gpu_queue.Rules(16, False, False, False), stack.n_slots, tally)
    assert (tally.hit * 16).tolist() == stack.tokens.tolist()
    assert ((tally.held - tally.hit) * 16).tolist() == stack.forced_tokens.tolist()


@pytest.mark.parametrize("name", sorted(PRESETS))
@given(drawn=calls_in_a_pool())
def test_preset_serves_what_a_plain_list_does(name, drawn):
    calls, block_tokens, n_usable = drawn
    run = run_preset(name, calls, block_tokens, n_usable + 1)
    plain = FreeQueue(n_usable, block_tokens, PRESETS[name])
    assert run.gpu_tokens.tolist() == [plain.run(prompt, touched(prompt, output)) for prompt, output in calls]
    assert (run.gpu_tokens + run.restored_tokens + run.computed_tokens == run.n_tokens).all()
    assert run.restored_tokens.sum() == run.written.sum() == run.n_slots == 0
    unlimited = run_preset(name, calls, block_tokens, 1000)
    assert (run.gpu_tokens <= unlimited.gpu_tokens).all()


def run_preset(name, calls, block_tokens, n_blocks, **changes):
    made = Calls(calls)
    nothing = np.zeros(len(calls), np.int64)
    made.gpu = GpuService(block_tokens, n_blocks, nothing, nothing)
    return made.run(set_tier(name, block_tokens, **changes), 0)


@pytest.mark.parametrize(("twins", "served"), [(True, [0, 0, 2, 0, 0]), (False, [0, 0, 2, 0, 2])])
def test_block_computed_again_is_a_second_copy_that_takes_room(twins, served):
    """Five blocks: the copy of A1 takes one that was never used, so C evicts B0."""
    a, b, c = [1, 2, 3, 4], [5, 6], [7, 8, 9, 9]
    calls = [(b, []), (a, []), (a, []), (c, []), ([*b, 0], [])]
    _, _, tally = run_kernel(calls, 2, 5, gpu_queue.Rules(2, False, twins, False))
    assert (tally.hit * 2).tolist() == served
    assert tally.twins.tolist() == [0, 0, int(twins), 0, 0]


def test_prompt_that_is_cached_whole_computes_its_last_block_again():
    run = run_preset("gpu-only", [([1, 2, 3, 4], []), ([1, 2, 3, 4], [])], 2, 9)
    assert run.gpu_tokens.tolist() == [0, 2]
    assert run.gpu_forced_tokens.tolist() == run.forced_tokens.tolist() == [0, 2]


@pytest.mark.parametrize(("name", "served"), [("gpu-only", 2), ("gpu-only-0.13", 0)])
def test_partly_filled_block_goes_back_to_the_head_or_the_end(name, served):
    """Three blocks: A0 and B0, each with a tail; then C0 takes the tail of B, or A0 where that went to the end."""
    calls = [([1, 2, 3], []), ([4, 5, 6], []), ([7, 8], []), ([1, 2, 9], [])]
    assert run_preset(name, calls, 2, 4).gpu_tokens.tolist() == [0, 0, 0, served]


def test_no_gpu_tier_serves_nothing():
    assert run_preset("gpu-only", [([1, 2], []), ([1, 2, 3], [])], 1, 0).gpu_tokens.tolist() == [0, 0]


def test_pool_too_small_for_a_request_is_refused():
    with pytest.raises(SpecError, match="gpu-only: the longest request needs 5 tokens of GPU KV, there is room for 4"):
        run_preset("gpu-only", [([1, 2, 3, 4, 5], [])], 1, 5)


def test_rule_of_admission_is_refused():
    with pytest.raises(SpecError, match="gpu-only: rule 'fixed' declines writes to a host tier"):
        run_preset("gpu-only", [([1, 2], [])], 1, 9, rule=AdmissionRule("fixed"))
