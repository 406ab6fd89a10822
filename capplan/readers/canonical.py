"""The canonical file: a prefix-linked table in Parquet, checked and not linked again. Also its writer."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Labels, Requests
from capplan.readers import parquet
from capplan.readers.sample import Sample
from capplan.schema import COLUMNS, FORMAT_VERSION, LARGEST_TOKENS
from capplan.trace import Trace

NAME = "capplan"
CARRIES = "prefix-linked Parquet written by capplan ingest or synth"
VERSION_KEY = "capplan.format"


def matches(sample: Sample) -> bool:
    """Whether the file carries the format's mark, or its two link columns."""
    return sample.kind == "parquet" and (VERSION_KEY in sample.first or {"parent", "shared_tokens"} <= sample.fields)


def read(path: Path) -> Trace:
    """Read and check a canonical file.

    Raises
    ------
    TraceError
        Unreadable, another version, a column missing or of another type, or links that contradict.
    """
    types, metadata = parquet.read_header(path)
    _check_columns(path, metadata, {name: str(dtype) for name, dtype in types.items()})
    frame = parquet.read_columns(path, [column.name for column in COLUMNS])
    for column in COLUMNS:
        if not column.nullable and frame[column.name].has_nulls():
            row = frame[column.name].is_null().arg_max()
            raise TraceError(f"{path}, row {row}: {column.name} is null; {column.dtype} on every row is accepted")
    trace = Trace(
        requests=_to_requests(frame),
        parent=frame["parent"].to_numpy().astype(np.int64),
        shared_tokens=frame["shared_tokens"].to_numpy().astype(np.int64),
        resolution_tokens=int(metadata["capplan.resolution_tokens"]),
        outputs_known=metadata["capplan.outputs_known"] == "true",
        source=path.name,
        notes=tuple(note for note in metadata.get("capplan.notes", "").split("\n") if note),
    )
    trace.check(str(path))
    return trace


def _check_columns(path: Path, metadata: Mapping[str, str], types: dict[str, str]) -> None:
    version = metadata.get(VERSION_KEY)
    if version != str(FORMAT_VERSION):
        raise TraceError(f"{path}: trace format {version or 'not stated'}; version {FORMAT_VERSION} is accepted")
    for key in ("capplan.resolution_tokens", "capplan.outputs_known"):
        if key not in metadata:
            raise TraceError(f"{path}: metadata {key} is missing; capplan ingest writes it")
    resolution = metadata["capplan.resolution_tokens"]
    if not resolution.isdecimal() or len(resolution) > len(str(LARGEST_TOKENS)):
        raise TraceError(f"{path}: capplan.resolution_tokens is {resolution[:40]!r}; 1 to {LARGEST_TOKENS} is accepted")
    if metadata["capplan.outputs_known"] not in ("true", "false"):
        raise TraceError(
            f"{path}: capplan.outputs_known is {metadata['capplan.outputs_known'][:40]!r}; true or false is accepted"
        )
    for column in COLUMNS:
        found = types.get(column.name)
        if found is None:
            raise TraceError(f"{path}: column {column.name} is missing; {column.dtype} is accepted")
        if found.lower() != column.dtype:
            raise TraceError(f"{path}: column {column.name} is {found}; {column.dtype} is accepted")


def _to_requests(frame: Any) -> Requests:
    def numbers(name: str) -> Any:
        return frame[name].fill_null(float("nan")).to_numpy()

    return Requests(
        request_ids=frame["request_id"].to_list(),
        session=Labels.encode(frame["session_id"].to_list()),
        task=Labels.encode(frame["task_id"].to_list()),
        arrival_s=numbers("arrival_s"),
        start_s=numbers("start_s"),
        gap_s=numbers("gap_s"),
        service_s=numbers("service_s"),
        tail_gap_s=numbers("tail_gap_s"),
        input_tokens=frame["input_tokens"].to_numpy().astype(np.int64),
        output_tokens=frame["output_tokens"].to_numpy().astype(np.int64),
    )


def write_trace(trace: Trace, path: str | Path, command: str = "") -> None:
    """Write the canonical Parquet (zstd), complete or not at all.

    Parameters
    ----------
    trace : Trace
        What to write.
    path : str or Path
        Replaced in one step once the file is written.
    command : str
        Recorded in the metadata beside the source.

    Raises
    ------
    TraceError
        The file cannot be written.
    """
    import polars as pl

    r = trace.requests
    strings: dict[str, Any] = {
        "request_id": list(r.request_ids),
        "session_id": r.session.decode(),
        "task_id": r.task.decode(),
    }
    numbers: dict[str, Any] = {
        c.name: getattr(r if hasattr(r, c.name) else trace, c.name) for c in COLUMNS if c.dtype != "string"
    }
    metadata = {
        VERSION_KEY: str(FORMAT_VERSION),
        "capplan.resolution_tokens": str(trace.resolution_tokens),
        "capplan.outputs_known": "true" if trace.outputs_known else "false",
        "capplan.source": trace.source,
        "capplan.command": command,
        "capplan.notes": "\n".join(trace.notes),
    }
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        columns = [
            pl.Series(c.name, strings[c.name], pl.String)
            if c.dtype == "string"
            else pl.Series(c.name, numbers[c.name], nan_to_null=True)
            for c in COLUMNS
        ]
        pl.DataFrame(columns).write_parquet(partial, compression="zstd", metadata=metadata)
        partial.replace(target)
    except UnicodeEncodeError as error:
        raise TraceError(f"{target}: a name is not valid Unicode ({error.object!a}); text is needed") from error
    except OSError as error:
        raise TraceError(f"{target}: {error.strerror or error}; a writable path is needed") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
