"""`capplan footprint`."""

import json

import pytest
from commands import invoke, misuse_of, refusal_of

from capplan.footprint import choose_tps, measure_footprints
from capplan.models import load_model
from capplan.report.footprint import render


def test_table_of_every_type_and_size():
    model = load_model("llama-3.1-8b")
    result = invoke("footprint", "--model", "llama-3.1-8b")
    expected = render(measure_footprints(model, choose_tps(model)), 1024, 100_000)
    assert (result.exit_code, result.stdout, result.stderr) == (0, expected, "")


def test_options(tmp_path):
    out = tmp_path / "footprint.json"
    options = ("--tp", 8, "--kv-dtype", "fp8_ds_mla", "--chunk-tokens", 256, "--context-tokens", 1000)
    result = invoke("footprint", "--model", "deepseek-v3.2", *options, "--format", "json", "-o", out)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    record = json.loads(out.read_text())
    (only,) = record["footprints"]
    assert (record["chunk_tokens"], record["context_tokens"]) == (256, 1000)
    assert (only["kv_dtype"], only["tp"]) == ("fp8_ds_mla", 8)
    assert only["chunk_bytes_per_rank"] == 256 * 48_068
    assert only["context_bytes_per_node_host"] == 1000 * 48_068


def test_config_of_the_user(tmp_path):
    config = {
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "sliding_window": 32,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = invoke("footprint", "--model", tmp_path, "--format", "json", "--tp", 1, "--kv-dtype", "bf16")
    every, last = json.loads(result.stdout)["footprints"]
    assert every["token_bytes_per_rank"] == 2 * 2 * 2 * 16 * 2
    assert last["token_bytes_per_rank"] == 0
    assert last["context_bytes_per_rank"] == 32 * every["token_bytes_per_rank"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--model", "qwen3-8b", "--tp", 3), "--tp 3: Qwen3-8B has 32 attention heads and 8 KV heads; a divisor is"),
        (("--model", "qwen3-8"), "unknown model 'qwen3-8': close to qwen3-8b; `capplan models` lists all"),
        (("--model", "qwen3-8b", "--kv-dtype", "fp8_ds_mla"), "kv_dtype 'fp8_ds_mla': accepted: bf16, fp16, fp8, nv"),
        (("--model", "deepseek-v4-pro"), "model 'deepseek-v4-flash': DeepSeek-V4 is not modelled: its cache does not"),
    ],
)
def test_refusals(arguments, line):
    assert refusal_of("footprint", *arguments).startswith(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "Missing option '--model'."),
        (("--model", "qwen3-8b", "--tp", 0), "Invalid value for '--tp': 0 is not in the range 1<=x<=1000000."),
        (("--model", "qwen3-8b", "--format", "csv"), "Invalid value for '--format': 'csv' is not one of"),
    ],
)
def test_wrong_usage(arguments, line):
    assert misuse_of("footprint", *arguments).startswith(line)
