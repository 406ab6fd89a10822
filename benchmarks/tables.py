"""Results as a Markdown table, and the table's place in a document."""

import re
from collections.abc import Sequence

from harness import Result

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
