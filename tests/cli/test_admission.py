"""`capplan admission`: rules side by side, the log of their decisions, and what is refused."""

import json

import polars as pl
import pytest
from builders import write_jsonl
from commands import COMPILING, invoke, misuse_of, notes_of, refusal_of, start
from plans import agent_trace

from capplan import Options, read_trace, write_trace
from capplan.cli.admission import command
from capplan.deployment import GpuRoom
from capplan.pipeline import compare_admission
from capplan.report.admission import render
from capplan.report.decision_log import log_decisions
from capplan.simulation.presets import load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings

PLACE = ("--gpu", "h20", "--gpu-kv-tokens", "672")
UNITS = ("--unit-tokens", "64", "--host-gib", "0.02,0.1")
MODEL = "qwen3-coder-30b-a3b"


def answer_of(*arguments):
    """stdout of a command that succeeds without a note."""
    result = invoke("admission", *arguments)
    assert result.exit_code == 0, result.stderr
    assert notes_of(result) == []
    return result.stdout


def study_of(trace, name="efficientagent", kappas=(2, 4, 8, 16, 32), thetas=(0.95,), thresholds=(2,), rule=None):
    preset = load_preset(name)
    tier = TierSettings.of(preset).change(unit_tokens=64, rule=rule)
    options = Options(room=GpuRoom(kv_tokens=672), host_gib=(0.02, 0.1), tier=tier, engine=preset.engine)
    numbers = [tuple(map(float, values)) for values in (kappas, thetas)]
    return compare_admission(read_trace(trace), ["h20"], MODEL, options, *numbers, thresholds)


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_formats(linked, kind):
    assert answer_of(linked, *PLACE, *UNITS, "--format", kind) == render(study_of(linked), kind)


@pytest.mark.parametrize(
    ("arguments", "study"),
    [
        ("--kappa 4,1,4", {"kappas": (1, 4)}),
        ("--theta 0.5,0.9", {"thetas": (0.5, 0.9)}),
        ("--theta 0,1", {"thetas": (0, 1)}),
        ("--tier vllm-offload --store-threshold 3,2", {"name": "vllm-offload", "thresholds": (2, 3)}),
        ("--tier vllm-offload --store-threshold 0", {"name": "vllm-offload", "thresholds": ()}),
        ("--store-threshold 0", {"thresholds": ()}),
        ("--tier vllm-offload", {"name": "vllm-offload"}),
        ("--tier stack-distance --store-threshold 0", {"name": "stack-distance"}),
        ("--window-s 20 --report-period-s 0",
         {"rule": AdmissionRule("conditioned", 8, 0.95, window_s=20.0, report_period_s=0.0)}),
    ],
)  # fmt: skip
def test_options_reach_the_study(linked, arguments, study):
    found = answer_of(linked, *PLACE, *UNITS, *arguments.split(), "--format", "json")
    assert found == render(study_of(linked, **study), "json")


def test_defaults_are_those_of_the_help():
    shown = {option.name: option.default for option in command.params}
    assert shown["kappas"] == (2.0, 4.0, 8.0, 16.0, 32.0)
    assert (shown["thetas"], shown["thresholds"], shown["tier"]) == ((0.95,), (2.0,), "efficientagent")
    text = invoke("admission", "--help").stdout
    for words in ("Default: 2,4,8,16,32.", "Default: 0.95.", "efficientagent"):
        assert words in " ".join(text.split())


def test_default_capacities_are_a_few_and_not_nothing(linked):
    (study,) = json.loads(answer_of(linked, *PLACE, "--unit-tokens", "64", "--format", "json"))["studies"]
    gibs = [row["host_gib_per_rank"] for row in study["capacities"]]
    assert 1 <= len(gibs) <= 6
    assert min(gibs) > 0


def test_log_holds_the_decisions(linked, tmp_path):
    path = tmp_path / "log.parquet"
    asked = (linked, *PLACE, *UNITS, "--kappa", "1,4")
    assert answer_of(*asked, "--log", path) == answer_of(*asked)
    log = pl.read_parquet(path)
    assert log.equals(log_decisions(study_of(linked, kappas=(1, 4))))
    assert log["is_declined"].any()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("trace", "arguments", "message"),
    [
        ("linked", "--tier lmcach", "tier 'lmcach' is ambiguous: it begins lmcache, lmcache-mp, lmcache-paper"),
        ("linked", "--tier trtllm-host", "tier trtllm-host is not written request by request: no rule; accepted: "
         "dynamo-kvbm, efficientagent, efficientagent-fixed, lmcache, lmcache-mp, lmcache-paper, mooncake-store, "
         "sglang-hicache, sglang-hicache-selective, sglang-hicache-writeback, stack-distance, vllm-offload, "
         "vllm-offload-0.13"),
        ("linked", "--tier sglang --kappa 2 --log log.parquet",
         "tier sglang-hicache has write policies instead of rules; accepted: no --kappa, --log"),
        ("linked", "--tier stack-distance --store-threshold 2",
         "tier stack-distance counts no offers; accepted: --store-threshold 0"),
        ("linked", "--store-threshold 2", "tier efficientagent counts no offers; accepted: --store-threshold 0"),
        ("linked", "--tier lmcache --store-threshold 3",
         "tier lmcache counts no offers; accepted: --store-threshold 0"),
        ("linked", "--unit-tokens 100",
         "linked.parquet: units of 100 tokens cannot be cut from blocks of 16; multiples of 16 are accepted"),
        ("timeless", "--order recorded", "timeless.parquet: efficientagent looks at a clock, and the trace has none; "
         "accepted: arrival times, or tasks with --order pool"),
        ("nameless", "", "nameless.jsonl, row 0: no task id, so a pool cannot be formed; accepted: task_id or "
         "session_id on every row, or arrival times with --order recorded"),
    ],
)  # fmt: skip
def test_one_line_says_what_cannot_be_used(request, trace, arguments, message):
    assert refusal_of("admission", request.getfixturevalue(trace), *PLACE, *arguments.split()) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--kappa a", "Invalid value for '--kappa': 'a' is not a list of numbers such as 5,10,20"),
        ("--kappa 1,,2", "Invalid value for '--kappa': '1,,2' is not a list of numbers such as 5,10,20"),
        ("--kappa -1", "Invalid value for '--kappa': '-1' holds a number that is not from 0 to 1e+12"),
        ("--kappa nan", "Invalid value for '--kappa': 'nan' holds a number that is not from 0 to 1e+12"),
        ("--theta 0.5,2", "--theta: shares from 0 to 1 are accepted"),
        ("--store-threshold 1.5", "--store-threshold: whole numbers from 2 to 1,000,000, or 0, are accepted"),
        ("--store-threshold 1", "--store-threshold: whole numbers from 2 to 1,000,000, or 0, are accepted"),
        ("--store-threshold 1e7", "--store-threshold: whole numbers from 2 to 1,000,000, or 0, are accepted"),
        ("--gpu-kv-gib 1", "--gpu-kv-tokens and --gpu-kv-gib exclude each other"),
        ("--policy lfu", "No such option '--policy'."),
        ("--plot rules.gif", "--plot rules.gif: a name ending in .png, .svg or .pdf is accepted"),
    ],
)
def test_wrong_usage(linked, arguments, message):
    assert misuse_of("admission", linked, *PLACE, *arguments.split()).startswith(message)


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_rules_left_out_are_said_in_every_format(nameless, kind):
    """Without tasks no conditioned rule could decline; CSV has no place for it, so stderr says it there."""
    result = invoke("admission", nameless, *PLACE, "--unit-tokens", "16", "--host-gib", "1", "--order", "recorded",
                    "--format", kind)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    said = "no request names a task: conditioned rules would see no pressure and never decline; they are left out"
    assert "fixed 2" in result.stdout
    assert "conditioned 2" not in result.stdout
    notes = ["capplan: 6 requests read as token-ids", *([f"capplan: {said}"] if kind == "csv" else [])]
    assert notes_of(result) == notes
    assert (said in " ".join(result.stdout.split())) == (kind != "csv")


def test_warnings_are_those_of_simulate(linked):
    asked = (linked, *PLACE, *UNITS, "--format", "json")
    (compared,) = json.loads(answer_of(*asked))["studies"]
    (simulated,) = json.loads(invoke("simulate", *asked, "--tier", "efficientagent").stdout)["tiers"]
    assert compared["warnings"] == simulated["warnings"]
    assert len(compared["warnings"]) == 2


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot(linked, tmp_path, suffix):
    path = tmp_path / f"rules.{suffix}"
    asked = (linked, *PLACE, *UNITS, "--kappa", "1,4")
    assert answer_of(*asked, "--plot", path) == answer_of(*asked)
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("option", ["-o", "--log", "--plot"])
def test_a_folder_that_is_not_there(linked, tmp_path, option):
    path = tmp_path / "absent" / "log.png"
    line = refusal_of("admission", linked, *PLACE, option, path)
    assert line == f"{path}: its folder does not exist; a writable path is needed"


@pytest.mark.parametrize("option", ["-o", "--log"])
def test_the_source_is_not_overwritten(tmp_path, option):
    path = tmp_path / "trace.parquet"
    write_trace(agent_trace(), path)
    before = path.read_bytes()
    line = misuse_of("admission", path, *PLACE, option, path)
    assert line == f"{path} would overwrite the source {path}; another name is needed"
    assert path.read_bytes() == before


def test_the_log_and_the_answer_are_two_files(linked, tmp_path):
    path = tmp_path / "both"
    line = misuse_of("admission", linked, *PLACE, "--log", path, "-o", path)
    assert line == f"{path} would overwrite the output {path}; another name is needed"


def test_one_request(tmp_path):
    path = write_jsonl(tmp_path / "one.jsonl", [{"token_ids": list(range(40)), "task_id": "a"}])
    result = invoke("admission", path, "--gpu", "h20", "--unit-tokens", "16", "--log", tmp_path / "log.parquet")
    assert (result.exit_code, notes_of(result)) == (0, ["capplan: 1 requests read as token-ids"])
    assert set(pl.read_parquet(tmp_path / "log.parquet")["request_id"]) == {"0"}


def test_a_reader_that_stops_reading_leaves_no_traceback(linked):
    process = start("admission", linked, *PLACE, *UNITS, env={"PYTHONUNBUFFERED": None})
    process.stdout.close()
    with process:
        err = process.stderr.read()
        code = process.wait(timeout=120)
    assert code == 1
    assert [line for line in err.splitlines() if line != COMPILING] == []
