"""Baseten traces: Parquet with the block hashes of production prompts. The prompt text is not read.

Whether hashes are prefix-chained is checked while linking. Of the two session ids the provider's is
taken, unless it never repeats and the one guessed from prompts does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, NumberNames, Prompts, Requests
from capplan.readers import block_hashes, hashes, parquet
from capplan.readers.clock import Clock, Responses
from capplan.readers.columns import find_counts
from capplan.readers.lines import MS
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.tables import Batch

if TYPE_CHECKING:
    import polars as pl

NAME = "baseten"
CARRIES = "Parquet with timestamp_start_unix_ms, input_tokens, output_tokens, total_hashes and block_size"
HASHES = "total_hashes"
SENT, SERVICE, CANCELED, CACHED, MODEL = (
    "timestamp_start_unix_ms",
    "duration_e2e_ms",
    "request_canceled",
    "cached_tokens_reference",
    "model_name",
)
STATED, GUESSED = "provided_session_id", "poor_man_session_id"
NEEDED = (SENT, "input_tokens", "output_tokens")
OPTIONAL = (HASHES, "block_size", STATED, GUESSED, SERVICE, CANCELED, CACHED, MODEL)


def matches(sample: Sample) -> bool:
    """Whether the columns are those of the format."""
    return sample.kind == "parquet" and set(NEEDED) <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    types, _ = parquet.read_header(path)
    if HASHES not in types:
        raise TraceError(f"{path}: no {HASHES}, only text; a trace recorded with block hashes is accepted")
    for name in NEEDED:
        if name not in types:
            raise TraceError(f"{path}: column {name} is missing; accepted: {CARRIES}")
    session_name = _choose_session(path, types, account)
    clock, responses = Clock(MS, account, is_epoch=True), Responses()
    cached = Cached()
    block: int | None = None
    first = 0
    for frame in parquet.read_batches(path, [name for name in (*NEEDED, *OPTIONAL) if name in types]):
        batch = _take_wanted(path, frame, first, options, account)
        first += frame.height
        if len(batch):
            block = block_hashes.find_block_size(batch, replace(options, block_tokens=block or options.block_tokens))
            yield make_prompts(batch, block, session_name, clock, responses, cached, account)
    cached.tell(account)


def make_prompts(
    batch: Batch,
    block: int,
    session_name: str | None,
    clock: Clock,
    responses: Responses,
    cached: "Cached",
    account: Account,
) -> Prompts:
    """The Prompts of one batch."""
    n_input, n_output = (_count(batch, name) for name in ("input_tokens", "output_tokens"))
    ids, offsets = hashes.keep_full_blocks(*_read_hashes(batch), n_input, block, batch.where)
    names = [None] * len(batch) if session_name is None else batch.columns[session_name]
    sessions = [None if name is None else str(name) for name in names]
    labels = Labels.encode(sessions)
    arrival_s = clock.read(_numbers(batch, SENT))
    service_s = np.array(_numbers(batch, SERVICE), np.float64) / MS
    requests = Requests.of(
        n_input,
        output_tokens=n_output,
        request_ids=NumberNames.starting_at(account.n_read, len(batch)),
        session=labels,
        task=labels,
        arrival_s=arrival_s,
        gap_s=responses.find_gaps(sessions, arrival_s, service_s),
        service_s=service_s,
    )
    cached.add(batch, n_input)
    n_canceled = sum(bool(flag) for flag in batch.columns.get(CANCELED, ()))
    if n_canceled:
        account.found["canceled request: kept, its prompt was sent"] += n_canceled
    account.n_read += len(batch)
    return Prompts(requests, ids, offsets, "hashes", block)


class Cached:
    """What the provider found cached: told, never used."""

    def __init__(self) -> None:
        """Nothing so far."""
        self.n_cached = self.n_all = 0

    def add(self, batch: Batch, n_input: NDArray[np.int64]) -> None:
        """Count the rows that say."""
        found = np.array(_numbers(batch, CACHED), np.float64)
        known = ~np.isnan(found)
        self.n_cached += int(found[known].sum())
        self.n_all += int(n_input[known].sum())

    def tell(self, account: Account) -> None:
        """Note the totals."""
        if self.n_all:
            account.assume(
                f"the provider found {self.n_cached} of {self.n_all} prompt tokens cached (for comparison only)"
            )


def _choose_session(path: Path, types: Mapping[str, Any], account: Account) -> str | None:
    """The column that says which rows belong together."""
    columns = [name for name in (STATED, GUESSED) if name in types]
    frame = parquet.read_columns(path, columns)
    repeats = [name for name in columns if frame[name].drop_nulls().is_duplicated().any()]
    if repeats == [GUESSED] and STATED in columns:
        account.assume(f"no {STATED} stands on two rows: sessions are those of {GUESSED}")
    return next(iter([*repeats, *columns]), None)


def _take_wanted(path: Path, frame: "pl.DataFrame", first: int, options: Options, account: Account) -> Batch:
    """The rows of the wanted model, numbered as in the file; hashes stay a series."""
    models = frame[MODEL].to_list() if MODEL in frame.columns else [None] * frame.height
    kept = [k for k, model in enumerate(models) if options.keeps_model(model, account)]
    frame = frame[kept]
    columns: dict[str, Any] = {name: frame[name] if name == HASHES else frame[name].to_list() for name in frame.columns}
    return Batch(path, "row", [first + k for k in kept], columns)


def _read_hashes(batch: Batch) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of all rows, flat, and their (n + 1,) offsets."""
    import polars as pl

    column: Any = batch.columns[HASHES]
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else pl.Unknown()
    if not inner.is_integer() and inner not in (pl.String, pl.Null):
        raise TraceError(
            f"{batch.where(0)}: {HASHES} is {column.dtype}; a list of integers or hexadecimal strings is accepted"
        )
    missing = column.is_null() | column.list.eval(pl.element().is_null().any()).list.first().fill_null(False)
    if missing.any():
        raise TraceError(
            f"{batch.where(missing.arg_max())}: {HASHES} is null; a list of block hashes on every row is accepted"
        )
    if not inner.is_integer():
        return hashes.flatten_keys(column.to_list(), batch.where)
    n_ids = column.list.len().to_numpy()
    offsets = np.zeros(len(batch) + 1, np.int64)
    np.cumsum(n_ids, out=offsets[1:])
    return column.filter(column.list.len() > 0).explode().to_numpy().astype(np.uint64), offsets


def _count(batch: Batch, name: str) -> NDArray[np.int64]:
    counts = find_counts(batch, (name,))
    return np.zeros(len(batch), np.int64) if counts is None else counts


def _numbers(batch: Batch, name: str) -> list[float]:
    values = batch.columns.get(name, [None] * len(batch))
    for k, value in enumerate(values):
        if value is None and name == SENT:
            raise TraceError(f"{batch.where(k)}: {name} is null; Unix milliseconds on every row are accepted")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TraceError(f"{batch.where(k)}: {name} is {value!r}; milliseconds as a number are accepted")
    return [np.nan if value is None else value for value in values]
