"""Which files a command's sources stand for, and the reader of each.

A source is a file, a folder, a pattern such as ``day-*.jsonl.gz``, or ``-`` for standard input. A
folder is read as one where a format is made of folders; else every trace file in it, by path.
"""

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from capplan.errors import TraceError
from capplan.readers import files
from capplan.readers.first_look import find_files, take_sample
from capplan.readers.formats import FORMATS, detect_format, find_reader
from capplan.readers.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Part:
    """What one call of a reader reads.

    Attributes
    ----------
    path : Path
        A file, or a folder its format is made of.
    reader : module
    source : int
        Which of the command's sources it belongs to, from 0.
    label : str
        Short name, different from all others of the command.
    """

    path: Path
    reader: ModuleType
    source: int
    label: str


def expand_sources(sources: str | Path | Iterable[str | Path]) -> list[list[Path]]:
    """Paths that every source stands for: itself, or what matches its pattern, by name.

    Raises
    ------
    TraceError
        No source, a pattern without a match, or a path named twice.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    expanded = [_expand(str(source)) for source in given]
    seen: set[Path] = set()
    for path in (path for paths in expanded for path in paths):
        if path in seen:
            raise TraceError(f"{path}: named twice; each source is accepted once")
        seen.add(path)
    if not seen:
        raise TraceError("no source; at least one trace file or folder is needed")
    return expanded


def _expand(source: str) -> list[Path]:
    path = Path(source)
    if not glob.has_magic(source) or path.exists():
        return [path]
    matches = sorted(Path(match) for match in glob.glob(source, recursive=True))
    if not matches:
        raise TraceError(f"{source}: no such file, and nothing matches it as a pattern")
    return matches


def find_parts(sources: str | Path | Iterable[str | Path], format: str, ledger: Ledger) -> list[Part]:
    """Everything there is to read, in order, each with its reader; raises TraceError as `take_sample`."""
    with files.watching(lambda n_bytes: None):
        found = [
            (path, reader, number)
            for number, paths in enumerate(expand_sources(sources))
            for source in paths
            for path, reader in _find_readers(source, format, ledger)
        ]
    labels = _make_labels([path for path, _, _ in found])
    return [Part(*part, label) for part, label in zip(found, labels, strict=True)]


def _find_readers(source: Path, format: str, ledger: Ledger) -> list[tuple[Path, ModuleType]]:
    named = FORMATS.get(format)
    if not source.is_dir():
        return [(source, named or detect_format(source))]
    sample = take_sample(source)
    reader = named if named is not None and named.matches(sample) else None
    reader = find_reader(sample) if named is None else reader
    if reader is not None:
        return [(source, reader)]
    inside = find_files(source)
    full = [path for path in inside if path.stat().st_size > 0] or inside
    if len(full) < len(inside):
        ledger.skipped["empty files"] += len(inside) - len(full)
    return [(path, named or detect_format(path)) for path in full]


def _make_labels(paths: Sequence[Path]) -> list[str]:
    """File names without suffixes; whole paths where two are the same."""
    stems = [files.stem_of(path) for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
