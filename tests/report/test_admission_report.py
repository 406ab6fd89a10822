"""Rules of write admission as table, JSON and CSV; the log of their decisions."""

import csv
import io
import json
from dataclasses import asdict, replace

import numpy as np
import polars as pl
import pytest
from plans import agent_trace

from capplan import Options
from capplan.deployment import GpuRoom
from capplan.pipeline import compare_admission
from capplan.report.admission import format_range, render
from capplan.report.decision_log import log_decisions
from capplan.simulation.presets import load_preset
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.units import gib_to_bytes

TRACE = agent_trace(4, 8)
GIBS = (0.02, 0.1, 0.3)
INF = float("inf")


def study_of(gpus=("h20",), name="efficientagent", kappas=(1, 2, 4), thetas=(0.95,), trace=TRACE, **options):
    tier = TierSettings.of(load_preset(name)).change(unit_tokens=64)
    options = Options(room=GpuRoom(kv_tokens=864), host_gib=GIBS, tier=tier, **options)
    return compare_admission(trace, gpus, "qwen3-coder-30b-a3b", options, kappas, thetas)


@pytest.fixture(scope="module")
def study():
    return study_of(("h20", "h100"))


def unfolded(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["efficientagent", "stack-distance", "vllm-offload-0.13"])
def test_tables_fit_a_terminal(name):
    text = render(study_of(name=name, thetas=(0.5, 0.95)), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert unfolded(text).startswith(f"Write admission of {name} on NVIDIA H20 96 GB, Qwen3-Coder-30B-A3B, TP1 ")


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_same_bytes_twice(study, kind):
    assert render(study, kind) == render(study_of(("h20", "h100")), kind)


def test_advice_comes_first_a_line_for_every_capacity(study):
    head = unfolded(render(study, "table").split("\n\n")[0])
    for capacity in study.answers[0].capacities:
        assert f"{capacity.host_gib_per_rank:#.3g}" in head
        assert f"GiB set {capacity.best}: {capacity.advice} (computes " in head


def test_the_released_tier_and_its_deduplication_stand_apart(study):
    text = render(study, "table")
    assert "none, dedup" in text
    assert "what that does alone is the row `none, dedup`" in unfolded(text)
    other = render(study_of(name="stack-distance"), "table")
    assert "none, dedup" not in other
    assert "every rule changes only what is written" in unfolded(other)


def test_json_holds_every_rule_at_every_capacity(study):
    text = render(study, "json")
    assert text.startswith('{\n "format": 1,\n')
    record = json.loads(text)
    assert list(record) == ["format", "trace", "order", "studies"]
    for found, answer in zip(record["studies"], study.answers, strict=True):
        assert list(found) == ["inputs", "tier", "capacities", "assumptions"]
        for row, capacity in zip(found["capacities"], answer.capacities, strict=True):
            assert list(row) == ["host_gib_per_rank", "slots", "recommended", "reason", "rules"]
            assert row["recommended"] in [rule["rule"] for rule in row["rules"]]
            assert [rule["rule"] for rule in row["rules"]] == [one.label for one in capacity.outcomes]
            for rule, outcome in zip(row["rules"], capacity.outcomes, strict=True):
                assert {name: rule[name] for name in asdict(outcome.totals)} == asdict(outcome.totals)
                parts = ("declined_never_reused_tokens", "declined_reused_beyond_tokens", "declined_would_hit_tokens")
                assert sum(rule[name] for name in parts) == rule["declined_tokens"]
                assert rule["constants"] == asdict(outcome.rule)
                assert rule["net_s_against_none"]["typical"] == outcome.net_s() - capacity.none.net_s()
                assert len(rule["same_for_kappa"]) == len(rule["same_for_theta"]) == 2
            assert row["rules"][0]["link_saved_s"] == 0
            assert row["rules"][0]["same_for_kappa"] == [None, None]


def test_csv_has_a_row_for_every_gpu_capacity_and_rule(study):
    text = render(study, "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    labels = [one.label for one in study.candidates]
    assert [(row["gpu"], float(row["host_gib_per_rank"]), row["rule"]) for row in rows] == [
        (gpu, gib, label) for gpu in ("h20", "h100") for gib in GIBS for label in labels
    ]
    for names in ("tier", "constants_kappa", "declined_would_hit_tokens", "same_for_kappa_from", "lost_tokens"):
        assert names in rows[0]
    assert sum(row["is_recommended"] == "True" for row in rows) == 2 * len(GIBS)
    assert {row["same_for_kappa_from"] for row in rows if row["rule"] == "none"} == {""}
    assert "inf" not in text


@pytest.mark.parametrize(
    ("bounds", "above", "said"),
    [
        ((-INF, INF), False, "any"),
        ((-INF, 3.0), False, "up to 3"),
        ((5.0, INF), False, "from 5"),
        ((5.0, 7.0), False, "5 to 7"),
        ((5.0, 5.0), False, "5"),
        ((0.51234, INF), True, "above 0.512"),
        ((0.5, 0.98765), True, "above 0.5 up to 0.988"),
        ((-INF, 1.0), True, "up to 1"),
    ],
)
def test_ranges(bounds, above, said):
    assert format_range(bounds, above) == said


def test_log_has_every_decision_with_its_inputs(study):
    log = log_decisions(study)
    ruled = [one for one in study.candidates if one.settings.rule.kind != "none"]
    assert len(log) == 2 * len(GIBS) * len(ruled) * len(TRACE)
    assert log.columns == [
        "gpu", "host_gib_per_rank", "rule", "kappa", "theta", "request_id", "task_id", "time_s", "prompt_tokens",
        "host_hit_tokens", "new_units", "tasks", "mean_prompt_tokens", "estimate_bytes", "is_fresh",
        "evictions_in_window", "resident_units", "is_pressured", "is_declined",
    ]  # fmt: skip
    assert log.equals(log_decisions(study))
    answer = study.answers[0]
    for one in ruled:
        rows = log.filter(
            (pl.col("gpu") == "h20") & (pl.col("rule") == one.label) & (pl.col("host_gib_per_rank") == 0.1)
        )
        run = simulate_tier(replace(answer.tier, settings=one.settings), gib_to_bytes(0.1))
        assert rows["is_declined"].to_list() == run.decisions.is_declined.tolist()
        assert (rows["is_declined"] == (rows["is_pressured"] & (rows["new_units"] > rows["kappa"]))).all()
        assert rows["new_units"].to_list() == (
            rows["prompt_tokens"] // 64 - rows["host_hit_tokens"] // 64
        ).to_list()  # fmt: skip
        assert rows["time_s"].to_list() == sorted(rows["time_s"].to_list())
        assert set(rows["task_id"]) == {f"task-{k}" for k in range(4)}
    fixed = log.filter(pl.col("rule") == "fixed 1")
    assert fixed["tasks"].null_count() == fixed["estimate_bytes"].null_count() == len(fixed)  # it looks at neither
    conditioned = log.filter(pl.col("rule") == "conditioned 1")
    assert conditioned["tasks"].null_count() == 0
    assert np.isfinite(conditioned["estimate_bytes"].to_numpy()).all()


def test_declined_of_the_log_are_those_of_the_tables(study):
    log = log_decisions(study)
    for answer in study.answers:
        for capacity in answer.capacities:
            for outcome in capacity.outcomes:
                if outcome.rule.kind == "none":
                    continue
                rows = log.filter(
                    (pl.col("gpu") == answer.prediction.deployment.gpu.name)
                    & (pl.col("rule") == outcome.label)
                    & (pl.col("host_gib_per_rank") == capacity.host_gib_per_rank)
                )
                assert rows["is_declined"].sum() == outcome.totals.declined_requests


def test_write_policies_of_a_radix_tree_are_explained():
    text = unfolded(render(study_of(name="sglang-hicache"), "table"))
    assert "- second hit and on eviction: the engine's other write policies" in text
    assert "more than k new units" not in text
    record = json.loads(render(study_of(name="sglang-hicache"), "json"))
    assert [one["rule"] for one in record["studies"][0]["capacities"][0]["rules"]] == [
        "none", "second hit", "on eviction"]  # fmt: skip
