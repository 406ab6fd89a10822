"""`capplan predict`: from a trace to a verdict."""

from typing import Any

import click

from capplan.cli import console, plan_options, tier_options
from capplan.cli import options as opt
from capplan.cli.progress import show_simulating


@click.command("predict")
@opt.trace_options
@plan_options.decorate(plan_options.PLAN)
@click.option("--chunk-tokens", type=opt.TOKENS, default=1024, show_default=True, help="Tokens per host chunk.")
@click.option(
    "--touch",
    type=click.Choice(["leaf-first", "head-first"]),
    default="leaf-first",
    show_default=True,
    help="Which end of a prompt the host tier touches first.",
)
@click.option(
    "--distance",
    type=click.Choice(["lookup", "sequential"]),
    default="lookup",
    show_default=True,
    help="Position that decides coverage; sequential is the published convention.",
)
@click.option(
    "--node-ram", "node_ram_gib", type=opt.POSITIVE, metavar="GIB", help="Warn where the recommendation exceeds it."
)
@click.option("--dram-usd-per-gib", type=opt.Number(min=0), help="What host memory costs you; with --gpu-usd-per-hour.")
@click.option("--gpu-usd-per-hour", type=opt.Number(min=0), help="What a GPU costs you; with --dram-usd-per-gib.")
@click.option("--tier", metavar="NAME", help="Simulate an engine's tier (capplan tiers) instead of the one-pass curve.")
@plan_options.decorate(tier_options.TIER)
@plan_options.decorate(plan_options.OUTPUT)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Predict computed prefill, restored and written tokens, and whether a host KV tier pays.

    SOURCE is a trace in any format capplan reads: the canonical Parquet, Parquet or JSONL with token ids or block
    hashes, Mooncake JSONL, a kv-cache-tester folder or file.
    """
    check_usage(given)
    tier_options.check_tier(ctx, given)
    console.check_folder(given["out"], given["plot"])
    console.check_overwrites((given["out"], given["plot"]), given["source"])
    run(given)


def check_usage(given: dict[str, Any]) -> None:
    """Refuse options that contradict each other; exit code 2."""
    plan_options.check_plan(given)
    if (given["dram_usd_per_gib"] is None) != (given["gpu_usd_per_hour"] is None):
        raise click.UsageError("--dram-usd-per-gib and --gpu-usd-per-hour go together")
    plan_options.check_plot(given["plot"])


def run(given: dict[str, Any]) -> None:
    """Read, predict, write; the imports that take time happen here."""
    from capplan.cli import reading
    from capplan.errors import SpecError
    from capplan.pipeline import predict
    from capplan.report import render

    console.announce_compilation()
    tier = None if given["tier"] is None else tier_options.read_tier(given)
    if tier is not None and tier.preset.kind == "gpu":
        raise SpecError(f"tier {tier.preset.name} has no host memory to judge; accepted: capplan simulate")
    options = plan_options.read_options(given, tier)
    trace = reading.read(given)
    with show_simulating():
        plan = predict(trace, given["gpus"], given["model"], options)
    console.warn(plan.trace.notes)
    text = render(plan, given["output_format"])
    if given["plot"] is not None:
        from capplan.plot import draw_plan, save_figure

        save_figure(draw_plan(plan), given["plot"])
    console.write_out(text, given["out"])
