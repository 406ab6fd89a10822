"""The simulator's rules against `capplan.admission` on plain lists, ranges of constants, declined chunks, advice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cut, stack_positions
from oracles_tiers import EfficientAgent
from strategies import split_paths
from tier_runs import Calls, set_tier

from capplan.admission import CapacityConditioned, FixedThreshold, TierReporter
from capplan.admission_outcome import find_ranges, split_declined
from capplan.simulation.next_uses import find_next_uses
from capplan.simulation.rules import AdmissionRule

RULE = AdmissionRule("conditioned", kappa=2, theta=0.8, window_s=6.0, n_recent=4, report_period_s=1.0)


@st.composite
def timed_calls(draw):
    """Calls of a few tasks with sending times that often tie."""
    split = draw(split_paths(max_requests=20))
    waits = draw(st.lists(st.sampled_from([0, 0.25, 0.5, 1, 3, 6]), min_size=len(split), max_size=len(split)))
    tasks = draw(st.lists(st.integers(-1, 3), min_size=len(split), max_size=len(split)))
    calls = [(path[:n], path[n:]) for path, n in split]
    return calls, np.cumsum(waits), tasks


def replay_with_policy(calls, times, tasks, n_slots, kv_bytes, rule):
    """The class of a serving connector and its tier, request by request, on a plain list."""
    capacity = n_slots * kv_bytes
    policy = CapacityConditioned(
        capacity, kv_bytes, 1, kappa=rule.kappa, theta=rule.theta, window_s=rule.window_s, n_recent=rule.n_recent,
        read_interval_s=rule.read_interval_s if rule.report_period_s else 0, max_age_s=rule.max_age_s,
        n_slots=n_slots,
    )  # fmt: skip
    reporter = TierReporter(n_slots, float(times[0]), period_s=rule.report_period_s, window_s=rule.window_s)
    tier, found, declined, report = EfficientAgent(n_slots, 1), [], [], None
    for c, (prompt, output) in enumerate(calls):
        now, task = float(times[c]), None if tasks[c] < 0 else str(tasks[c])
        report = reporter.poll(now, len(tier.order)) or report
        latest = report

        def declines(hit, c=c, now=now, task=task, latest=latest, prompt=prompt):
            decision = policy.decide(c, now, len(prompt), hit, task, lambda: latest)
            declined.append(decision.is_declined)
            return decision.is_declined

        before = tier.evicted
        found.append(tier.run(prompt, prompt + output, 0, declines))
        reporter.note_evictions(now, tier.evicted - before)
    return found, declined


@given(timed_calls(), st.integers(1, 10), st.sampled_from([0.0, 1.0, 7.0]), st.integers(0, 4))
def test_kernel_and_production_class_make_the_same_tier(drawn, n_slots, period, kappa):
    calls, times, tasks = drawn
    rule = replace(RULE, report_period_s=period, kappa=kappa)
    stream = Calls(calls, times=times, tasks=tasks)
    run = stream.run(set_tier("efficientagent", rule=rule), n_slots)
    found, declined = replay_with_policy(calls, times, tasks, n_slots, 1, rule)
    assert run.found_tokens.tolist() == found
    assert run.decisions.is_declined.tolist() == declined


@given(timed_calls(), st.integers(1, 10), st.integers(0, 4))
def test_fixed_rule_is_the_fixed_class(drawn, n_slots, kappa):
    calls, times, tasks = drawn
    run = Calls(calls, times=times, tasks=tasks).run(
        set_tier("efficientagent", rule=AdmissionRule("fixed", kappa)), n_slots
    )
    policy = FixedThreshold(1, kappa)
    for c, (prompt, _) in enumerate(calls):
        decision = policy.decide(c, float(times[c]), len(prompt), int(run.found_tokens[c]))
        assert decision.is_declined == run.decisions.is_declined[c]


@given(timed_calls(), st.integers(1, 10))
def test_conditioned_without_pressure_is_no_admission_with_dedup(drawn, n_slots):
    calls, times, _ = drawn
    stream = Calls(calls, times=times, tasks=[-1] * len(calls))  # no task ids: never pressure
    conditioned = stream.run(set_tier("efficientagent", rule=RULE), n_slots)
    none = stream.run(set_tier("efficientagent", rule=AdmissionRule()), n_slots)
    assert conditioned.found_tokens.tolist() == none.found_tokens.tolist()
    assert conditioned.written.tolist() == none.written.tolist()


@pytest.mark.parametrize("kind", ["fixed", "conditioned"])
@given(drawn=timed_calls(), n_slots=st.integers(1, 10), kappa=st.integers(0, 5), other=st.integers(0, 5))
def test_kappas_of_a_range_make_the_same_run(kind, drawn, n_slots, kappa, other):
    calls, times, tasks = drawn
    stream = Calls(calls, times=times, tasks=tasks)
    rule = replace(RULE, kind=kind, kappa=kappa)
    run = stream.run(set_tier("efficientagent", rule=rule), n_slots)
    (low, high), _ = find_ranges(run, rule, n_slots)
    assert low <= kappa <= high
    again = stream.run(set_tier("efficientagent", rule=replace(rule, kappa=other)), n_slots)
    same = again.decisions.is_declined.tolist() == run.decisions.is_declined.tolist()
    assert same == (low <= other <= high)


@given(timed_calls(), st.integers(1, 10), st.integers(0, 20), st.integers(0, 20))
def test_thetas_of_a_range_make_the_same_run(drawn, n_slots, theta, other):
    calls, times, tasks = drawn
    stream = Calls(calls, times=times, tasks=tasks)
    rule = replace(RULE, theta=theta / 20, kappa=1)
    run = stream.run(set_tier("efficientagent", rule=rule), n_slots)
    _, (above, up_to) = find_ranges(run, rule, n_slots)
    assert above < rule.theta <= up_to
    again = stream.run(set_tier("efficientagent", rule=replace(rule, theta=other / 20)), n_slots)
    same = again.decisions.is_declined.tolist() == run.decisions.is_declined.tolist()
    if above < other / 20 <= up_to:
        assert same


@given(timed_calls(), st.integers(1, 10), st.integers(0, 4), st.integers(0, 5))
def test_declined_chunks_by_their_next_use(drawn, n_slots, kappa, first):
    calls, times, tasks = drawn
    stream = Calls(calls, times=times, tasks=tasks)
    settings = set_tier("efficientagent", rule=AdmissionRule("fixed", kappa))
    run = stream.run(settings, n_slots)
    found = split_declined(run, find_next_uses(stream.tier(settings).stream), first)
    chunks = [cut(prompt, 1) for prompt, _ in calls]
    positions = iter(stack_positions(chunks)[0])
    position = [[next(positions) for _ in path] for path in chunks]
    never = beyond = would_hit = 0
    for r in range(first, len(calls)):
        if not run.decisions.is_declined[r]:
            continue
        for chunk in chunks[r][run.found_tokens[r] :]:
            later = next((c for c in range(r + 1, len(calls)) if chunk in chunks[c]), None)
            if later is None:
                never += 1
            elif position[later][chunks[later].index(chunk)] < n_slots:
                would_hit += 1
            else:
                beyond += 1
    assert tuple(found) == (never, beyond, would_hit)
