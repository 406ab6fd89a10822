"""Published traces through the simulator: reference results at every capacity, and laws of every tier."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_real_traces import CASES

from capplan.order import choose_order
from capplan.readers import read_trace
from capplan.simulated import find_best
from capplan.simulation.presets import list_presets, load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import prepare_tier
from capplan.simulation.tier_run import sum_run
from capplan.tiers import GpuService, serve_from_gpu
from capplan.tree import build_tree

pytestmark = pytest.mark.compiled_only
BETA = 1
SMALL = "kv-cache-tester/sessions pool=8 chunk=1024"
GPU_TOKENS = 1 << 20


@pytest.fixture(scope="module")
def load(real_traces):
    """A trace and its prefix tree, read once."""
    known = {}

    def load_trace(name):
        if name not in known:
            trace = read_trace(real_traces / name)
            known[name] = trace, build_tree(trace)
        return known[name]

    return load_trace


@pytest.fixture(scope="module")
def expected(real_traces):
    return json.loads((real_traces / "expected.json").read_text())


def prepare(load, key, name="stack-distance", *, with_gpu=False, chunk_tokens=None, **changes):
    """A reference case as a tier's input, of one byte a token."""
    source, pool_size, reference_tokens = CASES[key]
    trace, tree = load(source)
    order = choose_order(trace, pool_size=pool_size)
    nothing = np.zeros(len(trace), np.int64)
    block = max(16, trace.resolution_tokens)
    gpu = serve_from_gpu(trace, tree, order, GPU_TOKENS // block) if with_gpu else GpuService(16, 0, nothing, nothing)
    settings = TierSettings.of(load_preset(name)).change(unit_tokens=chunk_tokens or reference_tokens)
    return prepare_tier(trace, tree, order, gpu, replace(settings, **changes), BETA)


@pytest.mark.parametrize("key", CASES)
def test_stack_distance_gives_the_reference_results(load, expected, key):
    tier, wanted = prepare(load, key), expected[key]
    runs = [simulate_tier(tier, k * tier.stream.unit_tokens) for k in wanted["capacities_chunks"]]
    assert [run.n_slots for run in runs] == wanted["capacities_chunks"]
    assert [int(run.found_tokens.sum()) for run in runs] == wanted["covered_tokens_leaf_first"]
    assert [int(run.computed_tokens.sum()) for run in runs] == wanted["computed_prefill_leaf_first"]
    assert [int(run.written.sum()) for run in runs] == wanted["chunks_written_leaf_first"]


@pytest.mark.parametrize("name", [preset.name for preset in list_presets()])
def test_laws_of_every_tier_on_published_sessions(load, expected, name):
    preset = load_preset(name)
    unit = {"gpu": 64, "exclusive": 64, "radix": 64}.get(preset.kind, 1024)
    tier = prepare(load, SMALL, name, with_gpu=True, chunk_tokens=unit)
    best = find_best(tier)
    for k in expected[SMALL]["capacities_chunks"][::3]:
        n_bytes = k * 1024
        total = sum_run(simulate_tier(tier, n_bytes))
        assert total.gpu_tokens + total.restored_tokens + total.computed_tokens == total.prompt_tokens
        assert total.moved_tokens >= total.restored_tokens
        assert total.written_tokens >= total.evicted_tokens
        if preset.kind != "exclusive":  # where blocks that are found leave too
            assert total.written_tokens - total.evicted_tokens <= n_bytes
        if best is not None:
            assert sum_run(simulate_tier(best, n_bytes)).host_covered_tokens >= total.host_covered_tokens


@pytest.mark.parametrize("rule", ["fixed", "conditioned"])
def test_no_rule_declines_where_nothing_has_many_new_units(load, rule):
    """A rule that allows as many units as the longest prompt has is no rule."""
    none = prepare(load, SMALL, "efficientagent", rule=AdmissionRule())
    longest = none.stream.longest_path
    ruled = replace(none, settings=replace(none.settings, rule=AdmissionRule(rule, longest)))
    assert sum_run(simulate_tier(ruled, 4000 * 1024)) == sum_run(simulate_tier(none, 4000 * 1024))
    strict = replace(none, settings=replace(none.settings, rule=AdmissionRule("fixed", 1)))
    assert sum_run(simulate_tier(strict, 4000 * 1024)).declined_requests > 0
