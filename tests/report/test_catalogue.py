import re

import pytest

from capplan.hardware import GpuSpec, list_gpus
from capplan.report.catalogue import render_gpus, render_models


def rows_of(text):
    """Cells of every row by its first cell."""
    lines = text.splitlines()
    body = lines[next(k for k, line in enumerate(lines) if line.startswith("──")) + 1 :]
    return {line.split()[0]: line.split()[1:] for line in body if line.strip()}


@pytest.mark.parametrize("render", [render_gpus, render_models])
def test_80_columns(render):
    text = render()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_every_gpu_is_listed():
    text = render_gpus()
    rows = rows_of(text)
    for gpu in list_gpus():
        if isinstance(gpu, GpuSpec):
            assert gpu.name in rows
        else:
            assert f"{gpu.name}: no usable {gpu.missing[0].split(':')[0]}" in re.sub(r"\s+", " ", text)
    required = {"rtx3090", "rtx4090", "l40s", "a100-80", "h20", "h800", "h100", "h200", "gh200-96", "b200"}
    assert required <= set(rows)


def test_numbers_of_a_gpu():
    rows = rows_of(render_gpus())
    assert rows["h20"] == ["96.0", "148", "296", "64.0", "52.0-54.9", "0.79-0.91"]
    assert rows["rtx3090"][:4] == ["24.0", "71.0", "none", "32.0"]
    assert rows["rtx3090"][4].startswith("~")


def test_numbers_of_the_models():
    rows = rows_of(render_models())
    required = {"qwen3-coder-30b-a3b", "qwen2.5-coder-32b", "qwen3-32b", "qwen3-235b-a22b", "llama-3.1-8b"}
    assert required | {"llama-3.1-70b", "deepseek-v3"} <= set(rows)
    assert rows["qwen3-coder-30b-a3b"][:7] == ["30.5", "3.35", "bf16", "98,304", "49,152", "24,576", "24,576"]
    assert rows["qwen2.5-coder-32b"][3:7] == ["262,144", "131,072", "65,536", "32,768"]
    assert rows["deepseek-v3"][2:7] == ["fp8", "70,272", "70,272", "70,272", "70,272"]
