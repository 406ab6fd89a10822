"""`capplan simulate`, and `capplan predict --tier`: what they answer, and what they refuse."""

import json
from dataclasses import replace

import pytest
from builders import write_jsonl
from commands import COMPILING, finish, invoke, misuse_of, notes_of, refusal_of, start
from plans import agent_trace, token_rows

from capplan import Options, predict, write_trace
from capplan.cli.plan_options import PLAN
from capplan.cli.predict import command as predict_command
from capplan.cli.simulate import command
from capplan.cli.tier_options import OF_TIER, TIER
from capplan.deployment import GpuRoom
from capplan.report import render as render_plan
from capplan.report.tier import render
from capplan.simulation.presets import Policy, list_presets, load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings

ROOM = GpuRoom(kv_tokens=672)
PLACE = ("--gpu", "h20", "--gpu-kv-tokens", "672")


def answer_of(*arguments):
    """stdout of a command that succeeds without a note."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    assert notes_of(result) == []
    return result.stdout


def settings_of(name, **changes):
    return TierSettings.of(load_preset(name)).change(**changes)


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_formats(linked, kind):
    found = answer_of("simulate", linked, "--gpu", "h20,h100", "--tier", "vllm-offload", "--format", kind)
    options = Options(tier=settings_of("vllm-offload"), engine="vllm")
    assert found == render(predict(linked, "h20,h100", options=options), kind)


RULE = AdmissionRule("conditioned")


@pytest.mark.parametrize(
    ("arguments", "engine", "tier"),
    [
        ("--tier lmcache", "lmcache", settings_of("lmcache")),
        ("--tier vllm --policy arc", "vllm", settings_of("vllm-offload", policy="arc")),
        ("--tier lmcache --policy lfu --unit-tokens 64", "lmcache",
         settings_of("lmcache", policy="lfu", unit_tokens=64)),
        ("--tier lmcache --unit-tokens 64 --step-tokens 128", "lmcache",
         settings_of("lmcache", unit_tokens=64, step_tokens=128)),
        ("--tier vllm-offload --store-threshold 2", "vllm", settings_of("vllm-offload", min_offers=2)),
        ("--tier sglang --engine vllm", "vllm", settings_of("sglang-hicache")),
        ("--tier efficientagent --unit-tokens 64 --kappa 2 --theta 0.5 --window-s 30 --report-period-s 0", "lmcache",
         settings_of("efficientagent", unit_tokens=64, rule=replace(
             RULE, kappa=2.0, theta=0.5, window_s=30.0, report_period_s=0.0))),
        ("--tier efficientagent-fixed --unit-tokens 64 --kappa 3", "lmcache",
         settings_of("efficientagent-fixed", unit_tokens=64, rule=AdmissionRule("fixed", 3.0))),
        ("--tier lmcache --unit-tokens 64 --admission fixed --kappa 3", "lmcache",
         settings_of("lmcache", unit_tokens=64, rule=AdmissionRule("fixed", 3.0))),
        ("--tier efficientagent --admission none", "lmcache",
         settings_of("efficientagent", rule=AdmissionRule("none"))),
        ("--tier efficientagent --policy belady", "lmcache",
         settings_of("efficientagent", policy="belady", rule=AdmissionRule("none"))),
        ("--tier lmcache --policy belady --admission none", "lmcache", settings_of("lmcache", policy="belady")),
    ],
)  # fmt: skip
def test_options_reach_the_tier(linked, arguments, engine, tier):
    options = Options(room=ROOM, host_gib=(0.02, 0.1), engine=engine, tier=tier)
    plan = predict(linked, options=options)
    asked = (linked, *PLACE, "--host-gib", "0.02,0.1", *arguments.split())
    assert answer_of("simulate", *asked, "--format", "json") == render(plan, "json")
    assert answer_of("predict", *asked, "--format", "json") == render_plan(plan, "json")


def test_predict_says_that_it_simulates(linked):
    text = " ".join(answer_of("predict", linked, *PLACE, "--tier", "lmcache").split())
    assert "- host tier lmcache, simulated at every capacity shown: LMCache in-process (0.3.12)" in text
    assert "simulated" not in answer_of("predict", linked, *PLACE)


def test_choices_are_those_of_the_presets():
    choices = {option.name: getattr(option.type, "choices", None) for option in command.params}
    assert set(choices["policy"]) == set(Policy.__args__)
    assert {policy for preset in list_presets() for policy in preset.policies} < set(choices["policy"])
    assert set(choices["rule"]) == {"none", "fixed", "conditioned"}
    assert len(OF_TIER) == len(TIER)
    names = {option.name for option in predict_command.params}
    assert {option.name for option in command.params} <= names
    assert set(OF_TIER) <= names
    assert len(PLAN) > 10


@pytest.mark.parametrize("name", ["simulate", "predict", "admission"])
def test_defaults_in_the_help_stand_without_brackets(name):
    text = " ".join(invoke(name, "--help").stdout.split())
    assert "default: (" not in text
    for words in ("(conditioned). Default: 0.95.", "(conditioned). Default: 60.", "(conditioned). Default: 1."):
        assert name == "admission" or words in text


def test_units_finer_than_the_trace_are_raised_and_said(linked):
    text = answer_of("simulate", linked, *PLACE, "--tier", "lmcache", "--unit-tokens", "8")
    assert "16-token units" in text
    assert "- units of 16 tokens, not 8: the trace is no finer\n" in text


@pytest.mark.parametrize(
    ("trace", "arguments", "message"),
    [
        ("linked", "--tier lmcach",
         "tier 'lmcach' is ambiguous: it begins lmcache, lmcache-mp, lmcache-paper"),
        ("linked", "--tier vllm-ofload", "unknown tier 'vllm-ofload': close to vllm-offload, vllm-offload-0.13; "
         "`capplan tiers` lists all"),
        ("linked", "--tier zzz", "unknown tier 'zzz': `capplan tiers` lists all"),
        ("linked", "--tier vllm-offload --policy lfu",
         "tier vllm-offload has no policy 'lfu'; accepted: lru, arc, belady"),
        ("linked", "--tier lmcache-mp --policy belady",
         "tier lmcache-mp: Belady's policy is of prompts alone, looked up from token 0"),
        ("linked", "--tier lmcache --store-threshold 2",
         "tier lmcache stores from the first offer on; a store threshold is of vllm-offload"),
        ("linked", "--tier efficientagent --store-threshold 2",
         "tier efficientagent stores from the first offer on; a store threshold is of vllm-offload"),
        ("linked", "--tier vllm-offload-0.13 --store-threshold 2",
         "tier vllm-offload-0.13 stores from the first offer on; a store threshold is of vllm-offload"),
        ("linked", "--tier sglang --step-tokens 5",
         "tier sglang-hicache does not store by prefill steps; accepted: --step-tokens 0"),
        ("linked", "--tier lmcache --kappa 3",
         "--kappa: write admission is 'none'; accepted with it: --admission fixed or --admission conditioned"),
        ("linked", "--tier efficientagent-fixed --theta 0.9",
         "--theta: write admission is 'fixed'; accepted with it: --admission conditioned"),
        ("linked", "--tier efficientagent --policy belady --admission fixed",
         "--policy belady chooses what to store itself; accepted: no --admission"),
        ("linked", "--tier vllm-offload --policy belady --store-threshold 2",
         "--policy belady chooses what to store itself; accepted: no --store-threshold"),
        ("linked", "--tier lmcache --unit-tokens 100",
         "linked.parquet: units of 100 tokens cannot be cut from blocks of 16; multiples of 16 are accepted"),
        ("nameless", "--tier lmcache", "nameless.jsonl, row 0: no task id, so a pool cannot be formed; accepted: "
         "task_id or session_id on every row, or arrival times with --order recorded"),
        ("nameless", "--tier efficientagent --order recorded", "nameless.jsonl: efficientagent looks at a clock, and "
         "the trace has none; accepted: arrival times, or tasks with --order pool"),
        ("nameless", "--tier lmcache-mp --order recorded", "nameless.jsonl: lmcache-mp looks at a clock, and "
         "the trace has none; accepted: arrival times, or tasks with --order pool"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["simulate", "predict"])
def test_one_line_says_what_cannot_be_used(request, name, trace, arguments, message):
    assert refusal_of(name, request.getfixturevalue(trace), *PLACE, *arguments.split()) == message


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_trace(tmp_path, content):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    line = refusal_of("simulate", path, *PLACE, "--tier", "lmcache")
    assert line == f"{path}: empty file; at least one request is needed"


@pytest.mark.parametrize("name", [preset.name for preset in list_presets() if preset.kind != "gpu"])
def test_one_request(tmp_path, name):
    path = write_jsonl(tmp_path / "one.jsonl", [{"token_ids": list(range(40)), "task_id": "a"}])
    result = invoke("simulate", path, "--gpu", "h20", "--tier", name, "--host-gib", "0,1")
    assert (result.exit_code, notes_of(result)) == (0, ["capplan: 1 requests read as token-ids"])
    assert "of           40 prompt tokens in 1 requests" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing option '--tier'."),
        ("--tier lmcache --pool 8 --order recorded", "--pool sets the pool order; it cannot go with --order recorded"),
        ("--tier lmcache --policy clock", "Invalid value for '--policy': 'clock' is not one of 'lru', 'fifo', 'lfu', "
         "'mru', 'arc', 'belady'."),
        ("--tier lmcache --theta 2", "Invalid value for '--theta': 2.0 is not in the range 0<=x<=1."),
        ("--tier lmcache --unit-tokens 0",
         "Invalid value for '--unit-tokens': 0 is not in the range 1<=x<=2147483647."),
        ("--tier lmcache --store-threshold -1",
         "Invalid value for '--store-threshold': -1 is not in the range 0<=x<=1000000."),
        ("--tier lmcache --window-s 0", "Invalid value for '--window-s': 0.0 is not in the range x>0."),
        ("--tier lmcache --plot curve.gif", "--plot curve.gif: a name ending in .png, .svg or .pdf is accepted"),
    ],
)  # fmt: skip
def test_wrong_usage(linked, arguments, message):
    assert misuse_of("simulate", linked, *PLACE, *arguments.split()) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--policy lfu --kappa 3", "--policy, --kappa: for a simulated tier only; --tier names one"),
        ("--store-threshold 2", "--store-threshold: for a simulated tier only; --tier names one"),
        ("--step-tokens 0", "--step-tokens: for a simulated tier only; --tier names one"),
        ("--tier lmcache --chunk-tokens 1024",
         "--chunk-tokens: for the one-pass curve only; --tier has rules of its own"),
        ("--tier lmcache --touch leaf-first --distance lookup",
         "--touch, --distance: for the one-pass curve only; --tier has rules of its own"),
    ],
)  # fmt: skip
def test_options_of_the_tier_and_of_the_curve_do_not_mix(linked, arguments, message):
    assert misuse_of("predict", linked, *PLACE, *arguments.split()) == message


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_a_folder_that_is_not_there(linked, tmp_path, option):
    path = tmp_path / "absent" / "answer.png"
    line = refusal_of("simulate", linked, *PLACE, "--tier", "lmcache", option, path)
    assert line == f"{path}: its folder does not exist; a writable path is needed"


def test_the_source_is_not_overwritten(tmp_path):
    path = tmp_path / "trace.parquet"
    write_trace(agent_trace(), path)
    before = path.read_bytes()
    line = misuse_of("simulate", path, *PLACE, "--tier", "lmcache", "-o", path)
    assert line == f"{path} would overwrite the source {path}; another name is needed"
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot(linked, tmp_path, suffix):
    path, again = tmp_path / f"tier.{suffix}", tmp_path / f"again.{suffix}"
    asked = ("simulate", linked, *PLACE, "--tier", "lmcache", "--unit-tokens", "64")
    assert answer_of(*asked, "--plot", path) == answer_of(*asked)
    assert path.stat().st_size > 1000
    answer_of(*asked, "--plot", again)
    assert again.read_bytes() == path.read_bytes()


def test_output_goes_to_a_file_and_notes_to_stderr(tmp_path):
    path = write_jsonl(tmp_path / "tokens.jsonl", token_rows())
    result = invoke("simulate", path, "--gpu", "h20", "--tier", "lmcache", "--format", "json", "-o", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (0, "")
    assert notes_of(result) == ["capplan: 6 requests read as token-ids"]
    assert json.loads((tmp_path / "out").read_text())["trace"]["requests"] == 6


def test_a_reader_that_stops_reading_leaves_no_traceback(linked):
    process = start("simulate", linked, *PLACE, "--tier", "lmcache", env={"PYTHONUNBUFFERED": None})
    process.stdout.close()
    with process:
        err = process.stderr.read()
        code = process.wait(timeout=120)
    assert code == 1
    assert [line for line in err.splitlines() if line != COMPILING] == []


def test_no_plot_needs_no_matplotlib(linked):
    code = (
        "import sys\nfrom capplan.__main__ import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('matplotlib' in sys.modules, 'numba' in sys.modules, file=sys.stderr)"
    )
    _, out, err = finish(start("simulate", linked, *PLACE, "--tier", "lmcache", code=code))
    assert out.startswith("lmcache on NVIDIA H20")
    assert err.splitlines()[-1] == "False True"


def test_a_gpu_alone_has_one_row_and_nothing_to_judge(linked):
    assert len(answer_of("simulate", linked, *PLACE, "--tier", "gpu-only", "--format", "csv").splitlines()) == 2
    assert refusal_of("simulate", linked, *PLACE, "--tier", "gpu-only", "--host-gib", "5") == (
        "tier gpu-only has no host memory; accepted: no --host-gib"
    )
    assert refusal_of("predict", linked, *PLACE, "--tier", "gpu-only") == (
        "tier gpu-only has no host memory to judge; accepted: capplan simulate"
    )
