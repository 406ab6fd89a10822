"""What a reader yields: one row per request, and its prompt as token ids or as block hashes.

Only identity of prefixes matters from here on: two prompts share what their ids share from the
start. Prompts end at `linking`, which keeps how far each path follows an earlier one and drops the ids.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Labels:
    """A nullable string column: `codes` (n,) int64 index `names`, -1 is null."""

    codes: Int64s
    names: tuple[str, ...]

    @classmethod
    def encode(cls, values: Iterable[str | None]) -> Self:
        """Number distinct strings in order of first appearance."""
        numbers: dict[str, int] = {}
        codes = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
        return cls(np.array(codes, np.int64), tuple(numbers))

    @classmethod
    def missing(cls, n_rows: int) -> Self:
        """A column of nulls."""
        return cls(np.full(n_rows, -1, np.int64), ())

    def decode(self) -> list[str | None]:
        """The strings, row by row."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]

    @property
    def is_complete(self) -> bool:
        """Whether no row is null."""
        return bool((self.codes >= 0).all())


@dataclass(frozen=True, slots=True)
class Requests:
    """The request columns of a trace (docs/model.md section 1), row by row in emission order.

    Times are float64 seconds, NaN where unknown; token counts are int64.
    """

    request_ids: Sequence[str]
    session: Labels
    task: Labels
    arrival_s: Float64s
    start_s: Float64s
    gap_s: Float64s
    service_s: Float64s
    tail_gap_s: Float64s
    input_tokens: Int64s
    output_tokens: Int64s

    @classmethod
    def of(
        cls,
        input_tokens: Int64s,
        *,
        output_tokens: Int64s | None = None,
        request_ids: Sequence[str] | None = None,
        session: Labels | None = None,
        task: Labels | None = None,
        arrival_s: Float64s | None = None,
        start_s: Float64s | None = None,
        gap_s: Float64s | None = None,
        service_s: Float64s | None = None,
        tail_gap_s: Float64s | None = None,
    ) -> Self:
        """Build the columns from those a source has; the rest is null (output tokens: 0)."""
        n = len(input_tokens)
        unknown = np.full(n, np.nan)
        return cls(
            request_ids=[str(i) for i in range(n)] if request_ids is None else request_ids,
            session=Labels.missing(n) if session is None else session,
            task=Labels.missing(n) if task is None else task,
            arrival_s=unknown if arrival_s is None else arrival_s,
            start_s=unknown if start_s is None else start_s,
            gap_s=unknown if gap_s is None else gap_s,
            service_s=unknown if service_s is None else service_s,
            tail_gap_s=unknown if tail_gap_s is None else tail_gap_s,
            input_tokens=np.asarray(input_tokens, np.int64),
            output_tokens=np.zeros(n, np.int64) if output_tokens is None else np.asarray(output_tokens, np.int64),
        )

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.input_tokens)

    def take(self, rows: Int64s) -> Self:
        """The given rows, in the given order."""
        picked: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, Labels):
                picked[field.name] = Labels(column.codes[rows], column.names)
            elif field.name == "request_ids":
                picked[field.name] = [column[row] for row in rows.tolist()]
            else:
                picked[field.name] = column[rows]
        return replace(self, **picked)


def join_labels(parts: Sequence[Labels]) -> Labels:
    """One column out of several; equal names stay one label."""
    numbers: dict[str, int] = {}
    codes = []
    for part in parts:
        recode = np.array([numbers.setdefault(name, len(numbers)) for name in part.names] + [-1], np.int64)
        codes.append(recode[part.codes])
    return Labels(np.concatenate(codes) if codes else np.zeros(0, np.int64), tuple(numbers))


def join_requests(parts: Sequence[Requests]) -> Requests:
    """The rows of several tables, one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, object] = {}
    for field in fields(Requests):
        pieces = [getattr(part, field.name) for part in parts]
        if field.name in ("session", "task"):
            columns[field.name] = join_labels(pieces)
        elif field.name == "request_ids":
            columns[field.name] = [name for piece in pieces for name in piece]
        else:
            columns[field.name] = np.concatenate(pieces)
    return Requests(**columns)  # type: ignore[arg-type]  # every field is filled by name above


@dataclass(frozen=True, slots=True)
class Prompts:
    """A batch of requests with the ids of their paths.

    Attributes
    ----------
    requests : Requests
    ids : (total,) uint32 or uint64
        For `tokens`, the token ids of every path (prompt, then output where known), one after the
        other. For `hashes`, one uint64 per full block of the prompt.
    offsets : (n + 1,) int64
        Path `i` is ``ids[offsets[i]:offsets[i + 1]]``.
    kind : "tokens" or "hashes"
    block_tokens : int
        Tokens per block: what the source hashed, or the resolution to link token ids at.
    outputs_known : bool
        Whether paths go on with the output's ids after the prompt's.
    namespaces : (n,) uint64
        Hashes are comparable only between rows of one namespace.
    """

    requests: Requests
    ids: NDArray[np.uint32] | NDArray[np.uint64]
    offsets: Int64s
    kind: Literal["tokens", "hashes"]
    block_tokens: int
    outputs_known: bool = False
    namespaces: NDArray[np.uint64] | None = None
