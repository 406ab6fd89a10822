"""Option types and the options several commands share, each defined once."""

from collections.abc import Callable
from typing import Any

import click

SMALLEST, LARGEST = 1e-9, 1e12
FORMATS = ("capplan", "kv-cache-tester", "mooncake", "token-ids", "block-hashes")


class Number(click.FloatRange):
    """A number of a size arithmetic stands: no NaN, which passes any range, and nothing endless."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse, or fail as wrong usage."""
        number = float(super().convert(value, param, ctx))
        if number != 0 and not SMALLEST <= abs(number) <= LARGEST:
            self.fail(f"{value!r} is not a number from {SMALLEST:g} to {LARGEST:g}", param, ctx)
        return number


POSITIVE = Number(min=0, min_open=True)
TOKENS = click.IntRange(1, (1 << 31) - 1)
COUNT = click.IntRange(1, 1_000_000)


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
        if any(not 0 <= number <= LARGEST for number in numbers):
            self.fail(f"{value!r} holds a number that is not from 0 to {LARGEST:g}", param, ctx)
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
            click.option("--from", "format_name", type=click.Choice(["auto", *FORMATS]), default="auto",
                         help="Format of the source; default: detected from its content."),
            click.option("--block-size", type=TOKENS, help="Tokens per block hash, where the source does not say."),
            click.option("--ids", type=click.Choice(["chained", "content"]), default="chained", show_default=True,
                         help="Block hashes that are not prefix-chained: refuse them, or chain them anew."),
        )
    ):  # fmt: skip
        command = decorate(command)
    return command
