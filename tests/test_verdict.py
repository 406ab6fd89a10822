import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plans import BETA, make_costs, make_deployment, make_prediction, make_workload, tier_tables

from capplan.prediction import TRANSITION_SHARES
from capplan.verdict import find_knee, judge

# A token of 98,304 B takes 1.97 us at 50 GB/s and 1.79 us at 55 GB/s.
SLOW, BETWEEN, FAST = 1e-4, 1.9e-6, 1e-6
BREAK_EVEN = BETA / BETWEEN
CURVE = [0, 10_000, 60_000, 99_000, 100_000, 100_000]


def judge_at(prefill_s, restored=CURVE, **changes):
    return judge(make_prediction(restored, costs=make_costs(prefill_s), **changes))


def test_pays():
    verdict = judge_at(SLOW)
    assert verdict.answer == "pays"
    assert verdict.reason == (
        "restoring beats recomputing over the whole restore rate of 50.0-55.0 GB/s; break-even at 0.983 GB/s"
    )
    assert verdict.recommended_slots == 3
    assert verdict.break_even_bytes_per_s == pytest.approx(BETA / SLOW)


def test_does_not_pay():
    verdict = judge_at(FAST)
    assert verdict.answer == "does not pay"
    assert verdict.reason == "no capacity gains time at a restore rate of 50.0-55.0 GB/s; break-even at 98.3 GB/s"
    assert verdict.recommended_slots == 0


def test_undecided_names_the_rate_that_decides():
    verdict = judge_at(BETWEEN)
    assert verdict.answer == "undecided"
    assert verdict.reason == (
        "it turns on the restore rate: break-even at 51.7 GB/s, the profile says 50.0-55.0 GB/s; measure it on the host"
    )
    assert verdict.recommended_slots == 0
    assert verdict.break_even_bytes_per_s == pytest.approx(BREAK_EVEN)


def test_fits_in_gpu_memory():
    verdict = judge_at(SLOW, computed=10_000_001)
    assert verdict.answer == "fits in GPU memory"
    assert verdict.reason == (
        "nothing to gain: an unlimited host tier would save 100 k of 10.00 M computed prefill tokens"
    )
    assert verdict.recommended_slots == 0


def test_one_percent_is_something_to_gain():
    assert judge_at(SLOW, computed=10_000_000).answer == "pays"


def test_nothing_computed_is_nothing_to_gain():
    assert judge_at(SLOW, [0, 0], computed=0).answer == "fits in GPU memory"


def test_no_rate_suffices_where_loads_cost_more_than_they_save():
    verdict = judge(make_prediction([0, 1000], loads=[0, 5], costs=make_costs(load_s=10.0)))
    assert verdict.answer == "does not pay"
    assert verdict.reason.endswith("; no break-even rate")
    assert verdict.break_even_bytes_per_s == math.inf


def test_a_single_rate_is_named_once():
    verdict = judge(make_prediction(CURVE, costs=make_costs(gb_per_s=(50.0, 50.0, 50.0))))
    assert "the whole restore rate of 50.0 GB/s;" in verdict.reason


def test_transitions_by_hand():
    assert judge_at(SLOW).transitions == {0.1: 1, 0.5: 2, 0.9: 3, 0.99: 3}


def test_recommendation_stops_before_capacity_that_only_costs():
    # the last chunks are restored at ten times the moved tokens
    prediction = make_prediction([0, 5000, 9000, 9200], moved=[0, 5000, 9000, 100_000], costs=make_costs(5e-6))
    assert judge(prediction).recommended_slots == 2


@given(tier_tables(), st.sampled_from([1e-7, 1.9e-6, 1e-5, 1e-4]), st.sampled_from([0.0, 1e-3]))
def test_laws(table, prefill_s, load_s):
    restored, moved, loads = table
    costs = make_costs(prefill_s, load_s=load_s)
    prediction = make_prediction(restored, moved=moved, loads=loads, costs=costs)
    verdict = judge(prediction)
    low, typical, high = costs.h2d_bytes_per_s
    break_even = verdict.break_even_bytes_per_s
    assume(all(abs(break_even / rate - 1) > 1e-9 for rate in (low, high)))
    expected = "pays" if break_even < low else "does not pay" if break_even > high else "undecided"
    if restored[-1] < 0.01 * prediction.tiers.computed_tokens[0] or restored[-1] == 0:
        expected = "fits in GPU memory"
    assert verdict.answer == expected
    net = prediction.net_seconds(typical)
    if verdict.answer == "pays":
        smallest = next(k for k in range(net.size) if net[k] >= 0.99 * net.max())
        assert verdict.recommended_slots == smallest > 0
    else:
        assert verdict.recommended_slots == 0
    slots = list(verdict.transitions.values())
    assert list(verdict.transitions) == list(TRANSITION_SHARES)
    assert slots == sorted(slots)
    assert 0 <= verdict.knee_slots <= slots[-1]


@given(tier_tables())
def test_knee_stands_highest_above_the_chord(table):
    restored = [int(tokens) for tokens in table[0]]
    end = next(k for k, tokens in enumerate(restored) if 100 * tokens >= 99 * restored[-1])
    knee = find_knee(make_prediction(restored))
    if end == 0:
        assert knee == 0
        return
    above = [Fraction(restored[k], restored[end]) - Fraction(k, end) for k in range(end + 1)]
    assert float(above[knee]) == pytest.approx(float(max(above)), abs=1e-12)
    assert all(float(height) < float(above[knee]) + 1e-12 for height in above[:knee])


def test_knee_by_hand():
    # 99 % is reached at 4 slots; heights above the chord: 0, 0.35, 0.4, 0.2, 0
    assert find_knee(make_prediction([0, 60_000, 90_000, 95_000, 100_000])) == 2
    assert find_knee(make_prediction([0, 0, 0])) == 0


def test_nothing_to_warn_of():
    roomy = make_prediction(1000 * np.arange(11), deployment=make_deployment(kv_tokens=1024))
    assert judge(roomy, node_ram_gib=1000).warnings == ()


def test_warns_of_a_recommendation_no_larger_than_the_gpu_tier():
    deployment = make_deployment(kv_tokens=10 * 1024)
    assert judge(make_prediction(1000 * np.arange(11), deployment=deployment)).warnings == (
        "the recommended tier: no larger than the GPU tier (10,240 tokens), adds little beyond tails and outputs",
    )
    larger = make_prediction(1000 * np.arange(12), deployment=deployment)
    assert judge(larger).warnings == ()


@pytest.mark.parametrize(("longest", "is_warned"), [(10 * 1024, False), (10 * 1024 + 1, True)])
def test_warns_of_a_recommendation_smaller_than_the_longest_prompt(longest, is_warned):
    prediction = make_prediction(
        1000 * np.arange(11),
        deployment=make_deployment(kv_tokens=1024),
        workload=make_workload(longest_prompt_tokens=longest),
    )
    expected = (
        "the recommended tier: smaller than the longest prompt (10,241 tokens), of which only the head is kept",
    )
    assert judge(prediction).warnings == (expected if is_warned else ())


def test_warns_of_a_short_trace():
    prediction = make_prediction([0, 0], workload=make_workload(first_use_share=0.512))
    assert judge(prediction).warnings == (
        "51.2 % of prompt tokens are first use or tails of chunks (above 50.0 %): the trace may be too short to "
        "judge reuse",
    )
    assert judge(make_prediction([0, 0], workload=make_workload(first_use_share=0.5))).warnings == ()


def test_warns_where_the_recommendation_exceeds_the_node():
    deployment = make_deployment(kv_tokens=1024, tp=8)
    prediction = make_prediction(1000 * np.arange(101), deployment=deployment)  # 99 chunks of 24 MiB, 8 copies
    assert judge(prediction, node_ram_gib=18.5).warnings == (
        "the recommended tier (18.6 GiB per node): over --node-ram 18.5 GiB",
    )
    assert judge(prediction, node_ram_gib=18.6).warnings == ()


def test_warns_of_capacities_that_were_asked_for():
    deployment = make_deployment(kv_tokens=16 * 1024, tp=8)
    prediction = make_prediction(
        np.zeros(100), deployment=deployment, workload=make_workload(longest_prompt_tokens=30_000)
    )
    assert judge(prediction, 5.0, (0.0, 0.25, 0.5, 1.0)).warnings == (  # 0, 10, 21 and 42 chunks
        "0.250 GiB per rank: no larger than the GPU tier (16,384 tokens), adds little beyond tails and outputs",
        "0.250 GiB per rank, 0.500 GiB per rank: smaller than the longest prompt (30,000 tokens), of which only the "
        "head is kept",
        "1.00 GiB per rank (8.00 GiB per node): over --node-ram 5.00 GiB",
    )
