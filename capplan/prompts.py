"""What a reader yields: one row per request, and its prompt as token ids or as block hashes.

Only identity of prefixes matters from here on: two prompts share what their ids share from the
start. Prompts end at `linking`, which keeps how far each path follows an earlier one and drops the ids.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, overload

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
        listed = list(values)
        names = dict.fromkeys(listed)
        names.pop(None, None)
        numbers = {**dict(zip(names, range(len(names)), strict=True)), None: -1}
        codes = np.fromiter(map(numbers.__getitem__, listed), np.int64, len(listed))
        return cls(codes, tuple(name for name in names if name is not None))

    @classmethod
    def missing(cls, n_rows: int) -> Self:
        """A column of nulls; takes no memory."""
        return cls(np.broadcast_to(np.int64(-1), n_rows), ())

    def decode(self) -> list[str | None]:
        """The strings, row by row."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]

    @property
    def is_complete(self) -> bool:
        """Whether no row is null."""
        return bool((self.codes >= 0).all())


class NumberNames(Sequence[str]):
    """Names that are decimal numbers, kept as numbers: what requests without a name of their own are called."""

    __slots__ = ("values",)

    def __init__(self, values: Int64s) -> None:
        """`values` are the numbers, none of them negative."""
        self.values = values

    @classmethod
    def starting_at(cls, first: int, n_rows: int) -> Self:
        """Consecutive numbers from `first` on."""
        return cls(np.arange(first, first + n_rows, dtype=np.int64))

    def __len__(self) -> int:
        """Number of names."""
        return int(self.values.size)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "NumberNames": ...
    def __getitem__(self, index: int | slice) -> "str | NumberNames":
        """One name, or a part of them."""
        return NumberNames(self.values[index]) if isinstance(index, slice) else str(self.values[index])

    def __iter__(self) -> Iterator[str]:
        """The names in turn."""
        return map(str, self.values.tolist())

    def are_unique(self) -> bool:
        """Whether no name stands twice."""
        values = self.values
        return bool((values[1:] > values[:-1]).all()) or np.unique(values).size == values.size

    def __eq__(self, other: object) -> bool:
        """Whether the names are those of another sequence."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of every sequence that is not a tuple

    def __repr__(self) -> str:
        """The names as a list would show them."""
        return repr(list(self))


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
        unknown = unknown_seconds(n)
        return cls(
            request_ids=NumberNames.starting_at(0, n) if request_ids is None else request_ids,
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
            elif isinstance(column, NumberNames):
                picked[field.name] = NumberNames(column.values[rows])
            elif field.name == "request_ids":
                picked[field.name] = [column[row] for row in rows.tolist()]
            else:
                picked[field.name] = column[rows]
        return replace(self, **picked)


def unknown_seconds(n_rows: int) -> Float64s:
    """A column of NaN; takes no memory."""
    return np.broadcast_to(np.nan, n_rows)


def is_unknown(seconds: Float64s) -> bool:
    """Whether a column is one of `unknown_seconds`, or empty; other columns of NaN are not looked at."""
    return seconds.size == 0 or (seconds.strides == (0,) and bool(np.isnan(seconds[0])))


def join_labels(parts: Sequence[Labels]) -> Labels:
    """One column out of several; equal names stay one label."""
    if not any(part.names for part in parts):
        return Labels.missing(sum(part.codes.size for part in parts))
    numbers: dict[str, int] = {}
    codes = []
    for part in parts:
        recode = np.array([numbers.setdefault(name, len(numbers)) for name in part.names] + [-1], np.int64)
        codes.append(recode[part.codes])
    return Labels(np.concatenate(codes) if codes else np.zeros(0, np.int64), tuple(numbers))


def join_names(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    """The names of several tables; numbers stay numbers."""
    numbers = [part.values for part in parts if isinstance(part, NumberNames)]
    if numbers and len(numbers) == len(parts):
        return NumberNames(np.concatenate(numbers))
    return [name for part in parts for name in part]


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
            columns[field.name] = join_names(pieces)
        elif field.name.endswith("_s") and all(is_unknown(piece) for piece in pieces):
            columns[field.name] = unknown_seconds(sum(piece.size for piece in pieces))
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

    def take(self, rows: Int64s) -> Self:
        """The given rows, in ascending order."""
        if rows.size == len(self.requests):
            return self
        if rows.size == 0 or int(rows[-1]) == rows.size - 1:
            end = self.offsets[rows.size]
            ids, offsets = self.ids[:end], self.offsets[: rows.size + 1]
        else:
            lengths = np.diff(self.offsets)
            offsets = np.zeros(rows.size + 1, np.int64)
            np.cumsum(lengths[rows], out=offsets[1:])
            is_wanted = np.zeros(lengths.size, bool)
            is_wanted[rows] = True
            ids = self.ids[np.repeat(is_wanted, lengths)]
        spaces = None if self.namespaces is None else self.namespaces[rows]
        return replace(self, requests=self.requests.take(rows), ids=ids, offsets=offsets, namespaces=spaces)
