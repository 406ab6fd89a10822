import itertools
import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plans import BETA, SMALL, agent_trace, make_costs, make_deployment, make_prediction, make_workload

from capplan import Options, predict
from capplan.deployment import GpuRoom
from capplan.economics import break_even_length, obr
from capplan.hardware import load_gpu
from capplan.prediction import (
    BEST,
    GRID_SHARES,
    TRANSITION_SHARES,
    TYPICAL,
    WORST,
    Corner,
    Prices,
    choose_capacities,
)

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


PRICES = Prices(dram_usd_per_gib=4.0, gpu_usd_per_hour=2.5)
MONTH_HOURS = 730.5


def made_by_hand(**changes):
    """One GPU of a fixed size and half an hour, with ends in round numbers."""
    options = {
        "moved": [0, 2048, 4096],
        "loads": [0, 2, 3],
        "written": [0, 7, 4],
        "computed": 6000,
        "gpu_tokens": 2000,
        "deployment": make_deployment(tp=8),
        "costs": make_costs((5e-4, 1e-3, 2e-3), (10.0, 20.0, 40.0), (0.25, 0.5, 1.0), 1e-4, beta=24_576),
        "workload": make_workload(span_s=1800.0),
        **changes,
    }
    return make_prediction([0, 1000, 3000], **options)


def test_row_by_hand():
    prediction = made_by_hand(prices=PRICES)
    gib = 1.5 * prediction.chunk_bytes / GIB
    row = prediction.row_at(gib)
    link_s = [2048 * 24_576 / rate for rate in (10e9, 20e9, 40e9)]
    net_s = 1 - link_s[1] - 1.2048
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
        "prefill_saved_s_low": 0.5,
        "prefill_saved_s_high": 2.0,
        "prefill_saved_share": 1 / 6,
        "prefill_saved_s_per_hour": 2.0,
        "restore_s": link_s[1] + 0.2048 + 1,
        "restore_s_at_low_rate": link_s[0] + 0.2048 + 1,
        "restore_s_at_high_rate": link_s[2] + 0.2048 + 1,
        "net_saved_s": net_s,
        "net_saved_s_at_low_rate": 1 - link_s[0] - 1.2048,
        "net_saved_s_at_high_rate": 1 - link_s[2] - 1.2048,
        "net_saved_s_worst": 0.5 - link_s[0] - 0.2048 - 2,
        "net_saved_s_best": 2 - link_s[2] - 0.2048 - 0.5,
        "write_gib_per_s": 7 * 1024 * 24_576 / 1800 / GIB,
        "gamma_host": 9 * 2000 * 24_576 / (gib * GIB),
        "dram_usd": 8 * gib * 4.0,
        "gpu_hours_saved_per_month": 8 * net_s / 1800 * MONTH_HOURS,
        "gpu_usd_saved_per_month": 8 * net_s / 1800 * MONTH_HOURS * 2.5,
        "payback_months": None,
    }
    found = {field.name: getattr(row, field.name) for field in fields(row)}
    assert found == pytest.approx(expected)


def test_money_by_hand():
    """A tier that saves 90 s of an hour on 8 GPUs: 0.2 GPU hours an hour."""
    prediction = make_prediction(
        [0, 100_000],
        deployment=make_deployment(tp=8),
        costs=make_costs(1e-3, 24.576, 10.0, 0.0, beta=24_576),  # saves 100 s; 0.1 s of link, a load of 10 s
        workload=make_workload(span_s=3600.0),
        prices=PRICES,
    )
    row = prediction.row_at(2.0)
    assert row.net_saved_s == pytest.approx(89.9)
    assert row.dram_usd == 2 * 8 * 4
    assert row.gpu_hours_saved_per_month == pytest.approx(89.9 / 3600 * 8 * MONTH_HOURS)
    assert row.gpu_usd_saved_per_month == pytest.approx(2.5 * row.gpu_hours_saved_per_month)
    assert row.payback_months == pytest.approx(64 / (2.5 * 89.9 / 3600 * 8 * MONTH_HOURS))


def test_one_host_copy_is_paid_once():
    row = made_by_hand(deployment=make_deployment(tp=8, host_copies=1), prices=PRICES).row_at(3.0)
    assert row.dram_usd == 12


def test_money_needs_prices_and_a_clock():
    row = made_by_hand().row_at(1.0)
    assert (row.dram_usd, row.gpu_usd_saved_per_month, row.payback_months) == (None, None, None)
    assert row.gpu_hours_saved_per_month is not None
    row = made_by_hand(prices=PRICES, workload=make_workload(span_s=None)).row_at(1.0)
    assert row.dram_usd == 32
    assert (row.gpu_hours_saved_per_month, row.gpu_usd_saved_per_month, row.payback_months) == (None, None, None)


def test_free_memory_is_paid_back_at_once():
    costs = make_costs(1e-3, beta=24_576)
    assert made_by_hand(costs=costs, prices=Prices(0.0, 1.0)).row_at(1.0).payback_months == 0
    assert made_by_hand(costs=costs, prices=Prices(1.0, 0.0)).row_at(1.0).payback_months is None


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
    costs = make_costs((0.5e-4, 1e-4, 3e-4), load_s=(0.1, 0.2, 0.3), load_s_per_token=1e-6)
    prediction = make_prediction(restored, costs=costs)
    k = data.draw(st.integers(0, restored.size - 1))
    row = prediction.row_at(prediction.gib_at(k))
    for name, corner in (
        ("net_saved_s_at_low_rate", Corner(1, 0, 1)),
        ("net_saved_s", TYPICAL),
        ("net_saved_s_at_high_rate", Corner(1, 2, 1)),
        ("net_saved_s_worst", WORST),
        ("net_saved_s_best", BEST),
    ):
        assert getattr(row, name) == pytest.approx(prediction.net_seconds(corner)[k], abs=1e-12)
    assert row.net_saved_s_worst <= row.net_saved_s_at_low_rate <= row.net_saved_s
    assert row.net_saved_s <= row.net_saved_s_at_high_rate <= row.net_saved_s_best
    assert row.prefill_saved_s_low <= row.prefill_saved_s <= row.prefill_saved_s_high


@given(rising, st.sampled_from(list(itertools.product(range(3), range(3), range(3)))))
def test_net_time_at_every_corner_by_the_definition(restored, ends):
    prefill, rate, load = ends
    prefill_s, gb_per_s, load_s = (1e-4, 2e-4, 4e-4), (10.0, 20.0, 50.0), (0.01, 0.02, 0.05)
    prediction = make_prediction(restored, costs=make_costs(prefill_s, gb_per_s, load_s, 5e-7))
    net = prediction.net_seconds(Corner(*ends))
    for k in range(restored.size):
        tokens = int(restored[k])
        spent = tokens * (BETA / (gb_per_s[rate] * 1e9) + 5e-7) + (tokens > 0) * load_s[load]
        assert net[k] == pytest.approx(tokens * prefill_s[prefill] - spent, abs=1e-9)


@given(
    st.sampled_from([TYPICAL, WORST, BEST]), st.floats(1e-7, 1e-3), st.floats(0.5, 100), st.floats(0, 0.1),
    st.sampled_from([0.0, 5e-7]),
)  # fmt: skip
def test_smallest_restore_is_the_break_even_length(corner, prefill_s, gb_per_s, load_s, per_token_s):
    costs = make_costs(
        (0.8 * prefill_s, prefill_s, 1.3 * prefill_s),
        (0.5 * gb_per_s, gb_per_s, 1.1 * gb_per_s),
        (0.8 * load_s, load_s, 1.3 * load_s),
        per_token_s,
    )
    prediction = make_prediction([0, 1000], costs=costs)
    found = prediction.smallest_restore_tokens(corner)
    t_pf = prediction.savings.mean_s_per_token[corner.prefill]
    rate, tau = costs.h2d_bytes_per_s[corner.rate], costs.load_s[corner.load]
    assume(abs(t_pf - per_token_s - BETA / rate) > 1e-6 * t_pf)
    assert found == pytest.approx(break_even_length(tau, t_pf - per_token_s, BETA, rate), rel=1e-6)
    if math.isfinite(found) and found > 0:
        assert obr(found, t_pf, BETA, rate, tau + per_token_s * found) == pytest.approx(0, abs=1e-5)


@given(st.floats(1, 1e6), st.floats(1e8, 1e11), st.sampled_from([0, 1, 2]))
def test_obr_is_that_of_the_formula(n_tokens, rate, end):
    prefill_s, load_s = (1e-5, 2e-5, 3e-5), (0.008, 0.01, 0.013)
    prediction = make_prediction([0, 1000], costs=make_costs(prefill_s, load_s=load_s, load_s_per_token=5e-7))
    tau = load_s[2 - end] + 5e-7 * n_tokens  # the low end of the benefit has the longest load
    expected = obr(n_tokens, prefill_s[end], BETA, rate, tau)
    assert prediction.obr(n_tokens, rate, end) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_mean_restore():
    prediction = make_prediction([0, 1000, 3000], loads=[0, 4, 5])
    assert [prediction.mean_restore_tokens(k) for k in (1, 2, 99)] == [250, 600, 600]
    assert math.isnan(prediction.mean_restore_tokens(0))
    assert math.isnan(prediction.obr(math.nan, 1e9))


@pytest.mark.parametrize(("gpu", "ratio"), [("h20", 2.3e3), ("h100", 15.5e3), ("h200", 15.5e3), ("rtx3090", 2.2e3)])
def test_flop_per_link_byte_of_published_gpus(gpu, ratio):
    prediction = make_prediction([0, 1], deployment=make_deployment(gpu=load_gpu(gpu)))
    assert prediction.flop_per_link_byte == pytest.approx(ratio, rel=0.02)


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
