"""`capplan card`: from a capacity or from a trace, and what it refuses."""

import json
import os

import pytest
from commands import finish, invoke, misuse_of, notes_of, refusal_of, start

from capplan import Options, predict
from capplan.card import make_card, place_card
from capplan.deployment import GpuRoom
from capplan.report.card import render_card

SMALL = ("--chunk-tokens", "64", "--gpu-kv-tokens", "672")  # options with which the small trace moves


def answer_of(*arguments):
    """stdout of a command that succeeds without a note."""
    result = invoke("card", *arguments)
    assert result.exit_code == 0
    assert notes_of(result) == []
    return result.stdout


@pytest.mark.parametrize("kind", ["table", "json"])
def test_card_of_a_capacity(kind):
    card = place_card(20, "h20", "qwen3-coder-30b-a3b", 8)
    expected = render_card(card, kind, "asked for: 20.0 GiB per rank")
    assert answer_of("--host-gib", "20", "--gpu", "h20", "--tp", "8", "--format", kind) == expected


def test_options_reach_the_card():
    arguments = "--host-gib 9 --gpu h200 --tp 4 --model deepseek-v3 --engine vllm,lmcache --kv-dtype fp8"
    arguments += " --chunk-tokens 256 --gpu-kv-tokens 9000 --node-ram 8 --format json"
    card = place_card(9, "h200", "deepseek-v3", 4, kv_dtype="fp8", chunk_tokens=256, gpu_kv_tokens=9000,
                      node_ram_gib=8.0, engine=("vllm", "lmcache"))  # fmt: skip
    assert answer_of(*arguments.split()) == render_card(card, "json", "asked for: 9.00 GiB per rank")
    assert len(card.warnings) == 2


def test_without_a_gpu_tier_nothing_is_counted_in_it():
    text = answer_of("--host-gib", "20", "--gpu", "h20", "--tp", "8", "--engine", "sglang", "--no-gpu-tier")
    assert "--hicache-size 22" in text
    assert "--hicache-ratio" not in text


def test_card_of_a_recommendation(linked):
    plan = predict(linked, "h20", options=Options(chunk_tokens=64, room=GpuRoom(kv_tokens=672), tp=1))
    prediction, verdict = plan.answers[0].prediction, plan.answers[0].verdict
    capacity = verdict.recommended_slots * prediction.chunk_bytes
    card = make_card(capacity, prediction.deployment, 64, prediction.deployment.gpu_kv_tokens)
    assert card.slots == verdict.recommended_slots > 0
    assert answer_of(linked, "--gpu", "h20", *SMALL, "--tp", "1") == render_card(
        card, "table", f"recommended: pays: {verdict.reason}"
    )


def test_recommendation_of_nothing_is_said(linked):
    lines = answer_of(linked, "--gpu", "h20").splitlines()
    assert lines[0] == "No size card"
    assert "TP1: no host tier is" in lines[1]
    record = json.loads(answer_of(linked, "--gpu", "h20", "--format", "json"))
    assert record["card"] is None
    assert "no host tier is recommended: fits in GPU memory: " in record["basis"]


def test_output_file(tmp_path):
    arguments = ("--host-gib", "20", "--gpu", "h20", "--tp", "8")
    assert answer_of(*arguments, "-o", tmp_path / "card.txt") == ""
    assert (tmp_path / "card.txt").read_text(encoding="utf-8") == answer_of(*arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--gpu h20", "one of SOURCE and --host-gib is needed"),
        ("trace.jsonl --host-gib 2 --gpu h20", "one of SOURCE and --host-gib is needed"),
        ("--host-gib 2 --gpu h20", "--host-gib needs --tp: GiB per rank of how many ranks"),
        ("--host-gib 2 --gpu h20 --tp 1 --pool 3", "--pool goes with a trace, not with --host-gib"),
        ("--host-gib 2 --gpu h20 --tp 1 --gpu-kv-tokens 9 --no-gpu-tier",
         "--gpu-kv-tokens and --no-gpu-tier exclude each other"),
        ("--host-gib 2 --tp 1", "Missing option '--gpu'."),
    ],
)  # fmt: skip
def test_wrong_usage(arguments, said):
    assert misuse_of("card", *arguments.split()) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--host-gib 2 --gpu h20 --tp 1 --engine redis", "unknown engine 'redis'; accepted: dynamo-kvbm, lmcache, "),
        ("--host-gib 0.001 --gpu h20 --tp 1", "0.001000 GiB per rank: no room for a chunk of 1,024 tokens; accepted: "),
        ("--host-gib 2 --gpu h20 --tp 3", "--tp 3: "),
        ("--host-gib 2 --gpu h20 --tp 1 --model nothing", "unknown model 'nothing'"),
        ("--host-gib 2 --gpu h20 --tp 1 --kv-dtype fp8_ds_mla", "kv_dtype 'fp8_ds_mla': accepted: "),
        ("nowhere.jsonl --gpu h20", "nowhere.jsonl: "),
    ],
)
def test_refusals_are_one_line(arguments, said):
    assert refusal_of("card", *arguments.split()).startswith(said)


def test_overrun_is_a_warning_and_no_failure():
    text = answer_of("--host-gib", "20", "--gpu", "h20", "--tp", "8", "--engine", "lmcache", "--node-ram", "100")
    assert "  warning: LMCache in-process 0.3.12, max_local_cpu_size: 160.0 GiB per node:" in text


def test_capacity_needs_no_kernels():
    code = (
        "import sys; from capplan.cli import main\n"
        "try: main(['card', '--host-gib', '20', '--gpu', 'h20', '--tp', '8', '-o', sys.argv[1]])\n"
        "except SystemExit: pass\n"
        "print(*sorted({'numba', 'polars', 'matplotlib'} & set(sys.modules)))"
    )
    assert finish(start(os.devnull, code=code))[1].strip() == ""
