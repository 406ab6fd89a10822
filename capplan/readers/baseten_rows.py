"""Rows of Baseten traces, whatever stands for the prompt: who sent them, when, and what was found cached."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.readers.columns import find_counts
from capplan.readers.sample import Account, Options
from capplan.readers.tables import Batch

HASHES, PROMPT = "total_hashes", "prompt"
SENT, SERVICE, CANCELED, CACHED, MODEL = (
    "timestamp_start_unix_ms",
    "duration_e2e_ms",
    "request_canceled",
    "cached_tokens_reference",
    "model_name",
)
STATED, GUESSED = "provided_session_id", "poor_man_session_id"
NEEDED = (SENT, "input_tokens", "output_tokens")
OPTIONAL = ("block_size", STATED, GUESSED, SERVICE, CANCELED, CACHED, MODEL)


def choose_session(source: ModuleType, path: Path, types: Mapping[str, Any], account: Account) -> str | None:
    """The column that says which rows belong together; None where there is none.

    The provider's is taken, unless it never repeats and the one guessed from prompts does.
    """
    columns = [name for name in (STATED, GUESSED) if name in types]
    frame = source.read_columns(path, columns)
    repeats = [name for name in columns if frame[name].drop_nulls().is_duplicated().any()]
    if repeats == [GUESSED] and STATED in columns:
        account.assume(f"no {STATED} stands on two rows: sessions are those of {GUESSED}")
    return next(iter([*repeats, *columns]), None)


def read_rows(
    source: ModuleType, path: Path, types: Mapping[str, Any], content: str, options: Options, account: Account
) -> Iterator[Batch]:
    """Batches of the wanted model's rows, numbered as in the file; the column `content` stays a series."""
    names = [name for name in (*NEEDED, content, *OPTIONAL) if name in types]
    first = 0
    for frame in source.read_batches(path, names):
        models = frame[MODEL].to_list() if MODEL in frame.columns else [None] * frame.height
        kept = [k for k, model in enumerate(models) if options.keeps_model(model, account)]
        numbers = [first + k for k in kept]
        first += frame.height
        if kept:
            frame = frame[kept]
            columns = {name: frame[name] if name == content else frame[name].to_list() for name in frame.columns}
            yield Batch(path, "row", numbers, columns)


def count_tokens(batch: Batch, name: str) -> NDArray[np.int64]:
    """A column of token counts, (n,) int64; zeros where there is none."""
    counts = find_counts(batch, (name,))
    return np.zeros(len(batch), np.int64) if counts is None else counts


def read_numbers(batch: Batch, name: str) -> list[float]:
    """A column of numbers, NaN for null; the time of sending must stand on every row."""
    values = batch.columns.get(name, [None] * len(batch))
    for k, value in enumerate(values):
        if value is None and name == SENT:
            raise TraceError(f"{batch.where(k)}: {name} is null; Unix milliseconds on every row are accepted")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TraceError(f"{batch.where(k)}: {name} is {value!r}; milliseconds as a number are accepted")
    return [np.nan if value is None else value for value in values]


def name_sessions(batch: Batch, column: str | None) -> list[str | None]:
    """The session of every row."""
    names = [None] * len(batch) if column is None else batch.columns[column]
    return [None if name is None else str(name) for name in names]


def note_canceled(batch: Batch, account: Account) -> None:
    """Tell of requests that were canceled."""
    n_canceled = sum(bool(flag) for flag in batch.columns.get(CANCELED, ()))
    if n_canceled:
        account.found["canceled request: kept, its prompt was sent"] += n_canceled


class Cached:
    """What the provider found cached: told, never used."""

    def __init__(self) -> None:
        """Nothing so far."""
        self.n_cached = self.n_all = 0

    def add(self, batch: Batch) -> None:
        """Count the rows that say."""
        found = np.array(read_numbers(batch, CACHED), np.float64)
        known = ~np.isnan(found)
        self.n_cached += int(found[known].sum())
        self.n_all += int(count_tokens(batch, "input_tokens")[known].sum())

    def tell(self, account: Account) -> None:
        """Note the totals."""
        if self.n_all:
            account.assume(
                f"the provider found {self.n_cached} of {self.n_all} prompt tokens cached (for comparison only)"
            )
