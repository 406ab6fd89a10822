import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan import economics as ec

MIB, GIB = 2**20, 2**30
BETA = 24_576  # Qwen3-Coder-30B-A3B, TP8
CALLS, PROMPT_TOKENS = 4_427, 147.1e6

positive = st.floats(1e-3, 1e3)
per_token = st.floats(1e-6, 1e-3)
betas = st.floats(1e3, 1e6)
rates = st.floats(1e8, 1e12)
lengths = st.floats(1, 1e6)


@pytest.mark.parametrize(("pool_size", "gib"), [(16, 11.4), (8, 5.3)])
def test_reuse_working_set_of_the_published_replay(pool_size, gib):
    reuse = ec.reuse_working_set_bytes(pool_size, PROMPT_TOKENS / CALLS, BETA)
    assert reuse / GIB == pytest.approx(gib, abs=0.05)


def test_one_task_has_nothing_to_reuse_over():
    assert ec.reuse_working_set_bytes(1, 30_000, BETA) == 0


def test_gammas():
    assert ec.gamma_host(30, 20) == 1.5
    assert ec.gamma_host(30, 0) == math.inf
    assert ec.gamma_gpu(16, 30_000, 240_000) == 2
    assert ec.gamma_gpu(16, 30_000, 0) == math.inf


def test_prefill_time_by_hand():
    # 2 * 3e9 + 500 * 2000 FLOPs over 2 * 1e14 * 0.5
    assert ec.prefill_seconds_per_token(3e9, 500, 2000, 2, 1e14, 0.5) == pytest.approx(6.001e9 / 1e14)


def test_prefill_time_over_positions_is_linear():
    positions = np.array([0.0, 1000.0, 2000.0])
    times = ec.prefill_seconds_per_token(1e9, 1e6, positions, 1, 1e14, 1.0)
    assert np.diff(times) == pytest.approx([1e-5, 1e-5])
    assert times[0] == pytest.approx(2e-5)


def test_load_time_by_hand():
    assert ec.load_seconds(1000, 2e6, 1e9, 0.5) == pytest.approx(2.5)
    assert ec.load_seconds(0, 2e6, 1e9) == ec.TAU_LOAD_S == 0.010
    assert ec.TAU_LOAD_PER_TOKEN_S == 0.5e-6


@pytest.mark.parametrize(
    ("gb_per_s", "us_per_token", "ratio"),
    [
        (1.1, 67.9, 0.67),  # one copy per fragment: H20 gains,
        (1.1, 18.0, -0.24),  # an H100 loses
        (5.5, 67.9, 0.93),
        (12.5, 8.1, 0.76),
        (51, 6.1, 0.92),
    ],
)
def test_obr_of_worked_restore_methods(gb_per_s, us_per_token, ratio):
    got = ec.obr(1.0, us_per_token * 1e-6, BETA, gb_per_s * 1e9, 0.0)
    assert got == pytest.approx(ratio, abs=0.006)


def test_obr_with_the_fixed_cost_of_a_short_restore():
    # Qwen3-Coder-30B-A3B, TP1 on an H20: 1,024 tokens in 78 ms, about 13 ms fixed, 53.7 GB/s
    assert ec.obr(1024, 78e-3 / 1024, 98_304, 53.7e9, 0.013) == pytest.approx(0.81, abs=0.01)


def test_overhead_of_a_load():
    assert ec.load_overhead_seconds(10_000) == pytest.approx(0.015)
    assert ec.load_overhead_seconds(np.array([0.0, 2e6])) == pytest.approx([0.010, 1.010])


def test_floor_under_the_time_to_first_token():
    assert ec.TAU_FLOOR_S == 0.042
    assert ec.ttft_recompute(0.03) == 0.042
    assert ec.ttft_recompute(np.array([0.03, 0.05]), 0.04) == pytest.approx([0.04, 0.05])
    assert ec.ttft_load(0.01) == pytest.approx(0.052)
    assert ec.obr_ttft(0.01, 0.0) == 0  # nothing to gain under the floor
    assert ec.obr_ttft(np.array([0.1, 1.0]), np.array([0.01, 0.1])) == pytest.approx([1 - 0.52, 1 - 0.142])


@given(betas, per_token, lengths, rates)
def test_without_a_floor_clients_measure_the_plain_ratio(beta, t_pf, n, bandwidth):
    load = ec.load_seconds(n, beta, bandwidth)
    assert ec.obr_ttft(n * t_pf, load, 0.0) == pytest.approx(ec.obr(n, t_pf, beta, bandwidth), rel=1e-9, abs=1e-9)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0, 1))
def test_the_floor_hides_part_of_the_benefit(t_rec, t_load, floor):
    assert ec.obr_ttft(t_rec, t_load, floor) <= max(0.0, 1 - t_load / t_rec) + 1e-12


@given(betas, per_token, st.floats(0, 1), lengths)
def test_at_break_even_bandwidth_loading_gains_nothing(beta, t_pf, tau, n):
    bandwidth = ec.break_even_bandwidth(beta, t_pf, tau, n)
    if math.isinf(bandwidth):
        assert tau >= n * t_pf
    else:
        scale = tau / (n * t_pf) + beta / bandwidth / t_pf  # both parts of the load time over T_rec
        assert ec.obr(n, t_pf, beta, bandwidth, tau) == pytest.approx(0, abs=1e-9 * max(1, scale))


@given(betas, per_token, st.floats(1e-3, 1), rates)
def test_at_break_even_length_loading_gains_nothing(beta, t_pf, tau, bandwidth):
    n = ec.break_even_length(tau, t_pf, beta, bandwidth)
    if math.isinf(n):
        assert beta / bandwidth >= t_pf
        assert ec.obr(1e9, t_pf, beta, bandwidth, tau) < 0
    else:
        assert ec.obr(n, t_pf, beta, bandwidth, tau) == pytest.approx(0, abs=1e-6)
        assert ec.obr(2 * n, t_pf, beta, bandwidth, tau) > 0


@given(betas, per_token, lengths, rates, st.floats(1.01, 10))
def test_obr_rises_with_bandwidth_and_with_length(beta, t_pf, n, bandwidth, factor):
    here = ec.obr(n, t_pf, beta, bandwidth)
    assert ec.obr(n, t_pf, beta, bandwidth * factor) > here
    assert ec.obr(n * factor, t_pf, beta, bandwidth) > here


@given(betas, per_token, lengths, rates)
def test_the_two_break_evens_agree(beta, t_pf, n, bandwidth):
    """The link beats B* exactly when the restore is longer than n*."""
    tau = 0.01
    beats = bandwidth > ec.break_even_bandwidth(beta, t_pf, tau, n)
    longer = n > ec.break_even_length(tau, t_pf, beta, bandwidth)
    assert beats == longer or ec.obr(n, t_pf, beta, bandwidth, tau) == pytest.approx(0, abs=1e-9)


def test_break_even_never():
    assert ec.break_even_bandwidth(BETA, 1e-5, 1e-2, 1000) == math.inf  # 10 us a token, spent by the fixed cost
    assert ec.break_even_bandwidth(BETA, 1e-5, 0.0, 0) == math.inf  # nothing is restored
    assert ec.break_even_length(0.01, 1e-5, 1e6, 1e11) == math.inf  # a token loads as fast as it computes


@given(positive, positive)
def test_flop_per_link_byte(peak, link):
    assert ec.flop_per_link_byte(peak * 1e12, link * 1e9) == pytest.approx(peak / link * 1e3)
