"""The commands of the README and the page of formats run and print what is shown; the Python example works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FORMATS_PAGE = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
SETUP = ("python3 -m venv", "pip install")


def find_commands(text):
    """(command, expected lines) of every console block; an expected "..." stands for any lines."""
    commands = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
    return [(command, expected) for command, expected in commands if not command.startswith(SETUP)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place with the bundled data, where commands may write."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "data", place / "data")
    return place


@pytest.mark.parametrize(
    ("command", "expected"), find_commands(README) + find_commands(FORMATS_PAGE), ids=lambda value: str(value)[:60]
)
def test_command_of_a_page(command, expected, folder):
    name, *arguments = command.split()
    assert name == "capplan"
    result = subprocess.run(
        [sys.executable, "-m", "capplan", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    shown = result.stdout.splitlines()
    if expected and expected[-1] == "...":
        assert shown[: len(expected) - 1] == expected[:-1]
        assert len(shown) >= len(expected)
    else:
        assert shown == expected


def test_readme_python_example(folder):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    result = subprocess.run([sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"[a-zA-Z ]+ \d+\.\d+\n\d+ \d+\n", result.stdout)


def test_readme_shows_the_answer_in_its_first_30_lines():
    head = README.splitlines()[:30]
    assert any(line.startswith("$ capplan predict") for line in head)
    assert any(line.startswith("![") for line in head)


def test_every_format_and_every_choice_of_reading_stands_on_its_page():
    from capplan.cli.options import FORMATS

    for name in FORMATS:
        assert f"`{name}`" in FORMATS_PAGE
    for option in ("--from", "--ids content", "--lengths ids", "--namespace", "--tokenizer", "--assume-prefix"):
        assert f"`{option}" in FORMATS_PAGE or f" {option}" in FORMATS_PAGE


def test_links_of_the_documents_lead_somewhere():
    for document in (ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "data/synthetic/README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_published_anchors_stand_in_the_readme_as_the_tool_computes_them():
    from capplan import Options, predict
    from capplan.deployment import GpuRoom

    options = Options(tp=8, pool_size=16, host_gib=(5.0, 20.0, 40.0, 80.0), room=GpuRoom(kv_tokens=300_000))
    plan = predict(ROOT / "data/synthetic/coding_agents.parquet", "h20", options=options)
    computed = " | ".join(f"{row.computed_tokens / 1e6:.2f}" for row in plan.answers[0].rows)
    assert f"| predicted on the bundled trace | {computed} |" in README


def test_picture_of_the_readme_is_the_current_one(folder):
    picture = ROOT / "docs/images/coding_agents_h20.png"
    assert picture.exists()
    if os.environ.get("NUMBA_DISABLE_JIT") != "1":
        arguments = ["predict", "data/synthetic/coding_agents.parquet", "--gpu", "h20", "--plot", "again.png"]
        subprocess.run([sys.executable, "-m", "capplan", *arguments], cwd=folder, capture_output=True, check=True)
        import matplotlib.image

        again, shown = (matplotlib.image.imread(path) for path in (folder / "again.png", picture))
        assert again.shape == shown.shape
        assert abs(again - shown).mean() < 0.01
