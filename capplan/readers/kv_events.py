"""KV-cache events of vLLM, SGLang or Dynamo, recorded as msgpack or JSON. Refused.

Batches of [time, [events], rank] say which blocks a server stored and removed. They name no request
and no hit, so they tell what was resident, not what was asked for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.sample import Account, Options, Sample

NAME = "kv-events"
CARRIES = "msgpack or JSON of BlockStored, BlockRemoved, AllBlocksCleared events: recognised, but they name no request"
EVENTS = ("BlockStored", "BlockRemoved", "AllBlocksCleared")
EVENT_FIELDS = ("event", "event_type", "type", "kind")


def matches(sample: Sample) -> bool:
    """Whether what stands first is an event or a batch of events."""
    if sample.kind == "binary":
        head = bytes(sample.first["head"])
        return any(name.encode() in head for name in EVENTS)
    return sample.kind == "json" and _names_event(list(sample.first.values()), depth=4)


def _names_event(value: Any, depth: int) -> bool:
    """Whether a tag of an event stands where a recording may have it: first in a list, or as a field."""
    if isinstance(value, dict):
        value = [value.get(name) for name in EVENT_FIELDS] + [inner for inner in value.values() if type(inner) is list]
    if not isinstance(value, list) or depth == 0:
        return False
    return any((isinstance(inner, str) and inner in EVENTS) or _names_event(inner, depth - 1) for inner in value[:8])


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Raise TraceError: there is nothing to plan from."""
    raise TraceError(
        f"{path}: KV-cache events tell which blocks were stored and removed, not which request asked for which blocks, "
        "so they show what was resident and no reuse; record requests instead (Dynamo request trace, LMCache lookup "
        "hashes, or prompts with token ids)"
    )
