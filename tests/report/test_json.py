import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import (
    SMALL,
    agent_trace,
    make_costs,
    make_deployment,
    make_plan,
    make_prediction,
    make_workload,
    tier_tables,
)

from capplan import Options, predict, write_trace
from capplan.deployment import GpuRoom
from capplan.economics import obr
from capplan.prediction import BEST, TYPICAL, WORST, Prices
from capplan.report import render
from capplan.report.as_json import sample_curve
from capplan.report.card import describe_card
from capplan.report.sentences import list_cost_notes

UNIT = re.compile(
    r"(tokens|bytes|gib|mib|slots|chunks|requests|sessions|tasks|copies|ranks|share|size|hours|usd|months"
    r"|flop|fragments|_s)"
    r"(_(saved|per_(rank|node|s|hour|month|token|gib|request|restorable_token|link_byte|chunk)))*"
    r"(_(low|high|worst|at_most|best|at_(low|high)_rate|without_host_tier))?$"
)
UNITLESS = {"format", "tp", "gamma_gpu", "gamma_host", "obr"}
ON_THE_CARD = {"value", "units"}  # in the engine's own unit, which stands beside it
ENDS = ("low", "typical", "high", "worst", "best")


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def parse(text):
    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def plan():
    return predict(agent_trace(), "h20,h100", options=Options(**SMALL))


@pytest.fixture(scope="module")
def record(plan):
    return parse(render(plan, "json"))


def test_format_comes_first(plan, record):
    assert render(plan, "json").startswith('{\n "format": 1,\n')
    assert list(record) == ["format", "trace", "order", "predictions"]
    assert [list(prediction) for prediction in record["predictions"]] == [
        [
            "inputs",
            "scale",
            "rows",
            "curve",
            "transitions",
            "knee",
            "recommendation",
            "verdict",
            "restore",
            "ttft",
            "card",
            "warnings",
            "assumptions",
        ]
    ] * 2


def test_what_was_planned_from(plan, record):
    requests = plan.trace.requests
    assert record["trace"] == {
        "source": "agents",
        "fingerprint": plan.trace.fingerprint,
        "requests": 24,
        "sessions": 4,
        "tasks": 4,
        "input_tokens": int(requests.input_tokens.sum()),
        "output_tokens": 24 * 16,
        "resolution_tokens": 16,
        "outputs_known": True,
        "notes": [],
    }
    assert record["order"] == {"kind": "recorded", "pool_size": None, "warmup_requests": 0, "counted_requests": 24}


def test_order_of_a_pool_with_warmup():
    plan = predict(agent_trace(), options=Options(**SMALL, pool_size=3, warmup=0.25))
    order = parse(render(plan, "json"))["order"]
    assert order == {"kind": "pool", "pool_size": 3, "warmup_requests": 6, "counted_requests": 18}


def test_inputs():
    options = Options(tp=8, host_gib=(1.0,), room=GpuRoom(kv_tokens=300_000))
    plan = predict(agent_trace(), options=options)
    means = plan.answers[0].prediction.savings.mean_s_per_token
    costs, savings = plan.answers[0].prediction.costs, plan.answers[0].prediction.savings
    inputs = parse(render(plan, "json"))["predictions"][0]["inputs"]
    assert inputs.pop("weight_bytes_per_rank") > 7e9
    assert inputs == {
        "gpu": "h20",
        "gpu_title": "NVIDIA H20 96 GB",
        "model": "qwen3-coder-30b-a3b",
        "tp": 8,
        "engine": "lmcache",
        "tier": "stack-distance",
        "kv_dtype": "bf16",
        "weight_dtype": "bf16",
        "kv_bytes_per_token_per_rank": 24_576,
        "chunk_tokens": 1024,
        "chunk_bytes_per_rank": 24 * 2**20,
        "touch": "leaf-first",
        "distance": "lookup",
        "gpu_slots": 18_750,
        "gpu_block_tokens": 16,
        "gpu_kv_tokens": 300_000,
        "host_copies_per_node": 8,
        "prefill_origin": "formula",
        "prefill_s_per_restorable_token": pytest.approx(means._asdict()),
        "prefill_s_without_host_tier": pytest.approx(savings.without_s._asdict()),
        "h2d_bytes_per_s": pytest.approx(costs.h2d_bytes_per_s._asdict()),
        "load_s_per_request": {"low": 0.008, "typical": 0.01, "high": 0.013},
        "load_s_per_token": 5e-7,
        "dram_usd_per_gib": None,
        "gpu_usd_per_hour": None,
    }
    prices = Options(prices=Prices(3.0, 2.5), engine="sglang")
    inputs = parse(render(predict(agent_trace(), options=prices), "json"))["predictions"][0]["inputs"]
    assert (inputs["dram_usd_per_gib"], inputs["gpu_usd_per_hour"], inputs["engine"]) == (3.0, 2.5, "sglang")


def test_every_number_has_its_unit_in_its_key(record):
    found = set()

    def walk(value, key):
        if isinstance(value, dict):
            for name, item in value.items():
                walk(item, key if name in ENDS or name.isdigit() else name)
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.add(key)

    walk(record, "")
    assert found >= {"host_gib_per_rank", "prefill_saved_s_per_hour", "h2d_bytes_per_s", "slots", "format"}
    assert {key for key in found if not UNIT.search(key)} <= UNITLESS | ON_THE_CARD


def test_rows_hold_every_column(plan, record):
    for answer, prediction in zip(plan.answers, record["predictions"], strict=True):
        assert len(prediction["rows"]) == len(answer.rows)
        for row, expected in zip(prediction["rows"], answer.rows, strict=True):
            more = {name: row.pop(name) for name in ("moved_bytes_per_rank", "moved_fragments_per_rank")}
            assert row == {name: getattr(expected, name) for name in expected.__slots__}
            beta, restore = answer.prediction.deployment.kv_bytes_per_token, answer.prediction.costs.restore
            assert more["moved_bytes_per_rank"] == expected.moved_tokens * beta
            if restore is not None:
                assert more["moved_fragments_per_rank"] == expected.moved_tokens * restore.fragments_per_token


def test_marks(plan, record):
    for answer, record_of in zip(plan.answers, record["predictions"], strict=True):
        prediction, verdict = answer.prediction, answer.verdict
        marks = {"knee": verdict.knee_slots, "recommendation": verdict.recommended_slots}
        pairs = [(record_of[name], {}, slots) for name, slots in marks.items()]
        for mark, (share, slots) in zip(record_of["transitions"], verdict.transitions.items(), strict=True):
            pairs.append((mark, {"saving_share": share}, slots))
        for mark, share, slots in pairs:
            assert mark == {
                **share,
                "slots": slots,
                "gib_per_rank": prediction.gib_at(slots),
                "gib_per_node": prediction.gib_at(slots),
                "computed_tokens": int(prediction.tiers.computed_tokens[slots]),
            }
        even = verdict.break_even
        assert record_of["verdict"] == {
            "answer": verdict.answer,
            "reason": verdict.reason,
            "deciding_input": verdict.deciding,
            "best_net_saved_s": dict(zip(("worst", "typical", "best"), verdict.best_net_s, strict=True)),
            "break_even": {
                name: value if math.isfinite(value) else None
                for name, value in (
                    ("rate_bytes_per_s", even.rate_bytes_per_s),
                    ("prefill_s_per_token", even.prefill_s_per_token),
                    ("load_s", even.load_s),
                )
            },
            "regimes": [
                {"from_slots": start, "from_gib_per_rank": prediction.gib_at(start), "regime": regime}
                for start, regime in verdict.regimes
            ],
        }
        assert record_of["warnings"] == list(verdict.warnings)
        assert record_of["assumptions"] == [
            *plan.assumptions,
            *prediction.deployment.notes,
            *list_cost_notes(prediction),
        ]
        assert set(prediction.costs.notes) <= set(record_of["assumptions"])


def test_restore(plan, record):
    for answer, record_of in zip(plan.answers, record["predictions"], strict=True):
        prediction, found = answer.prediction, record_of["restore"]
        restore, costs = prediction.costs.restore, prediction.costs
        n_tokens = prediction.mean_restore_tokens(answer.ttft.slots)
        assert found["mean_restore_tokens"] == n_tokens > 0
        assert found["smallest_restore_tokens"] == {
            name: finite(prediction.smallest_restore_tokens(corner))
            for name, corner in (("worst", WORST), ("typical", TYPICAL), ("best", BEST))
        }
        assert (found["method"], found["layout"]) == (restore.method, restore.layout)
        assert (found["fragment_bytes"], found["fragments_per_token"]) == (
            restore.fragment_bytes,
            restore.fragments_per_token,
        )
        assert tuple(found["contiguous_bytes_per_s"].values()) == restore.contiguous
        assert list(found["by_method"]) == ["per-fragment", "batched", "kernel", "contiguous"]
        for method, rates in costs.by_method.items():
            low, typical, high = rates
            assert found["by_method"][method]["bytes_per_s"] == {"low": low, "typical": typical, "high": high}
            for k, end in enumerate(("low", "typical", "high")):
                tau = costs.load_s[2 - k] + costs.load_s_per_token * n_tokens
                t_pf = prediction.savings.mean_s_per_token[k]
                expected = obr(n_tokens, t_pf, costs.kv_bytes_per_token, rates[k], tau)
                assert found["by_method"][method]["obr"][end] == pytest.approx(expected)


def finite(value):
    return value if math.isfinite(value) else None


def test_a_given_rate_has_no_way_of_copying():
    prediction = make_prediction([0, 1000])
    found = parse(render(make_plan(prediction), "json"))["predictions"][0]["restore"]
    assert [found[name] for name in ("method", "layout", "fragment_bytes", "contiguous_bytes_per_s")] == [None] * 4


def test_ttft(plan, record):
    for answer, record_of in zip(plan.answers, record["predictions"], strict=True):
        ttft = answer.ttft
        assert record_of["ttft"] == {
            "slots": ttft.slots,
            "floor_s": 0.042,
            "without_mean_s": ttft.without_mean_s,
            "change_mean_s": ttft.change_mean_s,
            "change_percentiles_s": {str(percent): value for percent, value in ttft.change_percentiles_s.items()},
            "faster_share": ttft.faster_share,
            "slower_share": ttft.slower_share,
            "gib_per_rank": answer.prediction.gib_at(ttft.slots),
            "gib_per_node": answer.prediction.gib_at(ttft.slots),
            "computed_tokens": int(answer.prediction.tiers.computed_tokens[ttft.slots]),
        }


def test_card():
    options = Options(**SMALL, host_gib=(1.0,))
    plan = predict(agent_trace(), options=options)
    record = parse(render(plan, "json"))["predictions"][0]
    assert record["card"] == parse(json.dumps(describe_card(plan.answers[0].card)))
    assert record["card"]["slots"] == plan.answers[0].rows[0].slots
    assert parse(render(make_plan(make_prediction([0, 0])), "json"))["predictions"][0]["card"] is None


def test_unknown_and_endless_numbers_are_null():
    workload = make_workload(concurrent_tasks=None, span_s=None)
    prediction = make_prediction([0, 1000], loads=[0, 1], costs=make_costs(load_s=1e6), workload=workload)
    record = parse(render(make_plan(prediction), "json"))["predictions"][0]
    assert record["verdict"]["break_even"]["rate_bytes_per_s"] is None
    nothing = parse(render(make_plan(make_prediction([0, 0])), "json"))["predictions"][0]
    assert nothing["verdict"]["break_even"] == {"rate_bytes_per_s": None, "prefill_s_per_token": None, "load_s": None}
    assert nothing["restore"]["mean_restore_tokens"] is None
    assert nothing["restore"]["by_method"]["contiguous"]["obr"] == {"low": None, "typical": None, "high": None}
    assert record["scale"]["reuse_bytes_per_rank"] is None
    assert record["rows"][1]["write_gib_per_s"] is None


def test_names_that_are_unknown_are_null():
    trace = parse(render(predict(agent_trace(has_tasks=False), options=Options(**SMALL)), "json"))["trace"]
    assert (trace["sessions"], trace["tasks"]) == (None, None)


def test_same_input_gives_the_same_bytes(plan, tmp_path):
    again = predict(agent_trace(), "h20,h100", options=Options(**SMALL))
    assert render(again, "json") == render(plan, "json")
    path = tmp_path / "agents"
    write_trace(agent_trace(), path)
    assert render(predict(path, "h20,h100", options=Options(**SMALL)), "json") == render(plan, "json")


def test_curve_of_the_file_is_that_of_the_prediction(plan, record):
    for answer, record_of in zip(plan.answers, record["predictions"], strict=True):
        check_curve(answer.prediction, record_of["curve"])
        assert record_of["curve"] == sample_curve(answer.prediction)


@given(tier_tables())
def test_curve_covers_every_step_exactly(table):
    restored, moved, loads = table
    written = np.arange(restored.size)[::-1]
    prediction = make_prediction(restored, moved=moved, loads=loads, written=written)
    check_curve(prediction, sample_curve(prediction))


@given(st.integers(1, 10**15), st.integers(2, 5000))
def test_curve_of_many_slots_has_at_most_2000_points(total, n_slots):
    restored = np.linspace(0, total, n_slots).astype(np.int64)
    prediction = make_prediction(restored, deployment=make_deployment())
    check_curve(prediction, sample_curve(prediction))


def check_curve(prediction, curve):
    """For every 0.05 % of the saving the first capacity that reaches it is there, with exact values."""
    tiers = prediction.tiers
    restored = tiers.restored_tokens
    slots = np.array(curve["slots"])
    assert slots.size <= 2000
    assert (np.diff(slots) > 0).all()
    total = int(restored[-1])
    needed = {int(np.searchsorted(restored, -(-step * total // 2000))) for step in range(1, 2001)}
    assert set(slots.tolist()) == needed
    if total:
        reached = restored[slots]
        below = restored[np.maximum(slots - 1, 0)]
        steps = [Fraction(int(tokens) * 2000, total) for tokens in reached]
        assert all(int(step) > Fraction(int(tokens) * 2000, total) for step, tokens in zip(steps, below, strict=True))
        assert slots[-1] == np.argmax(restored == total)
    assert curve["saved_tokens"] == restored[slots].tolist()
    assert curve["moved_tokens"] == tiers.moved_tokens[slots].tolist()
    assert curve["loading_requests"] == tiers.loads[slots].tolist()
    assert curve["written_tokens"] == [int(tiers.coverage.written(k)) * tiers.chunk_tokens for k in slots.tolist()]
    for end, saved in zip(("low", "typical", "high"), prediction.savings.saved_s, strict=True):
        assert curve["prefill_saved_s"][end] == saved[slots].tolist()
    for name, corner in (("worst", WORST), ("typical", TYPICAL), ("best", BEST)):
        assert curve["net_saved_s"][name] == prediction.net_seconds(corner)[slots].tolist()
        end = {"worst": "high", "typical": "typical", "best": "low"}[name]
        assert curve["restore_s"][end] == prediction.restore_seconds(corner)[slots].tolist()
