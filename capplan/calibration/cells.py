"""Cells of a CSV of measurements: the header checked, a row as text, and numbers out of it."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from capplan.errors import CapplanError

RUN_COLUMNS = ("computed_prefill_tokens", "restored_tokens", "written_tokens", "makespan_s")
TTFT_COLUMNS = ("prompt_tokens", "cached_tokens", "cached_in", "ttft_s")
OPTIONAL_COLUMNS = ("label", "use", "moved_tokens", "loading_requests")
COLUMNS = (*OPTIONAL_COLUMNS, *RUN_COLUMNS, *TTFT_COLUMNS)
LARGEST = 1e15


class MeasurementError(CapplanError):
    """Measurements cannot be read, say too little, or contradict themselves."""


@dataclass(frozen=True, slots=True)
class Cells:
    """One row as text, and how to complain about it."""

    source: str
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, what: str, accepted: str) -> MeasurementError:
        """Return the error that names file, row and column."""
        label = self.cells.get("label", "")
        row = f"line {self.line} ({label})" if label else f"line {self.line}"
        return MeasurementError(f"{self.source}: {row}: {column}: {what}; accepted: {accepted}")

    def text(self, column: str) -> str:
        """Return a cell, empty where the column is absent."""
        return self.cells.get(column, "")

    @property
    def is_run(self) -> bool:
        """Whether it is a run rather than a TTFT point."""
        given = [column for column in ("makespan_s", "ttft_s") if self.text(column)]
        if len(given) != 1:
            what = "both are given" if given else "neither is given"
            raise self.error("makespan_s, ttft_s", what, "makespan_s for a run, ttft_s for a TTFT point")
        return given == ["makespan_s"]

    @property
    def is_fit(self) -> bool:
        """Whether the row is to be fitted."""
        use = self.text("use") or "fit"
        if use not in ("fit", "check"):
            raise self.error("use", f"'{use}'", "fit, check, or blank for fit")
        return use == "fit"

    def number(self, column: str, least: float = 0.0) -> float:
        """A finite number from `least` up."""
        found = self.number_or_none(column, least)
        if found is None:
            raise self.error(column, "blank", _accepted_number(least))
        return found

    def number_or_none(self, column: str, least: float = 0.0) -> float | None:
        """A finite number from `least` up, or None where the cell is blank."""
        text = self.text(column)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= LARGEST:
            raise self.error(column, f"'{text}'", _accepted_number(least))
        return number

    def refuse_cells_of(self, columns: Sequence[str], kind: str) -> None:
        """Refuse what a row of that kind does not have."""
        for column in columns:
            if self.text(column):
                raise self.error(column, f"'{self.text(column)}' in a row of a {kind}", "blank there")


def _accepted_number(least: float) -> str:
    return f"a number from {least:g} to {LARGEST:g}, without thousands separators"


def read_cells(text: str, source: str) -> Iterator[Cells]:
    """Yield the rows below the header; comments and blank lines keep their line numbers."""
    lines = ("\n" if line.startswith("#") else line for line in io.StringIO(text))
    reader = csv.reader(lines, strict=True, skipinitialspace=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            stripped = [" ".join(cell.split()) for cell in cells]
            if not any(stripped):
                continue
            if header is None:
                header = _check_header(stripped, source)
            elif len(stripped) != len(header):
                what = f"{len(stripped)} cells under a header of {len(header)}"
                raise MeasurementError(f"{source}: line {reader.line_num}: {what}; accepted: one cell a column")
            else:
                yield Cells(source, reader.line_num, dict(zip(header, stripped, strict=True)))
    except csv.Error as error:
        raise MeasurementError(f"{source}: line {reader.line_num}: not CSV: {error}; accepted: a CSV file") from None
    if header is None:
        raise MeasurementError(f"{source}: no header; accepted: columns of {', '.join(COLUMNS)}")


def _check_header(header: list[str], source: str) -> list[str]:
    for column in header:
        if column not in COLUMNS:
            raise MeasurementError(f"{source}: header: unknown column '{column}'; accepted: {', '.join(COLUMNS)}")
        if header.count(column) > 1:
            raise MeasurementError(f"{source}: header: column '{column}' stands twice; accepted: each column once")
    given = set(header)
    groups = [group for group in (RUN_COLUMNS, TTFT_COLUMNS) if given & set(group)] or [RUN_COLUMNS]
    for group in groups:
        if missing := [column for column in group if column not in given]:
            raise MeasurementError(
                f"{source}: header: missing column {', '.join(missing)}; accepted: "
                f"{', '.join(RUN_COLUMNS)} for runs, {', '.join(TTFT_COLUMNS)} for TTFT points"
            )
    return header
