"""OpenTelemetry spans: JSON of `trace_id` and `spans`. Refused.

A span names an operation and when it ran. Whether prompts stand in it, and under which attribute, is
left to whoever instrumented the program, so there is nothing to take as the prompt.
"""

from collections.abc import Iterator
from pathlib import Path

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.sample import Account, Options, Sample

NAME = "otel-spans"
CARRIES = "JSON with trace_id and spans, or resourceSpans: recognised, but no field of it is known to be the prompt"
EXPORTED = ("resourceSpans", "resource_spans", "scopeSpans")


def matches(sample: Sample) -> bool:
    """Whether the object holds the spans of a trace, as one list or as exporters nest them."""
    return sample.kind in ("json", "folder") and (
        {"trace_id", "spans"} <= sample.fields
        or {"trace_id", "span_id"} <= sample.fields
        or bool(sample.fields & set(EXPORTED))
    )


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Raise TraceError: there is nothing to plan from."""
    raise TraceError(
        f"{path}: OpenTelemetry spans say what ran and when, and keep prompts, if at all, in attributes that differ "
        "between instrumentations; write the messages of every model call as OpenAI chat JSONL (messages, session_id, "
        "arrival_s), which is accepted"
    )
