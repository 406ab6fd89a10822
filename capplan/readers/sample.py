"""What format detection looks at, and what every reader keeps account of."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from capplan.errors import TraceError
from capplan.readers import parquet
from capplan.trace import Trace

PARQUET_MAGIC = b"PAR1"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller says about a source that does not say it itself."""

    block_tokens: int | None = None


@dataclass(slots=True)
class Account:
    """What a reader did with every row it met; nothing is dropped without being counted here."""

    n_read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)

    def assume(self, what: str) -> None:
        """Note an assumption once."""
        if what not in self.assumed:
            self.assumed.append(what)

    def annotate(self, trace: Trace, format_name: str, rechained: bool) -> Trace:
        """The trace with this account as its notes."""
        notes = [f"{self.n_read} requests read as {format_name}"]
        notes += [f"{count} left out: {reason}" for reason, count in sorted(self.skipped.items())]
        notes += [f"{count} x {what}" for what, count in sorted(self.found.items())]
        notes += self.assumed
        if rechained:
            notes.append("block ids chained anew by content (--ids content)")
        return replace(trace, notes=tuple(notes))


@dataclass(frozen=True, slots=True)
class Sample:
    """The first look at a source."""

    kind: Literal["parquet", "json", "folder"]
    fields: frozenset[str]
    first: Mapping[str, Any]

    def describe(self) -> str:
        """What was found, for an error message."""
        names = ", ".join(sorted(self.fields)[:8]) or "nothing"
        return f"{self.kind} with fields {names}"


def take_sample(path: Path) -> Sample:
    """Look at the beginning of a file, or at the first session of a folder.

    Raises
    ------
    TraceError
        Missing, unreadable, empty, or neither Parquet nor JSON.
    """
    if path.is_dir():
        files = find_sessions(path)
        inner = take_sample(next((file for file in files if file.stat().st_size > 0), files[0]))
        return Sample("folder", inner.fields, inner.first)
    try:
        with path.open("rb") as file:
            head = file.read(4)
            if head == PARQUET_MAGIC:
                return _sample_parquet(path)
            file.seek(0)
            return _sample_json(path, file)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable trace file or folder is needed") from error


def find_sessions(folder: Path) -> list[Path]:
    """The JSON files of a folder in file-name order; raises TraceError where there are none."""
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix == ".json" and p.is_file())
    except OSError as error:
        raise TraceError(f"{folder}: {error.strerror or error}; a readable trace file or folder is needed") from error
    if not files:
        raise TraceError(f"{folder}: no .json files; a folder of kv-cache-tester sessions is accepted")
    return files


def _sample_parquet(path: Path) -> Sample:
    types, metadata = parquet.read_header(path)
    return Sample("parquet", frozenset(types), metadata)


def _sample_json(path: Path, lines: Iterable[bytes]) -> Sample:
    texts = ((number, line.removeprefix(BYTE_ORDER_MARK).strip()) for number, line in enumerate(lines, 1))
    number, text = next(((number, text) for number, text in texts if text), (0, b""))
    if not text:
        raise TraceError(f"{path}: empty file; at least one request is needed")
    try:
        first = msgspec.json.decode(text)
    except DECODE_ERRORS:
        try:
            first = msgspec.json.decode(path.read_bytes().removeprefix(BYTE_ORDER_MARK))
        except DECODE_ERRORS as error:
            raise TraceError(
                f"{path}, line {number}: neither Parquet nor JSON ({error}); a known trace format is needed"
            ) from error
    if not isinstance(first, dict):
        raise TraceError(
            f"{path}, line {number}: JSON {type(first).__name__}; one object per request or session is accepted"
        )
    return Sample("json", frozenset(first), first)
