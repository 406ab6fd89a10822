"""The companion of a linked trace that can grow: the keys of its blocks, which linking needs to go on.

``NAME.parquet.keys`` holds two lines and two arrays, one after the other: ``capplan keys 1``; a JSON
object; `starts`, (requests + 1,) little-endian int64; `segments`, (keys,) little-endian uint64. The
arrays and the object's "kind" and flags are those of `linking.Keys`; it also has "requests", "keys",
the "fingerprint" of the trace, and the "crc32" of both arrays.
"""

import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from capplan.errors import TraceError
from capplan.linking import Keys
from capplan.output import written_whole
from capplan.trace import Trace

MAGIC = b"capplan keys 1\n"
SUFFIX = ".keys"
KINDS = ("tokens", "hashes")
FLAGS = ("rechains", "has_namespaces", "has_large_ids")
LONGEST_HEADER = 1 << 12


def name_keys(trace_path: str | Path) -> Path:
    """The companion of a trace's file."""
    path = Path(trace_path)
    return path.with_name(path.name + SUFFIX)


@contextlib.contextmanager
def writing_keys(keys: Keys, trace: Trace, trace_path: str | Path) -> Iterator[None]:
    """Put the companion in place once the body, which writes the trace, is done; else leave what there was.

    Raises
    ------
    TraceError
        The file cannot be written.
    """
    with written_whole(name_keys(trace_path), TraceError) as place:
        with place.open("wb") as file:
            _write(file, keys, trace)
        yield


def _write(file: BinaryIO, keys: Keys, trace: Trace) -> None:
    starts, segments = keys.starts.astype("<i8", copy=False), keys.segments.astype("<u8", copy=False)
    header = {
        "requests": starts.size - 1,
        "keys": segments.size,
        "fingerprint": trace.fingerprint,
        "crc32": zlib.crc32(segments.data, zlib.crc32(starts.data)),
        "kind": keys.kind,
        **{flag: getattr(keys, flag) for flag in FLAGS},
    }
    file.write(MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n")
    file.write(starts.data)
    file.write(segments.data)


def read_keys(trace: Trace, trace_path: str | Path) -> Keys:
    """The keys of a trace.

    Raises
    ------
    TraceError
        No companion, one that is damaged, or that of another trace.
    """
    path = name_keys(trace_path)
    try:
        with path.open("rb") as file:
            header = _read_header(file)
            starts, segments = _read_arrays(file, path, header)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: No such file; --append needs what --keep-keys writes beside a trace") from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; a readable file is needed") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TraceError(f"{path}: not a whole file of keys; --keep-keys writes one") from error
    if header["fingerprint"] != trace.fingerprint or starts.size != len(trace) + 1:
        raise TraceError(f"{path}: keys of another trace than the one beside it; link it again with --keep-keys")
    return Keys(segments, starts, header["kind"], **{flag: header[flag] for flag in FLAGS})


def _read_header(file: BinaryIO) -> dict[str, Any]:
    if file.readline(len(MAGIC)) != MAGIC:
        raise ValueError("another format")
    header: dict[str, Any] = json.loads(file.readline(LONGEST_HEADER))
    if header["kind"] not in KINDS or not all(isinstance(header[flag], bool) for flag in FLAGS):
        raise ValueError("a field of another type")
    return header


def _read_arrays(file: BinaryIO, path: Path, header: dict[str, Any]) -> Any:
    n_starts, n_keys = header["requests"] + 1, header["keys"]
    if path.stat().st_size != file.tell() + 8 * (n_starts + n_keys) or n_starts < 1 or n_keys < 0:
        raise ValueError("another size")
    starts = np.frombuffer(file.read(8 * n_starts), "<i8")
    segments = np.frombuffer(file.read(8 * n_keys), "<u8")
    if zlib.crc32(segments.data, zlib.crc32(starts.data)) != header["crc32"]:
        raise ValueError("damaged")
    if starts[0] != 0 or starts[-1] != n_keys or (np.diff(starts) < 0).any():
        raise ValueError("starts that are none")
    return starts, segments
