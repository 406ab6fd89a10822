"""Reading a trace for a command."""

from typing import Any

from capplan.readers import read_trace
from capplan.trace import Trace


def read(given: dict[str, Any]) -> Trace:
    """Read the source a command was given, as `trace_options` say."""
    return read_trace(given["source"], given["format_name"], block_size=given["block_size"], ids=given["ids"])
