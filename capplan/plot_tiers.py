"""Simulated tiers and rules of write admission as figures."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capplan.admission_outcome import Outcome
from capplan.admission_study import AdmissionAnswer
from capplan.plan import AdmissionStudy, Answer, Plan
from capplan.plot import COMPUTED, MARK, RESTORED, describe_order
from capplan.simulation.settings import TierSettings
from capplan.simulation.wording import is_best_policy

# Lines of rules by kind: colour and marker; shades go by kappa.
KINDS = {"fixed": ("Reds", "s"), "conditioned": ("Blues", "o"), "none": ("Greens", "^")}


def draw_tiers(plan: Plan) -> Figure:
    """One panel per GPU: computed prefill of a simulated tier, of the one-pass curve and of the best policy."""
    n = len(plan.answers)
    figure = Figure(figsize=(7.2, 4.4) if n == 1 else (5.4 * n, 4.4), layout="constrained")
    panels = figure.subplots(1, n, sharey=True, squeeze=False)[0]
    unit, tokens = _unit_of(plan.answers[0].prediction.tiers.prompt_tokens)
    for axes, answer in zip(panels, plan.answers, strict=True):
        draw_tier(axes, answer, tokens)
    panels[0].set_ylabel(f"computed prefill ({unit} tokens)")
    figure.suptitle(f"{plan.trace.source}: {describe_order(plan)}", fontsize=10)
    return figure


def _unit_of(n_tokens: int) -> tuple[str, float]:
    """Million or thousand tokens, whichever suits."""
    return ("M", 1e6) if n_tokens >= 1e6 else ("k", 1e3)


def draw_tier(axes: Axes, answer: Answer, tokens: float = 1e6) -> None:
    """Computed prefill against host GiB per rank: simulated points, the curve they are compared with, the best policy.

    Only the points are simulated; lines between them guide the eye.

    Parameters
    ----------
    axes : matplotlib Axes
    answer : Answer
        With a simulated tier.
    tokens : float
        Tokens in the axis' unit.
    """
    tier, curve = answer.simulated, answer.curve
    if tier is None or curve is None:
        raise ValueError("the answer holds no simulated tier")
    gib = [found.host_gib_per_rank for found in tier.capacities]
    limit = 1.05 * max(*gib, curve.gib_at(1))
    slots = np.unique(np.linspace(0, min(curve.tiers.n_distinct, curve.slots_at(limit)), 4000).astype(np.int64))
    points = np.append(slots * curve.chunk_bytes / 2**30, limit)
    computed = curve.tiers.computed_tokens[np.append(slots, slots[-1])] / tokens
    axes.step(points, computed, where="post", color=RESTORED, lw=1.5, label="one-pass curve")
    best = [found.best_computed_tokens for found in tier.capacities]
    if all(n_tokens is not None for n_tokens in best) and not is_best_policy(tier.settings):
        ideal = [n_tokens / tokens for n_tokens in best if n_tokens is not None]
        axes.plot(gib, ideal, "^:", color=MARK, ms=5, lw=0.8, zorder=4, label="best policy")
    settings, deployment = tier.settings, answer.prediction.deployment
    simulated = [found.totals.computed_tokens / tokens for found in tier.capacities]
    axes.plot(gib, simulated, "o--", color=COMPUTED, ms=7, mfc="none", mew=1.5, lw=0.8, label=_name_tier(settings))
    axes.set_xlim(0, limit)
    axes.set_ylim(0, 1.08 * max(*simulated, computed.max(), 1e-6))
    axes.set_title(f"{deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}", fontsize=9)
    axes.set_xlabel("host KV capacity (GiB per rank)")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="best", framealpha=0.9)


def _name_tier(settings: TierSettings) -> str:
    if is_best_policy(settings):
        return "best policy"
    return settings.preset.name if settings.rule.kind == "none" else f"{settings.preset.name}, {settings.rule.label}"


def draw_admission(study: AdmissionStudy) -> Figure:
    """One panel per GPU: computed prefill under every rule, against host capacity."""
    n = len(study.answers)
    figure = Figure(figsize=(8.2, 4.6) if n == 1 else (5.4 * n + 1.6, 4.6), layout="constrained")
    panels = figure.subplots(1, n, sharey=True, squeeze=False)[0]
    unit, tokens = _unit_of(study.answers[0].prediction.tiers.prompt_tokens)
    for axes, answer in zip(panels, study.answers, strict=True):
        draw_rules(axes, answer, tokens)
    panels[0].set_ylabel(f"computed prefill ({unit} tokens)")
    panels[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.suptitle(f"{study.trace.source}: {describe_order(study)}", fontsize=10)
    return figure


def draw_rules(axes: Axes, answer: AdmissionAnswer, tokens: float = 1e6) -> None:
    """Computed prefill against host GiB per rank, a line for every rule; only the points are simulated.

    Parameters
    ----------
    axes : matplotlib Axes
    answer : AdmissionAnswer
    tokens : float
        Tokens in the axis' unit.
    """
    gib = [capacity.host_gib_per_rank for capacity in answer.capacities]
    lines = list(zip(*(capacity.outcomes for capacity in answer.capacities), strict=True))
    for line in lines:
        computed = [outcome.totals.computed_tokens / tokens for outcome in line]
        colour, marker = _choose_style(line[0], [other[0] for other in lines])
        width = 2.0 if line is lines[0] else 1.0
        axes.plot(gib, computed, f"{marker}-", color=colour, mfc="none", ms=5, lw=width, label=line[0].label)
    deployment = answer.prediction.deployment
    axes.set_xlim(0, 1.05 * max(*gib, answer.prediction.gib_at(1)))
    axes.set_ylim(bottom=0)
    axes.set_title(f"{deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}", fontsize=9)
    axes.set_xlabel("host KV capacity (GiB per rank)")
    axes.grid(alpha=0.25)


def _choose_style(outcome: Outcome, others: list[Outcome]) -> tuple[str | tuple[float, ...], str]:
    """Colour and marker: black for no rule, else by kind, darker for later rules of a kind."""
    if outcome is others[0]:
        return "black", "x"
    name, marker = KINDS[outcome.rule.kind]
    same = [other.label for other in others[1:] if other.rule.kind == outcome.rule.kind]
    shade = 0.4 + 0.55 * (same.index(outcome.label) + 1) / len(same)
    return mpl.colormaps[name](shade), marker
