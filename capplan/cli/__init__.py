"""The command line. Nothing heavy is imported before a command is named and its options are right."""

from importlib import import_module

import click

from capplan import __version__
from capplan.errors import CapplanError

COMMANDS = {
    "predict": "Predict prefill, restores and a verdict for every host capacity.",
    "simulate": "Simulate an engine's host tier as it really behaves.",
    "admission": "Compare rules that limit writes to the host tier.",
    "card": "Print the settings each engine takes for a host capacity.",
    "ingest": "Turn any readable trace into the canonical prefix-linked file.",
    "check": "Show what a trace holds, who shares with whom, and what is odd about it.",
    "formats": "List the trace formats that can be read.",
    "synth": "Generate a synthetic agent trace.",
    "calibrate": "Fit prefill, restores and overhead to measured runs; write a GPU profile.",
    "gpus": "List the GPU profiles.",
    "models": "List the model profiles.",
    "tiers": "List the tiers that can be simulated.",
    "footprint": "Show what the KV of a model weighs.",
}


INTERRUPTED = 130


class LazyGroup(click.Group):
    """Imports a command's module when the command is named, and reports CapplanError on one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Command names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"capplan.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error the user can act on is one line and exit code 1."""
        try:
            return super().invoke(ctx)
        except CapplanError as error:
            raise click.ClickException(" ".join(str(error).split())) from error
        except KeyboardInterrupt:
            click.echo("capplan: interrupted, nothing was written", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="capplan")
def main() -> None:
    """Plan the host KV cache of an LLM agent fleet from a trace, before any GPU runs."""
