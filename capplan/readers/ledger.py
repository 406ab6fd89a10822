"""The account of a whole trace: that of every file it was made from, added up, and its one clock."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from capplan.readers.sample import Account

EARLIEST_LATER = "the first request of the sources is not the earliest: arrivals count from the one that is"


@dataclass(slots=True)
class Ledger:
    """What was read from all files so far; kept with the trace, so that more can be added to it.

    Attributes
    ----------
    formats : Counter
        Requests read, by format.
    skipped, found, assumed
        As in `Account`, of all files.
    n_sources, n_files : int
        Sources and files read.
    n_rows : int
        Requests met, also those that were not wanted; a request without a name is called by its number.
    n_spaces : int
        Namespaces of ids in use.
    origin_s, is_epoch
        As in `Account`, of the first file with a clock: all others are brought onto it.
    shift_s : float
        What was added to all arrivals for the earliest to be at 0.
    namespace : str, optional
        Scope of ids the caller asked for.
    kind : "tokens" or "hashes"
        What was linked.
    rechains : bool
        Whether block hashes were chained anew.
    """

    formats: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    n_sources: int = 0
    n_files: int = 0
    n_rows: int = 0
    n_spaces: int = 0
    origin_s: float | None = None
    is_epoch: bool = False
    shift_s: float = 0.0
    namespace: str | None = None
    kind: str | None = None
    rechains: bool = False

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """A ledger as `to_record` gave it; raises ValueError or TypeError where it is no such record."""
        counts = {name: Counter[str](record[name]) for name in ("formats", "skipped", "found")}
        if any(not isinstance(count, int) for counter in counts.values() for count in counter.values()):
            raise ValueError("counts are whole numbers")
        return cls(**{**record, **counts, "assumed": list(record["assumed"])})

    def to_record(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the order in which things were counted does not show."""
        record = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("formats", "skipped", "found"):
            record[name] = dict(sorted(record[name].items()))
        return {**record, "assumed": list(self.assumed)}

    def add(self, account: Account, format: str, n_kept: int) -> None:
        """Add the account of one file, of whose requests so many were wanted."""
        self.n_files += 1
        self.formats[format] += n_kept
        self.skipped.update(account.skipped)
        self.found.update(account.found)
        for what in account.assumed:
            self.assume(what)

    def assume(self, what: str) -> None:
        """Note an assumption once."""
        if what not in self.assumed:
            self.assumed.append(what)

    def list_notes(self) -> tuple[str, ...]:
        """The account in words."""
        read = [f"{count} requests read as {name}" for name, count in sorted(self.formats.items())]
        if self.n_files > 1:
            read[-1] += f", {self.n_files} files"
        left_out = [f"{count} left out: {reason}" for reason, count in sorted(self.skipped.items())]
        oddities = [f"{count} x {what}" for what, count in sorted(self.found.items())]
        moved = [EARLIEST_LATER] if self.shift_s else []
        return (*read, *left_out, *oddities, *self.assumed, *moved)
