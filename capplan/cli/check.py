"""`capplan check`: what a trace is."""

from typing import Any

import click

from capplan.cli import console
from capplan.cli import options as opt


@click.command("check")
@opt.trace_options
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False, allow_dash=True), help="Default: stdout.")
def command(**given: Any) -> None:
    """Show what a trace holds: requests, sessions, tokens, who shares with whom, its clock, what is odd.

    SOURCE is what `capplan ingest` wrote, or anything it accepts. "Shared" counts the prompt tokens that an
    earlier request's path begins with, in the order of the file; of several such requests, the nearest
    owner counts: the same session, else the same task, else any other.
    """
    console.check_folder(given["out"])
    console.check_overwrites([given["out"]], given["source"])
    from capplan.cli import reading
    from capplan.report.summary import render_summary
    from capplan.summary import summarise

    console.announce_compilation()
    summary = summarise(reading.read(given))
    console.write_out(render_summary(summary, given["output_format"]), given["out"])
