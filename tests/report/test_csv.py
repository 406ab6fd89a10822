import csv
import io
from dataclasses import asdict

import pytest
from plans import SMALL, agent_trace, make_plan, make_prediction, make_workload

from capplan import Options, predict
from capplan.prediction import Prices
from capplan.report import render


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_for_every_gpu_and_capacity():
    plan = predict(agent_trace(), "h20,h100", options=Options(**SMALL, host_gib=(0.0, 0.1)))
    text = render(plan, "csv")
    rows = read(text)
    assert [(row["gpu"], row["model"], row["tp"], row["host_gib_per_rank"]) for row in rows] == [
        ("h20", "qwen3-coder-30b-a3b", "1", "0.0"),
        ("h20", "qwen3-coder-30b-a3b", "1", "0.1"),
        ("h100", "qwen3-coder-30b-a3b", "1", "0.0"),
        ("h100", "qwen3-coder-30b-a3b", "1", "0.1"),
    ]
    assert text.count("\n") == 5
    assert "\r" not in text


def test_values_are_those_of_the_rows_to_the_last_digit():
    plan = predict(agent_trace(), options=Options(**SMALL))
    answer = plan.answers[0]
    for found, row in zip(read(render(plan, "csv")), answer.rows, strict=True):
        expected = asdict(row)
        assert list(found) == ["gpu", "model", "tp", *expected]
        for name, value in expected.items():
            assert found[name] == ("" if value is None else repr(value))


def test_unknown_numbers_are_empty():
    workload = make_workload(concurrent_tasks=None, span_s=None)
    (_, row) = read(render(make_plan(make_prediction([0, 1000], workload=workload)), "csv"))
    assert {name for name, value in row.items() if value == ""} == {
        "prefill_saved_s_per_hour",
        "write_gib_per_s",
        "gamma_host",
        "dram_usd",
        "gpu_hours_saved_per_month",
        "gpu_usd_saved_per_month",
        "payback_months",
    }
    assert float(row["restored_share"]) == pytest.approx(1000 / 2024)


def test_money_stands_in_every_row():
    prediction = make_prediction([0, 1000], prices=Prices(3.0, 2.0))
    (_, row) = read(render(make_plan(prediction), "csv"))
    assert row["dram_usd"] == "3.0"
    assert float(row["gpu_usd_saved_per_month"]) == 2 * float(row["gpu_hours_saved_per_month"]) > 0
    assert float(row["payback_months"]) == pytest.approx(3 / float(row["gpu_usd_saved_per_month"]))
