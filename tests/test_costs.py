import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plans import make_costs, make_deployment, make_prediction, tier_tables

from capplan.costs import Overrides, estimate_costs
from capplan.economics import TAU_LOAD_PER_TOKEN_S, TAU_LOAD_S, prefill_seconds_per_token
from capplan.hardware import load_gpu
from capplan.models import load_model


def formula(gpu, model, tp, position, dtype="bf16"):
    gpu, model = load_gpu(gpu), load_model(model)
    share = gpu.efficiency_for(model.kind, tp, dtype)
    work = (model.linear_params, model.attention_flops, position)
    return prefill_seconds_per_token(*work, tp, gpu.peak_flops(dtype), (share.low + share.high) / 2)


def test_measured_point_of_the_published_replay_is_used():
    costs = estimate_costs(make_deployment(tp=8), 30_000)
    assert costs.prefill_s_per_token == pytest.approx(67.9e-6)
    assert math.isnan(costs.position)
    assert costs.notes[0] == "prefill 67.9 us per token: measured, position not reported"


@pytest.mark.parametrize(("position", "us"), [(2048, 60.3), (1750, 60.3), (2500, 60.3), (28_000, 231.9)])
def test_measured_point_near_the_position_is_used(position, us):
    costs = estimate_costs(make_deployment(), position)
    assert costs.prefill_s_per_token == pytest.approx(us * 1e-6)


def test_nearest_of_two_measured_points_wins(tmp_path):
    own = tmp_path / "own.toml"
    point = 'model = "qwen3-coder-30b-a3b"\ntp = 1\nsource = "here"\n'
    points = [f"[[measured]]\n{point}position = {at}\nus_per_token = {us}\n" for at, us in ((900, 1.0), (1000, 2.0))]
    own.write_text('base = "h20"\n' + "".join(points))
    deployment = make_deployment(gpu=load_gpu(str(own)))
    assert estimate_costs(deployment, 1010).prefill_s_per_token == pytest.approx(2e-6)
    assert estimate_costs(deployment, 940).prefill_s_per_token == pytest.approx(1e-6)


@pytest.mark.parametrize("position", [0.0, 1600.0, 2600.0, 10_000.0])
def test_formula_where_no_measured_point_is_near(position):
    costs = estimate_costs(make_deployment(), position)
    assert costs.prefill_s_per_token == pytest.approx(formula("h20", "qwen3-coder-30b-a3b", 1, position))
    assert costs.position == position


def test_formula_where_the_measured_model_size_or_type_differs():
    assert estimate_costs(make_deployment(tp=2), 2048).prefill_s_per_token == pytest.approx(
        formula("h20", "qwen3-coder-30b-a3b", 2, 2048)
    )
    other = make_deployment(model=load_model("llama-3.1-8b"))
    assert estimate_costs(other, 2048).prefill_s_per_token == pytest.approx(formula("h20", "llama-3.1-8b", 1, 2048))
    fp8 = make_deployment(weight_dtype="fp8")
    assert estimate_costs(fp8, 2048).prefill_s_per_token == pytest.approx(
        formula("h20", "qwen3-coder-30b-a3b", 1, 2048, "fp8")
    )


def test_notes_say_where_the_numbers_come_from():
    assert estimate_costs(make_deployment(), 10_000).notes == (
        "prefill 105.9 us per token at mean position 10,000: formula at 0.85 of the bf16 peak (range 0.79-0.91, "
        "confidence high)",
        "restores at 52.0 / 53.5 / 54.9 GB/s per GPU, measured for contiguous copies; many small copies are slower",
        "a load costs 10 ms and 0.5 us per token on top of the link",
    )
    estimated = estimate_costs(make_deployment(gpu=load_gpu("l40s")), 10_000)
    assert "GB/s per GPU, estimated for contiguous copies" in estimated.notes[1]


def test_profile_rates_and_load_costs():
    costs = estimate_costs(make_deployment(), 10_000)
    assert costs.h2d_bytes_per_s == pytest.approx((52e9, 53.45e9, 54.9e9))
    assert (costs.load_s, costs.load_s_per_token) == (TAU_LOAD_S, TAU_LOAD_PER_TOKEN_S)
    assert costs.kv_bytes_per_token == 98_304


def test_overrides():
    overrides = Overrides(prefill_tokens_per_s=8_000, h2d_gb_per_s=12.5, load_latency_s=0.002)
    costs = estimate_costs(make_deployment(tp=8), 2048, overrides)
    assert costs.prefill_s_per_token == 1 / 8_000
    assert math.isnan(costs.position)
    assert costs.h2d_bytes_per_s == (12.5e9, 12.5e9, 12.5e9)
    assert costs.load_s == 0.002
    assert costs.notes == (
        "prefill 125.0 us per token: --prefill-tok-s 8000",
        "restores at 12.5 GB/s per GPU: --h2d-gbps",
        "a load costs 2 ms and 0.5 us per token on top of the link",
    )


def test_a_load_may_cost_nothing():
    assert estimate_costs(make_deployment(), 2048, Overrides(load_latency_s=0.0)).load_s == 0


def test_seconds_by_hand():
    costs = make_costs(prefill_s=2e-4, load_s=0.01, load_s_per_token=1e-6, beta=1000)
    moved, loads = np.array([0, 5000, 10_000]), np.array([0, 2, 3])
    # 1,000 bytes a token over 1e8 bytes/s = 10 us a token, and 1 us of scheduling
    assert costs.restore_seconds(moved, loads, 1e8) == pytest.approx([0, 0.055 + 0.02, 0.11 + 0.03])
    assert costs.prefill_seconds(np.array([0, 10_000])) == pytest.approx([0, 2])


@given(tier_tables(), st.floats(1e-6, 1e-3), st.floats(0, 0.1), st.floats(0, 1e-5))
def test_at_the_break_even_rate_the_best_net_time_is_zero(curve, prefill_s, load_s, load_s_per_token):
    restored, moved, loads = curve
    costs = make_costs(prefill_s, load_s=load_s, load_s_per_token=load_s_per_token)
    rate = costs.break_even_rate(restored, moved, loads)
    prediction = make_prediction(restored, moved=moved, loads=loads, costs=costs)
    largest = costs.prefill_seconds(restored).max()
    if math.isinf(rate):
        assert prediction.net_seconds(1e30).max() <= 1e-9 * largest
    else:
        assume(rate < 1e25)
        assert prediction.net_seconds(rate).max() == pytest.approx(0, abs=1e-9 * largest)
        assert prediction.net_seconds(rate * 1.01).max() > 0
        assert prediction.net_seconds(rate / 1.01).max() == 0


def test_no_rate_breaks_even_where_the_load_alone_takes_longer():
    costs = make_costs(prefill_s=1e-5, load_s=1.0)
    assert costs.break_even_rate(np.array([0, 1000]), np.array([0, 1000]), np.array([0, 1])) == math.inf
