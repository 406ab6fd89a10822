"""The capacity curve as a figure for a design document."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from capplan.errors import CapplanError
from capplan.output import written_whole
from capplan.plan import AdmissionStudy, Answer, Plan
from capplan.prediction import BEST, TYPICAL, WORST, Prediction
from capplan.units import bytes_to_gib, format_capacity, format_number

COMPUTED, RESTORED, MARK = "#b3362b", "#2b6cb3", "#1d7a46"
SUFFIXES = (".png", ".svg", ".pdf")
REGIMES = {"overhead only": "#9aa0a6", "pays": "#1d7a46", "loses": "#b3362b"}
MARGIN = 1.35


def draw_plan(plan: Plan) -> Figure:
    """One column per GPU: tokens above, net time below, on common axes."""
    n = len(plan.answers)
    figure = Figure(figsize=(7.2, 6.4) if n == 1 else (5.4 * n, 6.4), layout="constrained")
    panels = figure.subplots(2, n, sharex="col", sharey="row", squeeze=False, height_ratios=(3, 2))
    unit, seconds = _choose_unit(plan)
    for (above, below), answer in zip(panels.T, plan.answers, strict=True):
        draw_curve(above, answer)
        draw_net(below, answer, seconds)
    panels[0][0].set_ylabel("prompt tokens (M)")
    panels[1][0].set_ylabel(f"net time saved ({unit})")
    figure.suptitle(f"{plan.trace.source}: {describe_order(plan)}", fontsize=10)
    return figure


def _choose_unit(plan: Plan) -> tuple[str, float]:
    """Hours, minutes or seconds, whichever suits the largest net time, and how many seconds that is."""
    largest = max(abs(net) for answer in plan.answers for net in answer.verdict.best_net_s)
    return next(((unit, seconds) for unit, seconds in (("h", 3600.0), ("min", 60.0)) if largest >= seconds), ("s", 1.0))


def draw_net(axes: Axes, answer: Answer, seconds: float = 3600.0) -> None:
    """Net time against host GiB per rank, with its range and the stretches where the tier pays or loses.

    Parameters
    ----------
    axes : matplotlib Axes
    answer : Answer
    seconds : float
        Seconds in the axis' unit.
    """
    prediction, verdict = answer.prediction, answer.verdict
    limit = _choose_limit(answer)
    gib, slots = _sample(answer, limit)
    worst, typical, best = (prediction.net_seconds(corner)[slots] / seconds for corner in (WORST, TYPICAL, BEST))
    axes.fill_between(gib, worst, best, color=MARK, alpha=0.2, lw=0, step="post", label="range of the inputs")
    axes.step(gib, typical, where="post", color=MARK, lw=2, label="net, typical")
    axes.axhline(0, color="black", lw=0.8)
    bounds = [prediction.gib_at(start) for start, _ in verdict.regimes] + [limit]
    for (_, regime), begin, end in zip(verdict.regimes, bounds[:-1], bounds[1:], strict=True):
        if begin < limit:
            label = None if regime in axes.get_legend_handles_labels()[1] else regime
            axes.axvspan(begin, min(end, limit), ymax=0.05, color=REGIMES[regime], lw=0, label=label)
    if verdict.recommended_slots:
        x = prediction.gib_at(verdict.recommended_slots)
        axes.axvline(x, color=MARK, lw=1, ls=":")
        axes.annotate(_describe_money(prediction, x), (x, 0), (4, 12), textcoords="offset points", fontsize=8)
    axes.set_xlabel("host KV capacity (GiB per rank)")
    axes.grid(alpha=0.25)
    axes.margins(y=0.12)
    axes.legend(fontsize=8, loc="best", framealpha=0.9)


def _describe_money(prediction: Prediction, gib_per_rank: float) -> str:
    row = prediction.row_at(gib_per_rank)
    if row.dram_usd is None or row.payback_months is None:
        return ""
    return f"${format_number(row.dram_usd)} of memory\npaid back in {format_number(row.payback_months)} months"


def _sample(answer: Answer, limit: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """GiB and slots to draw at, up to the limit of the axis; the last step is drawn to its end."""
    prediction = answer.prediction
    last = min(prediction.tiers.n_distinct, prediction.slots_at(limit))
    slots = np.unique(np.linspace(0, last, 4000).astype(np.int64))
    gib = np.append(slots * prediction.chunk_bytes / 2**30, limit)
    return gib, np.append(slots, last)


def draw_curve(axes: Axes, answer: Answer) -> None:
    """Computed prefill and restored tokens against host GiB per rank, with the capacities that matter.

    Parameters
    ----------
    axes : matplotlib Axes
    answer : Answer
    """
    prediction, verdict = answer.prediction, answer.verdict
    tiers, deployment = prediction.tiers, prediction.deployment
    limit = _choose_limit(answer)
    gib, slots = _sample(answer, limit)
    computed = tiers.computed_tokens[slots] / 1e6
    restored = tiers.restored_tokens[slots] / 1e6
    axes.step(gib, computed, where="post", color=COMPUTED, lw=2, label="computed prefill")
    axes.step(gib, restored, where="post", color=RESTORED, lw=2, label="restored from host")
    begin, end = (prediction.gib_at(verdict.transitions[share]) for share in (0.10, 0.90))
    if end > begin:
        axes.axvspan(begin, end, color="#f2c94c", alpha=0.25, lw=0, label="10-90 % of the saving")
    _mark(axes, answer, limit)
    axes.set_xlim(0, limit)
    axes.set_ylim(0, 1.08 * max(computed.max(), restored.max(), 1e-6))
    axes.grid(alpha=0.25)
    served = f"GPU memory serves {tiers.gpu_tokens / 1e6:,.1f} M of {tiers.prompt_tokens / 1e6:,.1f} M prompt tokens"
    tier = "" if answer.simulated is None else f", {answer.simulated.settings.preset.name}"
    name = f"{deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}{tier}: {verdict.answer}"
    axes.set_title(f"{name}\n{served}", fontsize=9)
    copies = deployment.host_copies
    node = axes.secondary_xaxis("top", functions=(lambda x: np.multiply(x, copies), lambda x: np.divide(x, copies)))
    node.set_xlabel(f"GiB per node ({copies} {'copy' if copies == 1 else 'copies'})", fontsize=8)
    node.tick_params(labelsize=8)
    axes.legend(fontsize=8, loc="best", framealpha=0.9)


def _choose_limit(answer: Answer) -> float:
    prediction = answer.prediction
    points = [prediction.gib_at(slots) for slots in answer.verdict.transitions.values()]
    points.append(prediction.gib_at(answer.verdict.recommended_slots))
    reuse = prediction.reuse_bytes
    points.append(0.0 if reuse is None else bytes_to_gib(reuse))
    return MARGIN * max(*points, prediction.gib_at(1))


def _mark(axes: Axes, answer: Answer, limit: float) -> None:
    prediction, verdict = answer.prediction, answer.verdict
    tiers = prediction.tiers
    reuse = prediction.reuse_bytes
    if reuse is not None and 0 < bytes_to_gib(reuse) < limit:
        x = bytes_to_gib(reuse)
        axes.axvline(x, color="black", lw=1, ls="--", label=f"$C_{{reuse}}$ {format_capacity(x)} GiB")
    for slots, marker, name in (
        (verdict.knee_slots, "D", "knee"),
        (verdict.recommended_slots, "o", "recommended"),
    ):
        if slots > 0:
            x = prediction.gib_at(slots)
            y = tiers.computed_tokens[min(slots, tiers.n_distinct)] / 1e6
            axes.plot([x], [y], marker, color=MARK, ms=7, zorder=5, label=f"{name} {format_capacity(x)} GiB")


def describe_order(plan: Plan | AdmissionStudy) -> str:
    """The order of a stream, for a title."""
    if plan.order.kind == "pool":
        return f"pool of {plan.order.pool_size} tasks"
    return f"{plan.order.kind} order"


def save_figure(figure: Figure, path: str | Path) -> None:
    """Save as PNG, SVG or PDF by the path's ending, complete or not at all, same bytes every time.

    Raises
    ------
    CapplanError
        Another ending, or the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise CapplanError(f"{target}: unknown kind of picture; accepted: {', '.join(SUFFIXES)}")
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[target.suffix.lower()]
    with written_whole(target) as path, mpl.rc_context({"svg.hashsalt": "capplan"}):
        figure.savefig(path, dpi=150, metadata=dates)
