"""The page of tiers says of every preset what its file says; the pages of JSON and admission name every key."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plans import agent_trace
from test_docs import find_commands

from capplan import Options, predict, write_trace
from capplan.deployment import GpuRoom
from capplan.pipeline import compare_admission
from capplan.report import admission, render, tier
from capplan.report.decision_log import log_decisions
from capplan.simulation.presets import TierPreset, list_presets, load_preset
from capplan.simulation.settings import TierSettings

ROOT = Path(__file__).parent.parent
TIERS_PAGE = (ROOT / "docs/tiers.md").read_text(encoding="utf-8")
ADMISSION_PAGE = (ROOT / "docs/admission.md").read_text(encoding="utf-8")
JSON_PAGE = (ROOT / "docs/json.md").read_text(encoding="utf-8")
MODEL_PAGE = (ROOT / "docs/model.md").read_text(encoding="utf-8")
HEADINGS = (
    "preset", "unit", "lookup from; refreshes", "stores; from", "older end: looked up, stored", "resident", "no room",
    "policy (others)", "also",
)  # fmt: skip


def list_specials(preset):
    """Rules that few presets have."""
    found = []
    if preset.admission != "none":
        found.append(f"{preset.admission}, kappa {preset.kappa}")
    if preset.settles != "none":
        found.append(
            {"used": "what is loaded or offered is refreshed", "path": "each store refreshes the path"}[preset.settles]
        )
    if preset.counts_offers:
        found.append("can store from a later offer on")
    if preset.retries:
        found.append("a refused store is offered again, longer")
    if preset.protects_offer:
        found.append("a store cannot evict what it offers")
    if preset.watermark < 1:
        when = f"every {preset.evict_period_s:g} s" if preset.evict_period_s else "after a store"
        found.append(f"drops {100 * preset.evict_fraction:g} % where {100 * preset.watermark:g} % is filled, {when}")
    if preset.kind == "radix":
        found.append("copied at eviction" if preset.write_back else f"copied at insertion {preset.min_offers}")
    if preset.min_load_tokens:
        found.append(f"loads {preset.min_load_tokens} tokens or more")
    if preset.full_hit == "unit":
        found.append("a whole hit computes its last unit")
    return "; ".join(found) or "-"


def describe(preset):
    """A preset as a row of the table."""
    other = [policy for policy in preset.policies if policy != preset.policy]
    host = preset.kind != "gpu"
    cells = (
        f"`{preset.name}`",
        f"{preset.unit_tokens:,}",
        f"{preset.lookup_from}; {preset.touch}" if host else "-",
        f"{preset.stores}; {preset.store_from}" if preset.kind in ("prefix", "inclusive") else preset.stores,
        f"{preset.touch_order.split('-')[0]}, {preset.insert_order.split('-')[0]}",
        ("left out" if preset.dedup else "stored again") if host else "-",
        preset.overflow if preset.kind in ("inclusive", "radix") else "-",
        f"{preset.policy} ({', '.join(other)})" if other else preset.policy,
        list_specials(preset),
    )
    return f"| {' | '.join(cells)} |"


def unfolded(text):
    return " ".join(text.split())


def section_of(name):
    """What stands under a preset's own heading."""
    (text,) = re.findall(rf"^### `{re.escape(name)}`\n(.*?)(?=^###? |\Z)", TIERS_PAGE, re.DOTALL | re.MULTILINE)
    return unfolded(text)


def test_table_has_every_preset_as_its_file_has_it():
    rows = [line for line in TIERS_PAGE.splitlines() if line.startswith("| `")]
    assert rows == [describe(preset) for preset in list_presets()]
    assert f"| {' | '.join(HEADINGS)} |" in TIERS_PAGE


@pytest.mark.parametrize("name", [preset.name for preset in list_presets()])
def test_page_says_what_a_preset_leaves_out(name):
    preset, text = load_preset(name), section_of(name)
    assert f"{preset.title} ({preset.version})" in text
    for words in (preset.description, *preset.missing, *preset.unsure):
        assert unfolded(words) in text
    for alias in preset.aliases:
        assert f"`{alias}`" in text
    assert text.count("Not modelled:") == len(preset.missing)
    assert text.count("Not confirmed:") == len(preset.unsure)


def test_every_rule_of_a_preset_is_in_the_table_or_about_its_source():
    shown = {
        "name", "unit_tokens", "lookup_from", "touch", "settles", "touch_order", "insert_order", "stores", "store_from",
        "dedup", "overflow", "protects_offer", "retries", "counts_offers", "policy", "policies", "watermark",
        "evict_fraction", "evict_period_s", "min_offers", "min_load_tokens", "full_hit", "write_back", "admission",
        "kappa", "kind",
    }  # fmt: skip
    of_page = {"title", "version", "description", "missing", "unsure", "aliases", "source", "engine"}
    in_words = {"align_bytes", "tracked_offers", "counts_own_finish", "returns_tails_first"}
    assert set(TierPreset.__struct_fields__) == shown | of_page | in_words
    for words in ("4,096 bytes", "64,000"):
        assert words in TIERS_PAGE


TRACE = agent_trace(4, 4)
OPTIONS = {"room": GpuRoom(kv_tokens=672), "host_gib": (0.05,)}


def keys_of(value):
    """Every key of a JSON value but those of inputs, trace and order, which another section lists."""
    if isinstance(value, dict):
        nested = (keys_of(item) for key, item in value.items() if key not in ("inputs", "trace", "order"))
        return (set(value) - {"format"}).union(*nested)
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def part_of(heading):
    """A part of the JSON page, from its heading to the next."""
    (text,) = re.findall(rf"^# {re.escape(heading)}\n(.*?)(?=^# |\Z)", JSON_PAGE, re.DOTALL | re.MULTILINE)
    return set(re.findall(r"`([a-z_0-9]+)`", text))


def test_keys_of_simulate_stand_on_the_page():
    settings = TierSettings.of(load_preset("efficientagent")).change(unit_tokens=64)
    record = json.loads(tier.render(predict(TRACE, options=Options(**OPTIONS, tier=settings)), "json"))
    curve = json.loads(render(predict(TRACE, options=Options(**OPTIONS)), "json"))
    named = part_of("The JSON of `capplan simulate`")
    assert keys_of(record) - set(curve["predictions"][0]["rows"][0]) <= named


def test_keys_of_admission_and_columns_of_its_log_stand_on_the_page():
    settings = TierSettings.of(load_preset("efficientagent")).change(unit_tokens=64)
    study = compare_admission(TRACE, ["h20"], "qwen3-coder-30b-a3b", Options(**OPTIONS, tier=settings), kappas=(2,))
    record = json.loads(admission.render(study, "json"))
    named = part_of("The JSON of `capplan admission`")
    settings_keys = part_of("The JSON of `capplan simulate`")
    assert keys_of(record) - settings_keys <= named
    assert set(log_decisions(study).columns) <= part_of("The log of `capplan admission --log`")


@pytest.mark.parametrize("section", ["1", "2", "3", "4", "5", "6"])
def test_sections_that_docstrings_cite_are_there(section):
    assert f"\n## {section}. " in MODEL_PAGE
    cited = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "capplan").rglob("*.py"))
    assert f"docs/model.md section {section}" in cited


def test_commands_of_the_page_of_tiers_run(tmp_path):
    write_trace(TRACE, tmp_path / "trace.parquet")
    commands = find_commands(TIERS_PAGE)
    assert len(commands) >= 3
    for command, _ in commands:
        result = run(command, tmp_path)
        assert result.returncode == 0, result.stderr


def test_study_of_the_page_of_admission_is_what_the_command_prints():
    ((command, expected),) = find_commands(ADMISSION_PAGE)
    result = run(command, ROOT)
    assert result.returncode == 0, result.stderr
    assert expected[-1] == "..."
    assert result.stdout.splitlines()[: len(expected) - 1] == expected[:-1]


def run(command, folder):
    """A `capplan ...` line of a page."""
    name, *arguments = command.split()
    assert name == "capplan"
    asked = [sys.executable, "-m", "capplan", *arguments]
    return subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
