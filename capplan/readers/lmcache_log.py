"""Logs of an LMCache or vLLM server. Refused.

Their lines count the tokens a request found, stored and loaded. Two requests that found as many may
have found the same or not, so nothing can be said of another capacity.
"""

from collections.abc import Iterator
from pathlib import Path

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.sample import Account, Options, Sample

NAME = "lmcache-log"
CARRIES = "lines of an LMCache server's log: recognised, but they count hits and do not say what prompts share"
MARK = b"] LMCache "


def matches(sample: Sample) -> bool:
    """Whether lines of LMCache stand among the first of a log."""
    return sample.kind == "log" and MARK in bytes(sample.first["head"])


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Raise TraceError: there is nothing to plan from."""
    raise TraceError(
        f"{path}: a server's log counts the tokens each request found at one capacity, not which prompts share them, "
        "and so says nothing of another capacity; record LMCache lookup hashes (JSONL with request_id, seq_len, "
        "chunk_hashes) or prompts with token ids instead"
    )
