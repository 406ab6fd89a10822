"""The first look at a source: what kind of file it is, which fields it has, which files a folder holds."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Literal

import msgspec

from capplan.errors import TraceError
from capplan.readers import arrow, files, parquet
from capplan.readers.files import BYTE_ORDER_MARK, COMPRESSED_SUFFIXES
from capplan.readers.sample import DECODE_ERRORS, PARQUET_MAGIC, Sample

LOG_LINE = re.compile(rb"\] [A-Za-z]+ [A-Z]+:")  # [time] program LEVEL:
LOG_START = re.compile(rb"\[\d{4}-\d\d-\d\d ")
HEAD_BYTES = 1 << 16
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".parquet", ".arrow", ".csv")
DELIMITERS = ",;\t"


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
    if arrow.is_arrow(head):
        return Sample("arrow", frozenset(arrow.read_header(path)[0]), {}, path=path)
    start = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if start[:1] not in (b"{", b"[") and start and _is_binary(head):
        return Sample("binary", frozenset(), {"head": head}, path=path)
    if (start[:1] not in (b"{", b"[") or LOG_START.match(start)) and LOG_LINE.search(head):
        return Sample("log", frozenset(), {"head": head}, path=path)
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
