"""Batches of all files, one stream: names, namespaces and clocks made one, unwanted requests left out.

What a reader yields for a file depends on that file alone. Here it is brought together, in the order
of the files: a request without a name gets its number in the trace, local ids keep apart from those of
other files, and times count from the first file's first arrival.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Labels, NumberNames, Prompts, Requests
from capplan.readers.ledger import Ledger
from capplan.readers.sample import Account, Options
from capplan.readers.sources import Part
from capplan.readers.workers import Decoder, decoding

UInt64s = NDArray[np.uint64]
Moment = float | datetime

NS_DIGITS = 9  # times are written in decimals: rounded, a sum is the number that was written


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests are wanted.

    Attributes
    ----------
    limit : int, optional
        The first so many.
    since, until : float or datetime, optional
        Sent at or after the one, before the other: `arrival_s`, or a moment where the clock is absolute.
    """

    limit: int | None = None
    since: Moment | None = None
    until: Moment | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self.limit is None and self.since is None and self.until is None


def gather(
    parts: Sequence[Part], options: Options, selection: Selection, ledger: Ledger, n_workers: int = 1
) -> Iterator[Prompts]:
    """Batches of all parts, in order; `ledger` is up to date once the last one is taken.

    Raises
    ------
    TraceError
        As the readers do; also where requests cannot be selected as asked.
    """
    with decoding(parts, options, n_workers if selection.limit is None else 1) as decoder:
        yield from _gather(parts, decoder, selection, ledger)


def _gather(parts: Sequence[Part], decoder: Decoder, selection: Selection, ledger: Ledger) -> Iterator[Prompts]:
    options = decoder.options
    n_kept = 0
    n_sources = ledger.n_sources
    for part in parts:
        account = Account()
        space = n_sources + part.source + 1 if options.namespace == "source" else ledger.n_files + 1
        frame = _Frame(part, options, account, ledger, ledger.n_rows, ledger.n_spaces, space)
        n_before = n_kept
        try:
            for batch in decoder.read(part, account):
                prompts = select_times(frame.place(batch), selection, part, account, ledger)
                room = len(prompts.requests) if selection.limit is None else selection.limit - n_kept
                n_kept += min(room, len(prompts.requests))
                if room < len(prompts.requests) or n_kept == selection.limit:
                    yield prompts.take(np.arange(min(room, len(prompts.requests))))
                    ledger.assume(f"reading ended after {selection.limit} requests (--limit)")
                    return
                if len(prompts.requests):
                    yield prompts
        finally:
            ledger.add(account, part.reader.NAME, n_kept - n_before)
            ledger.n_sources = n_sources + part.source + 1
        _check_models(part, options, account)


def _check_models(part: Part, options: Options, account: Account) -> None:
    if options.model_filter is not None and not account.knows_models:
        raise TraceError(f"{part.path}: no request names its model; --model-filter needs names to compare with")


@dataclass(slots=True)
class _Frame:
    """One file's place in the trace: what its numbers are moved by."""

    part: Part
    options: Options
    account: Account
    ledger: Ledger
    first_row: int
    first_space: int
    space: int
    n_rows: int = 0

    def place(self, prompts: Prompts) -> Prompts:
        """A batch as a part of the trace."""
        requests = prompts.requests
        names = self._name_requests(requests.request_ids)
        requests = replace(requests, request_ids=names, arrival_s=self._shift_clock(requests))
        if self.options.namespace == "file":
            requests = _prefix_names(requests, self.part.label)
        namespaces = self._find_namespaces(prompts)
        self.n_rows += len(requests)
        self.ledger.n_rows += len(requests)
        return replace(prompts, requests=requests, namespaces=namespaces)

    def _name_requests(self, names: Sequence[str]) -> Sequence[str]:
        """Numbers of rows continue those of earlier files; a file's own names stay."""
        if not isinstance(names, NumberNames):
            return names
        return NumberNames.starting_at(self.first_row + self.n_rows, len(names))

    def _shift_clock(self, requests: Requests) -> NDArray[np.float64]:
        origin, ledger = self.account.origin_s, self.ledger
        if origin is None:
            return requests.arrival_s
        if ledger.origin_s is None:
            ledger.origin_s, ledger.is_epoch = origin, self.account.is_epoch
        if origin == ledger.origin_s:
            return requests.arrival_s
        return np.round(requests.arrival_s + (origin - ledger.origin_s), NS_DIGITS)

    def _find_namespaces(self, prompts: Prompts) -> UInt64s | None:
        scope, n, ledger = self.options.namespace, len(prompts.requests), self.ledger
        if scope is None:
            spaces = prompts.namespaces
            if spaces is None or not spaces.any():
                return None
            ledger.n_spaces = max(ledger.n_spaces, self.first_space + int(spaces.max()))
            return np.where(spaces > 0, spaces + np.uint64(self.first_space), np.uint64(0))
        if scope == "session":
            return _number_sessions(prompts.requests.session, self.part)
        return np.full(n, self.space, np.uint64)


def _number_sessions(session: Labels, part: Part) -> UInt64s:
    """A number per session that depends on its name alone, so that it is the same in every file."""
    if not session.is_complete:
        raise TraceError(f"{part.path}: a request without a session; --namespace session needs one on every row")
    digests = [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in session.names]
    numbers = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64) | np.uint64(1)
    return numbers[session.codes]


def _prefix_names(requests: Requests, label: str) -> Requests:
    """Names that are the file's own; numbers of rows are the trace's already."""
    names = requests.request_ids
    if not isinstance(names, NumberNames):
        names = [f"{label}/{name}" for name in names]
    session = replace(requests.session, names=tuple(f"{label}/{name}" for name in requests.session.names))
    task = replace(requests.task, names=tuple(f"{label}/{name}" for name in requests.task.names))
    return replace(requests, request_ids=names, session=session, task=task)


def select_times(prompts: Prompts, selection: Selection, part: Part, account: Account, ledger: Ledger) -> Prompts:
    """The requests of a batch sent within the wanted time; counts the others.

    Raises
    ------
    TraceError
        A request without an arrival time, or a moment where the clock does not say when it is.
    """
    if selection.since is None and selection.until is None:
        return prompts
    arrival = prompts.requests.arrival_s
    if np.isnan(arrival).any():
        row = int(np.isnan(arrival).argmax())
        name = prompts.requests.request_ids[row]
        raise TraceError(
            f"{part.path}: request {name!r} has no arrival time; --since and --until need one on every row"
        )
    early = np.zeros(arrival.size, bool)
    late = np.zeros(arrival.size, bool)
    if selection.since is not None:
        early = arrival < _to_arrival(selection.since, part, ledger)
    if selection.until is not None:
        late = arrival >= _to_arrival(selection.until, part, ledger)
    for reason, rows in (("sent before --since", early), ("sent at --until or later", late & ~early)):
        if rows.any():
            account.skipped[reason] += int(rows.sum())
    return prompts.take(np.flatnonzero(~(early | late)))


def _to_arrival(moment: Moment, part: Part, ledger: Ledger) -> float:
    if not isinstance(moment, datetime):
        return moment
    if not ledger.is_epoch or ledger.origin_s is None:
        raise TraceError(f"{part.path}: its clock does not say the date; --since and --until accept seconds of arrival")
    return moment.timestamp() - ledger.origin_s
