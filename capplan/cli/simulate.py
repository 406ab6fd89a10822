"""`capplan simulate`: an engine's host tier as it really behaves, one capacity at a time."""

from typing import Any

import click

from capplan.cli import console, plan_options, tier_options
from capplan.cli import options as opt
from capplan.cli.progress import show_simulating


@click.command("simulate")
@opt.trace_options
@click.option("--tier", required=True, metavar="NAME", help="Engine's tier to simulate (capplan tiers).")
@plan_options.decorate(plan_options.PLAN, tier_options.TIER, plan_options.OUTPUT)
def command(**given: Any) -> None:
    """Simulate an engine's host tier: restored, written, evicted and declined tokens per capacity.

    Beside each capacity stand the gap to the one-pass curve, and what the best policy there is would compute in
    the same room: is it capacity or policy that lacks?
    """
    plan_options.check_plan(given)
    plan_options.check_plot(given["plot"])
    console.check_folder(given["out"], given["plot"])
    console.check_overwrites((given["out"], given["plot"]), given["source"])
    run(given)


def run(given: dict[str, Any]) -> None:
    """Read, simulate, write; the imports that take time happen here."""
    from capplan.cli import reading
    from capplan.pipeline import predict
    from capplan.report import tier as report

    console.announce_compilation()
    options = plan_options.read_options(given, tier_options.read_tier(given))
    trace = reading.read(given)
    with show_simulating():
        plan = predict(trace, given["gpus"], given["model"], options)
    console.warn(plan.trace.notes)
    text = report.render(plan, given["output_format"])
    if given["plot"] is not None:
        from capplan.plot import save_figure
        from capplan.plot_tiers import draw_tiers

        save_figure(draw_tiers(plan), given["plot"])
    console.write_out(text, given["out"])
