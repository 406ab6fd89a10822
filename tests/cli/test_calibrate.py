"""`capplan calibrate`: from measured runs to a profile that predictions use."""

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import invoke, misuse_of, notes_of, refusal_of

from capplan.calibration.cells import COLUMNS
from capplan.calibration.pipeline import HOLDABLE
from capplan.cli import calibrate as module
from capplan.hardware import load_gpu

DATA = Path(__file__).parents[2] / "data" / "published"
PUBLISHED = DATA / "h20_replay.csv"
DEPLOYED = ("--gpu", "h20", "--model", "qwen3-coder-30b-a3b", "--tp", "8")


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "my-gpu.toml"
    result = invoke("calibrate", PUBLISHED, *DEPLOYED, "-o", path)
    assert result.exit_code == 0
    assert notes_of(result) == [f"capplan: wrote {path}; use it with --gpu"]
    return path


def test_the_published_table_is_predicted():
    result = invoke("calibrate", PUBLISHED, *DEPLOYED)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "67.9 us per avoided token" in result.stdout
    assert "no interval: 2 runs for 2 fitted parameters; 3 runs would give one" in result.stdout
    shown = {line.split()[1]: line.split()[2:5] for line in result.stdout.splitlines() if re.match(r"\d+ +\w+@", line)}
    assert shown == {
        "none@5": ["fit", "208.9", "208.9"],
        "none@20": ["fit", "128.1", "128.1"],
        "none@40": ["check", "124.0", "128.1"],
        "fixed@5": ["check", "186.0", "177.4"],
        "fixed@40": ["check", "162.0", "147.9"],
        "conditioned@5": ["check", "187.0", "178.3"],
    }


def test_readme_of_the_published_data_shows_what_the_command_prints(monkeypatch, tmp_path):
    text = (DATA / "README.md").read_text(encoding="utf-8")
    command, expected = re.search(r"```console\n\$ capplan (.*?)\n(.*?)```", text, re.DOTALL).groups()
    shutil.copytree(DATA, tmp_path / "data" / "published")
    monkeypatch.chdir(tmp_path)
    result = invoke(*command.split())
    assert result.exit_code == 0
    assert result.stdout == expected


def test_without_an_output_the_profile_is_shown(profile):
    text = invoke("calibrate", PUBLISHED, *DEPLOYED).stdout
    assert text.endswith(f"Profile (-o FILE.toml writes it):\n\n{profile.read_text(encoding='utf-8')}")


def test_with_an_output_only_the_report_is_shown(profile):
    text = invoke("calibrate", PUBLISHED, *DEPLOYED, "-o", profile).stdout
    assert "[[measured]]" not in text
    assert "67.9 us per avoided token" in text


def test_the_profile_is_what_predictions_use(profile, linked):
    """A profile of another slope changes the prediction, whose assumptions name the point."""
    (point,) = load_gpu(str(profile)).measured_for("qwen3-coder-30b-a3b", 8)
    text = profile.read_text(encoding="utf-8")
    profile.write_text(text.replace(f"us_per_token = {point.us_per_token}", "us_per_token = 99.5"), encoding="utf-8")
    predicted = ("predict", linked, "--model", "qwen3-coder-30b-a3b", "--tp", "8", "--format", "json", "--gpu")
    seconds = {}
    for gpu in ("h20", profile):
        result = invoke(*predicted, gpu)
        assert result.exit_code == 0
        seconds[str(gpu)] = json.loads(result.stdout)["predictions"][0]["inputs"]["prefill_s_per_restorable_token"]
    assert seconds[str(profile)]["typical"] == pytest.approx(99.5e-6)
    assert seconds["h20"] != seconds[str(profile)]


def test_json():
    answer = json.loads(invoke("calibrate", PUBLISHED, *DEPLOYED, "--format", "json").stdout)
    assert (answer["format"], answer["gpu"], answer["tp"]) == (1, "h20", 8)


def test_fit_rows_and_hold():
    labels = "none@5,none@20,fixed@5,fixed@40"
    text = invoke("calibrate", PUBLISHED, *DEPLOYED, "--fit-rows", labels, "--hold", "restore,write").stdout
    assert "Runs: 4 of 6 rows fitted" in text
    assert "poor fit" not in text


def test_output_replaces_an_earlier_profile_and_leaves_nothing_else(profile):
    before = profile.read_bytes()
    profile.write_text("old", encoding="utf-8")
    assert invoke("calibrate", PUBLISHED, *DEPLOYED, "-o", profile).exit_code == 0
    assert profile.read_bytes() == before
    assert [path.name for path in profile.parent.iterdir()] == [profile.name]


def test_a_refusal_writes_nothing(tmp_path):
    (tmp_path / "m.csv").write_text("speed\n1\n", encoding="utf-8")
    line = refusal_of("calibrate", tmp_path / "m.csv", *DEPLOYED, "-o", tmp_path / "my.toml")
    assert line == f"{tmp_path / 'm.csv'}: header: unknown column 'speed'; accepted: {', '.join(COLUMNS)}"
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]


def test_output_that_cannot_be_written(tmp_path):
    out = tmp_path / "absent" / "my.toml"
    line = refusal_of("calibrate", PUBLISHED, *DEPLOYED, "-o", out)
    assert line == f"{out}: No such file or directory; a writable path is needed"


def test_misuse(tmp_path):
    measured = tmp_path / "m.toml"
    shutil.copy(PUBLISHED, measured)
    content = measured.read_bytes()
    link = tmp_path / "link.toml"
    link.symlink_to(measured)
    for out in (measured, link):
        line = misuse_of("calibrate", measured, *DEPLOYED, "-o", out)
        assert line == f"-o {out}: that file holds the measurements; another name is accepted"
    assert measured.read_bytes() == content
    line = misuse_of("calibrate", PUBLISHED, *DEPLOYED, "-o", "my-gpu")
    assert line == "-o my-gpu: a name ending in .toml is accepted, as --gpu reads it"
    line = misuse_of("calibrate", PUBLISHED, *DEPLOYED, "--hold", "floor")
    assert line == "--hold floor: accepted: prefill, restore, load, write"
    assert misuse_of("calibrate", PUBLISHED) == "Missing option '--gpu'."


def test_help_documents_every_column():
    text = invoke("calibrate", "--help").stdout
    for column in COLUMNS:
        assert re.search(rf"^    {column}  ", text, re.MULTILINE), column


def test_what_may_be_held_is_listed_once_more_without_imports():
    assert module.HOLDABLE == HOLDABLE
