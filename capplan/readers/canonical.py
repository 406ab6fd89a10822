"""The canonical file: a prefix-linked table in Parquet, checked and not linked again. Also its writer."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from capplan.errors import TraceError
from capplan.output import written_whole
from capplan.prompts import Labels, NumberNames, Requests, unknown_seconds
from capplan.readers import parquet
from capplan.readers.sample import Sample
from capplan.schema import COLUMNS, FORMAT_VERSION, LARGEST_TOKENS
from capplan.trace import Trace

if TYPE_CHECKING:
    import polars as pl

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
        provenance=_read_provenance(path, metadata),
    )
    trace.check(str(path))
    return trace


def _read_provenance(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        key: metadata[f"capplan.{key}"] for key in ("source", "command") if f"capplan.{key}" in metadata
    }
    if "capplan.ledger" in metadata:
        try:
            kept["ledger"] = json.loads(metadata["capplan.ledger"])
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{path}: metadata capplan.ledger is not JSON; capplan ingest writes it") from error
    return kept


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


class StoredNames(Sequence[str]):
    """Names as Parquet holds them; strings are made only of those that are asked for."""

    __slots__ = ("_series",)

    def __init__(self, series: "pl.Series") -> None:
        """`series` is a polars column of strings without nulls."""
        self._series = series

    def __len__(self) -> int:
        """Number of names."""
        return int(self._series.len())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredNames": ...
    def __getitem__(self, index: int | slice) -> "str | StoredNames":
        """One name, or a part of them."""
        if isinstance(index, slice):
            return StoredNames(self._series[index])
        name: str = self._series[index]
        return name

    def __iter__(self) -> Iterator[str]:
        """The names in turn."""
        return iter(self._series.to_list())

    def __eq__(self, other: object) -> bool:
        """Whether the names are those of another sequence."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of every sequence that is not a tuple

    def are_unique(self) -> bool:
        """Whether no name stands twice."""
        return bool(self._series.n_unique() == self._series.len())


def _encode(series: "pl.Series") -> Labels:
    """Numbers of distinct strings in order of first appearance, without making a string of every row."""
    import polars as pl

    names = series.drop_nulls().unique(maintain_order=True)
    if not names.len():
        return Labels.missing(series.len())
    codes = series.cast(pl.Enum(names)).to_physical().cast(pl.Int64).fill_null(-1)
    return Labels(codes.to_numpy(), tuple(names.to_list()))


def _to_requests(frame: Any) -> Requests:
    def numbers(name: str) -> Any:
        column = frame[name]
        return (
            unknown_seconds(len(column))
            if column.null_count() == len(column)
            else column.fill_null(math.nan).to_numpy()
        )

    return Requests(
        request_ids=StoredNames(frame["request_id"]),
        session=_encode(frame["session_id"]),
        task=_encode(frame["task_id"]),
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
    strings: dict[str, Any] = {"request_id": r.request_ids, "session_id": r.session, "task_id": r.task}
    numbers: dict[str, Any] = {
        c.name: getattr(r if hasattr(r, c.name) else trace, c.name) for c in COLUMNS if c.dtype != "string"
    }
    metadata = {
        VERSION_KEY: str(FORMAT_VERSION),
        "capplan.resolution_tokens": str(trace.resolution_tokens),
        "capplan.outputs_known": "true" if trace.outputs_known else "false",
        "capplan.source": trace.provenance.get("source", trace.source),
        "capplan.command": command or trace.provenance.get("command", ""),
        "capplan.notes": "\n".join(trace.notes),
    }
    if "ledger" in trace.provenance:
        metadata["capplan.ledger"] = json.dumps(trace.provenance["ledger"], sort_keys=True)
    try:
        columns = [
            _to_strings(c.name, strings[c.name])
            if c.dtype == "string"
            else pl.Series(c.name, np.ascontiguousarray(numbers[c.name]), nan_to_null=True)
            for c in COLUMNS
        ]
    except UnicodeEncodeError as error:
        raise TraceError(f"{path}: a name is not valid Unicode ({error.object!a}); text is needed") from error
    if Path(path).is_dir():
        raise TraceError(f"{path}: Is a directory; a writable path is needed")
    with written_whole(path, TraceError) as place:
        pl.DataFrame(columns).write_parquet(place, compression="zstd", metadata=metadata)


def _to_strings(name: str, column: Sequence[str] | Labels) -> "pl.Series":
    import polars as pl

    if isinstance(column, NumberNames):
        return pl.Series(name, column.values).cast(pl.String)
    if isinstance(column, Labels):
        codes = pl.Series(column.codes)
        return pl.Series(name, list(column.names), pl.String).gather(codes.set(codes < 0, None))
    return pl.Series(name, list(column), pl.String)
