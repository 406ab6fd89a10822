import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plans import BETA, make_costs, make_deployment, make_prediction, make_workload, tier_tables

from capplan.economics import break_even_bandwidth
from capplan.prediction import BEST, TRANSITION_SHARES, TYPICAL, WORST, Corner
from capplan.verdict import ADVICE, BreakEven, find_break_even, find_deciding, find_knee, find_regimes, judge

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
        "restoring beats recomputing at every restore rate of 50.0-55.0 GB/s and prefill of 100 us per token; "
        "break-even restore rate 0.983 GB/s"
    )
    assert verdict.deciding is None
    assert verdict.recommended_slots == 3
    assert verdict.break_even.rate_bytes_per_s == pytest.approx(BETA / SLOW)


def test_does_not_pay():
    verdict = judge_at((0.9 * FAST, FAST, 1.1 * FAST))
    assert verdict.answer == "does not pay"
    assert verdict.reason == (
        "no capacity gains time at any restore rate of 50.0-55.0 GB/s and prefill of 0.900-1.10 us per token; "
        "break-even restore rate 98.3 GB/s"
    )
    assert verdict.deciding is None
    assert verdict.recommended_slots == 0


def test_undecided_names_the_rate_that_decides():
    verdict = judge_at(BETWEEN)
    assert verdict.answer == "undecided"
    assert verdict.deciding == "restore rate"
    assert verdict.reason == (
        "it turns on the restore rate: break-even restore rate 51.7 GB/s, assumed 50.0-55.0 GB/s; time your "
        "engine's own restores (bytes over seconds) and pass --h2d-gbps"
    )
    assert verdict.recommended_slots == 0
    assert verdict.break_even.rate_bytes_per_s == pytest.approx(BREAK_EVEN)


def test_undecided_names_the_prefill_time_that_decides():
    # at 52 GB/s a token is restored in 1.89 us
    verdict = judge(make_prediction(CURVE, costs=make_costs((1.8e-6, 2e-6, 2.2e-6), 52.0)))
    assert (verdict.answer, verdict.deciding) == ("undecided", "prefill time")
    assert verdict.reason == (
        "it turns on the prefill time: break-even prefill time 1.89 us per token, assumed 1.80-2.20 us per token; "
        "time an uncached prompt of the mean length and pass --prefill-tok-s, or use capplan calibrate"
    )
    assert verdict.break_even.prefill_s_per_token == pytest.approx(BETA / 52e9)


def test_undecided_names_the_load_time_that_decides():
    # one load of 1,000 tokens at 1.89 us saves 2 ms of prefill: 0.11 ms are left
    prediction = make_prediction([0, 1000], costs=make_costs(2e-6, 52.0, (1e-5, 1e-4, 1e-3)))
    verdict = judge(prediction)
    assert (verdict.answer, verdict.deciding) == ("undecided", "load time")
    assert verdict.reason == (
        "it turns on the load time: break-even load time 0.110 ms, assumed 0.0100-1.00 ms; compare first tokens of a "
        "short prompt cached on the host and on the GPU, and pass --load-latency-ms"
    )
    assert verdict.break_even.load_s == pytest.approx(2e-3 - 1000 * BETA / 52e9)


def test_undecided_names_two_inputs_where_neither_turns_it_alone():
    # typical does not pay; prefill at its high end or the rate at its high end leave it so, both together pay
    verdict = judge(make_prediction(CURVE, costs=make_costs((1e-6, 1.2e-6, 1.7e-6), (40.0, 52.0, 60.0))))
    assert (verdict.answer, verdict.deciding) == ("undecided", "restore rate and prefill time")
    assert verdict.reason == (
        "it turns on the restore rate and prefill time: break-even restore rate 57.8 GB/s with the prefill time at "
        "best, assumed 40.0-60.0 GB/s; break-even prefill time 1.64 us per token with the restore rate at best, "
        "assumed 1.00-1.70 us per token; "
        f"{ADVICE['restore rate']}; {ADVICE['prefill time']}"
    )


def test_two_inputs_that_only_together_lose_are_said_at_their_worst():
    costs = make_costs((1.7e-6, 2e-6, 3e-6), (48.0, 52.0, 90.0))  # 1.89 us at 52 GB/s, 2.05 us at 48
    reason = judge(make_prediction(CURVE, costs=costs)).reason
    assert reason.startswith("it turns on the restore rate: break-even restore rate 49.2 GB/s, assumed 48.0-90.0 GB/s;")
    costs = make_costs((1.9e-6, 2e-6, 3e-6), (50.0, 52.0, 90.0))  # 1.97 us at 50 GB/s
    verdict = judge(make_prediction(CURVE, costs=costs))
    assert verdict.deciding == "restore rate and prefill time"
    assert verdict.reason.startswith(
        "it turns on the restore rate and prefill time: break-even restore rate 51.7 GB/s with the prefill time at "
        "worst, assumed 50.0-90.0 GB/s; break-even prefill time 1.97 us per token with the restore rate at worst, "
        "assumed 1.90-3.00 us per token; "
    )


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
    assert verdict.reason.endswith("; no restore rate breaks even")
    assert verdict.break_even.rate_bytes_per_s == math.inf


def test_nothing_breaks_even_where_nothing_is_restored():
    assert find_break_even(make_prediction([0, 0])) == BreakEven(math.inf, math.inf, -math.inf)


def test_a_single_rate_is_named_once():
    verdict = judge(make_prediction(CURVE, costs=make_costs(gb_per_s=(50.0, 50.0, 50.0))))
    assert "at every restore rate of 50.0 GB/s and prefill of 100 us per token;" in verdict.reason


def test_one_restore_breaks_even_where_the_formula_says():
    prediction = make_prediction([0, 4000], costs=make_costs(1e-5, 52.0, 0.01, 1e-6))
    spare = 1e-5 - 1e-6  # scheduling takes 1 us of every token's 10
    expected = break_even_bandwidth(BETA, spare, 0.01, 4000)
    assert find_break_even(prediction).rate_bytes_per_s == pytest.approx(expected)


def test_transitions_by_hand():
    assert judge_at(SLOW).transitions == {0.1: 1, 0.5: 2, 0.9: 3, 0.99: 3}


def test_recommendation_stops_before_capacity_that_only_costs():
    # the last chunks are restored at ten times the moved tokens
    prediction = make_prediction([0, 5000, 9000, 9200], moved=[0, 5000, 9000, 100_000], costs=make_costs(5e-6))
    assert judge(prediction).recommended_slots == 2


spans = st.tuples(st.floats(0.5, 1), st.floats(1, 2))


@st.composite
def uncertain(draw):
    """A prediction whose three inputs have ends of their own."""
    restored, moved, loads = draw(tier_tables())
    triples = []
    for middle in (
        draw(st.sampled_from([1e-7, 1.9e-6, 2e-6, 1e-5, 1e-4])),
        draw(st.sampled_from([20.0, 52.0, 60.0])),
        draw(st.sampled_from([0.0, 1e-4, 1e-3])),
    ):
        below, above = draw(spans)
        triples.append((below * middle, middle, above * middle))
    costs = make_costs(*triples, load_s_per_token=draw(st.sampled_from([0.0, 5e-7])))
    return make_prediction(restored, moved=moved, loads=loads, costs=costs)


def best_net(prediction, prefill=1.0, rate=1.0, load_s=None):
    """Best net time of all capacities with typical inputs, changed; by the definition."""
    costs, tiers = prediction.costs, prediction.tiers
    load = costs.load_s.typical if load_s is None else load_s
    per_token = costs.kv_bytes_per_token / (rate * costs.h2d_bytes_per_s.typical) + costs.load_s_per_token
    saved = prefill * prediction.savings.saved_s[1]
    return float((saved - tiers.moved_tokens * per_token - tiers.loads * load).max())


def scale_of(prediction):
    """Time of which rounding errors are a share."""
    largest = prediction.tiers.moved_tokens[-1] * prediction.costs.load_s_per_token + prediction.savings.saved_s[1][-1]
    return 1e-9 * max(float(largest), 1e-12)


@given(uncertain())
def test_at_the_break_even_rate_the_best_net_time_is_zero(prediction):
    rate = find_break_even(prediction).rate_bytes_per_s / prediction.costs.h2d_bytes_per_s.typical
    if math.isinf(rate):
        assert best_net(prediction, rate=1e30) <= scale_of(prediction)
    else:
        assume(rate < 1e12)
        assert best_net(prediction, rate=rate) == pytest.approx(0, abs=scale_of(prediction))
        assert best_net(prediction, rate=rate * 1.01) > 0
        assert best_net(prediction, rate=rate / 1.01) == 0


@given(uncertain())
def test_at_the_break_even_prefill_time_the_best_net_time_is_zero(prediction):
    scale = find_break_even(prediction).prefill_s_per_token / prediction.savings.mean_s_per_token.typical
    if math.isinf(scale):
        assert prediction.tiers.restored_tokens[-1] == 0
    else:
        assert best_net(prediction, prefill=scale) == pytest.approx(0, abs=scale_of(prediction) * max(1, scale))
        assert best_net(prediction, prefill=scale * 1.01) > 0
        assert best_net(prediction, prefill=scale / 1.01) == 0


@given(uncertain())
def test_at_the_break_even_load_time_the_best_net_time_is_zero(prediction):
    load_s = find_break_even(prediction).load_s
    if math.isinf(load_s):
        assert prediction.tiers.restored_tokens[-1] == 0
    else:
        step = max(abs(load_s) / 100, 1e-6)
        assert best_net(prediction, load_s=load_s) == pytest.approx(0, abs=scale_of(prediction) * 1e3)
        assert best_net(prediction, load_s=load_s - step) > 0
        assert best_net(prediction, load_s=load_s + step) == 0


@given(uncertain())
def test_best_net_time_is_worst_at_the_worst_corner_and_best_at_the_best(prediction):
    nets = {
        c: float(prediction.net_seconds(c).max()) for c in itertools.starmap(Corner, itertools.product(*[range(3)] * 3))
    }
    assert min(nets.values()) == nets[WORST]
    assert max(nets.values()) == nets[BEST]
    assert judge(prediction).best_net_s == (nets[WORST], nets[TYPICAL], nets[BEST])


FIELDS = {"restore rate": "rate", "prefill time": "prefill", "load time": "load"}


@given(uncertain())
def test_deciding_inputs_are_the_fewest_that_turn_the_answer(prediction):
    """All sets of inputs, smallest first: against the tier with all of the set at one end, for it at the other."""
    verdict = judge(prediction)
    if verdict.answer != "undecided":
        assert verdict.deciding is None
        return
    bad = {"prefill time": 0, "restore rate": 0, "load time": 2}
    turns = []
    for mask in range(1, 8):
        names = {name for k, name in enumerate(bad) if mask >> k & 1}
        against = Corner(*(bad[name] if name in names else 1 for name in bad))
        for_it = Corner(*(2 - bad[name] if name in names else 1 for name in bad))
        if (prediction.net_seconds(against).max() > 0) != (prediction.net_seconds(for_it).max() > 0):
            turns.append(names)
    fewest = min(map(len, turns))
    named = set(verdict.deciding.split(" and "))
    assert named == set(find_deciding(prediction).split(" and "))
    assert named in turns
    assert len(named) == fewest
    assert verdict.reason.startswith(f"it turns on the {verdict.deciding}: ")
    end = WORST if prediction.net_seconds().max() > 0 else BEST
    for name in named:  # its break-even lies in its range where the others stand at the end that turns the answer
        others = {FIELDS[other]: getattr(end, FIELDS[other]) for other in named - {name}}
        found = find_break_even(prediction, TYPICAL._replace(**others))
        value, ends = {
            "restore rate": (found.rate_bytes_per_s, prediction.costs.h2d_bytes_per_s),
            "prefill time": (found.prefill_s_per_token, prediction.savings.mean_s_per_token),
            "load time": (found.load_s, prediction.costs.load_s),
        }[name]
        assert ends.low * (1 - 1e-9) <= value <= ends.high * (1 + 1e-9)
    for name in named:
        assert ADVICE[name] in verdict.reason


@given(uncertain())
def test_regimes_cover_the_curve_and_follow_the_net_time(prediction):
    regimes = find_regimes(prediction)
    starts = [start for start, _ in regimes]
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert all(one != two for (_, one), (_, two) in itertools.pairwise(regimes))
    net, tiers = prediction.net_seconds(), prediction.tiers
    ends = [*starts[1:], tiers.n_distinct + 1]
    for (start, regime), end in zip(regimes, ends, strict=True):
        for k in range(start, end):
            small = 100 * int(tiers.restored_tokens[k]) < int(tiers.computed_tokens[0]) or not tiers.restored_tokens[k]
            expected = "overhead only" if small else "pays" if net[k] > 0 else "loses"
            assert regime == expected


def test_regimes_by_hand():
    # 2,000 of 300,000 tokens are under 1 %; then moved tokens decide
    prediction = make_prediction(
        [0, 2000, 50_000, 100_000, 101_000],
        moved=[0, 2000, 50_000, 10_000_000, 100_000],
        computed=300_000,
        costs=make_costs(4e-6),
    )
    assert find_regimes(prediction) == ((0, "overhead only"), (2, "pays"), (3, "loses"), (4, "pays"))


@given(uncertain())
def test_laws(prediction):
    verdict = judge(prediction)
    worst, _, best = verdict.best_net_s
    expected = "pays" if worst > 0 else "undecided" if best > 0 else "does not pay"
    restored = prediction.tiers.restored_tokens
    if restored[-1] < 0.01 * prediction.tiers.computed_tokens[0] or restored[-1] == 0:
        expected = "fits in GPU memory"
    assert verdict.answer == expected
    net = prediction.net_seconds()
    if verdict.answer == "pays":
        smallest = next(k for k in range(net.size) if net[k] >= 0.99 * net.max())
        assert verdict.recommended_slots == smallest > 0
    else:
        assert verdict.recommended_slots == 0
    slots = list(verdict.transitions.values())
    assert list(verdict.transitions) == list(TRANSITION_SHARES)
    assert slots == sorted(slots)
    assert 0 <= verdict.knee_slots <= slots[-1]


@given(tier_tables(), st.sampled_from([1e-7, 1.9e-6, 1e-5, 1e-4]), st.sampled_from([0.0, 1e-3]))
def test_with_only_the_rate_uncertain_its_break_even_decides(table, prefill_s, load_s):
    restored, moved, loads = table
    costs = make_costs(prefill_s, load_s=load_s)
    prediction = make_prediction(restored, moved=moved, loads=loads, costs=costs)
    verdict = judge(prediction)
    low, _, high = costs.h2d_bytes_per_s
    rate = verdict.break_even.rate_bytes_per_s
    assume(all(abs(rate / end - 1) > 1e-9 for end in (low, high)))
    if verdict.answer != "fits in GPU memory":
        assert verdict.answer == ("pays" if rate < low else "does not pay" if rate > high else "undecided")
        assert verdict.deciding == ("restore rate" if verdict.answer == "undecided" else None)


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


def test_warns_where_one_replica_cannot_keep_the_pace():
    # 101,024 tokens at 0.1 ms
    prediction = make_prediction(1000 * np.arange(101), workload=make_workload(span_s=5.0))
    assert judge(prediction).warnings[-1] == (
        "without a host tier prefill takes 2.02 times as long as the trace lasts: one replica cannot keep this pace, "
        "so times saved are work, not hours on a clock"
    )
    in_time = make_prediction(1000 * np.arange(101), workload=make_workload(span_s=11.0))
    assert not any("pace" in warning for warning in judge(in_time).warnings)
    assert not any("pace" in w for w in judge(make_prediction(CURVE, workload=make_workload(span_s=None))).warnings)
