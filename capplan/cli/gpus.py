"""`capplan gpus`: what the GPU profiles hold."""

import click


@click.command("gpus")
def command() -> None:
    """List GPU names with peak, memory, host link and restore rate; sources are in the profile files."""
    from capplan.cli import console
    from capplan.report.catalogue import render_gpus

    console.write_out(render_gpus(), None)
