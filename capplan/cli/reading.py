"""Reading a trace for a command: format names checked, progress shown on a terminal."""

from typing import Any

import click

from capplan.readers import FORMATS, read_trace
from capplan.trace import Trace


def read(given: dict[str, Any]) -> Trace:
    """Read the source a command was given; an unknown --from is wrong usage."""
    name = given["format_name"]
    if name != "auto" and name not in FORMATS:
        raise click.UsageError(f"--from {name}: accepted: auto, {', '.join(FORMATS)}")
    return read_trace(given["source"], name, block_size=given["block_size"], ids=given["ids"])
