"""Simulated tiers as table, JSON and CSV; the catalogue of tiers."""

import csv
import io
import json

import pytest
from plans import SMALL, agent_trace

from capplan import Options, predict
from capplan.deployment import GpuRoom
from capplan.report import render as render_plan
from capplan.report.tier import describe_shortage, render
from capplan.report.tier_catalogue import name_overflow, render_tier, render_tiers
from capplan.simulation.presets import list_presets, load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings

TRACE = agent_trace()
GIBS = (0.0, 0.02, 0.05, 0.2, 1000.0)
NAMES = [preset.name for preset in list_presets()]
ROW_KEYS = (
    "evicted_tokens", "duplicate_tokens", "refused_tokens", "declined_tokens", "declined_requests",
    "curve_computed_tokens", "gap_to_curve_tokens", "best_policy_computed_tokens", "gap_to_best_policy_tokens",
)  # fmt: skip


def settings_of(name, **changes):
    preset = load_preset(name)
    unit = preset.unit_tokens if preset.kind in ("gpu", "exclusive") else 64
    return TierSettings.of(preset).change(unit_tokens=unit, **changes)


def plan_of(name, gpus="h20", host_gib=GIBS, **changes):
    options = Options(room=SMALL["room"], host_gib=host_gib, tier=settings_of(name, **changes))
    return predict(TRACE, gpus, options=options)


def unfolded(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_tier_fits_a_terminal_and_says_what_it_leaves_out(name):
    plan, preset = plan_of(name, "h20,h100"), load_preset(name)
    text = render(plan, "table")
    assert max(map(len, text.splitlines())) <= 80
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert text.count(f"{name} on NVIDIA") == 2
    flat = unfolded(text)
    for words in (preset.description, *preset.missing, *preset.unsure):
        assert unfolded(words) in flat
    assert "offer on" not in flat
    assert f"{preset.title} ({preset.version})" in flat
    joint = f"- GPU tier: simulated by the rules of {name}, in its units"
    assert (joint in flat) == (preset.kind in ("gpu", "radix", "exclusive"))
    assert ("- GPU tier: LRU of 16-token blocks" in flat) == (joint not in flat)


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_same_bytes_twice(kind):
    for name in ("efficientagent", "sglang-hicache", "trtllm-host"):
        assert render(plan_of(name), kind) == render(plan_of(name), kind)


def test_large_numbers_fit_a_terminal():
    trace = agent_trace(6, 12, step=6400)
    options = Options(room=GpuRoom(kv_tokens=120_000), tier=settings_of("lmcache"))
    text = render(predict(trace, options=options), "table")
    assert max(map(len, text.splitlines())) <= 80


def test_json_holds_what_the_tables_show():
    plan = plan_of("efficientagent", "h20,h100", rule=AdmissionRule("fixed", 1))
    text = render(plan, "json")
    assert text.startswith('{\n "format": 1,\n')
    record = json.loads(text)
    assert list(record) == ["format", "trace", "order", "tiers"]
    assert [tier["inputs"]["gpu"] for tier in record["tiers"]] == ["h20", "h100"]
    for tier, answer in zip(record["tiers"], plan.answers, strict=True):
        assert list(tier) == ["inputs", "tier", "without_host_tier", "rows", "warnings", "assumptions"]
        assert (tier["tier"]["name"], tier["tier"]["unit_tokens"]) == ("efficientagent", 64)
        assert tier["tier"]["admission"]["kind"] == "fixed"
        assert tier["inputs"]["tier"] == "efficientagent"
        assert tier["without_host_tier"]["computed_tokens"] == answer.simulated.base.computed_tokens
        for row, found in zip(tier["rows"], answer.simulated.capacities, strict=True):
            assert row["host_gib_per_rank"] == found.host_gib_per_rank
            assert row["computed_tokens"] == found.totals.computed_tokens
            assert row["gap_to_curve_tokens"] == row["computed_tokens"] - row["curve_computed_tokens"]
            assert row["gap_to_best_policy_tokens"] == row["computed_tokens"] - row["best_policy_computed_tokens"]
            assert set(ROW_KEYS) < set(row)
    assert any(row["declined_tokens"] for row in record["tiers"][0]["rows"])


def test_json_of_a_tier_without_a_yardstick_says_null():
    (tier,) = json.loads(render(plan_of("lmcache-mp"), "json"))["tiers"]
    assert {row["best_policy_computed_tokens"] for row in tier["rows"]} == {None}
    assert {row["gap_to_best_policy_tokens"] for row in tier["rows"]} == {None}


def test_csv_has_a_row_for_every_gpu_and_capacity():
    plan = plan_of("lmcache", "h20,h100")
    text = render(plan, "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["gpu"], float(row["host_gib_per_rank"])) for row in rows] == [
        (gpu, gib) for gpu in ("h20", "h100") for gib in GIBS
    ]
    assert list(rows[0])[:5] == ["gpu", "model", "tp", "tier", "unit_tokens"]
    assert set(ROW_KEYS) < set(rows[0])
    found = [capacity.totals.evicted_tokens for answer in plan.answers for capacity in answer.simulated.capacities]
    assert [int(row["evicted_tokens"]) for row in rows] == found
    assert "\r" not in text


def test_columns_add_up_in_the_table():
    text = render(plan_of("lmcache"), "table")
    rows = [line.split() for line in text.split("Writes by")[0].split("─\n")[1].splitlines() if line]
    assert [row[0] for row in rows] == ["0", "0.0200", "0.0500", "0.200", "1,000"]
    assert all(len(row) == len(rows[0]) for row in rows)


def test_capacity_or_policy():
    (answer,) = plan_of("stack-distance").answers
    (line,) = describe_shortage(answer.simulated)
    worst = max(answer.simulated.capacities, key=lambda found: found.policy_tokens)
    assert worst.policy_tokens > 0
    assert f"at {worst.host_gib_per_rank:.4f} GiB it computes {worst.totals.computed_tokens:,}; " in line
    floor = answer.simulated.capacities[-1].best_computed_tokens
    assert f"the best policy of that size {worst.best_computed_tokens:,} (policy: {worst.policy_tokens:,})" in line
    assert line.endswith(f"the largest tier shown {floor:,} (capacity: {worst.best_computed_tokens - floor:,})")
    assert describe_shortage(plan_of("stack-distance", host_gib=(1000.0,)).answers[0].simulated) == [
        "  capacity     or policy? the best policy computes no fewer tokens at any capacity shown"
    ]
    assert describe_shortage(plan_of("lmcache-mp").answers[0].simulated) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lmcache", "of which only the head is kept"),
        ("stack-distance", "of which only the head is kept"),
        ("vllm-offload", "which is refused whole"),
        ("dynamo-kvbm", "of which what finds no room is skipped"),
    ],
)
def test_tiers_smaller_than_a_prompt_are_warned_of(name, said):
    text = unfolded(render(plan_of(name), "table"))
    assert f"warning: 0.0200, 0.0500 GiB: smaller than the longest prompt (640 tokens), {said}" in text
    assert "warning: 0.0200, 0.0500 GiB: no larger than the GPU tier (672 tokens)" in text
    assert "warning" not in render(plan_of(name, host_gib=(0.0, 1000.0)), "table")


@pytest.mark.parametrize("name", ["lmcache", "stack-distance", "mooncake-store", "efficientagent"])
def test_the_best_policy_is_not_described_as_the_engine(name):
    preset = load_preset(name)
    plan = plan_of(name, policy="belady", rule=AdmissionRule())
    text = unfolded(render(plan, "table"))
    assert f"tier the best policy there is (Belady's) for prompts in the 64-token units of {preset.title} of " in text
    assert "no policy covers more prompt tokens in these units; it knows the future" in text
    assert "or policy?" not in text
    assert "not modelled" not in text
    assert unfolded(preset.description) not in text
    assert "smaller than the longest prompt (640 tokens), of which only the head is kept" in text
    tier = json.loads(render(plan, "json"))["tiers"][0]["tier"]
    assert tier["policy"] == "belady"
    assert tier["description"].startswith("no policy covers more prompt tokens in these units")
    assert (tier["missing"], tier["unsure"]) == ([], [])


@pytest.mark.parametrize(
    ("offers", "said"), [(0, None), (2, "2nd"), (3, "3rd"), (4, "4th"), (12, "12th"), (21, "21st")]
)
def test_a_store_threshold_stands_in_the_line_of_the_tier(offers, said):
    text = unfolded(render(plan_of("vllm-offload", min_offers=offers), "table"))
    if said is None:
        assert "offer on" not in text
    else:
        assert text.count(f", lru, admission none, stored from the {said} offer on") == 2  # the line, the assumption


@pytest.mark.parametrize("n_tasks", [0, 1, 2])
def test_a_conditioned_rule_without_two_tasks_is_warned_of(n_tasks):
    who = {0: "no request names a task", 1: "all requests with a task are of one"}
    trace = agent_trace(max(1, n_tasks), has_tasks=n_tasks > 0)
    options = Options(room=SMALL["room"], host_gib=(1000.0,), tier=settings_of("efficientagent"), order="recorded")
    said = json.loads(render(predict(trace, options=options), "json"))["tiers"][0]["warnings"]
    assert said == (
        [f"{who[n_tasks]}: the conditioned rule sees no pressure and never declines"] if n_tasks < 2 else []
    )
    plain = Options(room=SMALL["room"], host_gib=(1000.0,), tier=settings_of("lmcache"), order="recorded")
    assert json.loads(render(predict(trace, options=plain), "json"))["tiers"][0]["warnings"] == []


def test_no_host_tier_is_no_small_one():
    assert "warning" not in render(plan_of("gpu-only"), "table")


@pytest.mark.parametrize("name", ["efficientagent", "lmcache-mp"])
def test_catalogue_fits_a_terminal(name):
    text = render_tiers()
    assert max(map(len, text.splitlines())) <= 80
    assert [line.split()[0] for line in text.split("─\n")[1].split("\n\n")[0].splitlines()] == sorted(NAMES)
    one, preset = render_tier(name), load_preset(name)
    assert one.startswith(f"{name}: {preset.title} ({preset.version})\n")
    assert max(map(len, one.splitlines())) <= 80
    for words in (preset.description, preset.source, *preset.missing, *preset.unsure):
        assert unfolded(words) in unfolded(one)


def test_a_prediction_says_which_tier_was_simulated():
    options = Options(tier=settings_of("vllm-offload"), room=GpuRoom(kv_tokens=672))
    assert "  tier         vllm-offload, simulated at the capacities below" in render_plan(
        predict(TRACE, options=options)
    )
    assert "  tier         " not in render_plan(predict(TRACE, options=Options(room=GpuRoom(kv_tokens=672))))


def test_no_room_is_of_stores_that_are_offered():
    rows = {line.split()[0]: line.split() for line in render_tiers().splitlines() if line.split()[:1]}
    said = {"stack-distance": "-", "gpu-only": "-", "trtllm-host": "-", "lmcache": "keep", "vllm-offload": "refuse",
            "dynamo-kvbm": "skip", "sglang-hicache": "skip", "sglang-hicache-writeback": "drop"}  # fmt: skip
    assert {name: rows[name][3] for name in said} == said
    for name in NAMES:
        assert rows[name][3] == name_overflow(load_preset(name)).split()[0]
    assert "no room       -" in render_tier("stack-distance")
    assert "moves every chunk of the prompt;" in unfolded(render_tier("stack-distance"))
    assert "moves hits;" in unfolded(render_tier("lmcache"))
