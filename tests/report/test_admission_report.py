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
from capplan.admission_advice import NO_TIER
from capplan.costs import Overrides
from capplan.deployment import GpuRoom
from capplan.pipeline import compare_admission, predict
from capplan.report.admission import format_range, render
from capplan.report.decision_log import log_decisions
from capplan.report.tier import render as render_tier
from capplan.report.tier_warnings import list_left_out
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
        verb = "" if capacity.best == NO_TIER else "set "
        assert f"GiB {verb}{capacity.best}: {capacity.advice} (computes " in head


def test_the_released_tier_and_its_deduplication_stand_apart(study):
    text = render(study, "table")
    assert "no rule, dedup" in text
    assert "what that does alone is the row `no rule, dedup`" in unfolded(text)
    assert "- `no rule, dedup` is no setting of the engine: it shows an effect and is never advised" in unfolded(text)
    other = render(study_of(name="stack-distance"), "table")
    assert "no rule, dedup" not in other
    assert "no setting of the engine" not in other
    assert "every rule changes only what is written" in unfolded(other)


def test_json_holds_every_rule_at_every_capacity(study):
    text = render(study, "json")
    assert text.startswith('{\n "format": 1,\n')
    record = json.loads(text)
    assert list(record) == ["format", "trace", "order", "studies"]
    for found, answer in zip(record["studies"], study.answers, strict=True):
        assert list(found) == ["inputs", "tier", "capacities", "warnings", "assumptions"]
        assert found["tier"]["admission"]["kappa"] == 8  # as the preset has it, whichever rule needs a clock
        for row, capacity in zip(found["capacities"], answer.capacities, strict=True):
            assert list(row) == [
                "host_gib_per_rank", "slots", "recommended", "reason", "computed_tokens_without_host_tier", "rules",
            ]  # fmt: skip
            assert row["recommended"] in [NO_TIER, *(rule["rule"] for rule in row["rules"] if rule["is_setting"])]
            assert row["computed_tokens_without_host_tier"] == capacity.alone_tokens
            assert [rule["rule"] for rule in row["rules"]] == [one.label for one in capacity.outcomes]
            for rule, outcome in zip(row["rules"], capacity.outcomes, strict=True):
                assert {name: rule[name] for name in asdict(outcome.totals)} == asdict(outcome.totals)
                parts = ("declined_never_reused_tokens", "declined_reused_beyond_tokens", "declined_would_hit_tokens")
                assert sum(rule[name] for name in parts) == rule["declined_tokens"]
                assert rule["net_s_against_no_rule"]["typical"] == outcome.net_s() - capacity.none.net_s()
                assert rule["net_s_against_no_host_tier"]["typical"] == outcome.net_s()
                for span in (rule["net_s_against_no_rule"], rule["net_s_against_no_host_tier"]):
                    assert list(span) == ["least", "typical", "most"]
                    assert span["least"] <= span["typical"] <= span["most"]
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
    advised = [capacity.best for answer in study.answers for capacity in answer.capacities]
    assert [row["rule"] for row in rows if row["is_recommended"] == "True"] == [
        one for one in advised if one != NO_TIER
    ]
    assert {row["same_for_kappa_from"] for row in rows if row["rule"] == "no rule"} == {""}
    assert "inf" not in text


@pytest.mark.parametrize("kind", ["table", "json"])
def test_warnings_are_those_of_a_simulated_tier(kind):
    """The same capacities of the same tier warn in the same words, whichever command looks at them."""
    options = Options(room=GpuRoom(kv_tokens=864), host_gib=GIBS, tier=study_of().options.tier)
    simulated = render_tier(predict(TRACE, "h20", options=options), kind)
    compared = render(study_of(), kind)
    expected = [
        "0.0200 GiB: smaller than the longest prompt (832 tokens), of which only the head is kept",
        "0.0200 GiB: no larger than the GPU tier (864 tokens)",
    ]
    if kind == "json":
        assert json.loads(simulated)["tiers"][0]["warnings"] == expected
        assert json.loads(compared)["studies"][0]["warnings"] == expected
    else:
        for text in (simulated, compared):
            assert [one in unfolded(text) for one in (f"warning: {line}" for line in expected)] == [True, True]
            assert text.count("warning:") == 2


@pytest.mark.parametrize(
    ("trace", "who"),
    [
        (agent_trace(has_tasks=False), "no request names a task"),
        (agent_trace(1), "all requests with a task are of one"),
    ],
    ids=["none", "one"],
)
def test_rules_that_could_never_decline_are_left_out_with_a_warning(trace, who):
    found = study_of(trace=trace, order="recorded")
    warning = f"{who}: conditioned rules would see no pressure and never decline; they are left out"
    assert warning in json.loads(render(found, "json"))["studies"][0]["warnings"]
    text = unfolded(render(found, "table"))
    assert f"warning: {warning} " in text
    assert "conditioned 1" not in text
    assert "conditioned k only under pressure" not in text
    assert "the rule's windows" not in text
    assert list_left_out(study_of()) == []
    assert list_left_out(study_of(name="sglang-hicache", trace=trace, order="recorded")) == []
    assert len(log_decisions(found)) == len(GIBS) * 3 * len(trace)  # the fixed rules'


@pytest.mark.parametrize(
    ("label", "constants"),
    [
        ("no rule", {"kind": "none", "store_threshold": 0, "stores": "prompts"}),
        ("2 offers", {"kind": "none", "store_threshold": 2}),
        ("fixed 4", {"kind": "fixed", "kappa": 4, "store_threshold": 0}),
        ("conditioned 4", {"kind": "conditioned", "kappa": 4, "theta": 0.95, "window_s": 60.0, "n_recent": 256}),
    ],
)
def test_constants_are_those_of_the_rule(label, constants):
    found = study_of(name="vllm-offload")
    (row,) = [one for one in json.loads(render(found, "json"))["studies"][0]["capacities"][0]["rules"]
              if one["rule"] == label]  # fmt: skip
    assert {name: row["constants"][name] for name in constants} == constants
    named = {"kind", "store_threshold", "stores", "leaves_resident_out", *constants}
    if label != "conditioned 4":
        assert {name for name, value in row["constants"].items() if value is not None} == named
    (line,) = [one for one in csv.DictReader(io.StringIO(render(found, "csv")))
               if one["rule"] == label and one["host_gib_per_rank"] == "0.02"]  # fmt: skip
    for name, value in constants.items():
        assert line[f"constants_{name}"] == str(value)
    assert (line["constants_kappa"] == "") == (constants["kind"] == "none")


def test_rows_without_a_setting_say_so():
    (row,) = [one for one in csv.DictReader(io.StringIO(render(study_of(), "csv")))
              if one["rule"] == "no rule, dedup" and one["host_gib_per_rank"] == "0.1"]  # fmt: skip
    assert (row["is_setting"], row["constants_leaves_resident_out"], row["is_recommended"]) == (
        "False",
        "True",
        "False",
    )


def test_offers_are_explained_where_the_engine_counts_them():
    words = "2 offers"
    assert words in render(study_of(name="vllm-offload"), "table")
    assert "what it withholds before is in no column" in unfolded(render(study_of(name="vllm-offload"), "table"))
    for name in ("efficientagent", "lmcache", "stack-distance", "vllm-offload-0.13"):
        assert "offers" not in render(study_of(name=name), "table")


def test_a_tier_that_loses_time_is_not_recommended():
    slow = study_of(kappas=(2, 4), overrides=Overrides(h2d_gb_per_s=1e-3))
    for capacity in slow.answers[0].capacities:
        assert capacity.best == NO_TIER
        assert capacity.best_tokens == capacity.alone_tokens
        assert capacity.none.net_s() <= 0
    text = render(slow, "table")
    head = unfolded(text.split("\n\n")[0])
    assert "0.300 GiB no host tier: the tier loses time with and without a rule, least " in head
    assert "set " not in head
    alone, none = slow.answers[0].capacities[-1].alone_tokens, slow.answers[0].capacities[-1].none
    assert f"(computes {alone / 1e3:.1f} k, no rule {none.totals.computed_tokens:,})" in head or (
        f"(computes {alone / 1e3:.1f} k, no rule {none.totals.computed_tokens / 1e3:.1f} k)" in head
    )
    assert "Against no rule, which loses " in text
    assert {row["is_recommended"] for row in csv.DictReader(io.StringIO(render(slow, "csv")))} == {"False"}
    assert "Against no rule, which saves " in render(study_of(), "table")


def test_words_of_the_columns_are_true_of_what_they_count(study):
    text = unfolded(render(study, "table"))
    for words in (
        "- lost: tokens of requests that are computed under the rule and not without one; gained: the other way round",
        "- link: bytes written, copied twice and restored over the typical rate of restores, without the fixed time",
        "net: prefill time saved less restore time, least and most over the ends of the uncertain inputs",
        "- declined: all full units behind the host's hit, those resident behind a hole too",
        "- no rule is the tier as released, without a rule of write admission; no host tier leaves the GPU's alone",
    ):
        assert words in text
    for words in ("covered", "worst", "best"):
        assert words not in text.split("Assumptions")[0].replace("Against no rule", "")


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
        "no rule", "second hit", "on eviction"]  # fmt: skip
