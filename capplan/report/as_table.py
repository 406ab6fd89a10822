"""Tables for a terminal: the answer first, then every capacity, then what it rests on."""

from collections.abc import Sequence

from capplan.card import Card
from capplan.plan import Answer, Plan
from capplan.prediction import CapacityRow, Prediction
from capplan.report.card import tabulate_card
from capplan.report.layout import Table, fold, make_table, measure_table, print_tables
from capplan.report.sentences import describe_ttft, list_cost_notes, list_restore_lines
from capplan.units import bytes_to_gib, format_capacity, format_number, format_seconds, format_share, format_tokens

GPUS_SIDE_BY_SIDE = 3


def render(plan: Plan, width: int) -> str:
    """The plan in lines of at most `width` columns, wider only where numbers would be cut."""
    blocks = ["\n".join(fold(line, width) for line in summarise(plan, answer)) for answer in plan.answers]
    blocks += print_tables(tabulate(plan, width))
    blocks += [_print_card(answer.card, width) for answer in plan.answers if answer.card is not None]
    blocks += ["\n".join(fold(line, width) for line in explain(plan, answer)) for answer in plan.answers]
    return "\n\n".join(blocks) + "\n"


def _print_card(card: Card, width: int) -> str:
    title = fold(
        f"Settings of engines for {format_capacity(bytes_to_gib(card.asked_bytes))} GiB per rank on {card.gpu} "
        "(capplan card explains each)",
        width,
    )
    warnings = [fold(f"  warning: {warning}", width) for warning in card.warnings]
    return "\n".join([title, *warnings, *tabulate_card(card, width)])


def summarise(plan: Plan, answer: Answer) -> list[str]:
    """The verdict and what it means, in a few lines."""
    prediction, verdict = answer.prediction, answer.verdict
    deployment = prediction.deployment
    head = f"{deployment.gpu.title}, {deployment.model.title}, TP{deployment.tp}: {verdict.answer.upper()}"
    lines = [head, f"  {verdict.reason}"]
    if answer.simulated is not None:
        lines.append(
            f"  tier         {answer.simulated.settings.preset.name}, simulated at the capacities below: constant "
            "from each to the next"
        )
    without = int(prediction.tiers.computed_tokens[0])
    if verdict.recommended_slots:
        gib = prediction.gib_at(verdict.recommended_slots)
        best = prediction.row_at(gib)
        lines.append(
            f"  recommended  {format_capacity(gib)} GiB of host KV per rank, "
            f"{format_capacity(gib * deployment.host_copies)} GiB per node"
        )
        lines.append(
            f"  computes     {format_tokens(best.computed_tokens)} prompt tokens instead of "
            f"{format_tokens(without)}: saves {format_seconds(best.prefill_saved_s)} of prefill, "
            f"spends {format_seconds(best.restore_s)} on restores"
        )
        lines += _describe_money(best)
    moves = [
        f"{100 * share:.0f} % at {format_capacity(prediction.gib_at(slots))}"
        for share, slots in verdict.transitions.items()
    ]
    if prediction.saving_tokens[-1]:
        knee = _gib(prediction, verdict.knee_slots) if verdict.knee_slots else "none"
        lines.append(f"  transition   {', '.join(moves)} GiB per rank; knee {knee}")
    lines.append(f"  of           {_describe_stream(plan, prediction)}")
    lines += [f"  warning: {warning}" for warning in verdict.warnings]
    return lines


def _describe_money(row: CapacityRow) -> list[str]:
    if row.dram_usd is None:
        return []
    if row.gpu_usd_saved_per_month is None:
        return [f"  costs        ${format_number(row.dram_usd)} of memory; no clock, so no saving per month"]
    payback = "never" if row.payback_months is None else f"in {format_number(row.payback_months)} months"
    return [
        f"  costs        ${format_number(row.dram_usd)} of memory, saves ${format_number(row.gpu_usd_saved_per_month)} "
        f"of GPU time per month: paid back {payback}"
    ]


def _gib(prediction: Prediction, slots: int) -> str:
    return f"{format_capacity(prediction.gib_at(slots))} GiB"


def _describe_stream(plan: Plan, prediction: Prediction) -> str:
    tiers = prediction.tiers
    order = f"a pool of {plan.order.pool_size} tasks" if plan.order.kind == "pool" else f"{plan.order.kind} order"
    return (
        f"{format_tokens(tiers.prompt_tokens)} prompt tokens in {tiers.n_requests:,} requests, {order}; "
        f"GPU memory serves {format_share(tiers.gpu_tokens / max(1, tiers.prompt_tokens))}"
    )


def tabulate(plan: Plan, width: int) -> list[Table]:
    """The capacity tables: tokens and time of one GPU, or as many GPUs side by side as `width` columns hold."""
    if len(plan.answers) == 1:
        rows = plan.answers[0].rows
        tables = [tabulate_tokens(rows), tabulate_time(rows), tabulate_range(rows)]
        return [*tables, tabulate_money(rows)] if plan.options.prices is not None else tables
    for n in range(GPUS_SIDE_BY_SIDE, 0, -1):
        tables = [tabulate_gpus(plan.answers[k : k + n]) for k in range(0, len(plan.answers), n)]
        if all(measure_table(table) <= width for table in tables):
            break
    return tables


def tabulate_tokens(rows: Sequence[CapacityRow]) -> Table:
    """Where prompt tokens come from, by host capacity."""
    title = "Prompt tokens by host capacity (shares of all prompt tokens)"
    headings = (
        "GiB per\nrank", "GiB per\nnode", "\nchunks", "host\ncovers", "\nrestored", "\nmoved", "\nwritten",
        "computed\nprefill", "\nshare",
    )  # fmt: skip
    table = make_table(title, headings)
    for row in rows:
        table.add_row(
            format_number(row.host_gib_per_rank),
            format_number(row.host_gib_per_node),
            f"{row.slots:,}",
            format_share(row.host_covered_share),
            format_tokens(row.restored_tokens),
            format_tokens(row.moved_tokens),
            format_tokens(row.written_tokens),
            format_tokens(row.computed_tokens),
            format_share(row.computed_share),
        )
    return table


def tabulate_time(rows: Sequence[CapacityRow]) -> Table:
    """What that means in time, by host capacity."""
    headings = (
        "GiB per\nrank", "prefill\nsaved", "\nshare", "saved per\nhour", "spent on\nrestores", "net\nsaved",
        "written\nGiB/s", "\ngamma_H",
    )  # fmt: skip
    table = make_table("Time by host capacity (typical costs)", headings)
    for row in rows:
        table.add_row(
            format_number(row.host_gib_per_rank),
            format_seconds(row.prefill_saved_s),
            format_share(row.prefill_saved_share),
            "n/a" if row.prefill_saved_s_per_hour is None else format_seconds(row.prefill_saved_s_per_hour),
            format_seconds(row.restore_s),
            format_seconds(row.net_saved_s),
            "n/a" if row.write_gib_per_s is None else format_number(row.write_gib_per_s),
            "n/a" if row.gamma_host is None else format_number(row.gamma_host),
        )
    return table


def tabulate_range(rows: Sequence[CapacityRow]) -> Table:
    """What is uncertain of that, by host capacity."""
    headings = (
        "GiB per\nrank", "prefill\nat least", "\nat most", "restores\nfast link", "\nslow link", "net saved\nworst",
        "\nbest",
    )  # fmt: skip
    table = make_table("Range of the uncertain inputs (prefill: time saved)", headings)
    for row in rows:
        table.add_row(
            format_number(row.host_gib_per_rank),
            *(
                format_seconds(seconds)
                for seconds in (
                    row.prefill_saved_s_low,
                    row.prefill_saved_s_high,
                    row.restore_s_at_high_rate,
                    row.restore_s_at_low_rate,
                    row.net_saved_s_worst,
                    row.net_saved_s_best,
                )
            ),
        )
    return table


def tabulate_money(rows: Sequence[CapacityRow]) -> Table:
    """What memory costs and what GPU time it saves, by host capacity."""
    headings = (
        "GiB per\nrank",
        "GiB per\nnode",
        "memory\n$",
        "GPU hours\nper month",
        "GPU $ per\nmonth",
        "paid back\nmonths",
    )
    table = make_table("Cost by host capacity (one model replica)", headings)
    for row in rows:
        table.add_row(
            format_number(row.host_gib_per_rank),
            format_number(row.host_gib_per_node),
            *(
                "n/a" if value is None else format_number(value)
                for value in (
                    row.dram_usd, row.gpu_hours_saved_per_month, row.gpu_usd_saved_per_month, row.payback_months
                )
            ),
        )  # fmt: skip
    return table


def tabulate_gpus(answers: Sequence[Answer]) -> Table:
    """Several GPUs at the same capacities."""
    headings = ["GiB per\nrank"]
    for answer in answers:
        deployment = answer.prediction.deployment
        headings += [f"{deployment.gpu.name} TP{deployment.tp}\ncomputed", "\nnet saved"]
    table = make_table("GPUs side by side", headings)
    for rows in zip(*(answer.rows for answer in answers), strict=True):
        cells = [format_number(rows[0].host_gib_per_rank)]
        for row in rows:
            cells += [format_tokens(row.computed_tokens), format_seconds(row.net_saved_s)]
        table.add_row(*cells)
    return table


def explain(plan: Plan, answer: Answer) -> list[str]:
    """Scale, and every assumption that changes the answer."""
    prediction = answer.prediction
    deployment, workload = prediction.deployment, prediction.workload
    lines = [f"{deployment.gpu.title}: scale and assumptions"]
    tasks, reuse, gamma = workload.concurrent_tasks, prediction.reuse_bytes, prediction.gamma_gpu
    lines.append(
        f"- {'n/a' if tasks is None else format_number(tasks)} concurrent tasks x mean prompt of "
        f"{format_tokens(workload.mean_prompt_tokens)} tokens: C_reuse "
        f"{'n/a' if reuse is None else format_number(bytes_to_gib(reuse)) + ' GiB per rank'}, gamma_G "
        f"{'n/a' if gamma is None else format_number(gamma)}"
    )
    lines.append(
        f"- KV {deployment.kv_bytes_per_token:,} B per token and rank, {prediction.chunk_bytes / 2**20:g} MiB per "
        f"chunk; a node holds {deployment.host_copies} host {'copy' if deployment.host_copies == 1 else 'copies'}"
    )
    lines.append(f"- {format_share(workload.first_use_share)} of prompt tokens are first use or tails of chunks")
    if workload.small_chunk_tokens is not None and workload.small_chunk_gain_tokens is not None:
        lines.append(
            f"- chunks of {workload.small_chunk_tokens} tokens would restore "
            f"{format_tokens(workload.small_chunk_gain_tokens)} more tokens without a limit"
        )
    lines.append(
        f"- {format_number(prediction.flop_per_link_byte / 1e3)} K peak BF16 FLOP per byte of the host link: "
        "ranks GPUs, but the restore rate decides"
    )
    lines.append(f"- regimes by GiB per rank: {_describe_regimes(answer)}")
    lines += [f"- {line}" for line in list_restore_lines(answer)]
    if prediction.tiers.restored_tokens[-1]:
        lines.append(f"- at {_gib(prediction, answer.ttft.slots)}: {describe_ttft(answer)}")
    notes = (*plan.assumptions, *deployment.notes, *list_cost_notes(prediction))
    return [*lines, *(f"- {note}" for note in notes)]


def _describe_regimes(answer: Answer) -> str:
    prediction = answer.prediction
    return ", ".join(
        f"{regime} from {format_capacity(prediction.gib_at(slots))}" for slots, regime in answer.verdict.regimes
    )
