"""One plan, several renderings: a table to read, JSON and CSV to process."""

from capplan.plan import Plan
from capplan.report import as_csv, as_json, as_table

FORMATS = ("table", "json", "csv")


def render(plan: Plan, format: str = "table", width: int = 80) -> str:
    """The plan as text, ending in a newline; `width` is for tables."""
    if format == "json":
        return as_json.render(plan)
    if format == "csv":
        return as_csv.render(plan)
    if format == "table":
        return as_table.render(plan, width)
    raise ValueError(f"format is {format!r}; accepted: {', '.join(FORMATS)}")
