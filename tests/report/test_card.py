"""The size card as lines and as JSON."""

import json

import pytest

from capplan.card import place_card
from capplan.report.card import describe_card, list_card_lines, render_card

ALL = ("lmcache", "lmcache-mp", "vllm", "vllm-0.13", "sglang", "sglang-0.5.6", "kvbm", "trtllm", "mooncake")


def make(model="qwen3-coder-30b-a3b", gib=20, engine=("lmcache", "lmcache-mp", "vllm"), **options):
    return place_card(gib, "h200", model, 8, gpu_kv_tokens=300_000, engine=engine, **options)


def test_lines():
    lines = list_card_lines(make(node_ram_gib=200), 80, "asked for: 20 GiB per rank")
    end = lines.index("LMCache in-process 0.3.12", 12)
    assert lines[:end] == [
        "Size card: Qwen3-Coder-30B-A3B, NVIDIA H200 141 GB SXM, TP8, bf16 KV",
        "  853 chunks of 1,024 tokens, 24 MiB each per rank: 19.99 GiB",
        "  asked for: 20 GiB per rank",
        "  warning: LMCache MP server 0.5.6, l1_size_gb: 250.0 GiB per node: over",
        "  --node-ram 200.0 GiB by 50.0 GiB",
        "",
        "                                  chunks  GiB per  GiB per",
        "type                                held     rank     node",
        "──────────────────────────────────────────────────────────",
        "LMCache in-process 0.3.12",
        "  max_local_cpu_size: 20.0           853    20.00    160.0",
        "LMCache MP server 0.5.6",
        "  --l1-size-gb 250                   853    31.25    250.0",
        "vLLM native offload 0.26 to 0.33",
        "  --kv-offloading-size 160           853    20.00    160.0",
        "",
    ]
    assert lines[end : end + 5] == [
        "LMCache in-process 0.3.12",
        "- max_local_cpu_size: GiB per rank",
        "- beside it: chunk_size: 1024, LMCACHE_CHUNK_SIZE=1024,",
        "  LMCACHE_MAX_LOCAL_CPU_SIZE=20.0",
        "- the same number goes to every rank, so a node holds it once per rank; the",
    ]


@pytest.mark.parametrize("model", ["qwen3-coder-30b-a3b", "deepseek-v3", "deepseek-v3.2", "gpt-oss-120b", "qwen3-32b"])
@pytest.mark.parametrize("gib", [0.5, 20, 3000])
def test_lines_stay_within_80_columns(model, gib):
    lines = list_card_lines(make(model, gib, ALL, node_ram_gib=10), 80, "recommended: because of a test " * 4)
    assert max(map(len, lines)) <= 80
    assert not any(line != line.rstrip() for line in lines)


def test_pair_that_does_not_work_has_a_row_and_a_reason():
    text = render_card(make("qwen3-next-80b-a3b", engine=("lmcache", "vllm", "trtllm")))
    assert "LMCache in-process 0.3.12: does not work\nvLLM native offload 0.26 to 0.33 (approximate)\n" in text
    assert "\n- does not work with this model: its connector needs one KV group, and vLLM\n" in text
    assert "TensorRT-LLM host cache 1.x (unproven)\n  host_cache_size: " in text
    assert "\n- unproven with this model: such layers are kept" in text
    assert "max_local_cpu_size" not in text


def test_range_of_what_is_held_is_spoken_of():
    text = render_card(make())
    assert "\n- l1_size_gb: GiB per server, all ranks of its node; 853 to 1,066 chunks as it\n  evicts\n" in text
    assert text.count("as it\n  evicts") == 1


def test_reserve_is_spoken_of():
    assert "\n- 10.00 GiB of host memory on top stay free\n" in render_card(make(engine="sglang"))


def test_json_holds_every_number_and_source():
    card = make(engine=ALL)
    record = json.loads(render_card(card, "json", "asked for"))
    assert list(record) == ["format", "basis", "card"]
    assert (record["format"], record["basis"]) == (1, "asked for")
    assert record["card"] == json.loads(json.dumps(describe_card(card)))
    assert record["card"]["slots"] == 853
    by_name = {engine["name"]: engine for engine in record["card"]["engines"]}
    (setting,) = by_name["lmcache"]["settings"]
    assert setting["value"] == 20.0
    assert setting["node_bytes"] == 160 * 2**30
    assert "LMCache 0.3.12" in setting["source"]
    assert render_card(card, "json") == render_card(make(engine=ALL), "json")


def test_no_card():
    why = "no host tier is recommended: fits in GPU memory: nothing to gain"
    assert render_card(None, "table", why) == (
        f"No size card\n  {why}\n  --host-gib N with --tp prints the card of a capacity all the same\n"
    )
    assert json.loads(render_card(None, "json", why)) == {"format": 1, "basis": why, "card": None}


def test_unknown_format():
    with pytest.raises(ValueError, match=r"^format is 'csv'; accepted: table, json$"):
        render_card(None, "csv")
