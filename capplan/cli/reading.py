"""Reading a trace for a command."""

import os
from pathlib import Path
from typing import Any

from capplan.cli.progress import show_reading
from capplan.linking import Keys
from capplan.readers import Options, Selection, canonical, extend_trace, link_sources
from capplan.readers.key_file import read_keys
from capplan.trace import Trace


def read(given: dict[str, Any]) -> Trace:
    """Read the sources a command was given, as `trace_options` say."""
    return read_with_keys(given)[0]


def read_with_keys(given: dict[str, Any]) -> tuple[Trace, Keys | None]:
    """As `read`, and what the trace needs to grow; None for one that was linked before."""
    with show_reading(given["source"]):
        choices = _find_choices(given)
        return link_sources(given["source"], given["format_name"], given["ids"], *choices, n_workers=count_cores())


def extend(path: str, given: dict[str, Any]) -> tuple[Trace, Keys]:
    """The trace of a file that keeps its keys, with the requests of the sources."""
    trace = canonical.read(Path(path))
    keys = read_keys(trace, path)
    options, selection = _find_choices(given)
    with show_reading(given["source"]):
        return extend_trace(
            trace,
            keys,
            given["source"],
            given["format_name"],
            ids=given["ids"],
            options=options,
            selection=selection,
            n_workers=count_cores(),
        )


def count_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _find_choices(given: dict[str, Any]) -> tuple[Options, Selection]:
    options = Options(
        block_tokens=given["block_size"],
        tokenizer=given["tokenizer"],
        model_filter=given["model_filter"],
        namespace=given["namespace"],
        assume_prefix=given["assume_prefix"],
        lengths=given["lengths"],
    )
    return options, Selection(given["limit"], given["since"], given["until"])
