"""Bytes of a source: a plain or compressed file or standard input, counted as they are read.

Compression is told by the first bytes, never by the name. Standard input, and Parquet that is
compressed as a whole, are first copied to a temporary file: formats are detected from content, and
some readers pass over a file twice.
"""

import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

from capplan.errors import TraceError

STDIN = Path("-")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
COMPRESSED_SUFFIXES = (".gz", ".zst")
GZIP_BITS = 16 + zlib.MAX_WBITS
BUFFER_BYTES = 1 << 20

_spooled: ContextVar[dict[Path, Path] | None] = ContextVar("spooled", default=None)
_watcher: ContextVar[Callable[[int], None] | None] = ContextVar("watcher", default=None)


def name_of(path: Path) -> str:
    """What a source is called in a trace's metadata and summary."""
    return "standard input" if path == STDIN else path.name


def stem_of(path: PurePath) -> str:
    """File name without the suffix of its format and of its compression."""
    name = path.name
    if path.suffix in COMPRESSED_SUFFIXES:
        name = name[: -len(path.suffix)]
    return PurePath(name).stem


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a source for reading, decompressed.

    Raises
    ------
    TraceError
        Unreadable, or compressed and cut short or damaged; also while the body reads on.
    """
    failures: tuple[type[Exception], ...] = (EOFError, zlib.error)
    try:
        with ExitStack() as stack:
            packed = stack.enter_context(io.BufferedReader(_Counted(locate(path)), BUFFER_BYTES))
            magic = packed.peek(len(ZSTD_MAGIC))[: len(ZSTD_MAGIC)]
            file: BinaryIO = packed
            if magic.startswith(GZIP_MAGIC):
                file = io.BufferedReader(_Inflated(packed), BUFFER_BYTES)
            elif magic == ZSTD_MAGIC:
                zstd = _import_zstd()
                failures = (*failures, zstd.ZstdError)
                unzipped = stack.enter_context(zstd.ZstdFile(packed))
                file = io.BufferedReader(cast(io.RawIOBase, unzipped), BUFFER_BYTES)
            yield file
    except failures as error:
        raise TraceError(
            f"{path}: damaged compressed data ({_first_line(error)}); a complete file is needed"
        ) from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable file is needed") from error


def read_bytes(path: Path) -> bytes:
    """All bytes of a source, decompressed, without a byte-order mark; raises TraceError as `open_bytes`."""
    with open_bytes(path) as file:
        return file.read().removeprefix(BYTE_ORDER_MARK)


def locate(path: Path) -> Path:
    """The file that holds a source's bytes: itself, or the temporary copy of what is no file."""
    spooled = _spooled.get()
    if spooled is not None and path in spooled:
        return spooled[path]
    if path == STDIN:
        if spooled is None:
            raise TraceError("-: standard input can be read only as a source of read_trace")
        return _spool_stdin(spooled)
    return path


def locate_plain(path: Path) -> Path:
    """As `locate`, the temporary file of its decompressed bytes where it is compressed as a whole."""
    try:
        with locate(path).open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable file is needed") from error
    spooled = _spooled.get()
    if spooled is None or not (magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC):
        return locate(path)
    with open_bytes(path) as file, _new_spool(spooled) as copy:
        shutil.copyfileobj(file, copy, BUFFER_BYTES)
    spooled[path] = Path(copy.name)
    return spooled[path]


@contextmanager
def spooling() -> Iterator[None]:
    """Where standard input may be a source; temporary copies are gone afterwards."""
    spooled: dict[Path, Path] = {}
    token = _spooled.set(spooled)
    try:
        yield
    finally:
        _spooled.reset(token)
        for copy in spooled.values():
            copy.unlink(missing_ok=True)


@contextmanager
def watching(watcher: Callable[[int], None]) -> Iterator[None]:
    """Call `watcher` with the number of bytes of every read from a file."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def count_read(n_bytes: int) -> None:
    """Tell the watcher of bytes that were read by other means."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(n_bytes)


class _Counted(io.FileIO):
    """A file that reports what is read from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # as io documents it
        n_bytes = super().readinto(buffer)
        count_read(n_bytes)
        return n_bytes


class _Inflated(io.RawIOBase):
    """The content of a gzip file, of one member or several.

    In steps of a megabyte, which leave the interpreter's lock to others; those of `gzip` are of 8 KiB.
    """

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._inflater = zlib.decompressobj(GZIP_BITS)
        self._input = packed.read(BUFFER_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # as io documents it
        part = b""
        while not part:
            if self._inflater.eof and not self._start_member():
                return 0
            self._input = self._input or self._packed.read(BUFFER_BYTES)
            if not self._input:
                raise EOFError("it ends before the end-of-stream marker")
            part = self._inflater.decompress(self._input, len(buffer))
            self._input = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        buffer[: len(part)] = part
        return len(part)

    def _start_member(self) -> bool:
        """Go on with what follows a member, zeros apart; whether there is anything."""
        while not (rest := self._input.lstrip(b"\0")):
            self._input = self._packed.read(BUFFER_BYTES)
            if not self._input:
                return False
        self._input = rest
        self._inflater = zlib.decompressobj(GZIP_BITS)
        return True


@contextmanager
def _new_spool(spooled: dict[Path, Path]) -> Iterator[BinaryIO]:
    """A temporary file that outlives the block; entered at once, so that an interrupt finds and removes it."""
    with tempfile.NamedTemporaryFile(prefix="capplan-", delete=False) as file:
        spooled[Path(file.name)] = Path(file.name)
        yield cast(BinaryIO, file)


def _spool_stdin(spooled: dict[Path, Path]) -> Path:
    with _new_spool(spooled) as copy:
        stdin = cast(io.BufferedReader, sys.stdin.buffer)
        while part := stdin.read1(BUFFER_BYTES):  # unlike `read`, returns to Python, where Ctrl-C counts
            copy.write(part)
    spooled[STDIN] = Path(copy.name)
    return spooled[STDIN]


def _import_zstd() -> Any:
    """The standard library's module, or its backport of the same interface."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def find_size(path: Path) -> int:
    """Bytes of a file, of all files of a folder, and 0 where that cannot be told."""
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
        return os.stat(locate(path)).st_size if path != STDIN else 0
    except OSError:
        return 0
