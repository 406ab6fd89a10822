"""One plan, several renderings: a table to read, JSON and CSV to process.

Each is imported when it is asked for: the catalogues beside them need no engine.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capplan.plan import Plan

FORMATS = ("table", "json", "csv")


def render(plan: "Plan", format: str = "table", width: int = 80) -> str:
    """The plan as text, ending in a newline; `width` is for tables."""
    if format == "json":
        from capplan.report import as_json

        return as_json.render(plan)
    if format == "csv":
        from capplan.report import as_csv

        return as_csv.render(plan)
    if format == "table":
        from capplan.report import as_table

        return as_table.render(plan, width)
    raise ValueError(f"format is {format!r}; accepted: {', '.join(FORMATS)}")
