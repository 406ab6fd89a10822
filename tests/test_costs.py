"""Where a deployment's costs come from: the user, then what was measured, then the formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_costs, make_deployment, place

from capplan.costs import METHODS, Costs, Overrides, Triple, estimate_costs
from capplan.costs.prefill import build_prefill, seconds
from capplan.costs.restore import estimate_rate
from capplan.economics import TAU_LOAD_HIGH_S, TAU_LOAD_LOW_S, TAU_LOAD_PER_TOKEN_S, TAU_LOAD_S
from capplan.errors import SpecError
from capplan.hardware import load_gpu
from capplan.models import load_model

ONE = Triple(1.0, 1.0, 1.0)
BAND = Triple(0.9, 1.0, 1.1)


def own_gpu(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text('base = "h20"\n' + text)
    return load_gpu(str(path))


def is_formula(cost, gpu, model, tp, dtype=None):
    """Whether a prefill cost is the three ends of the model of that deployment, unscaled."""
    at = ([0, 4096, 0], [4096, 8192, 100_000])
    expected = [seconds(end, *at) for end in build_prefill(load_gpu(gpu), load_model(model), tp, dtype)]
    assert (cost.origin, cost.known_s_per_token, cost.known_position, cost.band) == ("formula", None, None, ONE)
    assert cost.scale_at() == 1
    return all(np.array_equal(seconds(m, *at), e) for m, e in zip(cost.models, expected, strict=True))


def test_measured_point_of_the_published_replay_is_used():
    cost = estimate_costs(make_deployment(tp=8), 30_000).prefill
    assert cost.known_s_per_token == pytest.approx(67.9e-6)
    assert (cost.origin, cost.known_position, cost.band) == ("measured", 26_000, (0.8, 1, 1.2))
    assert cost.notes == ("measured, 67.9 us per token, at mean position 26,000 (estimated); +-20 % is assumed",)


POINT = 'model = "qwen3-coder-30b-a3b"\ntp = 8\nus_per_token = 50.0\nsource = "here"\n'


def test_measured_point_without_a_position_matches_any(tmp_path):
    gpu = own_gpu(tmp_path, f"[[measured]]\n{POINT}")
    for position in (100, 100_000):
        cost = estimate_costs(make_deployment(gpu=gpu, tp=8), position).prefill
        assert (cost.known_s_per_token, cost.known_position, cost.band) == (pytest.approx(50e-6), None, BAND)
        assert cost.notes == ("measured, 50 us per token, position not reported; +-10 % is assumed",)
        assert cost.scale_at() == 1  # the mean of what is restored becomes the measured one instead


def test_interval_of_a_measured_point_is_its_band(tmp_path):
    gpu = own_gpu(tmp_path, f"[[measured]]\n{POINT}us_low = 45.0\nus_high = 60.0\n")
    cost = estimate_costs(make_deployment(gpu=gpu, tp=8), 100).prefill
    assert cost.band == pytest.approx((0.9, 1, 1.2))
    assert cost.notes == ("measured, 50 us per token, position not reported; its interval",)


@pytest.mark.parametrize(
    ("position", "us", "at"), [(2048, 60.3, 2048), (1750, 60.3, 2048), (2500, 60.3, 2048), (28_000, 231.9, 32_768)]
)
def test_measured_point_near_the_position_is_used(position, us, at):
    cost = estimate_costs(make_deployment(), position).prefill
    assert cost.known_s_per_token == pytest.approx(us * 1e-6, rel=1e-3)
    assert (cost.origin, cost.known_position) == ("measured", at)
    assert cost.notes == (f"measured, {us} us per token, at mean position {at:,}; +-10 % is assumed",)


@pytest.mark.parametrize("position", [2048, 28_000])
def test_scale_of_a_measured_point_gives_its_time_at_its_position(position):
    cost = estimate_costs(make_deployment(), position).prefill
    whole = 2 * cost.known_position  # a prompt of this length has that mean position
    time_s = cost.scale_at() * float(seconds(cost.models[1], 0, whole))
    assert time_s / whole == pytest.approx(cost.known_s_per_token, rel=1e-12)


def test_nearest_of_two_measured_points_wins(tmp_path):
    point = 'model = "qwen3-coder-30b-a3b"\ntp = 1\nsource = "here"\n'
    points = [f"[[measured]]\n{point}position = {at}\nus_per_token = {us}\n" for at, us in ((900, 1.0), (1000, 2.0))]
    deployment = make_deployment(gpu=own_gpu(tmp_path, "".join(points)))
    assert estimate_costs(deployment, 1010).prefill.known_s_per_token == pytest.approx(2e-6)
    assert estimate_costs(deployment, 940).prefill.known_s_per_token == pytest.approx(1e-6)


@pytest.mark.parametrize("position", [0.0, 1600.0, 2600.0, 10_000.0])
def test_formula_where_no_measured_point_is_near(position):
    cost = estimate_costs(make_deployment(), position).prefill
    assert is_formula(cost, "h20", "qwen3-coder-30b-a3b", 1)
    assert cost.notes == cost.models[1].notes


def test_formula_where_the_measured_model_size_or_type_differs():
    assert is_formula(estimate_costs(make_deployment(tp=2), 2048).prefill, "h20", "qwen3-coder-30b-a3b", 2)
    other = make_deployment(model=load_model("llama-3.1-8b"))
    assert is_formula(estimate_costs(other, 2048).prefill, "h20", "llama-3.1-8b", 1)
    fp8 = make_deployment(weight_dtype="fp8")
    assert is_formula(estimate_costs(fp8, 2048).prefill, "h20", "qwen3-coder-30b-a3b", 1, "fp8")


def test_formula_ends_are_in_order():
    for gpu in ("h20", "h100", "h800", "l40s"):
        low, typical, high = estimate_costs(make_deployment(gpu=load_gpu(gpu), tp=4), 10_000).prefill.models
        assert seconds(low, 0, 30_000) <= seconds(typical, 0, 30_000) <= seconds(high, 0, 30_000)


def test_notes_say_where_the_numbers_come_from():
    costs = estimate_costs(make_deployment(tp=8), 10_000)
    low, typical, high = (f"{rate / 1e9:.1f}" for rate in costs.h2d_bytes_per_s)
    assert costs.notes[0] == f"restores at {low} / {typical} / {high} GB/s per GPU"
    assert costs.notes[1].startswith("restores by kernel copies of 4.00 KiB (paged, 16 tokens a block); lmcache: ")
    assert any(note.startswith("host link at 52 / 53.45 / 54.9 GB/s: ") for note in costs.notes)
    assert costs.notes[-1] == "a load costs 8-13 ms and 0.5 us per token on top of the copies"
    guessed = estimate_costs(make_deployment(gpu=load_gpu("l40s")), 10_000)
    assert any(note.startswith("host link at 11.25 / 25 / 26.4 GB/s, estimated: ") for note in guessed.notes)


def test_load_costs_are_the_documented_ones():
    costs = estimate_costs(make_deployment(), 10_000)
    assert costs.load_s == (TAU_LOAD_LOW_S, TAU_LOAD_S, TAU_LOAD_HIGH_S)
    assert costs.load_s_per_token == TAU_LOAD_PER_TOKEN_S
    assert costs.kv_bytes_per_token == 98_304


@pytest.mark.parametrize("engine", ["lmcache", "vllm", "sglang", "trtllm", "dynamo", "mooncake"])
@pytest.mark.parametrize("method", [None, *METHODS])
def test_rates_are_those_of_the_engine_and_the_way_of_copying(engine, method):
    deployment = make_deployment(tp=8)
    costs = estimate_costs(deployment, 10_000, Overrides(restore_method=method), engine)
    where = (deployment.gpu, deployment.model, 8, "bf16")
    assert costs.restore == estimate_rate(*where, method, engine=engine)
    assert costs.h2d_bytes_per_s == costs.restore.ends
    assert costs.notes[1:-1] == costs.restore.notes
    assert tuple(costs.by_method) == METHODS
    for way, rates in costs.by_method.items():
        assert rates == estimate_rate(*where, way, engine=engine).ends
    assert costs.by_method[costs.restore.method] == costs.h2d_bytes_per_s


def test_unknown_engine_and_way_of_copying():
    with pytest.raises(SpecError, match="engine 'tgi': accepted: dynamo, lmcache"):
        estimate_costs(make_deployment(), 10_000, engine="tgi")
    with pytest.raises(SpecError, match="restore method 'magic': accepted: per-fragment, batched"):
        estimate_costs(make_deployment(), 10_000, Overrides(restore_method="magic"))


def test_overrides():
    overrides = Overrides(prefill_tokens_per_s=8_000, h2d_gb_per_s=12.5, load_latency_s=0.002)
    costs = estimate_costs(make_deployment(tp=8), 2048, overrides)
    assert costs.prefill.models is None
    assert costs.prefill.known_s_per_token == 1 / 8_000
    assert (costs.prefill.origin, costs.prefill.band) == ("given", ONE)
    assert costs.prefill.scale_at() == 1
    assert costs.prefill.notes == ("--prefill-tok-s 8000",)
    assert costs.h2d_bytes_per_s == (12.5e9, 12.5e9, 12.5e9)
    assert costs.restore is None
    assert costs.load_s == (0.002, 0.002, 0.002)
    assert costs.notes == (
        "restores at 12.5 GB/s per GPU: --h2d-gbps",
        "a load costs 2 ms and 0.5 us per token on top of the copies",
    )


def test_a_load_may_cost_nothing():
    assert estimate_costs(make_deployment(), 2048, Overrides(load_latency_s=0.0)).load_s == (0, 0, 0)


EFFECTIVE = '[h2d_gb_per_s]\nlow = 3.0\ntypical = 4.0\nhigh = 5.0\nbasis = "replays"\nsource = "here"\neffective = {}\n'


def test_a_rate_of_restores_is_taken_as_it_is(tmp_path):
    gpu = own_gpu(tmp_path, EFFECTIVE.format("true"))
    costs = estimate_costs(make_deployment(gpu=gpu, tp=8), 2048)
    assert costs.h2d_bytes_per_s == (3e9, 4e9, 5e9)
    assert costs.restore is None
    assert costs.by_method == {}  # the link's own rate is unknown then
    assert costs.notes[0] == "restores at 3 / 4 / 5 GB/s per GPU: replays"
    with pytest.raises(SpecError, match="--restore kernel: the profile of own states the rate that restores reach"):
        estimate_costs(make_deployment(gpu=gpu, tp=8), 2048, Overrides(restore_method="kernel"))


def test_a_rate_of_the_link_is_not(tmp_path):
    gpu = own_gpu(tmp_path, EFFECTIVE.format("false"))
    costs = estimate_costs(make_deployment(gpu=gpu, tp=8), 2048, Overrides(restore_method="per-fragment"))
    assert costs.restore.fragment_bytes == 4096
    assert costs.h2d_bytes_per_s.typical < 2e9


def test_seconds_by_hand():
    costs = make_costs(prefill_s=2e-4, load_s_per_token=1e-6, beta=1000)
    moved, loads = np.array([0, 5000, 10_000]), np.array([0, 2, 3])
    # 1,000 bytes a token over 1e8 bytes/s = 10 us a token, and 1 us of scheduling
    assert costs.restore_seconds(moved, loads, 1e8, 0.01) == pytest.approx([0, 0.055 + 0.02, 0.11 + 0.03])
    assert costs.restore_s_per_token(1e8) == pytest.approx(1.1e-5)


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.floats(1e8, 1e12), st.floats(0, 1))
def test_restore_seconds_are_per_token_and_per_load(moved, loads, rate, load_s):
    costs = make_costs(load_s_per_token=5e-7)
    found = costs.restore_seconds(np.array([moved]), np.array([loads]), rate, load_s)
    assert found[0] == pytest.approx(moved * costs.restore_s_per_token(rate) + loads * load_s)


def test_costs_hold_nothing_of_the_trace():
    """The same deployment and position give the same costs."""
    first, second = (estimate_costs(make_deployment(tp=8), 30_000) for _ in range(2))
    assert isinstance(first, Costs)
    assert (first.prefill.known_s_per_token, first.h2d_bytes_per_s, first.by_method) == (
        second.prefill.known_s_per_token,
        second.h2d_bytes_per_s,
        second.by_method,
    )
    assert place(1 << 20, 8).kv_bytes_per_token == first.kv_bytes_per_token
