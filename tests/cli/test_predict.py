"""`capplan predict`: what it answers, where it goes, and what it refuses."""

import json
from pathlib import Path

import pytest
from builders import write_jsonl
from commands import finish, invoke, misuse_of, notes_of, refusal_of, start
from plans import token_rows

from capplan import Options, predict, read_trace
from capplan.cli.options import FORMATS
from capplan.cli.predict import command
from capplan.costs import METHODS, Overrides
from capplan.deployment import HOST_TIERS, GpuRoom
from capplan.models.layer_groups import KV_DTYPES
from capplan.prediction import Prices
from capplan.readers import FORMATS as READERS
from capplan.report import render


def answer_of(*arguments):
    """stdout of a command that succeeds without a note."""
    result = invoke("predict", *arguments)
    assert result.exit_code == 0
    assert notes_of(result) == []
    return result.stdout


def test_answer_is_the_table(linked):
    assert answer_of(linked, "--gpu", "h20") == render(predict(linked, "h20"), "table")


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_formats(linked, kind):
    assert answer_of(linked, "--gpu", "h20,h100", "--format", kind) == render(predict(linked, "h20,h100"), kind)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("--pool 3", Options(pool_size=3)),
        ("--order pool", Options(order="pool")),
        ("--order recorded", Options(order="recorded")),
        ("--host-gib 0.5,4,0.25,2,0.5", Options(host_gib=(0.25, 0.5, 2.0, 4.0))),
        ("--chunk-tokens 64", Options(chunk_tokens=64)),
        ("--chunk-tokens 64 --touch head-first", Options(chunk_tokens=64, touch="head-first")),
        ("--chunk-tokens 64 --distance sequential", Options(chunk_tokens=64, distance="sequential")),
        ("--warmup 0.5", Options(warmup=0.5)),
        ("--tp 4 --host-copies 2", Options(tp=4, host_copies=2)),
        ("--kv-dtype fp8 --weight-dtype int4", Options(kv_dtype="fp8", weight_dtype="int4")),
        ("--gpu-mem-util 0.8", Options(room=GpuRoom(0.8))),
        ("--gpu-kv-tokens 704", Options(room=GpuRoom(kv_tokens=704))),
        ("--gpu-kv-gib 0.5", Options(room=GpuRoom(kv_gib=0.5))),
        ("--no-gpu-tier", Options(room=GpuRoom(is_used=False))),
        ("--no-gpu-tier --chunk-tokens 64 --node-ram 0.001", Options(
            chunk_tokens=64, node_ram_gib=0.001, room=GpuRoom(is_used=False))),
        ("--prefill-tok-s 9000 --h2d-gbps 12 --load-latency-ms 3", Options(overrides=Overrides(9000.0, 12.0, 0.003))),
        ("--load-latency-ms 0", Options(overrides=Overrides(load_latency_s=0.0))),
        ("--restore per-fragment", Options(overrides=Overrides(restore_method="per-fragment"))),
        ("--engine sglang", Options(engine="sglang")),
        ("--engine vllm --restore contiguous", Options(
            engine="vllm", overrides=Overrides(restore_method="contiguous"))),
        ("--dram-usd-per-gib 4.5 --gpu-usd-per-hour 2", Options(prices=Prices(4.5, 2.0))),
        ("--dram-usd-per-gib 0 --gpu-usd-per-hour 0", Options(prices=Prices(0.0, 0.0))),
        ("--kv-dtype nvfp4", Options(kv_dtype="nvfp4")),
    ],
)  # fmt: skip
def test_options_reach_the_prediction(linked, arguments, options):
    found = answer_of(linked, "--gpu", "h20", "--format", "json", *arguments.split())
    assert found == render(predict(linked, "h20", options=options), "json")


def test_choices_are_those_of_the_costs():
    choices = {option.name: getattr(option.type, "choices", None) for option in command.params}
    assert set(choices["engine"]) == set(HOST_TIERS)
    assert tuple(choices["restore_method"]) == METHODS
    assert set(choices["kv_dtype"]) == set(KV_DTYPES)


def test_engine_and_way_of_copying_change_the_rate(linked):
    rates = {}
    for arguments in ("", "--restore per-fragment", "--restore contiguous", "--engine vllm", "--engine sglang"):
        record = json.loads(answer_of(linked, "--gpu", "h20", "--tp", "8", "--format", "json", *arguments.split()))
        (prediction,) = record["predictions"]
        rates[arguments] = prediction["inputs"]["h2d_bytes_per_s"]["typical"]
        method = prediction["restore"]["method"]
        assert prediction["restore"]["by_method"][method]["bytes_per_s"]["typical"] == rates[arguments]
    assert len(set(rates.values())) == 4
    assert rates["--engine vllm"] == rates["--restore contiguous"]  # its default
    assert rates["--restore per-fragment"] < rates[""] < rates["--restore contiguous"]


def test_prices_add_a_table(linked):
    arguments = (linked, "--gpu", "h20")
    assert "Cost by host capacity" not in answer_of(*arguments)
    assert "Cost by host capacity" in answer_of(*arguments, "--dram-usd-per-gib", "4", "--gpu-usd-per-hour", "2")


def test_a_way_of_copying_beside_a_rate_of_restores(linked, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "h20"\nh2d_gb_per_s = { low = 3, high = 5, effective = true }\n')
    assert (
        json.loads(answer_of(linked, "--gpu", path, "--format", "json"))["predictions"][0]["restore"]["by_method"] == {}
    )
    assert refusal_of("predict", linked, "--gpu", path, "--restore", "kernel").startswith(
        "--restore kernel: the profile of mine states the rate that restores reach, copies included"
    )


def test_models_and_gpus_of_the_user(linked, tmp_path):
    gpu, model = tmp_path / "mine.toml", tmp_path / "config.json"
    gpu.write_text('base = "h20"\nhbm_gib = 141\n')
    model.write_text(
        json.dumps(
            {
                "architectures": ["Qwen3ForCausalLM"],
                "model_type": "qwen3",
                "torch_dtype": "bfloat16",
                "hidden_size": 4096,
                "intermediate_size": 12288,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "num_hidden_layers": 36,
                "vocab_size": 151936,
                "tie_word_embeddings": False,
            }
        )
    )
    record = json.loads(answer_of(linked, "--gpu", gpu, "--model", model, "--format", "json"))
    inputs = record["predictions"][0]["inputs"]
    assert inputs["gpu"] == "mine"
    assert inputs["kv_bytes_per_token_per_rank"] == 36 * 8 * 256 * 2
    assert "141 GiB x 0.9" in " ".join(record["predictions"][0]["assumptions"])


def test_the_same_gpu_twice_is_one(linked):
    assert answer_of(linked, "--gpu", "h20, h20") == answer_of(linked, "--gpu", "h20")


def test_stdout_carries_the_answer_and_stderr_the_notes(tokens):
    result = invoke("predict", tokens, "--gpu", "h20", "--format", "json")
    assert json.loads(result.stdout)["trace"]["requests"] == 6
    assert notes_of(result) == ["capplan: 6 requests read as token-ids"]


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_output_goes_to_a_file(linked, tmp_path, kind):
    path = tmp_path / "answer"
    path.write_text("older")
    assert answer_of(linked, "--gpu", "h20", "--format", kind, "-o", path) == ""
    assert path.read_text() == answer_of(linked, "--gpu", "h20", "--format", kind, "-o", "-")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot(linked, tmp_path, suffix):
    path = tmp_path / f"curve.{suffix}"
    arguments = (linked, "--gpu", "h20")
    assert answer_of(*arguments, "--plot", path) == answer_of(*arguments)
    assert path.stat().st_size > 1000


def test_formats_may_be_forced(tokens):
    forced = invoke("predict", tokens, "--gpu", "h20", "--from", "token-ids")
    assert forced.stdout == invoke("predict", tokens, "--gpu", "h20").stdout
    assert refusal_of("predict", tokens, "--gpu", "h20", "--from", "capplan").startswith(f"{tokens}: not readable as")


def test_every_reader_may_be_forced():
    assert set(FORMATS) == set(READERS)


def test_block_size_and_ids(hashes, unchained):
    arguments = ("--gpu", "h20", "--block-size", 16)
    chained = invoke("predict", hashes, *arguments)
    assert notes_of(chained)[0] == "capplan: 3 requests read as block-hashes"
    anew = invoke("predict", unchained, *arguments, "--ids", "content")
    assert anew.exit_code == 0
    assert notes_of(anew)[-1] == "capplan: block ids chained anew by content (--ids content)"


@pytest.mark.parametrize(
    ("trace", "arguments", "message"),
    [
        ("hashes", "", "line 1: no block_size; state the tokens per block hash with --block-size"),
        ("unchained", "--block-size 16", "so ids are not prefix-chained; --ids content chains them anew"),
        ("tokens", "--block-size 16", "--block-size is for block hashes; token ids are linked at 16 tokens"),
        ("linked", "--block-size 16", "--block-size is given, but a linked trace states its own resolution"),
        ("linked", "--chunk-tokens 1000", "chunks of 1000 tokens cannot be cut from blocks of 16; multiples of 16 are"),
        ("linked", "--chunk-tokens 8", "chunks of 8 tokens cannot be cut from blocks of 16; multiples of 16 are"),
        ("nameless", "", "row 0: no task id, so a pool cannot be formed; accepted: task_id or session_id on every row"),
        ("nameless", "--pool 4", "row 0: no task id, so a pool cannot be formed"),
        ("linked", "--gpu h1000", "unknown gpu 'h1000': close to h100, h800, h100-nvl; `capplan gpus` lists all"),
        ("linked", "--gpu a100", "gpu 'a100' is ambiguous: it begins a100-40, a100-40-pcie, a100-80, a100-80-pcie"),
        ("linked", "--gpu none.toml", "none.toml: cannot be read: No such file or directory"),
        ("linked", "--kv-dtype fp8_ds_mla", "kv_dtype 'fp8_ds_mla': accepted: bf16, fp16, fp8, nvfp4"),
        ("linked", "--model gpt-6", "unknown model 'gpt-6': `capplan models` lists all"),
        ("linked", "--model none.json", "none.json: cannot be read: No such file or directory"),
        (
            "linked",
            "--tp 3",
            "--tp 3: qwen3-coder-30b-a3b has 32 attention heads and 4 KV heads; a divisor is accepted",
        ),
        ("linked", "--gpu-kv-tokens 655", "the longest request needs 656 tokens of GPU KV, there is room for 640"),
        ("linked", "--gpu rtx3090 --tp 1", "the longest request needs 656 tokens of GPU KV, there is room for 0"),
    ],
)
def test_one_line_says_what_cannot_be_used(request, trace, arguments, message):
    gpu = [] if "--gpu " in arguments else ["--gpu", "h20"]
    assert message in refusal_of("predict", request.getfixturevalue(trace), *gpu, *arguments.split())


def test_block_size_that_contradicts_the_file(tmp_path):
    path = write_jsonl(tmp_path / "sized.jsonl", [{"hash_ids": [1, 2], "block_size": 16, "task_id": "a"}])
    assert refusal_of("predict", path, "--gpu", "h20", "--block-size", 32).startswith(
        f"{path}, line 1: block_size is 16"
    )
    assert invoke("predict", path, "--gpu", "h20", "--block-size", 16).exit_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory; a readable trace file or folder is needed"),
        (b"", "empty file; at least one request is needed"),
        (b"\n \n", "empty file; at least one request is needed"),
        (b"\x00\xff\xfe\n", "no known trace format (binary data that begins with 00 ff fe 0a)"),
        (b"hello\n", "line 1: neither Parquet nor JSON"),
        (b"PAR1 and nothing else", "not readable as Parquet"),
        (b"[1, 2]\n", "line 1: JSON list; one object per request or session is accepted"),
        (b'{"prompt": "hello"}\n', "no known trace format (json with fields prompt); accepted: capplan (prefix-linked"),
        (b'{"token_ids": [1, "a"]}\n', "line 1:"),
        (b'{"token_ids": [1]}\n{"token_ids": [', "line 2: not JSON"),
    ],
)
def test_one_line_says_which_trace_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "trace"
    if content is not None:
        path.write_bytes(content)
    line = refusal_of("predict", path, "--gpu", "h20")
    assert line.startswith(str(path))
    assert message in line


def test_a_folder_without_sessions(tmp_path):
    assert refusal_of("predict", tmp_path, "--gpu", "h20").startswith(f"{tmp_path}: no .json, .jsonl,")


def test_a_broken_profile(linked, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "h20"\nhbm_gib = "much"\n')
    assert refusal_of("predict", linked, "--gpu", path).startswith(f"{path}: hbm_gib: ")


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_a_folder_that_is_not_there(tokens, tmp_path, option):
    path = tmp_path / "absent" / "answer.png"
    line = refusal_of("predict", tokens, "--gpu", "h20", option, path)
    assert line == f"{path}: its folder does not exist; a writable path is needed"
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(linked, tmp_path, monkeypatch):
    def break_off(path, text, **_):
        path.write_bytes(text[:10].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", break_off)
    path = tmp_path / "answer"
    line = refusal_of("predict", linked, "--gpu", "h20", "-o", path)
    assert line == f"{path}: No space left on device; a writable path is needed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing option '--gpu'"),
        ("--gpu h20,", "Invalid value for '--gpu': 'h20,' holds an empty name"),
        ("--gpu h20 --pool 8 --order recorded", "--pool sets the pool order; it cannot go with --order recorded"),
        ("--gpu h20 --from parquet", "Invalid value for '--from': 'parquet' is not one of 'auto', 'capplan'"),
        ("--gpu h20 --gpu-kv-tokens 9 --gpu-kv-gib 1", "--gpu-kv-tokens and --gpu-kv-gib exclude each other"),
        ("--gpu h20 --gpu-kv-tokens 9 --no-gpu-tier", "--gpu-kv-tokens and --no-gpu-tier exclude each other"),
        ("--gpu h20 --gpu-kv-gib 9 --no-gpu-tier", "--gpu-kv-gib and --no-gpu-tier exclude each other"),
        ("--gpu h20 --dram-usd-per-gib 4", "--dram-usd-per-gib and --gpu-usd-per-hour go together"),
        ("--gpu h20 --gpu-usd-per-hour 2", "--dram-usd-per-gib and --gpu-usd-per-hour go together"),
        ("--gpu h20 --dram-usd-per-gib -1 --gpu-usd-per-hour 2", "Invalid value for '--dram-usd-per-gib'"),
        ("--gpu h20 --restore kernel --h2d-gbps 9", "--restore and --h2d-gbps exclude each other"),
        ("--gpu h20 --restore memcpy", "Invalid value for '--restore'"),
        ("--gpu h20 --engine tgi", "Invalid value for '--engine'"),
        ("--gpu h20 --kv-dtype fp4", "Invalid value for '--kv-dtype'"),
        ("--gpu h20 --host-gib 5,x", "'--host-gib': '5,x' is not a list of numbers such as 5,10,20"),
        ("--gpu h20 --host-gib 5,,6", "'--host-gib': '5,,6' is not a list of numbers such as 5,10,20"),
        ("--gpu h20 --host-gib -5", "'--host-gib': '-5' holds a number that is not from 0 to 1e+12"),
        ("--gpu h20 --host-gib nan", "'--host-gib': 'nan' holds a number that is not from 0 to 1e+12"),
        ("--gpu h20 --host-gib 1e308", "'--host-gib': '1e308' holds a number that is not from 0 to 1e+12"),
        ("--gpu h20 --warmup 1", "Invalid value for '--warmup'"),
        ("--gpu h20 --gpu-mem-util 1.1", "Invalid value for '--gpu-mem-util'"),
        ("--gpu h20 --plot curve.gif", "--plot curve.gif: a name ending in .png, .svg or .pdf is accepted"),
        ("--gpu h20 --format yaml", "Invalid value for '--format'"),
        ("--gpu h20 --ids raw", "Invalid value for '--ids'"),
        ("--gpu h20 -o .", "is a directory"),
        ("--gpu h20 --nothing", "No such option"),
    ],
)
def test_wrong_usage(linked, arguments, message):
    assert message in misuse_of("predict", linked, *arguments.split())


def test_plot_without_ending(linked):
    assert misuse_of("predict", linked, "--gpu", "h20", "--plot", "png").startswith("--plot png: a name ending in")


@pytest.mark.parametrize(
    "option",
    [
        "--warmup",
        "--gpu-mem-util",
        "--gpu-kv-gib",
        "--node-ram",
        "--prefill-tok-s",
        "--h2d-gbps",
        "--load-latency-ms",
        "--dram-usd-per-gib",
        "--gpu-usd-per-hour",
    ],
)
@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "1e-300"])
def test_numbers_arithmetic_cannot_stand(linked, option, value):
    assert f"Invalid value for '{option}'" in misuse_of("predict", linked, "--gpu", "h20", option, value)


@pytest.mark.parametrize(
    "option", ["--tp", "--pool", "--chunk-tokens", "--gpu-kv-tokens", "--host-copies", "--block-size"]
)
@pytest.mark.parametrize("value", ["0", "10000000000000000000000"])
def test_counts_out_of_range(linked, option, value):
    assert f"Invalid value for '{option}'" in misuse_of("predict", linked, "--gpu", "h20", option, value)


def test_missing_source():
    assert misuse_of("predict", "--gpu", "h20").startswith("Missing argument 'SOURCE...'")


def test_names_of_other_alphabets_reach_any_terminal(tmp_path):
    path = write_jsonl(tmp_path / "spur-größe.jsonl", token_rows())
    process = start("predict", path, "--gpu", "h20", env={"PYTHONIOENCODING": "ascii"})
    code, out, err = finish(process)
    assert (code, "Traceback" in err) == (0, False)
    assert out.startswith("NVIDIA H20 96 GB")
    assert read_trace(path).source == "spur-größe.jsonl"
