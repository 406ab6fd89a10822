"""`capplan ingest`: any readable source becomes the canonical prefix-linked file."""

from typing import Any

import click

from capplan.cli import console
from capplan.cli import options as opt


@click.command("ingest")
@opt.trace_options
@click.option("-o", "--output", "out", required=True, type=click.Path(dir_okay=False), help="Parquet file to write.")
def command(**given: Any) -> None:
    """Link SOURCE once and keep the result: no text, no token ids, no hashes, some bytes a call.

    Predictions from the file equal those from the source, at every chunk size and order.
    """
    console.check_folder(given["out"])
    from capplan.cli import reading
    from capplan.readers.canonical import write_trace

    console.announce_compilation()
    trace = reading.read(given)
    console.warn(trace.notes)
    write_trace(trace, given["out"], f"capplan ingest {click.format_filename(given['source'], shorten=True)}")
