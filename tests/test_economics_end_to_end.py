"""What the published setting comes to on the bundled traces, from the file to the answer."""

import json
from pathlib import Path

import pytest

from capplan import Options, predict, read_trace
from capplan.costs import METHODS, Overrides
from capplan.deployment import GpuRoom
from capplan.hardware import load_gpu
from capplan.prediction import Prices
from capplan.report import render
from capplan.report.sentences import list_cost_notes
from capplan.units import GIB

BUNDLED = Path(__file__).parents[1] / "data" / "synthetic"
NAMES = ("coding_agents", "chat", "rewriting_agents")
ROOM = GpuRoom(kv_tokens=300_000)


@pytest.fixture(scope="module")
def traces():
    """The bundled traces by name."""
    return {name: read_trace(BUNDLED / f"{name}.parquet") for name in NAMES}


@pytest.fixture(scope="module")
def answer(traces):
    """One answer of the published setting: TP8, a pool of 16 tasks, 300,000 tokens of GPU KV."""
    known = {}

    def find(gpu, method, **changes):
        key = (gpu, method, *sorted(changes.items()))
        if key not in known:
            options = Options(tp=8, pool_size=16, room=ROOM, overrides=Overrides(restore_method=method), **changes)
            known[key] = predict(traces["coding_agents"], gpu, options=options)
        return known[key].answers[0]

    return find


@pytest.mark.parametrize(
    ("gpu", "method", "verdict"),
    [
        ("h20", "per-fragment", "pays"),
        ("h800", "per-fragment", "does not pay"),
        ("h20", "contiguous", "pays"),
        ("h800", "contiguous", "pays"),
    ],
)
def test_small_fragments_turn_the_answer_and_large_copies_do_not(answer, gpu, method, verdict):
    found = answer(gpu, method)
    assert found.verdict.answer == verdict
    worst, typical, best = found.verdict.best_net_s
    assert worst <= typical <= best
    assert (found.verdict.recommended_slots > 0) == (verdict == "pays")
    regimes = [regime for _, regime in found.verdict.regimes]
    assert regimes == ["overhead only", "pays" if verdict == "pays" else "loses"]


def test_json_shows_the_sign_of_obr_flip(answer, traces):
    """4 KiB fragments: an H20 gains with one copy each, an H800 loses; both gain with contiguous copies."""
    options = Options(tp=8, pool_size=16, room=ROOM, overrides=Overrides(restore_method="per-fragment"))
    record = json.loads(render(predict(traces["coding_agents"], "h20,h800", options=options), "json"))
    h20, h800 = (prediction["restore"] for prediction in record["predictions"])
    for restore in (h20, h800):
        assert restore["fragment_bytes"] == 4096
        assert restore["fragments_per_token"] == 48 * 2 / 16
        assert restore["method"] == "per-fragment"
        assert list(restore["by_method"]) == list(METHODS)
        assert restore["mean_restore_tokens"] > 10_000
    flips = {method: [r["by_method"][method]["obr"]["typical"] for r in (h20, h800)] for method in METHODS}
    assert flips["per-fragment"][0] > 0 > flips["per-fragment"][1]
    for end in ("low", "typical", "high"):
        assert all(r["by_method"]["contiguous"]["obr"][end] > 0 for r in (h20, h800))
        assert h800["by_method"]["per-fragment"]["obr"][end] < 0 < h20["by_method"]["per-fragment"]["obr"][end]
    assert h20["smallest_restore_tokens"]["typical"] < 1000
    assert h800["smallest_restore_tokens"] == {"worst": None, "typical": None, "best": None}


def test_the_flip_is_visible_in_the_table(traces):
    options = Options(tp=8, pool_size=16, room=ROOM)
    text = " ".join(render(predict(traces["coding_agents"], "h20,h800", options=options), "table").split())
    h20, h800 = text.split("by way of copying: ")[1:]
    assert float(h20.split("per-fragment ")[1].split(",")[0]) > 0
    assert h800.startswith("per-fragment -")
    for ways in (h20, h800):
        assert float(ways.split("contiguous ")[1].split(" ")[0]) > 0.5


def test_measured_prefill_of_the_published_replay(answer):
    """67.9 us at a position that is estimated from this trace: the mean of what is restored is within 2 % of it."""
    prediction = answer("h20", "per-fragment").prediction
    low, typical, high = prediction.savings.mean_s_per_token
    assert prediction.costs.prefill.origin == "measured"
    assert typical == pytest.approx(67.9e-6, rel=0.02)
    assert (low, high) == pytest.approx((0.8 * typical, 1.2 * typical))
    saved = prediction.savings.saved_s[1][-1] / prediction.tiers.restored_tokens[-1]
    assert saved == pytest.approx(typical)
    assert list_cost_notes(prediction)[:2] == [
        f"prefill {1e6 * typical:.1f} us ({1e6 * low:.1f}-{1e6 * high:.1f}) for a token the host tier restores, in the "
        "mean: measured",
        "prefill: measured, 67.9 us per token, at mean position 26,000 (estimated); +-20 % is assumed",
    ]


def test_prefill_of_the_h800_is_a_formula_with_a_range(answer):
    found = answer("h800", "contiguous")
    low, typical, high = found.prediction.savings.mean_s_per_token
    assert found.prediction.costs.prefill.origin == "formula"
    assert low < typical < high
    row = found.rows[-1]
    assert row.prefill_saved_s_low < row.prefill_saved_s < row.prefill_saved_s_high


@pytest.mark.parametrize("gpu", ["h20", "h800"])
def test_default_gpu_tier_at_tp8_holds_the_trace(traces, gpu):
    found = predict(traces["coding_agents"], gpu, options=Options(tp=8, pool_size=16)).answers[0]
    assert found.prediction.deployment.gpu_kv_tokens > 2e6
    assert found.verdict.answer == "fits in GPU memory"
    assert found.verdict.regimes == ((0, "overhead only"),)
    assert found.card is None


def test_transition_falls_where_the_published_one_does(answer, traces):
    found = answer("h20", "per-fragment")
    gib = {share: found.prediction.gib_at(slots) for share, slots in found.verdict.transitions.items()}
    assert gib[0.1] < 11 < gib[0.99] < 20
    options = Options(tp=8, pool_size=8, room=ROOM)
    half = predict(traces["coding_agents"], "h20", options=options).answers[0]
    assert half.prediction.gib_at(half.verdict.transitions[0.5]) < gib[0.5]


@pytest.mark.parametrize(("gpu", "is_faster"), [("h20", True), ("h800", False)])
def test_first_tokens_follow_the_verdict(answer, gpu, is_faster):
    ttft = answer(gpu, "per-fragment").ttft
    assert (ttft.change_mean_s < 0) == is_faster
    assert (ttft.faster_share > ttft.slower_share) == is_faster
    values = list(ttft.change_percentiles_s.values())
    assert values == sorted(values)


def test_money_of_the_published_setting(answer):
    found = answer("h20", "per-fragment", prices=Prices(5.0, 2.0))
    prediction = found.prediction
    gib = prediction.gib_at(found.verdict.recommended_slots)
    row = prediction.row_at(gib)
    assert row.dram_usd == pytest.approx(5 * 8 * gib)
    hours = row.net_saved_s / prediction.workload.span_s * 8 * 730.5
    assert row.gpu_usd_saved_per_month == pytest.approx(2 * hours)
    assert row.payback_months == pytest.approx(row.dram_usd / row.gpu_usd_saved_per_month)


def test_card_is_that_of_the_recommended_capacity(answer):
    found = answer("h20", "per-fragment")
    assert found.card.slots == found.verdict.recommended_slots
    assert found.card.slots * found.card.chunk_bytes / GIB == found.prediction.gib_at(found.card.slots)


@pytest.mark.compiled_only
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpus", ["h20", "h800", "h20,h100", "h20,h100,h800", "h800,rtx4090,a100-80-pcie"])
@pytest.mark.parametrize("prices", [None, Prices(4.5, 2.75)])
def test_no_line_of_the_table_is_wider_than_80_columns(traces, name, gpus, prices):
    specs = [load_gpu(gpu) for gpu in gpus.split(",")]
    for changes in (
        {"room": GpuRoom(kv_tokens=600_000)},
        {"tp": 8, "room": ROOM, "overrides": Overrides(restore_method="per-fragment"), "node_ram_gib": 50.0},
        {"room": GpuRoom(is_used=False), "host_gib": (0.0, 12.5, 4000.0), "engine": "vllm"},
    ):
        plan = predict(traces[name], specs, options=Options(prices=prices, **changes))
        lines = render(plan, "table").splitlines()
        assert max(map(len, lines)) <= 80
        assert not any("…" in line for line in lines)
