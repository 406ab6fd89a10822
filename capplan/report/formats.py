"""The trace formats as a list to read."""

import textwrap
from collections.abc import Mapping

INDENT = " " * 2


def render_formats(formats: Mapping[str, str], width: int = 80) -> str:
    """A name, and below it what the format carries; `formats` gives one for the other."""
    lines = []
    for name, carries in formats.items():
        lines += [name, textwrap.indent(textwrap.fill(carries, width - len(INDENT), break_on_hyphens=False), INDENT)]
    return "\n".join(lines) + "\n"
