"""Trace: the checked, prefix-linked table every prediction starts from (docs/model.md section 1)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan import schema
from capplan.prompts import Requests

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """One row per model call: how long its prompt is, and how far it follows an earlier path.

    Attributes
    ----------
    requests : Requests
        Names, sessions, tasks, times and token counts.
    parent : (n,) int64
        Earlier row whose path shares the longest prefix, ties to the earliest; -1 none.
    shared_tokens : (n,) int64
        Length of that prefix, a multiple of `resolution_tokens`.
    resolution_tokens : int
        Granularity of `shared_tokens`; every tier's chunk is a multiple of it.
    outputs_known : bool
        Whether paths go on into the outputs, so that a later prompt can repeat one.
    source : str
        What it was made from, in words.
    notes : tuple of str
        What the reader found, assumed or left out.
    provenance : mapping
        What a file of it keeps for good: "source" (what it was first made from), "command" and the
        reader's "ledger", where they are known. No part of the fingerprint.
    """

    requests: Requests
    parent: Int64s
    shared_tokens: Int64s
    resolution_tokens: int
    outputs_known: bool = False
    source: str = ""
    notes: tuple[str, ...] = field(default=())
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.requests)

    def check(self, where: str) -> None:
        """Check the whole table once; raises TraceError naming `where`, the row and what is accepted."""
        schema.check_requests(self.requests, where)
        schema.check_links(
            self.requests, self.parent, self.shared_tokens, self.resolution_tokens, self.outputs_known, where
        )

    @cached_property
    def fingerprint(self) -> str:
        """Digest of everything a prediction depends on; names of requests and sessions are not part of it."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{schema.FORMAT_VERSION} {self.resolution_tokens} {self.outputs_known}".encode())
        r = self.requests
        times = (r.arrival_s, r.start_s, r.gap_s, r.service_s, r.tail_gap_s)
        for column in (r.input_tokens, r.output_tokens, self.parent, self.shared_tokens):
            digest.update(np.ascontiguousarray(column, "<i8").tobytes())
        for seconds in times:
            digest.update(np.where(np.isnan(seconds), np.nan, seconds).astype("<f8").tobytes())
        for labels in (r.session, r.task):
            digest.update(_renumber(labels.codes).astype("<i8").tobytes())
        return digest.hexdigest()


def _renumber(codes: Int64s) -> Int64s:
    """Codes by order of first appearance, so that renaming changes nothing; -1 stays."""
    known, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(known.size, np.int64)
    rank[np.argsort(first)] = np.arange(known.size)
    return np.where(codes < 0, -1, rank[inverse])
