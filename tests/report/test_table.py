import numpy as np
import pytest
from plans import SMALL, agent_trace, make_costs, make_deployment, make_plan, make_prediction, make_workload

from capplan import Options, predict
from capplan.deployment import GpuRoom
from capplan.hardware import load_gpu
from capplan.report import render
from capplan.report.layout import fold

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
        "  restoring beats recomputing over the whole restore rate of 50.0-55.0 GB/s;",
        "  break-even at 1.02 GB/s",
        "  recommended  46.7 GiB of host KV per rank, 46.7 GiB per node",
        "  computes     7.500 M prompt tokens instead of 82.00 M: saves 2.07 h of",
        "               prefill, spends 2.44 min on restores",
        "  transition   10 % at 21.6, 50 % at 32.8, 90 % at 44.1, 99 % at 46.6 GiB per",
        "               rank; knee 0 GiB",
        "  of           147.0 M prompt tokens in 10 requests, a pool of 16 tasks; GPU",
        "               memory serves 44.2 %",
    ]


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
    assert len([line for line in lines if line.strip().startswith("51.9")]) == 2


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
    assert len(plan.answers[0].verdict.warnings) == 4
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
