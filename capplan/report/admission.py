"""Rules of write admission side by side, at every capacity."""

import csv
import io
import math
from dataclasses import asdict
from typing import Any

from capplan.admission_outcome import Outcome
from capplan.admission_study import AdmissionAnswer, CapacityStudy
from capplan.plan import AdmissionStudy
from capplan.prediction import BEST, TYPICAL, WORST
from capplan.report import as_json
from capplan.report.layout import Table, fold, make_table, print_tables, squeeze
from capplan.report.sentences import list_cost_notes
from capplan.report.tier import describe_settings
from capplan.units import format_capacity, format_seconds, format_share, format_tokens


def render(study: AdmissionStudy, format: str, width: int = 80) -> str:
    """A study as a table, JSON or CSV, ending in a newline."""
    if format == "json":
        return render_json(study)
    if format == "csv":
        return render_csv(study)
    return render_table(study, width)


def render_table(study: AdmissionStudy, width: int) -> str:
    """What to set at every capacity, then every rule, then what was assumed."""
    blocks = []
    for answer in study.answers:
        blocks.append("\n".join(fold(line, width) for line in summarise(study, answer)))
        for capacity in answer.capacities:
            tables = [tabulate_tokens(answer, capacity), tabulate_time(answer, capacity)]
            blocks += print_tables([squeeze(table, width) for table in tables])
            blocks += [fold(line, width) for line in list_ranges(capacity)]
        notes = list_notes(study, answer)
        blocks.append("\n".join(fold(line, width) for line in ["Assumptions", *(f"- {note}" for note in notes)]))
    return "\n\n".join(blocks) + "\n"


def list_notes(study: AdmissionStudy, answer: AdmissionAnswer) -> list[str]:
    """Every assumption that changes the answer."""
    if all(one.settings.rule.kind == "none" for one in study.candidates):
        own = ["second hit and on eviction: the engine's other write policies, copying at a node's second insertion, "
               "and when the device evicts it; none copies at the first insertion"]  # fmt: skip
        return [*own, *list_common_notes(study, answer)]
    own = [
        "fixed k declines a request with more than k new units, conditioned k only under pressure"
        + (" (@ theta)" if any("@" in one.label for one in study.candidates) else "")
        + "; k offers stores a unit from its k-th offer on",
        "fixed and conditioned rules leave resident units out of a store, as the published connector does: what that "
        "does alone is the row `none, dedup`"
        if any(one.label == "none, dedup" for one in study.candidates)
        else "every rule changes only what is written",
        "in vain: declined units not used again, or used again from a stack position beyond the capacity (P >= K in "
        "one LRU list of the whole stream); the rest would have hit there",
    ]
    return [*own, *list_common_notes(study, answer)]


def list_common_notes(study: AdmissionStudy, answer: AdmissionAnswer) -> list[str]:
    """Assumptions whatever the rules are."""
    return [
        "lost and gained: covered tokens of single requests below and above those without admission",
        "seconds of writes: at the typical rate of restores",
        *study.assumptions,
        *answer.prediction.deployment.notes,
        *list_cost_notes(answer.prediction),
    ]


def summarise(study: AdmissionStudy, answer: AdmissionAnswer) -> list[str]:
    """The advice at every capacity."""
    deployment, preset = answer.prediction.deployment, answer.tier.settings.preset
    head = f"Write admission of {preset.name} on {deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}"
    lines = [head]
    gibs = [format_capacity(capacity.host_gib_per_rank) for capacity in answer.capacities]
    for gib, capacity in zip(gibs, answer.capacities, strict=True):
        best = next(outcome for outcome in capacity.outcomes if outcome.label == capacity.best)
        lines.append(
            f"  {gib.rjust(max(map(len, gibs)))} GiB  set {capacity.best}: {capacity.advice} (computes "
            f"{format_tokens(best.totals.computed_tokens)}, none {format_tokens(capacity.none.totals.computed_tokens)})"
        )
    return lines


def tabulate_tokens(answer: AdmissionAnswer, capacity: CapacityStudy) -> Table:
    """What is computed, restored, written and declined."""
    node = capacity.host_gib_per_rank * answer.prediction.deployment.host_copies
    title = (
        f"{format_capacity(capacity.host_gib_per_rank)} GiB per rank, {format_capacity(node)} per node, "
        f"{capacity.slots:,} units: tokens"
    )
    headings = (
        "\nrule", "computed\nprefill", "\nrestored", "\nwritten", "declined\nrequests", "\ntokens", "in\nvain",
        "would\nhit",
    )  # fmt: skip
    table = make_table(title, headings, 1)
    unit = answer.tier.stream.unit_tokens
    for outcome in capacity.outcomes:
        total, declined = outcome.totals, outcome.declined
        table.add_row(
            outcome.label,
            format_tokens(total.computed_tokens),
            format_tokens(total.restored_tokens),
            format_tokens(total.written_tokens + total.duplicate_tokens),
            f"{total.declined_requests:,}",
            format_tokens(declined.total * unit),
            format_share((declined.never + declined.beyond) / declined.total) if declined.total else "n/a",
            format_share(declined.would_hit / declined.total) if declined.total else "n/a",
        )
    return table


def tabulate_time(answer: AdmissionAnswer, capacity: CapacityStudy) -> Table:
    """What is lost and gained against no admission, in tokens and seconds, and how far each number reaches."""
    headings = (
        "\nrule", "lost\ntokens", "gained\ntokens", "link\nsaved", "net\ntypical", "\nworst", "\nbest",
    )  # fmt: skip
    table = make_table("Against no admission", headings, 1)
    none = capacity.none
    for outcome in capacity.outcomes:
        table.add_row(
            outcome.label,
            format_tokens(outcome.lost_tokens),
            format_tokens(outcome.gained_tokens),
            format_seconds(link_seconds(none) - link_seconds(outcome)),
            *(format_seconds(outcome.net_s(corner) - none.net_s(corner)) for corner in (TYPICAL, WORST, BEST)),
        )
    return table


def link_seconds(outcome: Outcome) -> float:
    """Seconds the host link is busy: writes and restores, typical."""
    return outcome.write_s + outcome.restore_s[1]


def list_ranges(capacity: CapacityStudy) -> list[str]:
    """Between which other values of kappa and theta rules decide the very same, in one line."""
    said: dict[str, list[str]] = {}
    for outcome in capacity.outcomes:
        if outcome.rule.kind == "none" or not outcome.is_simulated:
            continue
        low, high = outcome.kappa_range
        if low < high:
            said.setdefault(f"kappa {format_range((low, high))}", []).append(outcome.label)
        if outcome.rule.kind == "conditioned":
            said.setdefault(f"theta {format_range(outcome.theta_range, above=True)}", []).append(outcome.label)
    groups = [f"{span} for {', '.join(labels)}" for span, labels in said.items()]
    return [f"Same decisions: {'; '.join(groups)}"] if groups else []


def format_range(bounds: tuple[float, float], above: bool = False) -> str:
    """A range of whole numbers, or of shares above the first one; `any` where there is no bound."""
    low, high = bounds
    if math.isinf(low) and math.isinf(high):
        return "any"
    if math.isinf(low):
        return f"up to {high:g}"
    if math.isinf(high):
        return f"above {low:.3g}" if above else f"from {low:g}"
    if above:
        return f"above {low:.3g} up to {high:.3g}"
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def render_json(study: AdmissionStudy) -> str:
    """Everything of the tables as one JSON object, format 1."""
    record = {
        "format": as_json.FORMAT_VERSION,
        "trace": as_json.describe_trace(study),
        "order": as_json.describe_order(study),
        "studies": [describe_answer(study, answer) for answer in study.answers],
    }
    return as_json.dump(record)


def describe_answer(study: AdmissionStudy, answer: AdmissionAnswer) -> dict[str, Any]:
    """One GPU."""
    return {
        "inputs": as_json.describe_inputs(study, answer.prediction),
        "tier": describe_settings(answer.tier.settings, answer.tier.stream.unit_tokens),
        "capacities": [
            {
                "host_gib_per_rank": capacity.host_gib_per_rank,
                "slots": capacity.slots,
                "recommended": capacity.best,
                "reason": capacity.advice,
                "rules": [describe_outcome(answer, capacity, outcome) for outcome in capacity.outcomes],
            }
            for capacity in answer.capacities
        ],
        "assumptions": list_notes(study, answer),
    }


def describe_outcome(answer: AdmissionAnswer, capacity: CapacityStudy, outcome: Outcome) -> dict[str, Any]:
    """One rule at one capacity."""
    unit, none = answer.tier.stream.unit_tokens, capacity.none
    return {
        "rule": outcome.label,
        "constants": asdict(outcome.rule),
        "is_simulated": outcome.is_simulated,
        **asdict(outcome.totals),
        "declined_never_reused_tokens": outcome.declined.never * unit,
        "declined_reused_beyond_tokens": outcome.declined.beyond * unit,
        "declined_would_hit_tokens": outcome.declined.would_hit * unit,
        "lost_tokens": outcome.lost_tokens,
        "gained_tokens": outcome.gained_tokens,
        "prefill_saved_s": outcome.saved_s._asdict(),
        "restore_s": outcome.restore_s[1],
        "write_s": outcome.write_s,
        "link_saved_s": link_seconds(none) - link_seconds(outcome),
        "net_s_against_none": {
            name: outcome.net_s(corner) - none.net_s(corner)
            for name, corner in (("worst", WORST), ("typical", TYPICAL), ("best", BEST))
        },
        "same_for_kappa": outcome.kappa_range,
        "same_for_theta": outcome.theta_range,
    }


def render_csv(study: AdmissionStudy) -> str:
    """One row per GPU, capacity and rule."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for answer in study.answers:
        for capacity in answer.capacities:
            for outcome in capacity.outcomes:
                record = _flatten(answer, capacity, outcome)
                if writer is None:
                    writer = csv.DictWriter(out, list(record), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(record)
    return out.getvalue()


def _flatten(answer: AdmissionAnswer, capacity: CapacityStudy, outcome: Outcome) -> dict[str, Any]:
    deployment = answer.prediction.deployment
    record: dict[str, Any] = {
        "gpu": deployment.gpu.name,
        "model": deployment.model.name,
        "tp": deployment.tp,
        "tier": answer.tier.settings.preset.name,
        "host_gib_per_rank": capacity.host_gib_per_rank,
        "slots": capacity.slots,
        "is_recommended": outcome.label == capacity.best,
    }
    for key, value in describe_outcome(answer, capacity, outcome).items():
        if isinstance(value, dict):
            record |= {f"{key}_{name}": item for name, item in value.items()}
        elif isinstance(value, tuple):
            record |= {
                f"{key}_{end}": _empty_if_infinite(bound) for end, bound in zip(("from", "to"), value, strict=True)
            }
        else:
            record[key] = value
    return record


def _empty_if_infinite(value: float) -> float | None:
    return value if math.isfinite(value) else None
