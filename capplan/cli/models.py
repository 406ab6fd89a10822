"""`capplan models`: what the model profiles hold."""

import click


@click.command("models")
def command() -> None:
    """List model names with parameters and KV bytes per token and rank."""
    from capplan.cli import console
    from capplan.report.catalogue import render_models

    console.write_out(render_models(), None)
