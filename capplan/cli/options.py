"""Option types and the options several commands share, each defined once."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

SMALLEST, LARGEST = 1e-9, 1e12
FORMATS = (
    "capplan", "kv-cache-tester", "qwen-bailian", "mooncake-delta", "mooncake-extended", "mooncake", "dynamo",
    "lmcache-hashes", "baseten", "tracelab", "applied-compute", "burstgpt", "azure", "kv-events",
    "lmcache-calls", "lmcache-log", "otel-spans",
    "replay-trace", "agent-run", "llmservingsim", "mini-swe-agent", "swe-agent", "tau-bench", "openhands",
    "lmcache-agent", "aiperf-inputs", "aibrix", "sagemaker-capture", "openai-chat", "token-ids", "block-hashes",
)  # fmt: skip


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


class Moment(click.ParamType["float | datetime"]):
    """Seconds of arrival, or a date and time in ISO 8601, UTC unless it says otherwise."""

    name = "SECONDS|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "float | datetime":
        """Parse, or fail as wrong usage."""
        if isinstance(value, float | datetime):
            return value
        try:
            seconds = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                self.fail(f"{value!r} is neither seconds nor a time such as 2026-01-31T08:00:00", param, ctx)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if not abs(seconds) <= LARGEST:
            self.fail(f"{value!r} is not a number up to {LARGEST:g} either way", param, ctx)
        return seconds


def or_none(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:
    """What was given, None where nothing was."""
    return value or None


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that reads a trace."""
    for decorate in reversed(
        (
            click.argument("source", type=click.Path(), nargs=-1, required=True, callback=or_none),
            click.option("--from", "format_name", type=click.Choice(["auto", *FORMATS]), default="auto",
                         help="Format of the source; default: detected from its content."),
            click.option("--block-size", type=TOKENS, help="Tokens per block hash, where the source does not say."),
            click.option("--ids", type=click.Choice(["chained", "content"]), default="chained", show_default=True,
                         help="Block hashes that are not prefix-chained: refuse them, or chain them anew."),
            click.option("--namespace", type=click.Choice(["source", "file", "session"]),
                         help="Where ids, and names of requests and sessions, mean the same. "
                         "Default: as the format says."),
            click.option("--tokenizer", metavar="PATH",
                         help="For text: a tokenizer.json or its folder; `bytes` for one token a byte."),
            click.option("--assume-prefix", type=click.Choice(["session"]),
                         help="For sizes without content: every call repeats its session's previous prompt."),
            click.option("--lengths", type=click.Choice(["stated", "ids"]), default="stated", show_default=True,
                         help="Where a prompt's length contradicts its block ids: believe it, or take block size "
                         "times ids."),
            click.option("--model-filter", metavar="NAME",
                         help="Keep calls of this model; * and ? stand for anything."),
            click.option("--limit", type=click.IntRange(1), metavar="N", help="Keep the first N requests."),
            click.option("--since", type=Moment(), help="Keep requests sent at this arrival time or later."),
            click.option("--until", type=Moment(), help="Keep requests sent before this arrival time."),
        )
    ):  # fmt: skip
        command = decorate(command)
    return command
