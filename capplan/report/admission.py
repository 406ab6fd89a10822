"""Rules of write admission side by side, at every capacity."""

import math

from capplan.admission_advice import NO_TIER
from capplan.admission_candidates import NO_RULE
from capplan.admission_outcome import compare_times
from capplan.admission_study import AdmissionAnswer, CapacityStudy
from capplan.plan import AdmissionStudy
from capplan.report.admission_notes import list_notes
from capplan.report.admission_records import render_csv, render_json
from capplan.report.layout import Table, fold, make_table, print_tables, squeeze
from capplan.report.tier_warnings import list_study_warnings
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


def summarise(study: AdmissionStudy, answer: AdmissionAnswer) -> list[str]:
    """The advice at every capacity, then warnings."""
    deployment, preset = answer.prediction.deployment, answer.tier.settings.preset
    head = f"Write admission of {preset.name} on {deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}"
    lines = [head]
    gibs = [format_capacity(capacity.host_gib_per_rank) for capacity in answer.capacities]
    for gib, capacity in zip(gibs, answer.capacities, strict=True):
        verb = "" if capacity.best == NO_TIER else "set "
        lines.append(
            f"  {gib.rjust(max(map(len, gibs)))} GiB  {verb}{capacity.best}: {capacity.advice} (computes "
            f"{format_tokens(capacity.best_tokens)}, {NO_RULE} {format_tokens(capacity.none.totals.computed_tokens)})"
        )
    return lines + [f"  warning: {warning}" for warning in list_study_warnings(study, answer)]


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
            format_tokens(outcome.copied_tokens),
            f"{total.declined_requests:,}",
            format_tokens(declined.total * unit),
            format_share((declined.never + declined.beyond) / declined.total) if declined.total else "n/a",
            format_share(declined.would_hit / declined.total) if declined.total else "n/a",
        )
    return table


def tabulate_time(answer: AdmissionAnswer, capacity: CapacityStudy) -> Table:
    """What is lost and gained against no rule, in tokens and seconds; the title has what that one gains itself."""
    headings = (
        "\nrule", "lost\ntokens", "gained\ntokens", "link\nsaved", "net\ntypical", "\nleast", "\nmost",
    )  # fmt: skip
    none = capacity.none
    own = none.net_s()
    verb = "loses" if own < 0 else "saves"
    table = make_table(f"Against {NO_RULE}, which {verb} {format_seconds(abs(own))} against {NO_TIER}", headings, 1)
    for outcome in capacity.outcomes:
        change = compare_times(outcome, none)
        table.add_row(
            outcome.label,
            format_tokens(outcome.lost_tokens),
            format_tokens(outcome.gained_tokens),
            format_seconds(none.link_s - outcome.link_s),
            *map(format_seconds, (change.typical, change.low, change.high)),
        )
    return table


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
