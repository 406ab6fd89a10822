"""`capplan synth`: a seeded synthetic agent trace."""

from typing import Any

import click
from click.core import ParameterSource

from capplan.cli import console
from capplan.cli import options as opt

FIELDS = {
    "tasks": "n_tasks",
    "shared_prompt": "shared_prompt_tokens",
    "instruction": "instruction_tokens",
    "observation": "observation_tokens",
    "output_tokens": "output_tokens",
    "window": "window_tokens",
    "edits": "edit_probability",
    "sub_agents": "sub_agent_probability",
    "gap": "gap_s",
    "gap_sigma": "gap_sigma",
    "arrivals": "arrivals_per_s",
}
SHARE = opt.Number(0, 1)
SECONDS = opt.Number(min=0)


@click.command("synth")
@click.option(
    "--preset",
    type=click.Choice(["coding", "chat", "rewriting"]),
    default="coding",
    show_default=True,
    help="Agents whose contexts grow; short chats behind one system prompt; agents that edit their history.",
)
@click.option("--tasks", type=opt.TOKENS, help="Tasks.")
@click.option("--calls", type=opt.TOKENS, help="Mean model calls per task; with --tasks, exact in total.")
@click.option("--shared-prompt", type=click.IntRange(min=0), help="Tokens of the prompt all tasks share.")
@click.option("--instruction", type=opt.TOKENS, help="Mean tokens a task begins with after it.")
@click.option("--observation", type=opt.TOKENS, help="Mean tokens a tool or a user adds before a call (log-normal).")
@click.option("--output-tokens", type=opt.TOKENS, help="Mean tokens the model adds at a call.")
@click.option("--window", type=opt.TOKENS, help="Longest prompt; beyond it history is compacted.")
@click.option("--edits", type=SHARE, help="Chance per call that history is edited.")
@click.option("--sub-agents", type=SHARE, help="Chance per call that sub-agents work before the next one.")
@click.option("--gap", type=SECONDS, help="Mean seconds from a response to the next call.")
@click.option("--gap-sigma", type=SECONDS, help="Spread of the gaps: standard deviation of their logarithm.")
@click.option("--arrivals", type=opt.POSITIVE, help="Tasks that arrive per second; without it, a pool sets the times.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("-o", "--output", "out", required=True, type=click.Path(dir_okay=False), help="Parquet file to write.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Draw tasks with a shared prompt, growing or edited contexts, sub-agents and tool gaps.

    The same options and seed give the same file. Options left out keep the preset's value.
    """
    console.check_folder(given["out"])
    from dataclasses import replace

    from capplan.readers.canonical import write_trace
    from capplan.synthetic import generate
    from capplan.workloads import PRESETS

    preset = PRESETS[given["preset"]]
    changes: dict[str, Any] = {field: given[name] for name, field in FIELDS.items() if given[name] is not None}
    if given["calls"] is not None:
        changes["n_calls"] = given["calls"] * changes.get("n_tasks", preset.n_tasks)
    elif given["tasks"] is not None:
        changes["n_calls"] = round(preset.n_calls / preset.n_tasks * given["tasks"])
    try:
        workload = replace(preset, **changes)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    write_trace(generate(workload, given["seed"]), given["out"], describe_command(ctx))


def describe_command(ctx: click.Context) -> str:
    """The command line that makes the same file: the options that were given, in declared order."""
    words = ["capplan", "synth"]
    for param in ctx.command.params:
        name = param.name or ""
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [min(param.opts, key=len), str(ctx.params[name])]
    return " ".join(words)
