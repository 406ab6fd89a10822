"""How lines and tables are laid out: plain text, numbers never cut."""

import io
import textwrap
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

WIDEST = 1000
GAP = 2


def fold(line: str, width: int) -> str:
    """Wrap a line; what follows is indented below its text."""
    text = line.lstrip()
    indent = " " * (len(line) - len(text) + (2 if text.startswith("- ") else 0))
    if line.startswith("  ") and "  " in text:
        indent = " " * (line.index(text.split("  ", 1)[1].lstrip()))
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def make_table(title: str, headings: Sequence[str], n_left: int = 0) -> Table:
    """An empty table of right-aligned columns, the first `n_left` of them left-aligned."""
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="left" if k < n_left else "right", no_wrap=True)
    return table


def print_tables(tables: Sequence[Table], width: int) -> list[str]:
    """Tables as text without trailing blanks, wider than `width` only where a cell would be cut."""
    printed = []
    for table in tables:
        out = io.StringIO()
        console = Console(file=out, width=WIDEST, color_system=None, highlight=False, markup=False, emoji=False)
        console.width = max(width, _measure(table))
        console.print(table)
        printed.append("\n".join(line.rstrip() for line in out.getvalue().rstrip().split("\n")))
    return printed


def _measure(table: Table) -> int:
    """Columns a table of plain cells takes: the widest line of every column, and what stands between."""
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    widest = [max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns]
    return sum(widest) + GAP * (len(widest) - 1)
