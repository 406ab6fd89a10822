"""Simulated capacities in plans: equal to the simulation, and to the one-pass prediction where the rules are."""

from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
from builders import token_prompts
from hypothesis import given
from hypothesis import strategies as st
from plans import SMALL, agent_trace
from strategies import split_paths
from tier_runs import Calls, set_tier

from capplan import Options, predict
from capplan.deployment import GpuRoom
from capplan.linking import link_prompts
from capplan.order import choose_order
from capplan.simulated import find_best
from capplan.simulation.presets import list_presets, load_preset
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import prepare_tier
from capplan.simulation.tier_run import sum_run
from capplan.tiers import serve_from_gpu
from capplan.tree import build_tree
from capplan.units import gib_to_bytes

TRACE = agent_trace()
ROOM = SMALL["room"]
GIBS = (0.0, 0.01, 0.05, 0.1, 0.2, 1000.0)
NAMES = [preset.name for preset in list_presets()]


def small(name, unit=None, **changes):
    """A preset in units that make the small trace move."""
    preset = load_preset(name)
    own = preset.unit_tokens if preset.kind in ("gpu", "exclusive") else 64
    return TierSettings.of(preset).change(unit_tokens=unit or own, **changes)


def gibs_of(name):
    """Capacities that are simulated: without a host tier there is one."""
    return (0.0,) if load_preset(name).kind == "gpu" else GIBS


@cache
def plan_of(name, host_gib=GIBS, **options):
    return predict(TRACE, options=Options(room=ROOM, host_gib=host_gib, tier=small(name), **options))


def run_alone(name, gib, beta, trace=TRACE, room_slots=42, **options):
    """One capacity, put together by hand."""
    order, tree = choose_order(trace, **options), build_tree(trace)
    served = serve_from_gpu(trace, tree, order, room_slots)
    return simulate_tier(prepare_tier(trace, tree, order, served, small(name), beta), gib_to_bytes(gib))


@pytest.mark.parametrize("warmup", [0.0, 0.4])
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_simulation(name, warmup):
    plan = plan_of(name, warmup=warmup)
    (answer,) = plan.answers
    assert answer.prediction.deployment.gpu_slots == 42
    beta, first = answer.prediction.deployment.kv_bytes_per_token, plan.first_request
    assert first == int(warmup * len(TRACE))
    for gib, row, found in zip(gibs_of(name), answer.rows, answer.simulated.capacities, strict=True):
        run = run_alone(name, gib, beta)
        total = sum_run(run, first)
        assert found.totals == total
        assert (row.host_gib_per_rank, row.slots) == (gib, run.n_slots)
        assert row.host_covered_tokens == total.host_covered_tokens
        assert row.gpu_tokens == total.gpu_tokens
        assert row.restored_tokens == total.restored_tokens
        assert row.moved_tokens == total.moved_tokens
        assert row.loading_requests == total.loading_requests
        assert row.written_tokens == total.written_tokens
        assert row.computed_tokens == total.computed_tokens
        assert row.forced_recompute_tokens == total.forced_recompute_tokens
        assert row.gpu_tokens + row.restored_tokens + row.computed_tokens == total.prompt_tokens
        assert total.prompt_tokens == TRACE.requests.input_tokens[first:].sum()


def test_tiers_of_the_small_trace_differ():
    """Or the tests above could not fail."""
    found = {name: tuple(row.computed_tokens for row in plan_of(name).answers[0].rows) for name in NAMES}
    assert len(set(found.values())) >= 8
    assert found["stack-distance"] == tuple(sorted(found["stack-distance"], reverse=True))
    assert found["stack-distance"][0] > found["stack-distance"][-1]


@pytest.mark.parametrize("name", NAMES)
def test_seconds_saved_are_those_of_the_tokens(name):
    (answer,) = plan_of(name).answers
    base = run_alone(name, 0.0, answer.prediction.deployment.kv_bytes_per_token)
    for row in answer.rows:
        run = run_alone(name, row.host_gib_per_rank, answer.prediction.deployment.kv_bytes_per_token)
        low, typical, high = (
            (times.seconds_from(base.known_tokens, base.n_tokens) - times.seconds_from(run.known_tokens, run.n_tokens))
            .sum()
            for times in answer.prediction.savings.ends
        )  # fmt: skip
        assert row.prefill_saved_s == pytest.approx(typical, rel=1e-12, abs=1e-15)
        assert row.prefill_saved_s_low == pytest.approx(min(low, typical), rel=1e-12, abs=1e-15)
        assert row.prefill_saved_s_high == pytest.approx(max(high, typical), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", ["lmcache", "vllm-offload", "stack-distance"])
def test_curves_step_from_capacity_to_capacity(name):
    (answer,) = plan_of(name).answers
    curve = answer.prediction
    assert curve.tiers.restored_tokens.size == curve.tiers.n_distinct + 1
    starts = [curve.slots_at(gib) for gib in GIBS]
    for k in range(curve.tiers.n_distinct):
        row = answer.rows[np.searchsorted(starts, k, side="right") - 1]
        assert curve.tiers.computed_tokens[k] == row.computed_tokens
        assert curve.measure(k).moved_tokens == row.moved_tokens
        assert curve.measure(k).loads == row.loading_requests
        assert curve.measure(k).saved_s.typical == row.prefill_saved_s
        assert curve.measure(k).covered_tokens == row.host_covered_tokens
        assert curve.measure(k).written_tokens == row.written_tokens


def test_nothing_below_the_first_capacity():
    (answer,) = plan_of("stack-distance", host_gib=(0.2, 0.3)).answers
    first = answer.prediction.slots_at(0.2)
    assert first > 1
    assert not answer.prediction.tiers.restored_tokens[:first].any()
    assert answer.prediction.tiers.restored_tokens[first] == answer.rows[0].restored_tokens > 0


@pytest.mark.parametrize("name", [name for name in NAMES if load_preset(name).kind not in ("gpu", "exclusive")])
def test_a_capacity_beyond_all_memory_costs_none(name):
    (answer,) = plan_of(name, host_gib=(1000.0, 1e12)).answers
    assert answer.rows[0].computed_tokens == answer.rows[1].computed_tokens
    assert answer.prediction.tiers.n_distinct < 10_000


def compare_rows(found, expected):
    """Rows equal in every field: numbers of tokens exactly, seconds but for the order of their sums."""
    for name, value in asdict(expected).items():
        if isinstance(value, float):
            assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
        else:
            assert getattr(found, name) == value, name


def compare_plans(trace, gibs, unit, **options):
    """The one-pass prediction and `stack-distance` without admission, GPU by GPU and row by row."""
    gpus = options.pop("gpus", "h20")
    curve = predict(trace, gpus, options=Options(host_gib=gibs, chunk_tokens=unit, **options))
    plan = predict(trace, gpus, options=Options(host_gib=gibs, tier=small("stack-distance", unit), **options))
    assert len(plan.answers) == len(curve.answers) == len(gpus.split(","))
    for found, expected in zip(plan.answers, curve.answers, strict=True):
        for row, other in zip(found.rows, expected.rows, strict=True):
            compare_rows(row, other)
        for capacity in found.simulated.capacities:
            assert capacity.gap_tokens == 0
        assert found.simulated.without_s == pytest.approx(expected.prediction.savings.without_s, rel=1e-9)
        assert found.simulated.base.computed_tokens == int(expected.prediction.tiers.computed_tokens[0])
    return plan, curve


@pytest.mark.parametrize("warmup", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("unit", [16, 64, 1024])
def test_stack_distance_is_the_one_pass_prediction(unit, warmup):
    compare_plans(TRACE, GIBS, unit, warmup=warmup, room=ROOM)


def test_stack_distance_on_several_gpus_and_without_a_gpu_tier():
    plan, _ = compare_plans(TRACE, GIBS, 64, gpus="h20,h100,rtx4090", room=ROOM, kv_dtype="fp8")
    for answer in plan.answers:
        (alone,) = predict(TRACE, answer.prediction.deployment.gpu.name, options=plan.options).answers
        assert alone.rows == answer.rows
    compare_plans(TRACE, GIBS, 64, room=GpuRoom(is_used=False))
    compare_plans(TRACE, GIBS, 64, room=ROOM, order="pool", pool_size=2)


def widen(tokens, times=8):
    """Every token `times` over, so that short lists fill blocks of 16."""
    return [times * token + k for token in tokens for k in range(times)]


@given(split_paths(max_requests=10), st.sampled_from([16, 32]), st.sampled_from([0.0, 0.3]), st.integers(0, 2))
def test_stack_distance_equals_the_prediction_at_every_capacity(split, unit, warmup, spare_blocks):
    made = [widen(path) for path, _ in split]
    n_input = [8 * n for _, n in split]
    trace = link_prompts([token_prompts(made, 8, n_input, session=[f"s{r % 3}" for r in range(len(made))])])
    trace = replace(trace, requests=replace(trace.requests, task=trace.requests.session))
    longest = max(len(path) for path in made)
    room = GpuRoom(kv_tokens=(-(-longest // 16) + spare_blocks) * 16 + 16)
    (answer,) = predict(trace, options=Options(chunk_tokens=unit, room=room, warmup=warmup)).answers
    gibs = tuple(answer.prediction.gib_at(k) for k in range(answer.prediction.tiers.n_distinct + 2))
    plan, curve = compare_plans(trace, gibs, unit, room=room, warmup=warmup)
    found, expected = plan.answers[0].verdict, curve.answers[0].verdict
    assert found.answer == expected.answer
    assert found.transitions == expected.transitions
    assert found.knee_slots == expected.knee_slots


def test_verdict_of_stack_distance_is_that_of_the_curve():
    """Of a tier simulated at every number of slots, everything; of one at the capacities shown, the answer."""
    options = Options(chunk_tokens=64, room=ROOM)
    (expected,) = predict(TRACE, options=options).answers
    n_distinct = expected.prediction.tiers.n_distinct
    gibs = tuple(expected.prediction.gib_at(k) for k in range(n_distinct + 1))
    all_shown = replace(options, host_gib=gibs, tier=small("stack-distance"))
    (found,) = predict(TRACE, options=all_shown).answers
    (curve,) = predict(TRACE, options=replace(all_shown, tier=None)).answers
    assert found.verdict.answer == curve.verdict.answer == "pays"
    for name, value in asdict(curve.verdict).items():
        if name not in ("best_net_s", "break_even"):
            assert getattr(found.verdict, name) == value, name
    assert found.verdict.best_net_s == pytest.approx(curve.verdict.best_net_s)
    assert asdict(found.verdict.break_even) == pytest.approx(asdict(curve.verdict.break_even))
    assert found.ttft.change_mean_s == pytest.approx(curve.ttft.change_mean_s)
    (some,) = predict(TRACE, options=replace(options, tier=small("stack-distance"))).answers
    assert some.verdict.answer == expected.verdict.answer
    assert [row.host_gib_per_rank for row in some.rows] == [row.host_gib_per_rank for row in expected.rows]


def test_what_the_tier_is_compared_with():
    (answer,) = plan_of("lmcache").answers
    (curve,) = predict(TRACE, options=Options(chunk_tokens=64, room=ROOM, host_gib=GIBS)).answers
    for found, row in zip(answer.simulated.capacities, curve.rows, strict=True):
        assert found.curve_computed_tokens == row.computed_tokens
        assert found.gap_tokens == found.totals.computed_tokens - row.computed_tokens
    assert answer.curve.tiers.computed_tokens.tolist() == curve.prediction.tiers.computed_tokens.tolist()
    best = predict(TRACE, options=Options(room=ROOM, host_gib=GIBS, tier=small("lmcache", policy="belady"))).answers[0]
    for found, ideal in zip(answer.simulated.capacities, best.simulated.capacities, strict=True):
        assert found.best_computed_tokens == ideal.totals.computed_tokens
        assert ideal.policy_tokens == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_best_policy_is_of_tiers_that_cover_prompts_from_their_head(name):
    preset = load_preset(name)
    has_one = preset.stores == "prompts" and preset.lookup_from == "zero"
    (answer,) = plan_of(name).answers
    for found in answer.simulated.capacities:
        assert (found.policy_tokens is not None) == has_one
        if has_one:
            assert found.policy_tokens == found.totals.computed_tokens - found.best_computed_tokens


@given(
    split_paths(max_requests=10), st.integers(1, 8), st.sampled_from(["lmcache", "mooncake-store", "stack-distance"])
)
def test_no_tier_covers_more_than_the_best_policy(split, n_slots, name):
    tier = Calls([(path[:n], path[n:]) for path, n in split]).tier(set_tier(name))
    best = sum_run(simulate_tier(find_best(tier), n_slots))
    assert sum_run(simulate_tier(tier, n_slots)).host_covered_tokens <= best.host_covered_tokens


def test_rows_stand_in_the_order_asked_for():
    (answer,) = plan_of("lmcache", host_gib=(0.2, 0.05)).answers
    (ordered,) = plan_of("lmcache", host_gib=(0.05, 0.2)).answers
    assert answer.rows == ordered.rows[::-1]
    assert [found.host_gib_per_rank for found in answer.simulated.capacities] == [0.2, 0.05]
    assert answer.prediction.tiers.restored_tokens.tolist() == ordered.prediction.tiers.restored_tokens.tolist()


def test_units_finer_than_the_trace_are_raised_and_said():
    plan = predict(TRACE, options=Options(room=ROOM, host_gib=GIBS, tier=small("lmcache", 8)))
    assert plan.answers[0].simulated.unit_tokens == 16
    assert "units of 16 tokens, not 8: the trace is no finer" in plan.assumptions


@pytest.mark.parametrize("has_tasks", [False, True])
def test_a_conditioned_rule_without_tasks_is_said_to_decline_nothing(has_tasks):
    tier = TierSettings.of(load_preset("efficientagent")).change(unit_tokens=64)
    plan = predict(agent_trace(has_tasks=has_tasks), options=Options(tier=tier, room=GpuRoom(kv_tokens=672)))
    assert any("never declines" in note for note in plan.assumptions) != has_tasks
