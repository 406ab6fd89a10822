"""Results as Markdown tables, and the tables' place in a document."""

import re
from collections.abc import Sequence

from harness import Footprint, Result, format_amount

BEGIN = "<!-- benchmarks:begin -->"
END = "<!-- benchmarks:end -->"


def render_table(results: Sequence[Result]) -> str:
    """One row per comparison: medians, in brackets the smallest and the largest."""
    lines = ["| what | capplan | compared with | result | target |", "|---|---|---|---:|---|"]
    for result in results:
        other = f"{result.other_name}: {result.other.describe()}" if result.other is not None else result.other_name
        what = f"{result.what}; {result.note}" if result.note else result.what
        cells = (what, result.ours.describe(), other, result.describe_value(), result.describe_target())
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)


def render_memory(footprints: Sequence[Footprint]) -> str:
    """One row per input: what it holds, and the peak memory of the process that took it in."""
    lines = [
        "| input | size | requests | blocks in all prompts | distinct blocks | time | peak memory | target |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for run in footprints:
        limit = "" if run.at_most_mb is None else f"at most {run.at_most_mb:,g} MB{'' if run.is_met else ': missed'}"
        cells = (
            run.what,
            f"{run.n_bytes / 1e9:.2f} GB",
            f"{run.n_requests:,}",
            f"{run.n_references / 1e6:,.1f} million",
            f"{run.n_distinct / 1e6:,.1f} million",
            format_amount(run.seconds, "s"),
            format_amount(run.peak_mb, "MB"),
            limit,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def replace_between(document: str, text: str) -> str:
    """The document with `text` between the two markers, which stay; the rest is untouched.

    Raises
    ------
    ValueError
        The markers do not stand there exactly once each, in order.
    """
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise ValueError(f"needed, once each and in this order: {BEGIN} and {END}")
    pattern = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{text.strip()}\n{END}", document)
