"""Two tiers on one stream, against one simulation per capacity."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles import LruTier, cut
from strategies import split_paths

from capplan.linking import link_prompts
from capplan.order import Order
from capplan.prompts import Prompts, Requests
from capplan.runs import find_runs
from capplan.tiers import count_restorable, overlay_tiers, serve_from_gpu
from capplan.tree import build_tree

BLOCK = 16


def scale(path):
    """Every token of a small path becomes a block of 16, so that small lists make full GPU blocks."""
    return [token * BLOCK + k for token in path for k in range(BLOCK)]


def simulate_two_tiers(calls, gpu_slots, host_slots, chunk):
    """(gpu, restored, computed, moved tokens, loaded, written chunks, forced tokens) of every request."""
    gpu, host = LruTier(gpu_slots), LruTier(host_slots)
    totals = []
    for prompt, output in calls:
        n = len(prompt)
        blocks, chunks = cut(prompt, BLOCK), cut(prompt, chunk)
        gpu_found, host_found = gpu.lookup(blocks) * BLOCK, host.lookup(chunks) * chunk
        g = min(gpu_found, max(n - 1, 0) // BLOCK * BLOCK)
        c = min(host_found, max(n - 1, 0))
        restored = max(0, c - g)
        moved = max(0, host_found - g // chunk * chunk) if restored else 0
        computed = n - max(g, c)
        forced = computed if n and max(gpu_found, host_found) >= n else 0
        gpu.touch(cut((prompt + output)[: n + max(len(output) - 1, 0)], BLOCK))
        totals.append((g, restored, computed, moved, int(restored > 0), host.touch(chunks), forced))
    return totals


@given(
    split_paths(max_requests=8, max_piece=5),
    st.integers(0, 12),
    st.sampled_from([8, 16, 24, 32, 48]),
    st.lists(st.integers(0, 15), min_size=8, max_size=8),
    st.integers(0, 3),
)
def test_overlay_equals_simulation_at_every_capacity(split, gpu_slots, chunk, cuts, first):
    calls = []
    for (path, n), short in zip(split, cuts, strict=False):
        whole = scale(path)
        whole = whole[: len(whole) - short] if short and len(whole) > short else whole
        n_input = min(n * BLOCK, len(whole))
        calls.append((whole[:n_input], whole[n_input:]))
    first = min(first, len(calls))
    trace = link_calls(calls)
    tree = build_tree(trace)
    order = Order("recorded", np.arange(len(calls)), None, None)
    gpu = serve_from_gpu(trace, tree, order, gpu_slots)
    runs = find_runs(trace, tree, order, chunk)
    curves = overlay_tiers(runs, trace.requests.input_tokens, gpu, first_request=first)
    restorable, _ = count_restorable(runs, trace.requests.input_tokens, gpu.tokens, first)
    assert restorable == curves.restored_tokens[-1]
    for host_slots in range(curves.n_distinct + 1):
        expected = np.array(simulate_two_tiers(calls, gpu_slots, host_slots, chunk)[first:] or [[0] * 7]).sum(axis=0)
        found = (
            curves.gpu_tokens,
            curves.restored_tokens[host_slots],
            curves.computed_tokens[host_slots],
            curves.moved_tokens[host_slots],
            curves.loads[host_slots],
            curves.coverage.written(host_slots),
            curves.forced_tokens[host_slots],
        )
        assert tuple(map(int, found)) == tuple(expected)
        assert curves.gpu_tokens + curves.restored_tokens[host_slots] + curves.computed_tokens[host_slots] == (
            curves.prompt_tokens
        )


def link_calls(calls, resolution=8):
    paths = [prompt + output for prompt, output in calls]
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in paths])]).astype(np.int64)
    requests = Requests.of(
        np.array([len(prompt) for prompt, _ in calls]),
        output_tokens=np.array([len(output) for _, output in calls]),
    )
    ids = np.array([token for path in paths for token in path], np.uint32)
    return link_prompts([Prompts(requests, ids, offsets, "tokens", resolution, outputs_known=True)])


def test_whole_hit_in_the_gpu_tier_computes_its_last_block():
    prompt = scale([1, 2])
    trace = link_calls([(prompt, []), (prompt, [])])
    tree = build_tree(trace)
    order = Order("recorded", np.arange(2), None, None)
    gpu = serve_from_gpu(trace, tree, order, 10)
    assert gpu.tokens.tolist() == [0, 16]
    runs = find_runs(trace, tree, order, 32)
    curves = overlay_tiers(runs, trace.requests.input_tokens, gpu)
    assert curves.computed_tokens.tolist() == [48, 33]
    assert curves.forced_tokens.tolist() == [16, 1]
    assert count_restorable(runs, trace.requests.input_tokens, gpu.tokens) == (15, (16 + 31) / 2)


def test_gpu_block_is_the_resolution_where_that_is_coarser():
    requests = Requests.of(np.array([128, 128]))
    prompts = Prompts(requests, np.array([1, 2, 1, 2], np.uint64), np.array([0, 2, 4]), "hashes", 64)
    trace = link_prompts([prompts])
    gpu = serve_from_gpu(trace, build_tree(trace), Order("recorded", np.arange(2), None, None), 8)
    assert (gpu.block_tokens, gpu.tokens.tolist()) == (64, [0, 64])
