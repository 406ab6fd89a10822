"""Candidates: every way to limit writes that a study compares, and which of them can be set."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from capplan.errors import SpecError
from capplan.simulation.presets import list_presets, load_preset
from capplan.simulation.settings import TierSettings

NO_RULE = "no rule"
DEDUP = f"{NO_RULE}, dedup"
PROMPTS_ONLY = "prompts only"
# Tasks from which on a conditioned rule can see pressure: its estimate counts the other ones.
LEAST_TASKS = 2


class Candidate(NamedTuple):
    """A way to limit writes: what it is called, the tier it makes, and whether it can be set at all.

    What no setting of the engine does shows an effect, and is never advised.
    """

    label: str
    settings: TierSettings
    is_setting: bool = True


def list_candidates(
    base: TierSettings,
    kappas: Sequence[float],
    thetas: Sequence[float],
    thresholds: Sequence[int],
    n_tasks: int = LEAST_TASKS,
) -> tuple[Candidate, ...]:
    """The tier as released, what else its connector changes, then every rule.

    A connector that leaves resident units out of a store does so under every rule, and not without one: that
    effect gets a row of its own. Thresholds are those of an engine that has one, and left out of others.
    With fewer than two tasks conditioned rules are left out: they would never decline.

    Raises
    ------
    SpecError
        A tier beside which no rule can stand: it is not written request by request.
    """
    preset, rule = base.preset, base.rule
    if preset.kind == "radix":
        return list_write_policies(base)
    if preset.kind not in ("prefix", "inclusive"):
        kinds = ("prefix", "inclusive", "radix")
        names = ", ".join(preset.name for preset in list_presets() if preset.kind in kinds)
        raise SpecError(f"tier {preset.name} is not written request by request: no rule; accepted: {names}")
    none = replace(rule, kind="none")
    found: list[Candidate] = []
    if preset.kind == "inclusive" and preset.overflow == "keep-prefix":
        found.append(Candidate(NO_RULE, base.change(rule=none, dedup=False)))
        base = base.change(dedup=True)
        found.append(Candidate(DEDUP, base.change(rule=none), is_setting=False))
    else:
        found.append(Candidate(NO_RULE, base.change(rule=none)))
    if preset.kind == "inclusive" and preset.stores != "prompts":
        found.append(Candidate(PROMPTS_ONLY, base.change(rule=none, stores="prompts"), is_setting=False))
    if preset.counts_offers:
        found += [Candidate(f"{k} offers", base.change(rule=none, min_offers=k)) for k in thresholds]
    found += [Candidate(f"fixed {k:g}", base.change(rule=replace(rule, kind="fixed", kappa=k))) for k in kappas]
    for theta in thetas if n_tasks >= LEAST_TASKS else ():
        suffix = f" @{theta:g}" if len(thetas) > 1 else ""
        for k in kappas:
            chosen = replace(rule, kind="conditioned", kappa=k, theta=theta)
            found.append(Candidate(f"conditioned {k:g}{suffix}", base.change(rule=chosen)))
    return tuple(found)


def list_write_policies(base: TierSettings) -> tuple[Candidate, ...]:
    """What a radix tree knows instead of rules: copy at once, at the second hit, or when the GPU evicts."""
    policies = (
        (NO_RULE, "sglang-hicache"),
        ("second hit", "sglang-hicache-selective"),
        ("on eviction", "sglang-hicache-writeback"),
    )
    return tuple(
        Candidate(label, TierSettings.of(load_preset(name)).change(unit_tokens=base.unit_tokens))
        for label, name in policies
    )
