"""The study of admission rules: advice, what is lost and gained, outcomes that are reused, the published reversal."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import agent_trace, make_prediction
from tier_runs import Calls, set_tier

from capplan import Options, read_trace
from capplan.admission_outcome import EVERY, Declined, Outcome
from capplan.admission_study import Candidate, advise, list_candidates, simulate_logs, study_capacities
from capplan.costs import Triple
from capplan.deployment import GpuRoom
from capplan.errors import SpecError, TraceError
from capplan.pipeline import compare_admission, predict
from capplan.prediction import BEST, TYPICAL, WORST
from capplan.saving import linear_times
from capplan.simulation.presets import list_presets, load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_run import sum_run
from capplan.units import gib_to_bytes

ROOT = Path(__file__).parent.parent
UNIT = 64
TRACE = agent_trace(4, 8)
GIBS = (0.02, 0.1, 0.3)
OPTIONS = Options(room=GpuRoom(kv_tokens=864), host_gib=GIBS)


def settings_of(name="efficientagent", unit=UNIT):
    return TierSettings.of(load_preset(name)).change(unit_tokens=unit)


def study(name="efficientagent", kappas=(0, 1, 2, 8), thetas=(0.5, 0.95), thresholds=(2,), trace=TRACE, **options):
    tier = settings_of(name) if name != "efficientagent" else settings_of()
    return compare_admission(trace, ["h20"], "qwen3-coder-30b-a3b", replace(OPTIONS, tier=tier, **options),
                             kappas, thetas, thresholds)  # fmt: skip


@pytest.fixture(scope="module")
def answer():
    (found,) = study().answers
    return found


# --- advice


def outcome(label, net, *, worst=None, best=None, written=100, again=0, computed=0):
    """An outcome with given net seconds (no restores) and tokens written, and stored twice."""
    totals = sum_run(Calls([([1, 2], [])]).run(set_tier("lmcache"), 1))
    totals = replace(totals, written_tokens=written, duplicate_tokens=again, computed_tokens=computed)
    saved = Triple(net if worst is None else worst, net, net if best is None else best)
    return Outcome(
        label, AdmissionRule(), True, totals, saved, (0.0, 0.0, 0.0), 0.0, Declined(0, 0, 0), 0, 0, EVERY, EVERY
    )


UNSURE = "saves 12.0 s more than none, not at every end of the uncertain inputs"
NOTHING = "no rule gains 1 % of prefill time, or saves a quarter of the writes at no cost"


@pytest.mark.parametrize(
    ("others", "label", "said"),
    [
        ([], "none", NOTHING),
        ([outcome("a", 10.0)], "none", NOTHING),  # gains exactly 1 % of 1,000 s
        ([outcome("a", 10.1)], "a", "saves 10.1 s more than none"),
        ([outcome("a", 11.0), outcome("b", 12.0)], "b", "saves 12.0 s more than none"),
        ([outcome("a", 12.0, written=90), outcome("b", 12.0, written=80)], "b", "saves 12.0 s more than none"),
        ([outcome("a", 12.0, worst=-1.0)], "a", UNSURE),
        ([outcome("a", 12.0, worst=20.0, best=0.0)], "a", UNSURE),
        ([outcome("a", 0.0, written=75)], "none", NOTHING),  # saves exactly a quarter
        ([outcome("a", 0.0, written=74)], "a", "same time as none within 0.1 % of prefill, 26 % fewer writes"),
        ([outcome("a", -0.9, written=70)], "a", "same time as none within 0.1 % of prefill, 30 % fewer writes"),
        ([outcome("a", -1.0, written=70)], "none", NOTHING),  # costs 0.1 %
        ([outcome("a", 0.0, written=60), outcome("b", 0.0, written=50)], "b",
         "same time as none within 0.1 % of prefill, 50 % fewer writes"),
        ([outcome("a", 0.0, written=50, again=30)], "none", NOTHING),  # copies of what is resident count
        ([outcome("a", -50.0, written=0)], "none", NOTHING),
    ],
)  # fmt: skip
def test_advice(others, label, said):
    assert advise([outcome("none", 0.0), *others], 1000.0) == (label, said)


def test_advice_compares_with_none_and_not_with_nothing():
    assert advise([outcome("none", 500.0), outcome("a", 505.0)], 1000.0) == ("none", NOTHING)
    assert advise([outcome("none", 500.0), outcome("a", 520.0)], 1000.0)[0] == "a"
    assert advise([outcome("none", 0.0, written=0), outcome("a", 0.0, written=0)], 0.0) == ("none", NOTHING)


@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 200)), max_size=6), st.floats(0, 1000))
def test_advice_never_costs_more_than_a_tenth_of_a_percent(found, without_s):
    outcomes = [outcome("none", 0.0), *(outcome(f"rule {k}", net, written=n) for k, (net, n) in enumerate(found))]
    label, _ = advise(outcomes, without_s)
    best = next(one for one in outcomes if one.label == label)
    assert label == "none" or best.net_s() > -0.001 * without_s
    assert max(one.net_s() for one in outcomes) - best.net_s() <= max(0.0, 0.011 * without_s)


# --- candidates


def test_every_rule_is_compared_with_the_tier_as_released():
    labels = [one.label for one in list_candidates(settings_of(), (2, 8), (0.95,), (2,))]
    assert labels == ["none", "none, dedup", "2 offers", "fixed 2", "fixed 8", "conditioned 2", "conditioned 8"]
    by_label = dict(list_candidates(settings_of("lmcache"), (2, 8), (0.9, 0.95), (3,)))
    assert list(by_label) == ["none", "none, dedup", "3 offers", "fixed 2", "fixed 8",
                              "conditioned 2 @0.9", "conditioned 8 @0.9",
                              "conditioned 2 @0.95", "conditioned 8 @0.95"]  # fmt: skip
    assert not by_label["none"].preset.dedup
    assert all(tier.preset.dedup for label, tier in by_label.items() if label != "none")
    assert by_label["3 offers"].min_offers == 3
    assert by_label["conditioned 8 @0.9"].rule == AdmissionRule("conditioned", 8, 0.9)
    assert [one.label for one in list_candidates(settings_of("vllm-offload-0.13"), (2,), (0.95,), ())] == [
        "none", "prompts only", "fixed 2", "conditioned 2"]  # fmt: skip
    assert [one.label for one in list_candidates(settings_of("stack-distance"), (2,), (0.95,), (2,))] == [
        "none", "fixed 2", "conditioned 2"]  # fmt: skip


@pytest.mark.parametrize("name", [preset.name for preset in list_presets()])
def test_tiers_that_are_not_written_by_request_are_refused(name):
    if load_preset(name).kind in ("prefix", "inclusive", "radix"):
        assert list_candidates(settings_of(name), (2,), (0.95,), ())[0].label == "none"
    else:
        with pytest.raises(
            SpecError, match=f"tier {name} is not written request by request: no rule; accepted: dynamo"
        ):
            list_candidates(settings_of(name), (2,), (0.95,), ())


@pytest.mark.parametrize("name", ["sglang-hicache", "sglang-hicache-selective", "sglang-hicache-writeback"])
def test_a_radix_tree_has_write_policies_instead_of_rules(name):
    found = study(name, trace=TRACE)
    assert [one.label for one in found.candidates] == ["none", "second hit", "on eviction"]
    presets = ("sglang-hicache", "sglang-hicache-selective", "sglang-hicache-writeback")
    for capacity in found.answers[0].capacities:
        for outcome, preset in zip(capacity.outcomes, presets, strict=True):
            (row,) = predict(
                TRACE, options=replace(OPTIONS, tier=settings_of(preset), host_gib=(capacity.host_gib_per_rank,))
            ).answers[0].rows  # fmt: skip
            assert outcome.totals.computed_tokens == row.computed_tokens
            assert outcome.totals.written_tokens == row.written_tokens
            assert outcome.totals.declined_tokens == 0
            assert outcome.is_simulated


def test_conditioned_needs_a_clock():
    timeless = agent_trace(has_clock=False, has_tasks=False)
    with pytest.raises(TraceError, match="no task id, so a pool cannot be formed"):
        study(trace=timeless)
    with pytest.raises(TraceError, match="efficientagent looks at a clock, and the trace has none"):
        study(trace=timeless, order="recorded")


# --- outcomes


def run_of(answer, settings, gib):
    return simulate_tier(replace(answer.tier, settings=settings), gib_to_bytes(gib))


def test_outcomes_are_runs_whether_simulated_or_known(answer):
    settings = dict(list_candidates(settings_of(), (0, 1, 2, 8), (0.5, 0.95), (2,)))
    n_known = 0
    for capacity in answer.capacities:
        base = run_of(answer, settings["none"], capacity.host_gib_per_rank)
        assert [found.label for found in capacity.outcomes] == list(settings)
        for found in capacity.outcomes:
            run = run_of(answer, settings[found.label], capacity.host_gib_per_rank)
            assert found.totals == sum_run(run)
            assert found.rule == settings[found.label].rule
            change = run.known_tokens - base.known_tokens
            assert (found.lost_tokens, found.gained_tokens) == (-change[change < 0].sum(), change[change > 0].sum())
            assert found.declined.total * UNIT == found.totals.declined_tokens
            assert found.gained_tokens - found.lost_tokens == (
                capacity.none.totals.computed_tokens - found.totals.computed_tokens
            )
            n_known += not found.is_simulated
    assert n_known >= 5
    assert {len({found.totals.computed_tokens for found in one.outcomes}) for one in answer.capacities} != {1}


@pytest.mark.parametrize("label", ["fixed 1", "conditioned 1 @0.5"])
def test_known_outcomes_hold_what_a_fresh_study_finds(answer, label):
    """Whatever stood before it in the list, an outcome is the same."""
    settings = dict(list_candidates(settings_of(), (0, 1, 2, 8), (0.5, 0.95), (2,)))
    pair = [Candidate("none", settings["none"]), Candidate(label, settings[label])]
    again = study_capacities(answer.tier, answer.prediction, GIBS, pair)
    for capacity, fresh in zip(answer.capacities, again, strict=True):
        found = next(one for one in capacity.outcomes if one.label == label)
        assert fresh.outcomes[1].is_simulated
        assert asdict(replace(found, is_simulated=True)) == asdict(fresh.outcomes[1])


def test_seconds_and_writes_of_an_outcome(answer):
    costs = answer.prediction.costs
    for capacity in answer.capacities:
        for found in capacity.outcomes:
            total = found.totals
            copied = total.written_tokens + total.duplicate_tokens
            assert found.write_s == pytest.approx(copied * costs.kv_bytes_per_token / costs.h2d_bytes_per_s.typical)
            for corner, restore in zip((WORST, TYPICAL, BEST), found.restore_s, strict=True):
                rate = costs.h2d_bytes_per_s[corner.rate]
                seconds = total.moved_tokens * costs.restore_s_per_token(rate)
                assert restore == pytest.approx(seconds + total.loading_requests * costs.load_s[corner.load])
                assert found.net_s(corner) == found.saved_s[corner.prefill] - restore


def test_none_of_a_study_is_the_prediction_of_the_tier():
    for name in ("lmcache", "vllm-offload", "stack-distance"):
        (found,) = study(name).answers
        (plan,) = predict(TRACE, options=replace(OPTIONS, tier=settings_of(name))).answers
        for capacity, row in zip(found.capacities, plan.rows, strict=True):
            assert capacity.none.totals.computed_tokens == row.computed_tokens
            assert capacity.none.totals.moved_tokens == row.moved_tokens
            assert capacity.none.net_s() == pytest.approx(row.net_saved_s)
            assert capacity.none.net_s(WORST) == pytest.approx(row.net_saved_s_worst)
            assert capacity.none.net_s(BEST) == pytest.approx(row.net_saved_s_best)


def test_warm_up_is_left_out_of_outcomes():
    found, whole = study(warmup=0.5), study()
    first = found.first_request
    assert first == len(TRACE) // 2
    settings = dict(list_candidates(settings_of(), (0, 1, 2, 8), (0.5, 0.95), (2,)))
    for capacity, other in zip(found.answers[0].capacities, whole.answers[0].capacities, strict=True):
        for outcome, before in zip(capacity.outcomes, other.outcomes, strict=True):
            run = run_of(found.answers[0], settings[outcome.label], capacity.host_gib_per_rank)
            assert outcome.totals == sum_run(run, first)
            assert outcome.declined.total * UNIT == outcome.totals.declined_tokens
            assert outcome.totals.declined_tokens <= before.totals.declined_tokens


def test_hits_lost_and_gained_by_hand():
    """A tier of 4 units. Without a rule the 8 units of B push out A; a rule that declines B keeps A."""
    a, b, c = [1, 2, 3, 4], list(range(10, 18)), [1, 2, 30, 31]
    calls = Calls([(a, []), (b, []), (b, []), ([*a, 5], []), (c, [])])
    tier = calls.tier(set_tier("efficientagent-fixed"))
    none = replace(tier.settings, rule=AdmissionRule())
    fixed = replace(tier.settings, rule=AdmissionRule("fixed", 4))
    assert simulate_tier(replace(tier, settings=none), 4).found_tokens.tolist() == [0, 0, 4, 0, 2]
    assert simulate_tier(replace(tier, settings=fixed), 4).found_tokens.tolist() == [0, 0, 0, 4, 2]
    candidates = [Candidate("none", none), Candidate("fixed 4", fixed)]
    prediction = make_prediction([0, 4])
    times = linear_times(1e-4, tier.stream.n_tokens)
    prediction = replace(prediction, savings=replace(prediction.savings, ends=(times, times, times)))
    (found,) = study_capacities(tier, prediction, [4 / 2**30], candidates)
    without, ruled = found.outcomes
    assert (without.lost_tokens, without.gained_tokens, without.declined.total) == (0, 0, 0)
    assert (ruled.lost_tokens, ruled.gained_tokens) == (4, 4)
    assert ruled.totals.declined_requests == 2
    # The first B is used again at positions 0 to 7: half of them within the tier. The second one never is.
    assert tuple(ruled.declined) == (8, 4, 4)


def test_logs_are_the_runs_of_the_rules(answer):
    candidates = list_candidates(settings_of(), (0, 8), (0.95,), (2,))
    logs = simulate_logs(answer.tier, GIBS, candidates)
    assert [(log.host_gib_per_rank, log.label) for log in logs] == [
        (gib, label) for gib in GIBS for label in ("fixed 0", "fixed 8", "conditioned 0", "conditioned 8")
    ]
    for log in logs:
        run = run_of(answer, dict(candidates)[log.label], log.host_gib_per_rank)
        assert np.array_equal(log.run.decisions.is_declined, run.decisions.is_declined)
        assert log.rule == dict(candidates)[log.label].rule


# --- the published reversal


@pytest.fixture(scope="module")
def replayed():
    """Computed prefill by capacity and rule, on the stand-in for the published H20 replay."""
    trace = read_trace(ROOT / "data/synthetic/coding_agents.parquet")
    options = Options(
        tp=8, pool_size=16, host_gib=(5.0, 40.0), room=GpuRoom(kv_tokens=300_000),
        tier=TierSettings.of(load_preset("efficientagent")),
    )  # fmt: skip
    found = compare_admission(trace, ["h20"], "qwen3-coder-30b-a3b", options, kappas=(8,), thresholds=())
    return {
        capacity.host_gib_per_rank: {one.label: one for one in capacity.outcomes}
        for capacity in found.answers[0].capacities
    }


def computed(replayed, gib):
    return [replayed[gib][label].totals.computed_tokens for label in ("none", "fixed 8", "conditioned 8")]


def test_a_fixed_threshold_helps_a_small_tier_and_harms_a_large_one(replayed):
    small_none, small_fixed, small_conditioned = computed(replayed, 5.0)
    large_none, large_fixed, large_conditioned = computed(replayed, 40.0)
    assert small_fixed < small_none
    assert large_fixed >= 3 * large_none
    assert small_conditioned <= 1.01 * min(small_none, small_fixed)
    assert large_conditioned <= 1.01 * min(large_none, large_fixed)


def test_declined_chunks_explain_the_reversal(replayed):
    small, large = (replayed[gib]["fixed 8"].declined for gib in (5.0, 40.0))
    assert (small.never + small.beyond) / small.total > 0.8
    assert large.would_hit / large.total > 0.9
    assert replayed[5.0]["fixed 8"].gained_tokens > 100 * replayed[5.0]["fixed 8"].lost_tokens
    assert replayed[40.0]["fixed 8"].gained_tokens == 0


def test_figures_stand_beside_the_published_ones(replayed):
    page = (ROOT / "docs/admission.md").read_text(encoding="utf-8")
    here = [computed(replayed, 5.0)[1], computed(replayed, 40.0)[1], computed(replayed, 5.0)[2]]
    assert "| published | 48.9 | 22.8 | 49.7 |" in page
    assert f"| here | {' | '.join(f'{n_tokens / 1e6:.1f}' for n_tokens in here)} |" in page
    assert [f"{n_tokens / 1e6:.1f}" for n_tokens in here] == ["49.3", "13.4", "47.0"]
