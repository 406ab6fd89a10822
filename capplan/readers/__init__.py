"""Readers: sources in any known format become one checked, prefix-linked Trace.

`read_trace` finds the files a source stands for and detects their formats from content; every format is
one module with `NAME`, `CARRIES`, `matches(sample)` and `read(path, options, account)`, which yields
Prompts in emission order. What a reader yields for a path depends on that path alone; names of requests,
namespaces and clocks of several files are brought together in `gathering`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from capplan.errors import TraceError
from capplan.linking import Keys, Linker
from capplan.prompts import Prompts
from capplan.readers import canonical, files
from capplan.readers.formats import FORMATS, detect_format
from capplan.readers.gathering import Moment, Selection, gather
from capplan.readers.ledger import Ledger
from capplan.readers.lengths import FITTED, NOTHING_TO_FIT
from capplan.readers.sample import Lengths, Namespace, Options
from capplan.readers.settling import find_twins, settle, unsettle
from capplan.readers.sources import Part, find_parts
from capplan.schema import LARGEST_TOKENS
from capplan.trace import Trace

__all__ = ["FORMATS", "Options", "Selection", "detect_format", "extend_trace", "link_sources", "read_trace"]

NO_EFFECT = "--ids content has no effect: there are no block ids to chain anew"


def read_trace(
    source: str | Path | Iterable[str | Path],
    format: str = "auto",
    *,
    block_size: int | None = None,
    ids: str = "chained",
    tokenizer: str | None = None,
    model_filter: str | None = None,
    namespace: Namespace | None = None,
    assume_prefix: Literal["session"] | None = None,
    lengths: Lengths = "stated",
    limit: int | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Trace:
    """Read a trace of any known format.

    Parameters
    ----------
    source : path, or several
        Files, folders, patterns such as ``day-*.jsonl.gz``, or "-" for standard input; plain or
        compressed with gzip or zstd. Several make one trace, in the order given.
    format : str
        "auto" detects it from the content; else a name of `FORMATS`.
    block_size : int, optional
        Tokens per block hash, where the source does not say.
    ids : "chained" or "content"
        Refuse block hashes that are not prefix-chained, or chain them anew.
    tokenizer : str, optional
        For text: a `tokenizer.json` or its folder, or "bytes" for one token a byte.
    model_filter : str, optional
        Keep only calls of models of this name or pattern.
    namespace : "source", "file" or "session", optional
        Where ids, and names of requests and sessions, mean the same; default: as the format says.
    assume_prefix : "session", optional
        For sources of sizes: let every call repeat its session's previous prompt.
    lengths : "stated" or "ids"
        Where a prompt's length contradicts its block ids: keep it, or take block size times ids.
    limit : int, optional
        Keep the first so many requests.
    since, until : float or datetime, optional
        Keep requests sent at or after the one and before the other, in seconds of arrival, or as a
        moment where the clock is absolute.

    Returns
    -------
    Trace
        Checked; its `notes` say what was found, assumed or left out.

    Raises
    ------
    TraceError
        One line: file, row or line, what is wrong, what would be accepted.
    """
    options = Options(block_size, tokenizer, model_filter, namespace, assume_prefix, lengths)
    return link_sources(source, format, ids, options, Selection(limit, since, until))[0]


def link_sources(
    source: str | Path | Iterable[str | Path],
    format: str,
    ids: str,
    options: Options,
    selection: Selection,
    n_workers: int = 1,
) -> tuple[Trace, Keys | None]:
    """As `read_trace`, with the keys that `extend_trace` needs; None where the source was linked already.

    With several workers, small files are decoded side by side; the result does not depend on it.
    """
    _check_choices(format, options, selection)
    ledger = Ledger(namespace=options.namespace)
    linker = Linker(ids)
    with files.spooling():
        parts = find_parts(source, format, ledger)
        if any(part.reader is canonical for part in parts):
            return _read_linked(parts, options, selection, ids), None
        return link_parts(parts, options, selection, ledger, linker, n_workers), linker.keys


def extend_trace(
    trace: Trace,
    keys: Keys,
    source: str | Path | Iterable[str | Path],
    format: str = "auto",
    *,
    ids: str = "chained",
    options: Options | None = None,
    selection: Selection | None = None,
    n_workers: int = 1,
) -> tuple[Trace, Keys]:
    """A trace with the requests of more sources, equal to one made of all sources at once.

    Parameters
    ----------
    trace : Trace
        As `capplan.readers.canonical` reads it.
    keys : Keys
        Its companion.
    source, format, ids
        As for `read_trace`.
    options : Options, optional
    selection : Selection, optional
        Of the new requests; a limit counts them alone.
    n_workers : int
        As for `link_sources`.

    Raises
    ------
    TraceError
        As `read_trace`; also where the new sources do not fit the trace.
    """
    options, selection = options or Options(), selection or Selection()
    _check_choices(format, options, selection)
    if keys.kind == "hashes" and keys.rechains != (ids == "content"):
        made, given = ("content", "chained") if keys.rechains else ("chained", "content")
        raise TraceError(f"{trace.source}: linked with --ids {made}, so --ids {given} cannot go on with it")
    try:
        ledger = Ledger.from_record(trace.provenance["ledger"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"{trace.source}: no account of its sources, so it cannot grow; link it again") from error
    if ledger.namespace != options.namespace:
        raise TraceError(
            f"{trace.source}: linked with --namespace {ledger.namespace or 'as the format says'}; it can only grow so"
        )
    linker = Linker.resume(replace(trace, requests=unsettle(trace.requests, ledger)), keys)
    with files.spooling():
        parts = find_parts(source, format, ledger)
        linked = next((part.path for part in parts if part.reader is canonical), None)
        if linked is not None:
            raise TraceError(f"{linked}: a linked trace; --append accepts sources that are not linked yet")
        longer = link_parts(parts, options, selection, ledger, linker, n_workers)
    sources = f"{trace.provenance.get('source', trace.source)}, {longer.source}"
    return replace(longer, provenance={**trace.provenance, **longer.provenance, "source": sources}), linker.keys


def link_parts(
    parts: list[Part], options: Options, selection: Selection, ledger: Ledger, linker: Linker, n_workers: int = 1
) -> Trace:
    """Read all parts into one checked trace, after what `ledger` and `linker` hold already."""
    name = describe_sources(parts)
    for part, prompts in _read_each(parts, options, selection, ledger, n_workers):
        linker.feed(prompts, part.path.name if len(parts) == 1 else str(part.path))
    ledger.kind, ledger.rechains = linker.kind, linker.rechains
    trace = linker.finish(name, ())
    trace = replace(trace, requests=settle(trace.requests, ledger))
    trace.check(name)
    notes = ledger.list_notes() + find_twins(trace.requests, ledger)
    if linker.rechains:
        notes += ("block ids chained anew by content (--ids content)" if linker.kind == "hashes" else NO_EFFECT,)
    if options.lengths == "ids" and FITTED not in ledger.found:
        notes += (NOTHING_TO_FIT,)
    return replace(trace, notes=notes, provenance={"source": name, "ledger": ledger.to_record()})


def _read_each(
    parts: list[Part], options: Options, selection: Selection, ledger: Ledger, n_workers: int
) -> Iterator[tuple[Part, Prompts]]:
    n_before = ledger.n_files
    for prompts in gather(parts, options, selection, ledger, n_workers):
        yield parts[ledger.n_files - n_before], prompts


def describe_sources(parts: list[Part]) -> str:
    """Names of the files, the first few of many."""
    names = [files.name_of(part.path) for part in parts]
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _check_choices(format: str, options: Options, selection: Selection) -> None:
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"format is {format!r}; accepted: 'auto', {', '.join(map(repr, FORMATS))}")
    if options.block_tokens is not None and not 1 <= options.block_tokens <= LARGEST_TOKENS:
        raise ValueError(f"block_size is {options.block_tokens}; 1 to {LARGEST_TOKENS} is accepted")
    if options.namespace is not None and options.namespace not in get_args(Namespace):
        raise ValueError(f"namespace is {options.namespace!r}; accepted: {', '.join(map(repr, get_args(Namespace)))}")
    if options.assume_prefix not in (None, "session"):
        raise ValueError(f"assume_prefix is {options.assume_prefix!r}; accepted: 'session'")
    if options.lengths not in get_args(Lengths):
        raise ValueError(f"lengths is {options.lengths!r}; accepted: {', '.join(map(repr, get_args(Lengths)))}")
    if selection.limit is not None and selection.limit < 1:
        raise ValueError(f"limit is {selection.limit}; 1 or more is accepted")


def _read_linked(parts: list[Part], options: Options, selection: Selection, ids: str) -> Trace:
    """A file that is linked already: it stands alone, and there is nothing to choose."""
    path = next(part.path for part in parts if part.reader is canonical)
    if len(parts) > 1:
        raise TraceError(f"{path}: a linked trace among {len(parts)} sources; it is accepted alone")
    if options.block_tokens is not None:
        raise TraceError(f"{path}: --block-size is given, but a linked trace states its own resolution")
    if options != Options() or not selection.is_everything:
        raise TraceError(
            f"{path}: a linked trace is read as it is; --limit, --since, --until, --model-filter, --namespace, "
            "--tokenizer, --lengths and --assume-prefix are accepted where it is made"
        )
    trace = canonical.read(path)
    return trace if ids == "chained" else replace(trace, notes=(*trace.notes, NO_EFFECT))
