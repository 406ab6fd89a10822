"""Simulated tiers: tokens by capacity, the gap to the one-pass curve and to the best policy, writes."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from capplan.plan import Answer, Plan
from capplan.prediction import CapacityRow
from capplan.report import as_json
from capplan.report.layout import Table, fold, make_table, print_tables, squeeze
from capplan.report.sentences import list_cost_notes
from capplan.report.tier_warnings import list_tier_warnings
from capplan.simulated import SimulatedCapacity, SimulatedTier
from capplan.simulation.settings import TierSettings
from capplan.simulation.wording import describe_rules, is_best_policy, list_gaps
from capplan.simulation.wording import describe_settings as describe_in_words
from capplan.units import format_capacity, format_number, format_seconds, format_share, format_tokens


def render(plan: Plan, format: str, width: int = 80) -> str:
    """Simulated tiers of every GPU as a table, JSON or CSV, ending in a newline."""
    if format == "json":
        return render_json(plan)
    if format == "csv":
        return render_csv(plan)
    return render_table(plan, width)


def simulated(answer: Answer) -> SimulatedTier:
    """The simulation of an answer that has one."""
    if answer.simulated is None:
        raise ValueError("the plan holds no simulated tier")
    return answer.simulated


def render_table(plan: Plan, width: int) -> str:
    """Totals by capacity, then what was assumed."""
    blocks = []
    for answer in plan.answers:
        tier = simulated(answer)
        blocks.append("\n".join(fold(line, width) for line in summarise(plan, answer)))
        tables = [tabulate_tokens(tier, answer.rows), tabulate_writes(tier, answer.rows)]
        blocks += print_tables([squeeze(table, width) for table in tables])
        notes = (*plan.assumptions, *answer.prediction.deployment.notes, *list_cost_notes(answer.prediction))
        blocks.append("\n".join(fold(line, width) for line in ["Assumptions", *(f"- {note}" for note in notes)]))
    return "\n\n".join(blocks) + "\n"


def summarise(plan: Plan, answer: Answer) -> list[str]:
    """The tier, its widest gap to the curve, and whether capacity or policy is what it lacks."""
    tier, deployment = simulated(answer), answer.prediction.deployment
    settings, base = tier.settings, tier.base
    head = f"{settings.preset.name} on {deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}"
    lines = [
        head,
        f"  tier         {describe_in_words(settings, tier.unit_tokens)}",
        f"  of           {format_tokens(base.prompt_tokens)} prompt tokens in {base.requests:,} requests, "
        f"{_describe_order(plan)}; without a host tier {format_tokens(base.computed_tokens)} are computed and "
        f"GPU memory serves {format_share(base.gpu_tokens / max(1, base.prompt_tokens))}",
    ]
    widest = max(tier.capacities, key=lambda found: abs(found.gap_tokens))
    if widest.gap_tokens:
        more = "more" if widest.gap_tokens > 0 else "fewer"
        lines.append(
            f"  curve        at most {format_tokens(abs(widest.gap_tokens))} {more} tokens computed than by the "
            f"one-pass curve, at {format_capacity(widest.host_gib_per_rank)} GiB"
        )
    else:
        lines.append("  curve        the one-pass curve holds at every capacity shown")
    lines += describe_shortage(tier)
    return lines + [f"  warning: {warning}" for warning in list_tier_warnings(plan, answer)]


def describe_shortage(tier: SimulatedTier) -> list[str]:
    """Capacity or policy: what the policy that covers most would save in the same room, and the largest room.

    Nothing where it is that policy.
    """
    if is_best_policy(tier.settings):
        return []
    judged = [found for found in tier.capacities if found.best_computed_tokens is not None]
    if not judged:
        return []
    worst = max(judged, key=lambda found: found.policy_tokens or 0)
    floor = min(found.best_computed_tokens or 0 for found in judged)
    policy = worst.policy_tokens or 0
    if policy <= 0:
        return ["  capacity     or policy? the best policy computes no fewer tokens at any capacity shown"]
    best = worst.best_computed_tokens or 0
    return [
        f"  capacity     or policy? at {format_capacity(worst.host_gib_per_rank)} GiB it computes "
        f"{format_tokens(worst.totals.computed_tokens)}; the best policy of that size {format_tokens(best)} "
        f"(policy: {format_tokens(policy)}), the largest tier shown {format_tokens(floor)} "
        f"(capacity: {format_tokens(best - floor)})"
    ]


def _describe_order(plan: Plan) -> str:
    return f"a pool of {plan.order.pool_size} tasks" if plan.order.kind == "pool" else f"{plan.order.kind} order"


def tabulate_tokens(tier: SimulatedTier, rows: Sequence[CapacityRow]) -> Table:
    """Where prompt tokens come from, and what the curve and the best policy would compute."""
    headings = (
        "GiB per\nrank", "\nunits", "GPU\nserves", "host\ncovers", "\nrestored", "\nmoved", "computed\nprefill",
        "above\ncurve", "above\nbest",
    )  # fmt: skip
    table = make_table("Prompt tokens by host capacity", headings)
    for found, row in zip(tier.capacities, rows, strict=True):
        table.add_row(
            format_number(found.host_gib_per_rank),
            f"{found.slots:,}",
            format_share(row.gpu_share),
            format_share(row.host_covered_share),
            format_tokens(row.restored_tokens),
            format_tokens(row.moved_tokens),
            format_tokens(row.computed_tokens),
            _signed(found.gap_tokens),
            "n/a" if found.policy_tokens is None else _signed(found.policy_tokens),
        )
    return table


def tabulate_writes(tier: SimulatedTier, rows: Sequence[CapacityRow]) -> Table:
    """What is written, dropped and declined, and the time it saves."""
    headings = (
        "GiB per\nrank", "\nwritten", "\nevicted", "copied\ntwice", "no\nroom", "declined\ntokens", "\nrequests",
        "net\nsaved",
    )  # fmt: skip
    table = make_table("Writes by host capacity, in tokens", headings)
    for found, row in zip(tier.capacities, rows, strict=True):
        total = found.totals
        table.add_row(
            format_number(found.host_gib_per_rank),
            format_tokens(total.written_tokens),
            format_tokens(total.evicted_tokens),
            format_tokens(total.duplicate_tokens),
            format_tokens(total.refused_tokens),
            format_tokens(total.declined_tokens),
            f"{total.declined_requests:,}",
            format_seconds(row.net_saved_s),
        )
    return table


def _signed(n_tokens: int) -> str:
    return format_tokens(n_tokens) if n_tokens <= 0 else f"+{format_tokens(n_tokens)}"


def render_json(plan: Plan) -> str:
    """Everything of the tables as one JSON object, format 1."""
    record = {
        "format": as_json.FORMAT_VERSION,
        "trace": as_json.describe_trace(plan),
        "order": as_json.describe_order(plan),
        "tiers": [describe_tier(plan, answer) for answer in plan.answers],
    }
    return as_json.dump(record)


def describe_tier(plan: Plan, answer: Answer) -> dict[str, Any]:
    """One GPU: inputs, the tier's settings, every capacity."""
    tier, prediction = simulated(answer), answer.prediction
    return {
        "inputs": as_json.describe_inputs(plan, prediction),
        "tier": describe_settings(tier.settings, tier.unit_tokens),
        "without_host_tier": {**asdict(tier.base), "prefill_s": tier.without_s._asdict()},
        "rows": [
            {**as_json.describe_row(prediction, row), **describe_capacity(found)}
            for found, row in zip(tier.capacities, answer.rows, strict=True)
        ],
        "warnings": list_tier_warnings(plan, answer),
        "assumptions": [*plan.assumptions, *prediction.deployment.notes, *list_cost_notes(prediction)],
    }


def describe_settings(settings: TierSettings, unit_tokens: int) -> dict[str, Any]:
    """A tier's rules: the preset and what was set of it."""
    preset = settings.preset
    missing, unsure = list_gaps(settings)
    return {
        "name": preset.name,
        "title": preset.title,
        "version": preset.version,
        "kind": preset.kind,
        "unit_tokens": unit_tokens,
        "policy": settings.policy,
        "step_tokens": settings.step_tokens,
        "store_threshold": settings.min_offers,
        "admission": asdict(settings.rule),
        "description": describe_rules(settings),
        "missing": missing,
        "unsure": unsure,
        "source": preset.source,
    }


def describe_capacity(found: SimulatedCapacity) -> dict[str, Any]:
    """What the rows of a prediction do not hold."""
    total = found.totals
    return {
        "evicted_tokens": total.evicted_tokens,
        "duplicate_tokens": total.duplicate_tokens,
        "refused_tokens": total.refused_tokens,
        "declined_tokens": total.declined_tokens,
        "declined_requests": total.declined_requests,
        "curve_computed_tokens": found.curve_computed_tokens,
        "gap_to_curve_tokens": found.gap_tokens,
        "best_policy_computed_tokens": found.best_computed_tokens,
        "gap_to_best_policy_tokens": found.policy_tokens,
    }


def render_csv(plan: Plan) -> str:
    """One row per GPU and capacity."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for answer in plan.answers:
        tier, deployment = simulated(answer), answer.prediction.deployment
        for found, row in zip(tier.capacities, answer.rows, strict=True):
            record = {
                "gpu": deployment.gpu.name,
                "model": deployment.model.name,
                "tp": deployment.tp,
                "tier": tier.settings.preset.name,
                "unit_tokens": tier.unit_tokens,
                **asdict(row),
                **describe_capacity(found),
            }
            if writer is None:
                writer = csv.DictWriter(out, list(record), lineterminator="\n")
                writer.writeheader()
            writer.writerow(record)
    return out.getvalue()
