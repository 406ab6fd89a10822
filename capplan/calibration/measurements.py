"""The CSV of measurements: its columns, and one record a row.

A row with ``makespan_s`` is a run: a workload served from start to end. A row with ``ttft_s`` is a TTFT point: one
request on an idle engine. One file may hold both kinds, each with the other's cells blank. Lines that begin with
``#`` are comments. Tokens are plain counts (``76740000`` or ``76.74e6``). A blank cell means not reported, never 0.

===========================  ============================================================================
``label``                    optional: the row's name in reports
``use``                      optional: ``fit`` (default), or ``check`` for a row that is only predicted
``computed_prefill_tokens``  run: prompt tokens computed, all requests together
``restored_tokens``          run: prompt tokens brought back from host memory instead; may be blank
``moved_tokens``             run, optional: tokens copied to bring them (whole chunks); blank: the restored
``written_tokens``           run: tokens copied to host memory; may be blank
``loading_requests``         run, optional: requests that restored anything
``makespan_s``               run: seconds from the first request to the last response
``prompt_tokens``            TTFT: length of the prompt
``cached_tokens``            TTFT: leading tokens of it that were cached; 0 where none
``cached_in``                TTFT: ``gpu`` or ``host``; may be blank where ``cached_tokens`` is 0
``ttft_s``                   TTFT: seconds to the first token
===========================  ============================================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from capplan import spec_files
from capplan.calibration.cells import RUN_COLUMNS, TTFT_COLUMNS, Cells, MeasurementError, read_cells
from capplan.errors import SpecError

SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Run:
    """One served workload: tokens of all its requests, and its makespan in seconds; None is not reported.

    `line` is the row's line in the file, `is_fit` whether it is fitted or only predicted.
    """

    line: int
    label: str
    is_fit: bool
    computed_tokens: float
    restored_tokens: float | None
    moved_tokens: float | None
    written_tokens: float | None
    loads: float | None
    makespan_s: float


@dataclass(frozen=True, slots=True)
class TtftPoint:
    """Time to the first token of one request whose first `cached_tokens` lay in GPU or host memory."""

    line: int
    label: str
    is_fit: bool
    prompt_tokens: float
    cached_tokens: float
    is_on_host: bool
    ttft_s: float

    @property
    def computed_tokens(self) -> float:
        """Tokens of the prompt that were computed."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Measurements:
    """The rows of one file; `source` is its path as given."""

    source: str
    runs: tuple[Run, ...]
    points: tuple[TtftPoint, ...]

    @property
    def name(self) -> str:
        """Name of the file in characters that print, as reports and profiles give it."""
        return "".join(letter if letter.isprintable() else "?" for letter in Path(self.source).name)


def name_row(row: Run | TtftPoint) -> str:
    """Return how messages call a row."""
    return f"line {row.line} ({row.label})" if row.label else f"line {row.line}"


def read_measurements(path: str | Path) -> Measurements:
    """Read a CSV of measurements.

    Raises
    ------
    MeasurementError
        ``file: line: column: what is wrong; accepted: what would be``.
    """
    source = str(path)
    try:
        text = spec_files.read_text(source).removeprefix("\ufeff")
    except SpecError as error:
        raise MeasurementError(str(error)) from None
    runs, points = [], []
    for row in read_cells(text, source):
        if row.is_run:
            runs.append(_read_run(row))
        else:
            points.append(_read_point(row))
    if not runs and not points:
        raise MeasurementError(f"{source}: no rows below the header; accepted: one run or TTFT point a row")
    return Measurements(source, tuple(runs), tuple(points))


def choose_rows(measured: Measurements, labels: Sequence[str]) -> Measurements:
    """Return the same rows with those of the given labels to fit, all others to check.

    Raises
    ------
    MeasurementError
        No row has one of the labels.
    """
    known = {run.label for run in measured.runs} | {point.label for point in measured.points}
    known.discard("")
    for label in labels:
        if label not in known:
            accepted = ", ".join(sorted(known)) or "none: the file has no labels"
            raise MeasurementError(f"{measured.source}: --fit-rows: no row is labelled '{label}'; accepted: {accepted}")
    runs = tuple(replace(run, is_fit=run.label in labels) for run in measured.runs)
    points = tuple(replace(point, is_fit=point.label in labels) for point in measured.points)
    return Measurements(measured.source, runs, points)


def _read_run(row: Cells) -> Run:
    row.refuse_cells_of(TTFT_COLUMNS, "run")
    restored = row.number_or_none("restored_tokens")
    moved = row.number_or_none("moved_tokens")
    return Run(
        line=row.line,
        label=row.text("label"),
        is_fit=row.is_fit,
        computed_tokens=row.number("computed_prefill_tokens"),
        restored_tokens=restored,
        moved_tokens=restored if moved is None else moved,
        written_tokens=row.number_or_none("written_tokens"),
        loads=row.number_or_none("loading_requests"),
        makespan_s=row.number("makespan_s", SHORTEST_S),
    )


def _read_point(row: Cells) -> TtftPoint:
    row.refuse_cells_of((*RUN_COLUMNS, "moved_tokens", "loading_requests"), "TTFT point")
    prompt, cached = row.number("prompt_tokens", 1.0), row.number("cached_tokens")
    if cached > prompt:
        raise row.error("cached_tokens", f"{cached:g} of a prompt of {prompt:g}", "at most prompt_tokens")
    place = row.text("cached_in")
    if place not in ("gpu", "host") and (place or cached):
        raise row.error("cached_in", f"'{place}'" if place else "blank", "gpu, host; blank where nothing is cached")
    return TtftPoint(
        line=row.line,
        label=row.text("label"),
        is_fit=row.is_fit,
        prompt_tokens=prompt,
        cached_tokens=cached,
        is_on_host=place == "host" and cached > 0,
        ttft_s=row.number("ttft_s", SHORTEST_S),
    )
