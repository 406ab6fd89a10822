"""LMCache storage traces (`.lct`): calls of its storage manager, by key. Refused.

Calls are recorded to be issued again. They name the keys each one touched, in the order of the
machinery: those of a prompt come in several calls, and a prompt's length and its partial end in none.
"""

from collections.abc import Iterator
from pathlib import Path

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.sample import Account, Options, Sample

NAME = "lmcache-calls"
CARRIES = "LMCache storage traces (.lct): recognised, but calls of the storage manager are no prompts"
HEADER = ("format_version", "trace_schema_version", "sm_config_digest")


def matches(sample: Sample) -> bool:
    """Whether the header of such a trace stands first."""
    if sample.kind == "binary":
        head = bytes(sample.first["head"])
        return all(name.encode() in head for name in HEADER)
    return sample.kind == "json" and set(HEADER) <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Raise TraceError: there is nothing to plan from."""
    raise TraceError(
        f"{path}: LMCache storage traces hold calls of the storage manager by key, not which keys make up one prompt "
        "nor how long it was; record LMCache lookup hashes (JSONL with request_id, seq_len, chunk_hashes) or prompts "
        "with token ids instead"
    )
