"""`capplan tiers`: the catalogue of tiers that can be simulated."""

import pytest
from commands import finish, invoke, misuse_of, refusal_of, start

from capplan.report.tier_catalogue import render_tier, render_tiers
from capplan.simulation.presets import list_presets


def test_catalogue():
    result = invoke("tiers")
    assert (result.exit_code, result.stdout, result.stderr) == (0, render_tiers(), "")


@pytest.mark.parametrize("name", [preset.name for preset in list_presets()])
def test_one_tier(name):
    result = invoke("tiers", name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, render_tier(name), "")


def test_aliases_name_a_tier():
    aliases = {alias: preset.name for preset in list_presets() for alias in preset.aliases}
    assert len(aliases) >= 5
    for alias, name in aliases.items():
        assert invoke("tiers", alias).stdout == render_tier(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "unknown tier 'nope': `capplan tiers` lists all"),
        ("mooncake-stor", "unknown tier 'mooncake-stor': close to mooncake-store; `capplan tiers` lists all"),
        ("lm", "tier 'lm' is ambiguous: it begins lmcache, lmcache-mp, lmcache-paper"),
    ],
)
def test_unknown_names(name, message):
    assert refusal_of("tiers", name) == message


def test_takes_one_name():
    assert misuse_of("tiers", "lmcache", "vllm") == "Got unexpected extra argument (vllm)"


def test_needs_no_engine():
    code = "import sys\nfrom capplan.__main__ import main\ntry:\n    main()\nfinally:\n    print(*[name for name in " \
        "('numba', 'polars', 'matplotlib') if name in sys.modules], file=sys.stderr)"  # fmt: skip
    status, out, err = finish(start("tiers", "lmcache", code=code))
    assert (status, out, err.strip()) == (0, render_tier("lmcache"), "")
