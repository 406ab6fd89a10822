"""A host that swaps blocks with the GPU: against plain lists, and the laws of two pools."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cut
from oracles_exclusive import TwoPools
from strategies import split_paths
from tier_runs import Calls, set_tier, touched

from capplan.errors import SpecError
from capplan.kernels import exclusive
from capplan.simulation.exclusive import run_pools
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.stream import cut_stream
from capplan.tiers import GpuService


def run_kernel(calls, block_tokens, n_gpu, n_host):
    made = Calls(calls)
    stream = cut_stream(made.trace, made.tree, made.order, block_tokens)
    tally = exclusive.open_tally(len(stream))
    return run_pools(stream, n_gpu, n_host, tally), tally


def run_preset(calls, block_tokens, n_gpu, n_host, **changes):
    made = Calls(calls)
    nothing = np.zeros(len(calls), np.int64)
    made.gpu = GpuService(block_tokens, n_gpu, nothing, nothing)
    return made.run(set_tier("trtllm-host", block_tokens, **changes), n_host)


def list_places(pools):
    """What the free blocks of both pools hold, next to be taken first, as unit numbers; -1 for nothing."""
    return [
        [int(pools.unit[block]) for block in list_blocks(pools, place)] for place in (exclusive.GPU, exclusive.HOST)
    ]


def list_blocks(pools, place):
    block = pools.queue.newer[pools.queue.n_units + place]
    while block < pools.queue.n_units:
        yield int(block)
        block = pools.queue.newer[block]


@st.composite
def calls_in_pools(draw):
    split = draw(split_paths(max_requests=16))
    calls = [(path[:n], path[n:]) for path, n in split]
    block_tokens = draw(st.integers(1, 3))
    least = max(1, max(-(-len(touched(*call)) // block_tokens) for call in calls))
    return calls, block_tokens, draw(st.integers(least, least + 8)), draw(st.integers(0, 10))


@given(calls_in_pools())
def test_kernel_equals_plain_lists(drawn):
    calls, block_tokens, n_gpu, n_host = drawn
    plain = TwoPools(n_gpu, n_host, block_tokens)
    expected = [plain.run(prompt, touched(prompt, output)) for prompt, output in calls]
    pools, tally = run_kernel(calls, block_tokens, n_gpu, n_host)
    found = [tuple(map(int, row)) for row in zip(tally.hit, tally.restored, tally.held, strict=True)]
    assert found == expected
    for name in ("written", "unfindable", "evicted"):
        assert int(getattr(tally, name).sum()) == getattr(plain, name), name
    names = {}
    for place, blocks in zip(list_places(pools), (plain.free["gpu"], plain.free["host"]), strict=True):
        assert len(place) == len(blocks)
        for unit, block in zip(place, blocks, strict=True):
            assert (unit >= 0) == (block.key is not None)
            if unit >= 0:
                assert names.setdefault(unit, block.key) == block.key
    assert len(set(names.values())) == len(names)


@given(calls_in_pools())
def test_every_block_is_in_one_place_and_the_tree_is_whole(drawn):
    pools, tally = run_kernel(*drawn)
    _, _, n_gpu, n_host = drawn
    on_gpu, on_host = (list(list_blocks(pools, place)) for place in (exclusive.GPU, exclusive.HOST))
    assert sorted(on_gpu + on_host) == list(range(n_gpu + n_host))
    assert (len(on_gpu), len(on_host)) == (n_gpu, n_host) == (n_gpu, pools.free[0])
    holders = np.flatnonzero(pools.unit >= 0)
    assert (pools.block[pools.unit[holders]] == holders).all()
    assert (pools.block >= 0).sum() == holders.size
    assert (pools.unit[on_host] >= 0).sum() == tally.written.sum() - tally.evicted.sum() - tally.restored.sum()


@given(calls_in_pools())
def test_laws_of_two_pools(drawn):
    """Parts add up to the prompt; nothing is found that was never computed; more room than units finds it all."""
    calls, block_tokens, n_gpu, n_host = drawn
    run = run_preset(calls, block_tokens, n_gpu, n_host)
    assert (run.gpu_tokens + run.restored_tokens + run.computed_tokens == run.n_tokens).all()
    assert (run.restored_tokens >= 0).all()
    assert (run.computed_tokens >= np.minimum(run.n_tokens, 1)).all()
    assert (run.moved_tokens == run.restored_tokens).all()
    unlimited = run_preset(calls, block_tokens, n_gpu, 10_000)
    seen = set()
    for c, (prompt, output) in enumerate(calls):
        keys = cut(prompt, block_tokens)
        known = 0
        while known < len(keys) and keys[known] in seen:
            known += 1
        reach = min(known, max(len(prompt) - 1, 0) // block_tokens) * block_tokens
        assert run.known_tokens[c] <= reach == unlimited.known_tokens[c]
        seen.update(cut(touched(prompt, output), block_tokens))


def test_host_of_no_block_leaves_the_gpu_alone():
    run = run_preset([([1, 2, 3, 4], []), ([5, 6, 7, 8], []), ([1, 2, 3, 9], [])], 2, 2, 0)
    assert run.gpu_tokens.tolist() == [0, 0, 0]
    assert run.written.sum() == run.restored_tokens.sum() == 0


def test_what_the_gpu_drops_is_found_on_the_host_and_pushes_something_else_there():
    """Two GPU and three host blocks of two tokens, step by step."""
    a, b = [1, 2, 3, 4, 5], [6, 7, 8, 9]
    calls = [(a[:4], []), (b, []), ([1, 2, 3, 0], [])]
    pools, tally = run_kernel(calls[:1], 2, 2, 3)
    assert list_places(pools) == [[1, 0], [-1, -1, -1]]
    pools, _ = run_kernel(calls[:2], 2, 2, 3)
    assert list_places(pools) == [[3, 2], [-1, 1, 0]]
    pools, tally = run_kernel(calls, 2, 2, 3)
    assert tally.restored.tolist() == [0, 0, 1]
    assert tally.written.tolist() == [0, 2, 2]
    assert tally.evicted.tolist() == [0, 0, 1]
    assert list_places(pools)[0][1] == 0


@pytest.mark.parametrize(("n_host", "found"), [(2, 2), (3, 3)])
def test_restoring_the_head_may_push_out_the_tail(n_host, found):
    """Of A the GPU keeps A0, a host of two A2 and A1: A1 comes back for a block of B, which takes A2's place."""
    a, b = [1, 2, 3, 4, 5, 6, 7], [11, 12, 13, 14, 15, 16]
    _, tally = run_kernel([(a, []), (b, []), (a, [])], 2, 4, n_host)
    assert (tally.hit + tally.restored).tolist() == [0, 0, found]


def test_prompt_that_is_there_whole_computes_its_last_block_again():
    run = run_preset([([1, 2, 3, 4], []), ([1, 2, 3, 4], [])], 2, 4, 0)
    assert run.gpu_tokens.tolist() == [0, 2]
    assert run.forced_tokens.tolist() == [0, 2]


def test_host_extends_the_reach_by_its_own_size():
    """Ten prompts in turn, 30 blocks with their tails: nothing is reused of 8 + 8 blocks, all of 8 + 36."""
    loop = [([k, k, k, k, k], []) for k in range(10)] * 5
    short, long = (run_preset(loop, 2, 8, n_host) for n_host in (8, 36))
    assert short.known_tokens.sum() == 0
    assert long.known_tokens[10:].tolist() == [4] * 40


def test_pools_too_small_and_rules_are_refused():
    with pytest.raises(SpecError, match="trtllm-host: the longest request needs 5 tokens of GPU KV, there is room"):
        run_preset([([1, 2, 3, 4, 5], [])], 2, 2, 9)
    with pytest.raises(SpecError, match="trtllm-host: its host tier takes what the GPU's drops; accepted: a GPU tier"):
        run_preset([([1, 2], [])], 2, 0, 9)
    with pytest.raises(SpecError, match="trtllm-host: rule 'fixed' declines writes"):
        run_preset([([1, 2], [])], 2, 4, 9, rule=AdmissionRule("fixed"))
