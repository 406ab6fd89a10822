"""`capplan formats`: what can be read."""

import click


@click.command("formats")
def command() -> None:
    """List the trace formats, in the order in which they are recognised, and what each carries."""
    from capplan.cli import console
    from capplan.readers.formats import FORMATS
    from capplan.report.formats import render_formats

    console.write_out(render_formats({name: module.CARRIES for name, module in FORMATS.items()}), None)
