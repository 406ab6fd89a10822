"""`capplan admission`: what limiting writes does, rule by rule and capacity by capacity."""

from typing import TYPE_CHECKING, Any

import click

from capplan.cli import console, plan_options, tier_options
from capplan.cli import options as opt
from capplan.cli.progress import show_simulating

if TYPE_CHECKING:
    from capplan.simulation.settings import TierSettings

MOST_OFFERS = 1_000_000
OF_RULES = {
    "kappas": "--kappa", "thetas": "--theta", "thresholds": "--store-threshold", "window_s": "--window-s",
    "report_period_s": "--report-period-s", "log": "--log",
}  # fmt: skip


@click.command("admission")
@opt.trace_options
@click.option(
    "--tier",
    default="efficientagent",
    show_default=True,
    metavar="NAME",
    help="Tier whose way of storing is kept (capplan tiers).",
)
@plan_options.decorate(plan_options.PLAN)
@click.option(
    "--kappa",
    "kappas",
    type=opt.NumberList(),
    default=(2.0, 4.0, 8.0, 16.0, 32.0),
    help="New units a request may write under a rule. Default: 2,4,8,16,32.",
)
@click.option(
    "--theta",
    "thetas",
    type=opt.NumberList(),
    default=(0.95,),
    help="Shares of its room from which on a tier is full (conditioned). Default: 0.95.",
)
@click.option(
    "--store-threshold",
    "thresholds",
    type=opt.NumberList(),
    default=(2.0,),
    help="Offers from which on a unit is stored, as a rule of its own, where the engine has such a threshold "
    "(vllm-offload); 0 leaves it out. Default: 2.",
)
@click.option("--unit-tokens", type=opt.TOKENS, help="Tokens the tier stores as one. Default: the preset's.")
@click.option(
    "--window-s", type=opt.POSITIVE, default=60.0, show_default=True, help="Seconds that tasks and evictions count."
)
@click.option(
    "--report-period-s",
    type=opt.Number(min=0),
    default=1.0,
    show_default=True,
    help="How often the tier reports; 0 at every moment.",
)
@click.option("--log", type=click.Path(dir_okay=False), metavar="FILE", help="Also write every decision, as Parquet.")
@plan_options.decorate(plan_options.OUTPUT)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Compare rules of write admission: computed, restored, written and declined tokens, time gained and lost.

    Every rule is simulated at every host capacity, against the tier without one; a line per capacity says which
    rule to set, if any, or that no host tier is better.
    """
    check_usage(given)
    files = (given["out"], given["log"], given["plot"])
    console.check_folder(*files)
    console.check_overwrites(files, given["source"])
    run(given, [spelled for name, spelled in OF_RULES.items() if tier_options.is_given(ctx, name)])


def check_usage(given: dict[str, Any]) -> None:
    """Refuse numbers that are no rule; exit code 2."""
    plan_options.check_plan(given)
    plan_options.check_plot(given["plot"])
    if any(not 0 <= theta <= 1 for theta in given["thetas"]):
        raise click.UsageError("--theta: shares from 0 to 1 are accepted")
    if any(k != int(k) or k == 1 or k > MOST_OFFERS for k in given["thresholds"]):
        raise click.UsageError(f"--store-threshold: whole numbers from 2 to {MOST_OFFERS:,}, or 0, are accepted")


def run(given: dict[str, Any], typed: list[str]) -> None:
    """Read, compare, write; the imports that take time happen here."""
    from capplan.cli import reading
    from capplan.output import written_whole
    from capplan.pipeline import compare_admission
    from capplan.report import admission as report
    from capplan.report.tier_warnings import list_left_out

    console.announce_compilation()
    tier = read_tier(given, typed)
    options = plan_options.read_options(given, tier)
    thresholds = [int(k) for k in given["thresholds"] if k >= 2]
    trace = reading.read(given)
    with show_simulating():
        study = compare_admission(
            trace, given["gpus"], given["model"], options, given["kappas"], given["thetas"], thresholds
        )
    console.warn(study.trace.notes)
    if given["output_format"] == "csv":
        console.warn(list_left_out(study))  # a table and JSON say so themselves
    text = report.render(study, given["output_format"])
    if given["log"] is not None:
        from capplan.report.decision_log import log_decisions

        with show_simulating():
            decisions = log_decisions(study)
        with written_whole(given["log"]) as path:
            decisions.write_parquet(path)
    if given["plot"] is not None:
        from capplan.plot import save_figure
        from capplan.plot_tiers import draw_admission

        save_figure(draw_admission(study), given["plot"])
    console.write_out(text, given["out"])


def read_tier(given: dict[str, Any], typed: list[str]) -> "TierSettings":
    """The preset whose way of storing is kept.

    Parameters
    ----------
    given : dict
    typed : list of str
        Options of rules that were typed.

    Raises
    ------
    SpecError
        An unknown preset, a threshold of one that counts no offers, or options of rules for one without any.
    """
    from dataclasses import replace

    from capplan.errors import SpecError
    from capplan.simulation.presets import load_preset
    from capplan.simulation.settings import TierSettings

    preset = load_preset(given["tier"])
    if typed and preset.kind == "radix":
        raise SpecError(f"tier {preset.name} has write policies instead of rules; accepted: no {', '.join(typed)}")
    if "--store-threshold" in typed and any(given["thresholds"]) and not preset.counts_offers:
        raise SpecError(f"tier {preset.name} counts no offers; accepted: --store-threshold 0")
    settings = TierSettings.of(preset)
    rule = replace(settings.rule, window_s=given["window_s"], report_period_s=given["report_period_s"])
    return settings.change(unit_tokens=given["unit_tokens"], rule=rule)
