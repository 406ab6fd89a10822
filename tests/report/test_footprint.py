import json
import re

import pytest

from capplan.footprint import choose_tps, measure_footprints
from capplan.models import list_models, load_model
from capplan.report.footprint import describe_attention, render

MODELS = list_models()


def shown(name, format="table", tp=None, kv_dtypes=(), chunk=1024, context=100_000):
    model = load_model(name)
    footprints = measure_footprints(model, choose_tps(model, tp), kv_dtypes, chunk, context)
    return render(footprints, chunk, context, format)


def rows_of(text):
    """Cells of every row, a type of KV being one cell."""
    return [re.split(r"\s{2,}", line) for line in text.splitlines() if re.match(r"(bf16|fp16|fp8|nvfp4)", line)]


@pytest.mark.parametrize("model", MODELS, ids=[model.name for model in MODELS])
def test_80_columns(model):
    text = shown(model.name)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_rows():
    assert rows_of(shown("qwen3-coder-30b-a3b", tp=8)) == [
        ["bf16, fp16", "8", "24,576", "384", "24.0", "2.29", "18.3", "8", "18.3"],
        ["fp8", "8", "12,288", "192", "12.0", "1.14", "9.16", "8", "9.16"],
        ["nvfp4", "8", "6,912", "108", "6.75", "0.644", "5.15", "8", "5.15"],
    ]


def test_types_that_weigh_the_same_share_a_row():
    rows = rows_of(shown("deepseek-v3.2"))
    assert [row[:3] for row in rows] == [
        *(["bf16, fp16", str(tp), "78,324"] for tp in (1, 2, 4, 8)),
        *(["fp8, fp8_ds_mla", str(tp), "48,068"] for tp in (1, 2, 4, 8)),
    ]


def test_windowed_layers_have_a_second_table():
    text = shown("gpt-oss-120b", tp=1, kv_dtypes=("bf16",))
    assert [row[2] for row in rows_of(text)] == ["73,728", "36,864"]
    words = " ".join(text.split())
    assert "The same where the engine drops what lies before a window (vLLM from 0.26 on)" in words
    assert "- approximate: gpt-oss-120b: 18 of 36 attention layers" in words


def test_notes():
    plain = " ".join(shown("qwen3-8b", chunk=256, context=32_000).split())
    assert "a token, a block of 16, a chunk of 256 and a context of 32,000 tokens" in plain
    assert "approximate" not in plain
    assert "unconfirmed" not in plain
    states = " ".join(shown("qwen3.5-27b", tp=2).split())
    assert "states per rank and stored boundary: 76,972,032 B at TP2; a chunk and a context end with one" in states
    assert "- approximate: " in states
    assert "- unconfirmed: the dimensions were not seen in the published config" in shown("glm-4.6")
    assert "- beside an index, engines keep fp8 latents as fp8_ds_mla" in shown("glm-5")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama-3.1-8b", "32 full-attention layers (8 KV heads of 128)"),
        (
            "gpt-oss-20b",
            "12 sliding-window layers (8 KV heads of 64, 128 tokens), 12 full-attention layers (8 KV heads of 64)",
        ),
        (
            "mimo-v2-flash",
            "9 full-attention layers (4 KV heads of 192 + 128), "
            "39 sliding-window layers (8 KV heads of 192 + 128, 128 tokens)",
        ),
        (
            "llama-4-scout",
            "36 chunked-attention layers (8 KV heads of 128, 8,192 tokens), "
            "12 full-attention layers (8 KV heads of 128)",
        ),
        ("nemotron-3-nano", "23 Mamba2 layers, 6 full-attention layers (2 KV heads of 128)"),
        ("qwen3-next", "36 linear-attention layers, 12 full-attention layers (2 KV heads of 256)"),
        ("kimi-k2", "61 layers of a 576-number latent (MLA)"),
        ("glm-5", "78 layers of a 576-number latent (MLA), 78 of them with an index"),
    ],
)
def test_attention_in_words(name, words):
    assert describe_attention(load_model(name)) == words


def test_json():
    text = shown("qwen3-next-80b-a3b", "json", tp=4, kv_dtypes=("fp8",))
    assert text.startswith('{\n "format": 1,')
    assert text.endswith("}\n")
    record = json.loads(text)
    approximation = load_model("qwen3-next-80b-a3b").approximation
    assert record == {
        "format": 1,
        "model": "qwen3-next-80b-a3b",
        "title": "Qwen3-Next-80B-A3B and Qwen3-Coder-Next",
        "approximation": approximation,
        "unconfirmed": False,
        "block_tokens": 16,
        "chunk_tokens": 1024,
        "context_tokens": 100_000,
        "footprints": [
            {
                "layout": "all layers",
                "kv_dtype": "fp8",
                "tp": 4,
                "token_bytes_per_rank": 6144,
                "block_bytes_per_rank": 98_304,
                "chunk_bytes_per_rank": 6_291_456 + 19_316_736,
                "context_bytes_per_rank": 614_400_000 + 19_316_736,
                "state_bytes_per_rank": 19_316_736,
                "context_bytes_all_ranks": 4 * 633_716_736,
                "host_copies_per_node": 4,
                "chunk_bytes_per_node_host": 4 * 25_608_192,
                "context_bytes_per_node_host": 4 * 633_716_736,
            }
        ],
    }


def test_json_lists_every_type_and_is_the_same_each_time():
    record = json.loads(shown("glm-5", "json"))
    dtypes = [(each["kv_dtype"], each["tp"]) for each in record["footprints"]]
    assert dtypes == [(dtype, tp) for dtype in ("bf16", "fp16", "fp8", "fp8_ds_mla") for tp in (1, 2, 4, 8)]
    assert shown("glm-5", "json") == shown("glm-5", "json")


def test_unknown_format():
    with pytest.raises(ValueError, match=r"^format is 'csv'; accepted: table, json$"):
        shown("qwen3-8b", "csv")
