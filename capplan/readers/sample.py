"""What format detection looks at, what the caller says of a source, and the account every reader keeps."""

import csv
import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal

import msgspec

from capplan.errors import TraceError
from capplan.readers import files, parquet
from capplan.readers.files import BYTE_ORDER_MARK, COMPRESSED_SUFFIXES

PARQUET_MAGIC = b"PAR1"
HEAD_BYTES = 1 << 16
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".parquet", ".csv")
DELIMITERS = ",;\t"

Namespace = Literal["source", "file", "session"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller says about a source that does not say it itself.

    Attributes
    ----------
    block_tokens : int, optional
        Tokens per block hash.
    tokenizer : str, optional
        Path of a tokenizer, or "bytes".
    model_filter : str, optional
        Name or pattern (``*``, ``?``) of the models whose calls are kept.
    namespace : "source", "file" or "session", optional
        Where ids mean the same; without it, as the format says. Applied by `read_trace` to what a
        reader yields.
    assume_prefix : "session", optional
        Where a source has sizes only: every call repeats its session's previous prompt.
    """

    block_tokens: int | None = None
    tokenizer: str | None = None
    model_filter: str | None = None
    namespace: Namespace | None = None
    assume_prefix: Literal["session"] | None = None

    def keeps_model(self, model: str | None, account: "Account") -> bool:
        """Whether a call of this model is wanted; what is not is counted as skipped."""
        if self.model_filter is None:
            return True
        account.knows_models |= model is not None
        if model is not None and fnmatch.fnmatchcase(model, self.model_filter):
            return True
        account.skipped[f"of another model than {self.model_filter} (--model-filter)"] += 1
        return False


@dataclass(slots=True)
class Account:
    """What a reader did with every row it met; nothing is dropped without being counted here.

    Attributes
    ----------
    n_read : int
        Requests read.
    skipped, found : Counter
        Rows left out by reason, and oddities.
    assumed : list of str
        What had to be assumed, each once.
    origin_s : float, optional
        What the source's own clock shows, in seconds, where `arrival_s` is 0: sources of one trace are
        brought onto one clock by it. None where the source has no clock, or one of its own.
    is_epoch : bool
        Whether that clock counts from 1970 (UTC).
    knows_models : bool
        Whether a row named its model; set by `Options.keeps_model`.
    """

    n_read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    origin_s: float | None = None
    is_epoch: bool = False
    knows_models: bool = False

    def assume(self, what: str) -> None:
        """Note an assumption once."""
        if what not in self.assumed:
            self.assumed.append(what)


@dataclass(frozen=True, slots=True)
class Sample:
    """The first look at a source.

    Attributes
    ----------
    kind : "parquet", "json", "csv", "binary" or "folder"
        Of a compressed file, what is in it.
    fields : frozenset of str
        Column names, or the keys of the first JSON object (of a list: of its first element); in a
        folder, those of its first file that is not empty.
    first : mapping
        The first JSON object; Parquet's own metadata; the first CSV row by column; ``{"head": bytes}``
        of what is none of these.
    layout : "lines", "document", "list" or ""
        How JSON is laid out: one object a line, one object in all, one list of objects.
    path : Path
        The file, or the folder.
    names : tuple of str
        In a folder, its files of a known suffix, relative, in reading order.
    """

    kind: Literal["parquet", "json", "csv", "binary", "folder"]
    fields: frozenset[str]
    first: Mapping[str, Any]
    layout: Literal["lines", "document", "list", ""] = ""
    path: Path = Path()
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        """What was found, for an error message."""
        if self.kind == "binary":
            return f"binary data that begins with {bytes(self.first['head'][:8]).hex(' ')}"
        names = ", ".join(sorted(self.fields)[:8]) or "nothing"
        return f"{self.kind} with fields {names}"


def take_sample(path: Path) -> Sample:
    """Look at the beginning of a file, or at the first file of a folder.

    Raises
    ------
    TraceError
        Missing, unreadable, empty, or text that is neither JSON nor CSV.
    """
    try:
        if path.is_dir():
            return _sample_folder(path)
        if path != files.STDIN:
            path.open("rb").close()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable trace file or folder is needed") from error
    with files.open_bytes(path) as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(PARQUET_MAGIC):
        types, metadata = parquet.read_header(path)
        return Sample("parquet", frozenset(types), metadata, path=path)
    start = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if start[:1] not in (b"{", b"[") and start and _is_binary(head):
        return Sample("binary", frozenset(), {"head": head}, path=path)
    return _sample_text(path)


def find_files(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """Files of a folder and its subfolders whose suffix, but for compression, is one of these; by path.

    Hidden ones are passed over. Raises TraceError where there are none.
    """
    try:
        list(folder.iterdir())
        found = [file for file in folder.rglob("*") if _suffix_of(file) in suffixes and file.is_file()]
    except OSError as error:
        raise TraceError(f"{folder}: {error.strerror or error}; a readable trace file or folder is needed") from error
    inside = [(file.relative_to(folder), file) for file in found]
    shown = sorted((name.parts, file) for name, file in inside if not any(part[0] == "." for part in name.parts))
    if not shown:
        raise TraceError(
            f"{folder}: no {', '.join(suffixes)} files; at least one is needed, "
            f"also with {' or '.join(COMPRESSED_SUFFIXES)}"
        )
    return [file for _, file in shown]


def find_sessions(folder: Path) -> list[Path]:
    """The JSON files of a folder, in file-name order; raises TraceError where there are none."""
    return find_files(folder, (".json",))


def _suffix_of(path: PurePath) -> str:
    return PurePath(path.stem).suffix if path.suffix in COMPRESSED_SUFFIXES else path.suffix


def _sample_folder(folder: Path) -> Sample:
    inside = find_files(folder)
    inner = take_sample(next((file for file in inside if file.stat().st_size > 0), inside[0]))
    names = tuple(file.relative_to(folder).as_posix() for file in inside)
    return Sample("folder", inner.fields, inner.first, inner.layout, folder, names)


def _is_binary(head: bytes) -> bool:
    if b"\0" in head:
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.end < len(head) - 3 or len(head) < HEAD_BYTES
    return False


def _sample_text(path: Path) -> Sample:
    with files.open_bytes(path) as file:
        texts = ((number, line.removeprefix(BYTE_ORDER_MARK).strip()) for number, line in enumerate(file, 1))
        number, text = next(((number, text) for number, text in texts if text), (0, b""))
        following = next((line for _, line in texts if line), b"")
    if not text:
        raise TraceError(f"{path}: empty file; at least one request is needed")
    layout: Literal["lines", "document"] = "lines" if following else "document"
    try:
        first = msgspec.json.decode(text)
    except DECODE_ERRORS as error:
        if text[:1] not in (b"{", b"["):
            return _sample_csv(path, number, text, following, error)
        first = _decode_whole(path, number)
        layout = "document"
    if isinstance(first, list) and first and isinstance(first[0], dict):
        return Sample("json", frozenset(first[0]), first[0], "list", path)
    if isinstance(first, list) and any(isinstance(item, list) for item in first):
        return Sample("json", frozenset(), {"": first}, "list", path)
    if not isinstance(first, dict):
        raise TraceError(
            f"{path}, line {number}: JSON {type(first).__name__}; one object per request or session is accepted"
        )
    return Sample("json", frozenset(first), first, layout, path)


def _decode_whole(path: Path, number: int) -> Any:
    try:
        return msgspec.json.decode(files.read_bytes(path))
    except DECODE_ERRORS as error:
        raise TraceError(
            f"{path}, line {number}: neither Parquet nor JSON ({error}); a known trace format is needed"
        ) from error


def _sample_csv(path: Path, number: int, header: bytes, following: bytes, error: Exception) -> Sample:
    """Comma-, semicolon- or tab-separated, with a header of two names or more."""
    try:
        line, row = header.decode(), following.decode()
        delimiter = max(DELIMITERS, key=line.count)
        names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
        values = next(csv.reader([row], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        names, values = [], []
    if len(names) < 2 or not all(names) or any(name[0] in "{[<" or _is_number(name) for name in names):
        raise TraceError(
            f"{path}, line {number}: neither Parquet nor JSON ({error}); a known trace format is needed"
        ) from error
    return Sample("csv", frozenset(names), dict(zip(names, values, strict=False)), path=path)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
