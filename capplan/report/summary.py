"""What a trace is, as lines to read or as JSON, format 1."""

import json
import textwrap
from dataclasses import asdict
from typing import Any

from capplan.readers.formats import CLOCKS
from capplan.summary import Clock, Summary
from capplan.units import format_seconds, format_share, format_tokens

FORMAT_VERSION = 1
FORMATS = ("table", "json")
WIDTH = 17
IDS = {
    "tokens": "token ids, hashed in blocks",
    "hashes": "block hashes, checked to be prefix-chained",
    "content": "block hashes, chained anew by content",
}


def render_summary(summary: Summary, format: str = "table", width: int = 80) -> str:
    """The summary as text, ending in a newline; `width` is for the table."""
    if format == "json":
        return json.dumps(describe_summary(summary), indent=1, allow_nan=False) + "\n"
    if format == "table":
        return "\n".join(_fold(name, fact, width) for name, fact in list_facts(summary)) + "\n"
    raise ValueError(f"format is {format!r}; accepted: {', '.join(FORMATS)}")


def describe_summary(summary: Summary) -> dict[str, Any]:
    """Everything known, ready for JSON: keys carry their units."""
    trace, sharing = summary.trace, summary.sharing
    return {
        "format": FORMAT_VERSION,
        "source": trace.source,
        "made_from": trace.provenance.get("source", trace.source),
        "command": trace.provenance.get("command"),
        "fingerprint": trace.fingerprint,
        "requests": len(trace),
        "sessions": summary.n_sessions or None,
        "tasks": summary.n_tasks or None,
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        "longest_prompt_tokens": summary.longest_prompt_tokens,
        "distinct_tokens": summary.distinct_tokens,
        "resolution_tokens": trace.resolution_tokens,
        "outputs_known": trace.outputs_known,
        "ids": find_ids(summary),
        "sharing": {**asdict(sharing), "shared_tokens": sharing.shared_tokens},
        "clock": {**asdict(summary.clock), "recorded": find_clocks(summary)},
        "oddities": summary.oddities,
        "account": trace.provenance.get("ledger"),
        "notes": trace.notes,
    }


def find_ids(summary: Summary) -> str | None:
    """What the trace was linked from: "tokens", "hashes", or "content" for hashes chained anew."""
    ledger = summary.trace.provenance.get("ledger")
    if not isinstance(ledger, dict) or ledger.get("kind") not in IDS:
        return None
    return "content" if ledger["kind"] == "hashes" and ledger.get("rechains") else str(ledger["kind"])


def find_clocks(summary: Summary) -> dict[str, str]:
    """Which times are real, by the format requests were read as; nothing of formats that leave it open."""
    ledger = summary.trace.provenance.get("ledger")
    formats = ledger.get("formats") if isinstance(ledger, dict) else None
    return {name: CLOCKS[name] for name in formats if name in CLOCKS} if isinstance(formats, dict) else {}


def _fold(name: str, fact: str, width: int) -> str:
    return textwrap.fill(
        f"{name:<{WIDTH}}{fact}", width, subsequent_indent=" " * WIDTH, break_long_words=False, break_on_hyphens=False
    )


def list_facts(summary: Summary) -> list[tuple[str, str]]:
    """What is known, and what it is, in the order of the table."""
    trace, sharing = summary.trace, summary.sharing
    total = max(1, summary.input_tokens)

    def share(n_tokens: int) -> str:
        return f"{format_tokens(n_tokens)} tokens, {format_share(n_tokens / total)}"

    people = ", ".join(
        f"{count:,} {name}{'s' * (count != 1)}"
        for count, name in ((summary.n_sessions, "session"), (summary.n_tasks, "task"))
        if count
    )
    ids = find_ids(summary)
    facts = [
        ("made from", str(trace.provenance.get("source", trace.source))),
        ("requests", f"{len(trace):,}" + (f" in {people}" if people else "; no sessions, no tasks")),
        (
            "input",
            f"{format_tokens(summary.input_tokens)} tokens: {format_tokens(summary.input_tokens / len(trace))} a "
            f"request, {format_tokens(summary.longest_prompt_tokens)} at most",
        ),
        ("output", f"{format_tokens(summary.output_tokens)} tokens"),
        (
            "blocks",
            f"{trace.resolution_tokens} tokens" + (f"; {IDS[ids]}" if ids else "")
            + ("; outputs known" if trace.outputs_known else "; outputs unknown"),
        ),
        ("shared", f"{share(sharing.shared_tokens)} of the input, with an earlier request"),
        ("  same session", share(sharing.session_tokens)),
        ("  same task", share(sharing.task_tokens)),
        ("  any other", share(sharing.other_tokens)),
        ("distinct", f"{format_tokens(summary.distinct_tokens)} tokens of paths"),
        ("clock", describe_clock(summary.clock, len(trace))),
    ]  # fmt: skip
    facts += [("  real", clock) for clock in find_clocks(summary).values()]
    facts += [("odd", f"{count:,} x {what}") for what, count in summary.oddities.items()]
    return facts + [("read", note) for note in trace.notes]


def describe_clock(clock: Clock, n_rows: int) -> str:
    """The times in words."""
    if clock.n_arrivals == n_rows and clock.span_s is not None:
        text = f"arrivals over {format_seconds(clock.span_s)}"
        text += f" from {clock.begins}" if clock.begins else ""
        text += f", {clock.n_back:,} steps back in time" if clock.n_back else ""
        text += f", {clock.n_ties:,} ties" if clock.n_ties else ""
    elif clock.n_arrivals:
        text = f"arrivals of {clock.n_arrivals:,} requests only"
    else:
        text = "no arrivals on a common clock"
    counts = (("starts", clock.n_starts), ("gaps", clock.n_gaps), ("service times", clock.n_services))
    known = [name if count == n_rows else f"{count:,} {name}" for name, count in counts if count]
    return f"{text}; {', '.join(known)}" if known else text
