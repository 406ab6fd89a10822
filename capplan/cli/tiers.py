"""`capplan tiers`: which engines' tiers can be simulated, and what each simulation leaves out."""

import click


@click.command("tiers")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the tiers that can be simulated; with a NAME, one of them in full."""
    from capplan.cli import console
    from capplan.report.tier_catalogue import render_tier, render_tiers

    console.write_out(render_tiers() if name is None else render_tier(name), None)
