import json
from pathlib import Path

import pytest

from capplan.calibration import Settings, calibrate, write_profile
from capplan.report.calibration import render

PUBLISHED = str(Path(__file__).parents[2] / "data" / "published" / "h20_replay.csv")
TTFT = """\
label,prompt_tokens,cached_tokens,cached_in,ttft_s,use
c10,10000,0,,0.262,fit
c50,50000,0,,2.290,fit
c100,100000,0,,6.850,fit
g,100000,99999,gpu,0.030,fit
l10,10000,10000,host,0.068,fit
l50,50000,50000,host,0.188,check
l100,100000,100000,host,0.335,fit
"""
RUNS = """\
computed_prefill_tokens,restored_tokens,moved_tokens,written_tokens,loading_requests,makespan_s
76000000,2000000,2500000,80000000,300,12540
50000000,25000000,27000000,60000000,1500,10780
30000000,48000000,49000000,25000000,3000,9470
20000000,30000000,33000000,75000000,1100,8750
5000000,70000000,72000000,8000000,4000,7810
40000000,60000000,61000000,5000000,3100,10150
12000000,5000000,5200000,40000000,900,8120
"""


def found_in(tmp_path, text, gpu="h20", model="qwen3-coder-30b-a3b", tp=8):
    path = tmp_path / "m.csv"
    path.write_text(text, encoding="utf-8")
    return calibrate(str(path), gpu, model, Settings(tp=tp))


@pytest.fixture
def published():
    return calibrate(PUBLISHED, "h20", "qwen3-coder-30b-a3b", Settings(tp=8))


@pytest.fixture
def runs(tmp_path):
    return found_in(tmp_path, RUNS)


@pytest.fixture
def ttft(tmp_path):
    return found_in(tmp_path, TTFT, "h100", "llama-3.1-8b", 1)


def test_table_of_the_published_replay(published):
    assert (
        render(published)
        == """\
NVIDIA H20 96 GB, Qwen3-Coder-30B-A3B, TP8: calibrated from h20_replay.csv
  prefill  67.9 us per avoided token, 14,729 tokens/s, 1.000 x the profile's
  restore  not fitted: the profile's 53.5 GB/s per GPU is kept
  note: the slope is time gained per avoided token: prefill takes at least that
  per computed token

Runs: 2 of 6 rows fitted
parameter                       value  95 % interval  unit    status
────────────────────────────────────────────────────────────────────
intercept  all else, per run    7,325           none     s    fitted
prefill    per avoided token     67.9           none    us    fitted
restore    per moved token      0.960                   us  left out
load       per loading request   10.0                   ms  left out
write      per written token        0                   us  left out

no interval: 2 runs for 2 fitted parameters; 3 runs would give one
restore is not fitted, stays 0.960 us per token: restored_tokens is not reported
at line 6 (none@20); its time stays in the slope and the intercept
load is not fitted, stays 10.0 ms: loading_requests is not reported at line 5
(none@5); its time stays in the slope and the intercept
write is not fitted, stays 0 us per token: written_tokens is not reported at
line 6 (none@20); its time stays in the slope and the intercept

Runs: measured and predicted
line  label          use    measured min  predicted min  difference min     %
─────────────────────────────────────────────────────────────────────────────
5     none@5         fit           208.9          208.9             0.0   0.0
6     none@20        fit           128.1          128.1             0.0   0.0
7     none@40        check         124.0          128.1            +4.1  +3.3
8     fixed@5        check         186.0          177.4            -8.6  -4.6
9     fixed@40       check         162.0          147.9           -14.1  -8.7
10    conditioned@5  check         187.0          178.3            -8.7  -4.6
"""
    )


@pytest.mark.parametrize("case", ["published", "runs", "ttft"])
def test_80_columns_and_no_trailing_blanks(case, request):
    text = render(request.getfixturevalue(case))
    assert max(map(len, text.splitlines())) <= 80
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "…" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_intervals_stand_beside_their_values(runs):
    text = render(runs)
    assert "no interval" not in text
    line = next(line for line in text.splitlines() if line.startswith("prefill    per computed token"))
    prefill = runs.runs.parameters["prefill"]
    assert f"{1e6 * prefill.value:.1f}" in line
    assert f"{1e6 * prefill.low:.1f} to {1e6 * prefill.high:.1f}" in line


def test_ttft_points_are_shown_in_seconds(ttft):
    text = render(ttft)
    assert "x the profile's formula, from TTFT points" in text
    assert "TTFT points: 6 of 7 rows fitted" in text
    assert "  note: the engine's floor under any TTFT is 30.0 ms, which predictions do not" in text
    assert "l50    check       0.188" in text


def test_a_poor_fit_is_said(tmp_path):
    header = "computed_prefill_tokens,restored_tokens,written_tokens,makespan_s\n"
    rows = "1e7,0,0,1000\n2e7,0,0,1050\n3e7,0,0,3000\n6e7,0,0,6000\n"
    assert "poor fit: line 3 is predicted 83 % too high\n" in render(found_in(tmp_path, header + rows))


def test_rows_that_cannot_be_predicted_say_why(tmp_path):
    lines = [line.split(",") for line in RUNS.splitlines()]
    lines = [[*line, "use" if k == 0 else "check" if k == 2 else "fit"] for k, line in enumerate(lines)]
    lines[2][3] = ""
    text = "\n".join(map(",".join, lines)) + "\n"
    report = render(found_in(tmp_path, text))
    assert "line 3 is not predicted: written_tokens is not reported\n" in report
    assert "check         179.7            n/a             n/a   n/a" in report


def test_rows_of_a_kind_none_of_which_is_fitted_are_mentioned(tmp_path):
    text = "computed_prefill_tokens,restored_tokens,written_tokens,makespan_s,use," + TTFT.split("\n")[0].replace(
        ",use", ""
    ).replace("label,", "")
    text += "\n1e7,,,1000,fit,,,,\n5e7,,,3000,fit,,,,\n,,,,check,5000,0,,1\n"
    assert "note: no TTFT point is to be fitted, so none is predicted" in render(found_in(tmp_path, text))


def test_profile_follows_a_table_on_request(published):
    text = render(published, shows_profile=True)
    assert text == f"{render(published)}\nProfile (-o FILE.toml writes it):\n\n{write_profile(published)}"


def test_json(published):
    text = render(published, "json")
    answer = json.loads(text)
    assert next(iter(answer)) == "format"
    assert answer["format"] == 1
    assert text == render(published, "json")
    assert answer["profile_toml"] == write_profile(published)
    assert answer["restore_gb_per_s"] == {"low": 52, "typical": 53.45, "high": 54.9, "is_fitted": False}
    runs = answer["runs"]
    assert runs["no_interval"] == "no interval: 2 runs for 2 fitted parameters; 3 runs would give one"
    assert runs["parameters"]["prefill"]["value"] == pytest.approx(67.9e-6, rel=1e-3)
    assert runs["parameters"]["prefill"]["unit"] == "s_per_token"
    assert runs["parameters"]["restore"]["status"] == "left out"
    assert [row["use"] for row in runs["rows"]] == ["fit", "fit", "check", "check", "check", "check"]
    assert answer["ttft_points"] is None


def test_json_of_points(ttft):
    answer = json.loads(render(ttft, "json"))
    assert answer["runs"] is None
    assert answer["prefill_scale"] is None
    scale = answer["ttft_points"]["parameters"]["scale"]
    assert (scale["unit"], scale["status"]) == ("factor", "fitted")
    assert scale["low"] < scale["value"] < scale["high"]
    assert answer["restore_gb_per_s"]["is_fitted"]


def test_unknown_format(published):
    with pytest.raises(ValueError, match="format is 'csv'; accepted: table, json"):
        render(published, "csv")
