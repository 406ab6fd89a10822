import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import BETA, SMALL, agent_trace, make_costs, make_deployment, make_prediction, make_workload

from capplan import Options, predict
from capplan.deployment import GpuRoom
from capplan.prediction import GRID_SHARES, TRANSITION_SHARES, choose_capacities

GIB = 2**30

rising = st.lists(st.integers(0, 10_000), min_size=1, max_size=40).map(lambda steps: np.cumsum([0, *steps]))


def test_published_chunk_and_slots():
    prediction = make_prediction([0, 1024], deployment=make_deployment(tp=8))
    assert prediction.deployment.kv_bytes_per_token == 24_576
    assert prediction.chunk_bytes == 24 * 2**20
    assert prediction.slots_at(20) == 853


@pytest.mark.parametrize(("pool_size", "gib"), [(16, 11.4), (8, 5.3)])
def test_published_reuse_scale(pool_size, gib):
    workload = make_workload(mean_prompt_tokens=147.1e6 / 4427, concurrent_tasks=float(pool_size))
    prediction = make_prediction([0, 1024], deployment=make_deployment(tp=8), workload=workload)
    assert prediction.reuse_bytes / GIB == pytest.approx(gib, abs=0.05)


def test_scale_is_unknown_without_tasks():
    prediction = make_prediction([0, 1024], workload=make_workload(concurrent_tasks=None))
    assert (prediction.reuse_bytes, prediction.gamma_gpu) == (None, None)
    assert prediction.row_at(1.0).gamma_host is None


def test_scale_of_the_gpu_tier():
    assert make_prediction([0, 1], deployment=make_deployment(kv_tokens=4096)).gamma_gpu == 10 * 2000 / 4096
    assert make_prediction([0, 1], deployment=make_deployment(gpu_slots=0)).gamma_gpu is None


@given(st.integers(0, 10**6), st.sampled_from([16, 64, 256, 1024]))
def test_slots_and_gib_are_inverse(slots, chunk):
    prediction = make_prediction([0, 1], chunk=chunk)
    assert prediction.slots_at(prediction.gib_at(slots)) == slots
    if slots:
        assert prediction.slots_at(prediction.gib_at(slots) - 1 / GIB) == slots - 1


@given(rising, st.sampled_from([*TRANSITION_SHARES, *GRID_SHARES]))
def test_find_slots_is_the_smallest_capacity_with_the_share(restored, share):
    exact = Fraction(str(share)) * int(restored[-1])
    smallest = next(k for k in range(restored.size) if restored[k] >= exact)
    assert make_prediction(restored).find_slots(share) == smallest


def test_share_of_a_large_saving_is_not_rounded():
    total = 10**17
    assert make_prediction([0, total * 99 // 100 - 1, total * 99 // 100, total]).find_slots(0.99) == 2
    assert make_prediction([0, total // 10 - 1, total // 10, total]).find_slots(0.1) == 2


def test_row_by_hand():
    prediction = make_prediction(
        [0, 1000, 3000],
        moved=[0, 2048, 4096],
        loads=[0, 2, 3],
        written=[0, 7, 4],
        computed=6000,
        gpu_tokens=2000,
        deployment=make_deployment(tp=8),
        costs=make_costs(1e-3, (10.0, 20.0, 40.0), load_s=0.5, load_s_per_token=1e-4, beta=24_576),
        workload=make_workload(span_s=1800.0),
    )
    gib = 1.5 * prediction.chunk_bytes / GIB
    row = prediction.row_at(gib)
    link_s = [2048 * 24_576 / rate for rate in (10e9, 20e9, 40e9)]
    expected = {
        "host_gib_per_rank": gib,
        "host_gib_per_node": 8 * gib,
        "slots": 1,
        "host_covered_tokens": 1024,
        "host_covered_share": 1024 / 8000,
        "gpu_tokens": 2000,
        "gpu_share": 0.25,
        "restored_tokens": 1000,
        "restored_share": 0.125,
        "moved_tokens": 2048,
        "moved_share": 0.256,
        "loading_requests": 2,
        "written_tokens": 7 * 1024,
        "written_share": 7 * 1024 / 8000,
        "computed_tokens": 5000,
        "computed_share": 0.625,
        "forced_recompute_tokens": 0,
        "prefill_saved_s": 1.0,
        "prefill_saved_share": 1 / 6,
        "prefill_saved_s_per_hour": 2.0,
        "restore_s": link_s[1] + 0.2048 + 1,
        "restore_s_at_low_rate": link_s[0] + 0.2048 + 1,
        "restore_s_at_high_rate": link_s[2] + 0.2048 + 1,
        "net_saved_s": 1 - link_s[1] - 1.2048,
        "net_saved_s_at_low_rate": 1 - link_s[0] - 1.2048,
        "net_saved_s_at_high_rate": 1 - link_s[2] - 1.2048,
        "write_gib_per_s": 7 * 1024 * 24_576 / 1800 / GIB,
        "gamma_host": 9 * 2000 * 24_576 / (gib * GIB),
    }
    found = {field.name: getattr(row, field.name) for field in fields(row)}
    assert found == pytest.approx(expected)


def test_rates_are_unknown_without_a_clock():
    row = make_prediction([0, 1000], workload=make_workload(span_s=None)).row_at(1.0)
    assert (row.prefill_saved_s_per_hour, row.write_gib_per_s) == (None, None)


def test_nothing_changes_beyond_the_distinct_chunks():
    prediction = make_prediction([0, 1000, 3000])
    last, beyond = prediction.row_at(prediction.gib_at(2)), prediction.row_at(1e6)
    assert beyond.slots == 10**6 * GIB // prediction.chunk_bytes
    assert (beyond.restored_tokens, beyond.computed_tokens) == (last.restored_tokens, last.computed_tokens)


def test_empty_prompts_have_no_shares():
    row = make_prediction([0], computed=0).row_at(1.0)
    assert (row.computed_share, row.prefill_saved_share) == (0.0, 0.0)


@given(rising, st.data())
def test_net_time_of_a_row_is_that_of_the_curve(restored, data):
    prediction = make_prediction(restored, costs=make_costs(load_s_per_token=1e-6))
    k = data.draw(st.integers(0, restored.size - 1))
    row = prediction.row_at(prediction.gib_at(k))
    nets = (row.net_saved_s_at_low_rate, row.net_saved_s, row.net_saved_s_at_high_rate)
    for net, rate in zip(nets, prediction.costs.h2d_bytes_per_s, strict=True):
        assert net == pytest.approx(prediction.net_seconds(rate)[k], abs=1e-12)


@pytest.fixture(scope="module")
def predictions():
    """Predictions of one trace: with a GPU tier, without, warm, and by the other touch and distance."""
    trace = agent_trace()
    changes = ({}, {"room": GpuRoom(is_used=False)}, {"warmup": 0.4}, {"touch": "head-first", "distance": "sequential"})
    return [predict(trace, options=Options(**{**SMALL, **change})).answers[0].prediction for change in changes]


def test_every_prompt_token_is_served_restored_or_computed(predictions):
    for prediction in predictions:
        for k in range(prediction.tiers.n_distinct + 2):
            row = prediction.row_at(prediction.gib_at(k))
            assert row.gpu_tokens + row.restored_tokens + row.computed_tokens == prediction.tiers.prompt_tokens
            assert row.gpu_share + row.restored_share + row.computed_share == pytest.approx(1)
            assert row.forced_recompute_tokens <= row.computed_tokens
            assert row.moved_tokens >= row.restored_tokens


def test_rows_rise_with_the_capacity(predictions):
    for prediction in predictions:
        rows = [prediction.row_at(prediction.gib_at(k)) for k in range(prediction.tiers.n_distinct + 2)]
        for name in ("host_covered_tokens", "restored_tokens", "moved_tokens", "loading_requests", "prefill_saved_s"):
            values = [getattr(row, name) for row in rows]
            assert values[0] == 0
            assert values == sorted(values)
        computed = [row.computed_tokens for row in rows]
        assert computed == sorted(computed, reverse=True)
        assert rows[0].written_tokens == 0
        assert rows[-1].restored_tokens > 0


def test_default_capacities_bracket_the_transition():
    # 1,000 slots of 96 MiB; nothing up to 400 slots, everything from 600 on
    restored = 1000 * np.clip(np.arange(1001) - 400, 0, 200)
    prediction = make_prediction(restored)
    capacities = choose_capacities([prediction])
    assert capacities == sorted(set(capacities))
    assert len(capacities) <= 21
    slots = [prediction.slots_at(gib) for gib in capacities]
    assert (slots[0], prediction.slots_at(capacities[1])) == (0, 401)
    assert 600 <= slots[-1] <= 610
    saved = restored[slots] / restored[-1]
    assert np.diff(saved[1:]).max() <= 0.15  # no jump of the curve falls between two rows


@given(st.lists(rising, min_size=1, max_size=3))
def test_default_capacities_reach_the_whole_saving_of_every_gpu(curves):
    predictions = [make_prediction(curve) for curve in curves]
    capacities = choose_capacities(predictions)
    assert capacities[0] == 0
    assert capacities == sorted(set(capacities))
    assert len(capacities) <= 21
    for prediction, curve in zip(predictions, curves, strict=True):
        assert prediction.row_at(capacities[-1]).restored_tokens == curve[-1]


def test_default_capacities_without_any_saving():
    prediction = make_prediction([0, 0, 0])
    assert choose_capacities([prediction]) == [0.0, pytest.approx(2 * 1024 * BETA / GIB, rel=0.01)]
    assert choose_capacities([make_prediction([0])]) == [0.0]
    assert not math.isnan(prediction.row_at(0.0).net_saved_s)
