"""Option types and the options several commands share, each defined once."""

from collections.abc import Callable
from typing import Any

import click

POSITIVE = click.FloatRange(min=0, min_open=True)
TOKENS = click.IntRange(min=1)


class NumberList(click.ParamType[tuple[float, ...]]):
    """Numbers from 0 up, separated by commas; sorted, each once."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Parse, or fail as wrong usage."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = {float(part) for part in str(value).split(",")}
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 5,10,20", param, ctx)
        if any(not 0 <= number < float("inf") for number in numbers):
            self.fail(f"{value!r} holds a number below 0 or without end", param, ctx)
        return tuple(sorted(numbers))


class NameList(click.ParamType[tuple[str, ...]]):
    """Names separated by commas."""

    name = "NAME[,NAME...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Parse, or fail as wrong usage."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} holds an empty name", param, ctx)
        return tuple(dict.fromkeys(names))


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that reads a trace."""
    for decorate in reversed(
        (
            click.argument("source", type=click.Path()),
            click.option("--from", "format_name", default="auto", metavar="FORMAT", help="Format of the source; "
                         "default: detected from its content."),
            click.option("--block-size", type=TOKENS, help="Tokens per block hash, where the source does not say."),
            click.option("--ids", type=click.Choice(["chained", "content"]), default="chained", show_default=True,
                         help="Block hashes that are not prefix-chained: refuse them, or chain them anew."),
        )
    ):  # fmt: skip
        command = decorate(command)
    return command
