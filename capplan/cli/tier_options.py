"""Options of the simulated tier, and the settings they come to."""

from typing import TYPE_CHECKING, Any

import click

from capplan.cli import options as opt

if TYPE_CHECKING:
    from capplan.simulation.presets import TierPreset
    from capplan.simulation.rules import AdmissionRule
    from capplan.simulation.settings import TierSettings

TIER = (
    click.option("--unit-tokens", type=opt.TOKENS, help="Tokens the tier stores as one. Default: the preset's."),
    click.option(
        "--policy",
        type=click.Choice(["lru", "fifo", "lfu", "mru", "arc", "belady"]),
        help="What it evicts; belady knows the future and bypasses. Default: the preset's.",
    ),
    click.option(
        "--admission",
        "rule",
        type=click.Choice(["none", "fixed", "conditioned"]),
        help="Rule of write admission. Default: the preset's.",
    ),
    click.option(
        "--kappa", type=opt.Number(min=0), help="New units a request may write under the rule. Default: the preset's."
    ),
    click.option(
        "--theta",
        type=opt.Number(0, 1),
        help="Share of its room from which on a tier is full (conditioned). Default: 0.95.",
    ),
    click.option(
        "--window-s",
        type=opt.POSITIVE,
        help="Seconds that tasks and evictions count (conditioned). Default: 60.",
    ),
    click.option(
        "--report-period-s",
        type=opt.Number(min=0),
        help="How often the tier reports; 0 at every moment (conditioned). Default: 1.",
    ),
    click.option(
        "--step-tokens",
        type=click.IntRange(0, (1 << 31) - 1),
        default=0,
        show_default=True,
        help="Tokens of a prefill step, each of which stores; 0: a prompt is stored in one call.",
    ),
    click.option(
        "--store-threshold",
        "min_offers",
        type=click.IntRange(0, 1_000_000),
        help="Offers of a unit from which on it is stored (vllm-offload). Default: the preset's.",
    ),
    click.option(
        "--stores",
        type=click.Choice(["prompts", "prompts and outputs"]),
        help="What it stores. Default: the preset's.",
    ),
    click.option(
        "--touch-order",
        type=click.Choice(["tail-first", "head-first"]),
        help="Which end of a prompt a touch leaves older. Default: the preset's.",
    ),
    click.option(
        "--insert-order",
        type=click.Choice(["tail-first", "head-first"]),
        help="Which end of a store becomes older. Default: the preset's.",
    ),
)
OF_TIER = {
    "unit_tokens": "--unit-tokens", "policy": "--policy", "rule": "--admission", "kappa": "--kappa",
    "theta": "--theta", "window_s": "--window-s", "report_period_s": "--report-period-s",
    "step_tokens": "--step-tokens", "min_offers": "--store-threshold", "stores": "--stores",
    "touch_order": "--touch-order", "insert_order": "--insert-order",
}  # fmt: skip
OF_CURVE = {"chunk_tokens": "--chunk-tokens", "touch": "--touch", "distance": "--distance"}
# Constants of a rule, and the rules that have them.
CONSTANTS = {
    "kappa": ("fixed", "conditioned"),
    "theta": ("conditioned",),
    "window_s": ("conditioned",),
    "report_period_s": ("conditioned",),
}


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether an option was typed rather than left at its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def check_tier(ctx: click.Context, given: dict[str, Any]) -> None:
    """Refuse options of the simulated tier without one, and options of the curve beside it; exit code 2."""
    has_tier = given["tier"] is not None
    typed = [spelled for name, spelled in (OF_CURVE if has_tier else OF_TIER).items() if is_given(ctx, name)]
    if typed and has_tier:
        raise click.UsageError(f"{', '.join(typed)}: for the one-pass curve only; --tier has rules of its own")
    if typed:
        raise click.UsageError(f"{', '.join(typed)}: for a simulated tier only; --tier names one")


def read_tier(given: dict[str, Any]) -> "TierSettings":
    """A preset with what was set of it.

    Raises
    ------
    SpecError
        An unknown preset, or something set that it does not have.
    """
    from capplan.simulation.presets import load_preset
    from capplan.simulation.settings import TierSettings

    preset = load_preset(given["tier"])
    refuse_idle(preset, given)
    settings = TierSettings.of(preset)
    return settings.change(
        unit_tokens=given["unit_tokens"],
        policy=given["policy"],
        rule=read_rule(settings.rule, given),
        step_tokens=given["step_tokens"],
        min_offers=given["min_offers"],
        stores=given["stores"],
        touch_order=given["touch_order"],
        insert_order=given["insert_order"],
    )


def refuse_idle(preset: "TierPreset", given: dict[str, Any]) -> None:
    """Refuse what a tier would not look at.

    Raises
    ------
    SpecError
        Prefill steps of a tier that stores in other moments, or a limit on writes beside Belady's policy.
    """
    from capplan.errors import SpecError

    if preset.kind == "gpu" and given["host_gib"]:
        raise SpecError(f"tier {preset.name} has no host memory; accepted: no --host-gib")
    if given["step_tokens"] and preset.kind != "inclusive":
        raise SpecError(f"tier {preset.name} does not store by prefill steps; accepted: --step-tokens 0")
    if given["policy"] != "belady":
        return
    limits = [OF_TIER["rule"]] if given["rule"] not in (None, "none") else []
    limits += [OF_TIER[name] for name in ("step_tokens", "min_offers") if given[name]]
    if limits:
        raise SpecError(f"--policy belady chooses what to store itself; accepted: no {', '.join(limits)}")


def read_rule(rule: "AdmissionRule", given: dict[str, Any]) -> "AdmissionRule":
    """A preset's rule of write admission with what was set of it; Belady's policy needs none.

    Raises
    ------
    SpecError
        A constant the rule does not have.
    """
    from dataclasses import replace

    from capplan.errors import SpecError

    kind = given["rule"] or ("none" if given["policy"] == "belady" else rule.kind)
    constants = {name: given[name] for name in CONSTANTS if given[name] is not None}
    for name in constants:
        if kind not in CONSTANTS[name]:
            accepted = " or ".join(f"--admission {one}" for one in CONSTANTS[name])
            raise SpecError(f"{OF_TIER[name]}: write admission is '{kind}'; accepted with it: {accepted}")
    return replace(rule, kind=kind, **constants)
