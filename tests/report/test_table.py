import re

import numpy as np
import pytest
from plans import SMALL, agent_trace, make_costs, make_deployment, make_plan, make_prediction, make_workload

from capplan import Options, predict
from capplan.deployment import GpuRoom
from capplan.economics import obr
from capplan.hardware import load_gpu
from capplan.prediction import Prices
from capplan.report import render
from capplan.report.layout import fold
from capplan.units import format_capacity, format_number, format_seconds

CHUNKS = np.arange(601)
FLEET = 250_000 * np.clip(CHUNKS - 200, 0, 300)  # 75 M tokens restored, from 19 to 47 GiB per rank at TP1
GRID = (0.0, 5.0, 18.8, 23.4, 28.1, 32.8, 37.5, 42.2, 46.9, 51.9)


def fleet(**changes):
    """A prediction of the size of a published replay."""
    options = {
        "moved": FLEET + 3_000_000 * (FLEET > 0),
        "loads": 4000 * (FLEET > 0),
        "written": 80_000 - 100 * CHUNKS,
        "computed": 82_000_000,
        "gpu_tokens": 65_000_000,
        "deployment": make_deployment(notes=("GPU KV room given: 1,048,576 tokens per rank",)),
        "workload": make_workload(mean_prompt_tokens=33_205.0, longest_prompt_tokens=110_639, concurrent_tasks=16.0),
        **changes,
    }
    return make_prediction(FLEET, **options)


def text_of(*predictions, width=80, **options):
    return render(make_plan(*predictions, host_gib=GRID, **options), "table", width)


def unfolded(text):
    return " ".join(text.split())


def test_answer_comes_first():
    assert text_of(fleet()).splitlines()[:10] == [
        "NVIDIA H20 96 GB, Qwen3-Coder-30B-A3B, TP1: PAYS",
        "  restoring beats recomputing at every restore rate of 50.0-55.0 GB/s and",
        "  prefill of 100 us per token; break-even restore rate 1.02 GB/s",
        "  recommended  46.7 GiB of host KV per rank, 46.7 GiB per node",
        "  computes     7.500 M prompt tokens instead of 82.00 M: saves 2.07 h of",
        "               prefill, spends 2.44 min on restores",
        "  transition   10 % at 21.6, 50 % at 32.9, 90 % at 44.1, 99 % at 46.6 GiB per",
        "               rank; knee none",
        "  of           147.0 M prompt tokens in 10 requests, a pool of 16 tasks; GPU",
        "               memory serves 44.2 %",
    ]


def test_capacities_of_the_answer_hold_what_they_should():
    prediction = fleet()
    text = unfolded(text_of(prediction))
    verdict = make_plan(prediction).answers[0].verdict
    for share, slots in verdict.transitions.items():
        printed = float(re.search(rf"{100 * share:.0f} % at ([\d.,]+)", text)[1].rstrip(".,"))
        assert prediction.slots_at(printed) >= slots
    assert prediction.slots_at(float(re.search(r"recommended ([\d.]+)", text)[1])) >= verdict.recommended_slots


PRICES = Prices(dram_usd_per_gib=4.0, gpu_usd_per_hour=2.0)


def test_money_of_the_recommended_capacity():
    text = unfolded(text_of(fleet(prices=PRICES), options=Options(prices=PRICES)))
    prediction = fleet()
    gib = prediction.gib_at(make_plan(prediction).answers[0].verdict.recommended_slots)
    saved_usd = 2 * prediction.row_at(gib).net_saved_s / 3600 * 730.5
    assert (
        f"costs $187 of memory, saves ${saved_usd:,.0f} of GPU time per month: paid back in "
        f"{format_number(4 * gib / saved_usd)} months"
    ) in text
    no_clock = fleet(prices=PRICES, workload=make_workload(span_s=None))
    text = unfolded(text_of(no_clock, options=Options(prices=PRICES)))
    assert "costs $187 of memory; no clock, so no saving per month" in text
    assert "costs" not in text_of(fleet()).split("Prompt tokens by host capacity")[0]
    free = fleet(prices=Prices(4.0, 0.0))
    assert "saves $0 of GPU time per month: paid back never" in unfolded(text_of(free))


def test_money_table():
    lines = text_of(fleet(prices=PRICES), options=Options(prices=PRICES)).splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("Cost by host capacity"))
    assert lines[at + 1 : at + 3] == [
        "GiB per  GiB per  memory  GPU hours  GPU $ per  paid back",
        "   rank     node       $  per month      month     months",
    ]
    row = fleet(prices=PRICES).row_at(28.1)
    expected = (28.1, 28.1, 112.4, row.gpu_hours_saved_per_month, row.gpu_usd_saved_per_month, row.payback_months)
    assert lines[at + 8].split() == [format_number(value) for value in expected]
    assert lines[at + 4].split() == ["0", "0", "0", "0", "0", "n/a"]
    assert "Cost by host capacity" not in text_of(fleet())


def test_range_table():
    costs = make_costs((5e-5, 1e-4, 2e-4), (20.0, 50.0, 55.0), (0.0, 0.001, 0.01))
    prediction = fleet(costs=costs)
    lines = text_of(prediction).splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("Range of the uncertain inputs"))
    assert lines[at + 1 : at + 3] == [
        "GiB per   prefill             restores             net saved",
        "   rank  at least   at most  fast link  slow link      worst      best",
    ]
    row = prediction.row_at(28.1)
    assert unfolded(lines[at + 8]) == " ".join(
        [
            "28.1",
            format_seconds(24.75e6 * 5e-5),
            format_seconds(24.75e6 * 2e-4),
            format_seconds(row.restore_s_at_high_rate),
            format_seconds(row.restore_s_at_low_rate),
            format_seconds(row.net_saved_s_worst),
            format_seconds(row.net_saved_s_best),
        ]
    )


def test_rows():
    lines = text_of(fleet()).splitlines()
    tokens = next(k for k, line in enumerate(lines) if line.startswith("Prompt tokens by host capacity"))
    assert lines[tokens + 1 : tokens + 3] == [
        "GiB per  GiB per            host                              computed",
        "   rank     node  chunks  covers  restored    moved  written   prefill   share",
    ]
    assert unfolded(lines[tokens + 4]) == "0 0 0 0.0 % 0 0 81.92 M 82.00 M 55.8 %"
    assert lines[tokens + 8].split() == [
        "28.1",
        "28.1",
        "299",
        "0.2",
        "%",
        "24.75",
        "M",
        "27.75",
        "M",
        "51.30",
        "M",
        "57.25",
        "M",
        "38.9",
        "%",
    ]
    time = next(k for k, line in enumerate(lines) if line.startswith("Time by host capacity"))
    assert lines[time + 1 : time + 3] == [
        "GiB per   prefill          saved per  spent on       net  written",
        "   rank     saved   share       hour  restores     saved    GiB/s  gamma_H",
    ]
    assert unfolded(lines[time + 4]) == "0 0 s 0.0 % 0 s 0 s 0 s 2.08 n/a"
    assert lines[time + 8].split() == [
        "28.1",
        "41.2",
        "min",
        "30.2",
        "%",
        "41.2",
        "min",
        "52.5",
        "s",
        "40.4",
        "min",
        "1.30",
        "1.62",
    ]
    assert len([line for line in lines if line.strip().startswith("51.9")]) == 3


def test_nothing_is_recommended_unless_it_pays():
    text = text_of(fleet(costs=make_costs(1e-6)))
    assert text.startswith("NVIDIA H20 96 GB, Qwen3-Coder-30B-A3B, TP1: DOES NOT PAY\n")
    assert "recommended" not in text


def test_typical_tables_take_80_columns():
    plans = [
        make_plan(fleet(), host_gib=GRID),
        make_plan(fleet(), fleet(), fleet(), host_gib=GRID),
        predict(agent_trace(), options=Options(**SMALL)),
        predict(agent_trace(has_tasks=False), "h20,h100", options=Options(**SMALL, node_ram_gib=1e-6)),
    ]
    for plan in plans:
        assert max(map(len, render(plan, "table").splitlines())) <= 80


def test_tables_widen_before_a_number_is_cut():
    huge = FLEET * 10**9
    prediction = make_prediction(
        huge,
        moved=huge,
        loads=CHUNKS * 10**9,
        computed=int(huge[-1]),
        deployment=make_deployment(tp=8),
        costs=make_costs(1.0),
    )
    text = render(make_plan(prediction, host_gib=(0.0, 123_456_789.0)), "table")
    assert "…" not in text
    assert "..." not in text
    row = next(line.split() for line in text.splitlines() if line.startswith("123,456,789"))
    slots = 123_456_789 * 2**30 // (24 * 2**20)
    assert row[:3] == ["123,456,789", "987,654,312", f"{slots:,}"]
    assert "75,000,000 G" in text


def test_every_note_and_warning_is_printed():
    deployment = make_deployment(notes=("the first deployment note", "a second one that is long " + "and longer " * 12))
    prediction = fleet(deployment=deployment, workload=make_workload(first_use_share=0.7, longest_prompt_tokens=10**6))
    plan = make_plan(prediction, options=Options(node_ram_gib=1.0), assumptions=("one assumption", "another"))
    text = unfolded(render(plan, "table"))
    assert len(plan.answers[0].verdict.warnings) == 5
    for warning in plan.answers[0].verdict.warnings:
        assert f"warning: {warning}" in text
    for note in (*plan.assumptions, *deployment.notes, *prediction.costs.notes):
        assert f"- {note.strip()}" in text


def test_scale():
    text = unfolded(text_of(fleet()))
    assert "- 16.0 concurrent tasks x mean prompt of 33.2 k tokens: C_reuse 45.6 GiB per rank, gamma_G 0.507" in text
    assert "- KV 98,304 B per token and rank, 96 MiB per chunk; a node holds 1 host copy" in text
    assert "- 10.0 % of prompt tokens are first use or tails of chunks" in text
    workload = make_workload(concurrent_tasks=None, small_chunk_tokens=256, small_chunk_gain_tokens=1_166_000)
    text = unfolded(text_of(fleet(workload=workload, deployment=make_deployment(tp=8))))
    assert "- n/a concurrent tasks x mean prompt of 2,000 tokens: C_reuse n/a, gamma_G n/a" in text
    assert "24 MiB per chunk; a node holds 8 host copies" in text
    assert "- chunks of 256 tokens would restore 1.166 M more tokens without a limit" in text


def test_regimes_restores_and_first_tokens_are_said():
    prediction = fleet(costs=make_costs(1e-4, load_s=(0.008, 0.01, 0.013)))
    text = unfolded(text_of(prediction))
    # chunks of 96 MiB; 201 slots restore 250 k, 203 are the first above 1 % of 82 M
    first = next(k for k in CHUNKS if FLEET[k] >= 820_000)
    assert (
        f"- regimes by GiB per rank: overhead only from 0, pays from {format_capacity(prediction.gib_at(first))}"
        in text
    )
    assert "- smallest restore that pays: 102 tokens (82 to 133)" in text
    n_tokens = int(FLEET[498] / 4000)
    here = obr(FLEET[498] / 4000, 1e-4, 98_304, 52e9, 0.01)
    slow = obr(FLEET[498] / 4000, 1e-4, 98_304, 1e9, 0.01)
    assert (
        f"- OBR of a mean restore of {n_tokens:,} tokens: {here:.2f}; by way of copying: per-fragment {slow:.2f}, "
        f"contiguous {here:.2f}"
    ) in text
    assert (
        "- at 46.7 GiB: mean TTFT 1.50 s changes by -0.500 s (p1 -2.00 s, p10 -1.00 s, p50 -0.250 s, p90 0 s, p99 "
        "+0.125 s); 75.0 % of requests faster, 5.0 % slower"
    ) in text


@pytest.mark.parametrize(
    ("prefill_s", "said"),
    [
        (1e-6, "no restore pays, however long - OBR"),
        ((1e-6, 1.5e-6, 1e-4), "smallest restore that pays: none at typical inputs, 102 tokens at the best -"),
        ((1e-6, 1e-4, 2e-4), "smallest restore that pays: 102 tokens (51 at the best inputs, none at the worst) -"),
        ((5e-5, 1e-4, 2e-4), "smallest restore that pays: 102 tokens (51 to 208) -"),
        (1e-4, "smallest restore that pays: 102 tokens -"),
    ],
)
def test_smallest_restore(prefill_s, said):
    costs = make_costs(prefill_s, 52.0, 0.01)
    assert f"- {said}" in unfolded(text_of(fleet(costs=costs)))


def test_nothing_is_said_of_restores_where_there_are_none():
    text = render(make_plan(make_prediction([0, 0, 0])), "table")
    assert "smallest restore" not in text
    assert "OBR" not in text
    assert "TTFT" not in text
    assert "- regimes by GiB per rank: overhead only from 0" in text


def test_settings_of_engines_stand_below_the_tables():
    options = Options(**SMALL, host_gib=(2.0,), node_ram_gib=1.0)
    text = render(predict(agent_trace(), options=options), "table")
    said = "Settings of engines for 2.00 GiB per rank on NVIDIA H20 96 GB (capplan card explains each)"
    assert said in unfolded(text)
    assert "max_local_cpu_size: 2" in text
    assert "--kv-offloading-size 2" in text
    assert "  warning: " in text.split("Settings of engines")[1]


def test_several_gpus_stand_side_by_side():
    names = ["h20", "h100", "h200", "b200"]
    predictions = [fleet(deployment=make_deployment(gpu=load_gpu(name))) for name in names]
    text = text_of(*predictions)
    assert text.count("GPUs side by side") == 2  # three and one
    assert "h20 TP1" in text
    assert "b200 TP1" in text
    heads = [line for line in text.splitlines() if line.endswith(": PAYS")]
    assert [head.split(",")[0] for head in heads] == [load_gpu(name).title for name in names]
    rows = [unfolded(line) for line in text.splitlines() if line.startswith("   28.1")]
    assert rows == ["28.1" + 3 * " 57.25 M 40.4 min", "28.1 57.25 M 40.4 min"]


def test_gpus_may_differ_in_tp():
    options = Options(host_gib=(0.0, 1.0), room=GpuRoom(kv_tokens=40_000))
    text = render(predict(agent_trace(), "rtx4090,h20", "qwen3-32b", options), "table")
    assert "rtx4090 TP4" in text
    assert "h20 TP1" in text


@pytest.mark.parametrize(
    ("line", "folded"),
    [
        ("short", "short"),
        ("- one two three four", "- one two\n  three\n  four"),
        ("  of  one two three", "  of  one\n      two\n      three"),
        ("  one two three", "  one two\n  three"),
        ("unbreakable-and-long", "unbreakable-and-long"),
    ],
)
def test_fold(line, folded):
    assert fold(line, 10) == folded


def test_unknown_format():
    with pytest.raises(ValueError, match="format is 'xml'; accepted: table, json, csv"):
        render(make_plan(fleet()), "xml")
