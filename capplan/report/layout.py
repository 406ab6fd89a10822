"""How lines and tables are laid out: plain text, numbers never cut."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tabulate import DataRow, TableFormat, tabulate


@dataclass(slots=True)
class Table:
    """A table of text: right-aligned columns, the first `n_left` of them left-aligned.

    `gap` is the number of blanks between columns; headings may have several lines.
    """

    title: str
    headings: tuple[str, ...]
    n_left: int = 0
    gap: int = 2
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add_row(self, *cells: str) -> None:
        """Add a row, one cell per column."""
        if len(cells) != len(self.headings):
            raise ValueError(f"{len(cells)} cells for {len(self.headings)} columns")
        self.rows.append(cells)


def fold(line: str, width: int) -> str:
    """Wrap a line; what follows is indented below its text."""
    text = line.lstrip()
    indent = " " * (len(line) - len(text) + (2 if text.startswith("- ") else 0))
    if line.startswith("  ") and "  " in text:
        indent = " " * (line.index(text.split("  ", 1)[1].lstrip()))
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def make_table(title: str, headings: Sequence[str], n_left: int = 0) -> Table:
    """An empty table."""
    return Table(title, tuple(headings), n_left)


def measure_table(table: Table) -> int:
    """Columns a printed table takes."""
    return max(len(line) for line in print_table(table).split("\n"))


def squeeze(table: Table, width: int) -> Table:
    """The table, its columns closer together where it would be too wide."""
    return replace(table, gap=1) if measure_table(table) > width else table


def print_tables(tables: Sequence[Table]) -> list[str]:
    """Tables as text without trailing blanks; no cell is ever cut, however wide the table gets."""
    return [print_table(table) for table in tables]


def print_table(table: Table) -> str:
    """Title, headings, a line, rows."""
    split = [heading.split("\n") for heading in table.headings]
    height = max(len(lines) for lines in split)
    heads = [[lines[k] if k < len(lines) else "" for lines in split] for k in range(height)]
    sides = ["left" if k < table.n_left else "right" for k in range(len(table.headings))]
    row = DataRow("", " " * table.gap, "")
    format: Any = TableFormat(None, None, None, None, None, row, 0, None)
    text = tabulate(
        [*heads, *table.rows], tablefmt=format, disable_numparse=True, colalign=sides, preserve_whitespace=True
    )
    lines = text.split("\n")
    lines.insert(height, "─" * max(len(line) for line in lines))
    title = [table.title] if table.title else []
    return "\n".join(line.rstrip() for line in (*title, *lines))
