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
from capplan.admission_advice import NO_TIER, advise
from capplan.admission_candidates import Candidate, list_candidates
from capplan.admission_outcome import CORNERS, EVERY, Declined, Outcome, compare_times
from capplan.admission_study import simulate_logs, study_capacities
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


def settings_by_label(*arguments):
    return {one.label: one.settings for one in list_candidates(*arguments)}


@pytest.fixture(scope="module")
def answer():
    (found,) = study().answers
    return found


# --- advice


def outcome(label, net, *, low=None, high=None, copy=(0.0, 0.0, 0.0), load=(0.0, 0.0, 0.0), written=100, again=0,
            restored=1, is_setting=True):  # fmt: skip
    """An outcome with given seconds saved, less copies and loads, and tokens restored, written, and stored twice."""
    totals = sum_run(Calls([([1, 2], [])]).run(set_tier("lmcache"), 1))
    totals = replace(totals, written_tokens=written, duplicate_tokens=again, restored_tokens=restored)
    saved = Triple(net if low is None else low, net, net if high is None else high)
    return Outcome(
        label, AdmissionRule(), True, totals, saved, Triple(*copy), Triple(*load), 0.0, 0.0, Declined(0, 0, 0), 0, 0,
        EVERY, EVERY, is_setting,
    )  # fmt: skip


THOUSAND = Triple(800.0, 1000.0, 1200.0)
NOTHING = "none of the rules gains 1 % of prefill time, or saves a quarter of the writes at no cost"
SAME = "same time as no rule within 0.1 % of prefill"
SLOWER = "at most 0.1 % of prefill slower than no rule"
DOUBT = ", not at every end of the uncertain inputs"


@pytest.mark.parametrize(
    ("others", "label", "said"),
    [
        ([], "no rule", NOTHING),
        ([outcome("a", 110.0)], "no rule", NOTHING),  # gains exactly 1 % of 1,000 s
        ([outcome("a", 110.1)], "a", "saves 10.1 s more than no rule"),
        ([outcome("a", 111.0), outcome("b", 112.0)], "b", "saves 12.0 s more than no rule"),
        ([outcome("a", 112.0, written=90), outcome("b", 112.0, written=80)], "b", "saves 12.0 s more than no rule"),
        ([outcome("a", 112.0, low=99.0)], "a", f"saves 12.0 s more than no rule{DOUBT}"),
        ([outcome("a", 112.0, high=100.0)], "a", f"saves 12.0 s more than no rule{DOUBT}"),
        # Worse at the end of one input only: neither the worst nor the best corner of all of them.
        ([outcome("a", 112.0, high=130.0, copy=(20.0, 0.0, 0.0))], "a", f"saves 12.0 s more than no rule{DOUBT}"),
        ([outcome("a", 100.0, written=75)], "no rule", NOTHING),  # saves exactly a quarter
        ([outcome("a", 100.0, written=74)], "a", f"{SAME}, 26 % fewer writes"),
        ([outcome("a", 99.2, written=70)], "a", f"{SAME}, 30 % fewer writes"),
        ([outcome("a", 98.9, written=70)], "no rule", NOTHING),  # costs more than 0.1 %
        ([outcome("a", 99.2, low=99.1, written=70)], "no rule", NOTHING),  # of 800 s that is more than 0.1 %
        ([outcome("a", 102.0, written=70)], "a", f"{SLOWER}, 30 % fewer writes"),
        ([outcome("a", 100.0, high=101.3, written=70)], "a", f"{SLOWER}, 30 % fewer writes"),
        ([outcome("a", 102.0, low=100.0, high=96.0, written=70)], "no rule", NOTHING),  # the best corner loses 4 s
        ([outcome("a", 100.0, load=(0.0, 0.0, 2.0), written=70)], "no rule", NOTHING),
        ([outcome("a", 100.0, written=60), outcome("b", 100.0, written=50)], "b", f"{SAME}, 50 % fewer writes"),
        ([outcome("a", 100.0, written=50, again=30)], "no rule", NOTHING),  # copies of what is resident count
        ([outcome("a", 50.0, written=0)], "no rule", NOTHING),
        ([outcome("a", 150.0, is_setting=False)], "no rule", NOTHING),  # it cannot be set
        ([outcome("a", 100.0, written=0, is_setting=False)], "no rule", NOTHING),
    ],
)  # fmt: skip
def test_advice(others, label, said):
    assert advise([outcome("no rule", 100.0), *others], THOUSAND) == (label, said)


@pytest.mark.parametrize(
    ("none", "others", "label", "said"),
    [
        ({"net": -50.0}, [outcome("a", -10.0)], NO_TIER,
         "the tier loses time with and without a rule, least with a: 10.0 s"),
        ({"net": -50.0}, [outcome("a", -60.0)], NO_TIER,
         "the tier loses time with and without a rule, least without one: 50.0 s"),
        ({"net": -50.0, "high": 1.0}, [], NO_TIER,
         f"the tier loses time with and without a rule, least without one: 50.0 s{DOUBT}"),
        ({"net": -50.0}, [outcome("a", 0.0, restored=0)], NO_TIER,
         "the tier loses time wherever it restores anything, which it does not with a"),
        ({"net": -1.0}, [outcome("a", 2.0)], "a", "saves 3.00 s more than no rule, which loses time against "
         "no host tier"),
        ({"net": 0.0, "restored": 0}, [outcome("a", 2.0)], "a",
         "saves 2.00 s more than no rule, which restores nothing"),
        ({"net": 0.0, "restored": 0}, [outcome("a", 20.0, low=-1.0)], "a",
         f"saves 20.0 s more than no rule, which restores nothing{DOUBT}"),
        ({"net": 0.0, "restored": 0}, [outcome("a", -2.0, restored=20), outcome("b", -1.0, restored=10)], NO_TIER,
         "the tier restores nothing without a rule, at most 20 tokens with a: it saves no time"),
        ({"net": 0.0, "restored": 0}, [outcome("a", 0.0, restored=0)], NO_TIER,
         "the tier is too small to restore anything under any rule"),
        ({"net": 0.0, "restored": 0}, [outcome("a", 9.0, restored=5, is_setting=False)], NO_TIER,
         "the tier is too small to restore anything under any rule"),
    ],
)  # fmt: skip
def test_no_host_tier_may_be_better_than_any_rule(none, others, label, said):
    assert advise([outcome("no rule", **none), *others], THOUSAND) == (label, said)


def test_nothing_to_restore_is_no_small_tier():
    said = (NO_TIER, "a tier of any size restores nothing")
    assert advise([outcome("no rule", 0.0, restored=0, written=0)], Triple(0.0, 0.0, 0.0), can_restore=False) == said


@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(0, 50), st.integers(0, 200), st.integers(0, 1)),
             min_size=1, max_size=6),
    st.floats(0, 1000),
)  # fmt: skip
def test_advice_costs_at_most_a_tenth_of_a_percent_and_never_loses(found, without_s):
    outcomes = [
        outcome("no rule" if k == 0 else f"rule {k}", net, high=net + spread, copy=(spread / 3, 0.0, 0.0), written=n,
                restored=restored if restored or k == 0 else 1)
        for k, (net, spread, n, restored) in enumerate(found)
    ]  # fmt: skip
    times = Triple(0.8 * without_s, without_s, 1.2 * without_s)
    label, said = advise(outcomes, times)
    none = outcomes[0]
    if label == NO_TIER:
        assert max(one.net_s() for one in outcomes) <= 0 or not any(one.totals.restored_tokens for one in outcomes)
        return
    chosen = next(one for one in outcomes if one.label == label)
    assert chosen.net_s() >= 0
    assert max(one.net_s() for one in outcomes) - chosen.net_s() <= 0.011 * without_s + 1e-9
    if "0.1 %" in said:
        for corner in (TYPICAL, *CORNERS):
            change = chosen.net_s(corner) - none.net_s(corner)
            assert change >= -0.001 * times[corner.prefill]
            assert change <= 0.001 * times[corner.prefill] or not said.startswith("same time")


@given(st.tuples(*[st.floats(-50, 50)] * 9), st.tuples(*[st.floats(-50, 50)] * 9))
def test_least_and_most_enclose_every_corner(first, second):
    def make(label, numbers):
        low, net, high = sorted(numbers[:3])
        return outcome(label, net, low=low, high=high, copy=numbers[3:6], load=numbers[6:])

    one, other = make("a", first), make("b", second)
    least, typical, most = compare_times(one, other)
    assert typical == one.net_s() - other.net_s()
    for corner in (TYPICAL, WORST, BEST, *CORNERS):
        assert least <= one.net_s(corner) - other.net_s(corner) <= most
    assert compare_times(one, one) == (0, 0, 0)
    assert len(set(CORNERS)) == 8


# --- candidates


def test_every_rule_is_compared_with_the_tier_as_released():
    labels = [one.label for one in list_candidates(settings_of(), (2, 8), (0.95,), (2,))]
    assert labels == ["no rule", "no rule, dedup", "fixed 2", "fixed 8", "conditioned 2", "conditioned 8"]
    by_label = settings_by_label(settings_of("lmcache"), (2, 8), (0.9, 0.95), (3,))
    assert list(by_label) == ["no rule", "no rule, dedup", "fixed 2", "fixed 8",
                              "conditioned 2 @0.9", "conditioned 8 @0.9",
                              "conditioned 2 @0.95", "conditioned 8 @0.95"]  # fmt: skip
    assert not by_label["no rule"].preset.dedup
    assert all(tier.preset.dedup for label, tier in by_label.items() if label != "no rule")
    assert by_label["conditioned 8 @0.9"].rule == AdmissionRule("conditioned", 8, 0.9)
    assert list(settings_by_label(settings_of("vllm-offload-0.13"), (2,), (0.95,), ())) == [
        "no rule", "prompts only", "fixed 2", "conditioned 2"]  # fmt: skip
    assert list(settings_by_label(settings_of("stack-distance"), (2,), (0.95,), (2,))) == [
        "no rule", "fixed 2", "conditioned 2"]  # fmt: skip
    offers = settings_by_label(settings_of("vllm-offload"), (2,), (0.95,), (2, 3))
    assert list(offers) == ["no rule", "2 offers", "3 offers", "fixed 2", "conditioned 2"]
    assert offers["3 offers"].min_offers == 3


@pytest.mark.parametrize("name", [preset.name for preset in list_presets()])
def test_offers_are_a_rule_only_where_the_engine_counts_them(name):
    preset = load_preset(name)
    assert preset.counts_offers == (name == "vllm-offload")
    if not preset.counts_offers:
        with pytest.raises(SpecError, match=f"tier {name} stores from the first offer on; a store threshold is"):
            TierSettings.of(preset).change(min_offers=2)


def test_what_cannot_be_set_shows_an_effect():
    for name, effects in (("efficientagent", ["no rule, dedup"]), ("lmcache-mp", ["prompts only"]),
                          ("vllm-offload", []), ("sglang-hicache", [])):  # fmt: skip
        found = list_candidates(settings_of(name), (2,), (0.95,), (2,))
        assert [one.label for one in found if not one.is_setting] == effects
    (found,) = study().answers
    for capacity in found.capacities:
        assert [one.label for one in capacity.outcomes if not one.is_setting] == ["no rule, dedup"]
        assert capacity.best != "no rule, dedup"


@pytest.mark.parametrize(("n_tasks", "has_conditioned"), [(0, False), (1, False), (2, True)])
def test_conditioned_rules_need_two_tasks(n_tasks, has_conditioned):
    """`A - 1` of them would never be above 0, so no decision could be pressured."""
    labels = [one.label for one in list_candidates(settings_of(), (2,), (0.95,), (), n_tasks)]
    assert ("conditioned 2" in labels) == has_conditioned
    assert "fixed 2" in labels


@pytest.mark.parametrize("n_tasks", [0, 1])
def test_a_conditioned_rule_without_two_tasks_never_declines(n_tasks):
    trace = agent_trace(max(1, n_tasks), 8, has_tasks=n_tasks > 0)
    tier = settings_of().change(rule=AdmissionRule("conditioned", 0, 0.0, report_period_s=0.0))
    options = replace(OPTIONS, tier=tier, order="recorded", host_gib=(0.02,))
    (row,) = predict(trace, options=options).answers[0].simulated.capacities
    assert row.totals.declined_requests == 0
    found = compare_admission(trace, ["h20"], "qwen3-coder-30b-a3b", options, (0,), (0.0,), ())
    assert [one.label for one in found.candidates] == ["no rule", "no rule, dedup", "fixed 0"]
    assert found.options.tier.rule.kind == "none"


@pytest.mark.parametrize("name", [preset.name for preset in list_presets()])
def test_tiers_that_are_not_written_by_request_are_refused(name):
    if load_preset(name).kind in ("prefix", "inclusive", "radix"):
        assert list_candidates(settings_of(name), (2,), (0.95,), ())[0].label == "no rule"
    else:
        with pytest.raises(
            SpecError, match=f"tier {name} is not written request by request: no rule; accepted: dynamo"
        ):
            list_candidates(settings_of(name), (2,), (0.95,), ())


@pytest.mark.parametrize("name", ["sglang-hicache", "sglang-hicache-selective", "sglang-hicache-writeback"])
def test_a_radix_tree_has_write_policies_instead_of_rules(name):
    found = study(name, trace=TRACE)
    assert [one.label for one in found.candidates] == ["no rule", "second hit", "on eviction"]
    presets = ("sglang-hicache", "sglang-hicache-selective", "sglang-hicache-writeback")
    for capacity in found.answers[0].capacities:
        for outcome, preset in zip(capacity.outcomes, presets, strict=True):
            (row,) = predict(
                TRACE, options=replace(OPTIONS, tier=settings_of(preset), host_gib=(capacity.host_gib_per_rank,))
            ).answers[0].rows  # fmt: skip
            assert outcome.totals.computed_tokens == row.computed_tokens
            assert outcome.totals.written_tokens == row.written_tokens
            assert outcome.net_s() == pytest.approx(row.net_saved_s)
            assert outcome.totals.declined_tokens == 0
            assert outcome.is_simulated


def test_conditioned_needs_a_clock():
    timeless = agent_trace(has_clock=False, has_tasks=False)
    with pytest.raises(TraceError, match="no task id, so a pool cannot be formed"):
        study(trace=timeless)
    with pytest.raises(TraceError, match="efficientagent looks at a clock, and the trace has none"):
        study(trace=agent_trace(has_clock=False), order="recorded")
    # Without tasks conditioned rules are left out, and the others need no clock.
    assert len(study(trace=timeless, order="recorded").candidates) == 6


# --- outcomes


def run_of(answer, settings, gib):
    return simulate_tier(replace(answer.tier, settings=settings), gib_to_bytes(gib))


def test_outcomes_are_runs_whether_simulated_or_known(answer):
    settings = settings_by_label(settings_of(), (0, 1, 2, 8), (0.5, 0.95), (2,))
    n_known = 0
    for capacity in answer.capacities:
        base = run_of(answer, settings["no rule"], capacity.host_gib_per_rank)
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
    settings = settings_by_label(settings_of(), (0, 1, 2, 8), (0.5, 0.95), (2,))
    pair = [Candidate("no rule", settings["no rule"]), Candidate(label, settings[label])]
    again = study_capacities(answer.tier, answer.prediction, GIBS, pair)
    for capacity, fresh in zip(answer.capacities, again, strict=True):
        found = next(one for one in capacity.outcomes if one.label == label)
        assert fresh.outcomes[1].is_simulated
        assert asdict(replace(found, is_simulated=True)) == asdict(fresh.outcomes[1])


def test_seconds_and_writes_of_an_outcome(answer):
    costs = answer.prediction.costs
    per_byte = 1 / costs.h2d_bytes_per_s.typical
    for capacity in answer.capacities:
        assert capacity.alone_tokens == capacity.none.totals.prompt_tokens - capacity.none.totals.gpu_tokens
        for found in capacity.outcomes:
            total = found.totals
            copied = total.written_tokens + total.duplicate_tokens
            assert found.copied_tokens == copied
            assert found.write_s == pytest.approx(copied * costs.kv_bytes_per_token * per_byte)
            # The link is busy with bytes: what a load takes whatever its length is not among them.
            assert found.link_s == pytest.approx(
                (copied + total.moved_tokens) * costs.kv_bytes_per_token * per_byte
            )  # fmt: skip
            for corner in (WORST, TYPICAL, BEST, *CORNERS):
                rate = costs.h2d_bytes_per_s[corner.rate]
                seconds = total.moved_tokens * costs.restore_s_per_token(rate)
                seconds += total.loading_requests * costs.load_s[corner.load]
                assert found.net_s(corner) == pytest.approx(found.saved_s[corner.prefill] - seconds)
            assert found.net_s() == pytest.approx(found.saved_s.typical - found.restore_s)


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
    settings = settings_by_label(settings_of(), (0, 1, 2, 8), (0.5, 0.95), (2,))
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
    candidates = [Candidate("no rule", none), Candidate("fixed 4", fixed)]
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


def test_declined_units_behind_a_hole_are_counted_though_resident():
    """The head of a store ages first: four units lose unit 1 to the second call, and hold 2 and 3 behind the hole."""
    calls = Calls([([1, 2, 3], []), ([7, 8], []), ([1, 2, 3], [])])
    tier = calls.tier(set_tier("efficientagent-fixed"))
    plain = simulate_tier(replace(tier, settings=replace(tier.settings, rule=AdmissionRule())), 4)
    assert (plain.found_tokens[2], plain.written[2]) == (0, 1)
    conditioned = AdmissionRule("conditioned", 2, 0.0, report_period_s=0.0)
    busy = Calls(calls.calls, times=[0, 1, 2], tasks=[0, 1, 2]).tier(set_tier("efficientagent-fixed"))
    late = simulate_tier(replace(busy, settings=replace(busy.settings, rule=conditioned)), 4)
    assert late.declined.tolist() == [0, 0, 3]  # two of the three were there


def test_host_covered_tokens_are_whole_units_though_one_token_is_always_computed():
    totals = sum_run(Calls([([1, 2, 3, 4], []), ([1, 2, 3, 4], [])]).run(set_tier("lmcache", unit=2), 4))
    assert (totals.host_covered_tokens, totals.restored_tokens, totals.computed_tokens) == (4, 3, 5)


def test_evicted_of_the_best_policy_holds_what_is_forgotten():
    """Room for all, and yet units that nothing uses again are dropped."""
    calls = [([1, 2], []), ([1, 2], []), ([3, 4], []), ([3, 4], [])]
    best = sum_run(Calls(calls).run(set_tier("lmcache", policy="belady"), 100))
    assert (best.written_tokens, best.evicted_tokens) == (4, 4)
    assert sum_run(Calls(calls).run(set_tier("lmcache"), 100)).evicted_tokens == 0


def test_a_declined_request_refreshes_nothing_it_would_have_offered():
    """The GPU serves the second `a b` whole, so only its offer could refresh it: declined, it is what goes next."""
    calls = Calls([([1, 2], []), ([3, 4], []), ([1, 2, 9], []), ([5, 6], []), ([1, 2], [])], gpu_tokens=[0, 0, 2, 0, 0])
    tier = calls.tier(set_tier("vllm-offload"))
    plain = simulate_tier(tier, 5)
    ruled = simulate_tier(replace(tier, settings=replace(tier.settings, rule=AdmissionRule("fixed", 2))), 5)
    assert (plain.declined[2], ruled.declined[2]) == (0, 3)
    assert plain.found_tokens[4] == 2
    assert ruled.found_tokens[4] == 1


def test_logs_are_the_runs_of_the_rules(answer):
    candidates = list_candidates(settings_of(), (0, 8), (0.95,), (2,))
    logs = simulate_logs(answer.tier, GIBS, candidates)
    assert [(log.host_gib_per_rank, log.label) for log in logs] == [
        (gib, label) for gib in GIBS for label in ("fixed 0", "fixed 8", "conditioned 0", "conditioned 8")
    ]
    for log in logs:
        settings = next(one.settings for one in candidates if one.label == log.label)
        run = run_of(answer, settings, log.host_gib_per_rank)
        assert np.array_equal(log.run.decisions.is_declined, run.decisions.is_declined)
        assert log.rule == settings.rule


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
    return [replayed[gib][label].totals.computed_tokens for label in ("no rule", "fixed 8", "conditioned 8")]


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
