"""Read spec files: TOML by name, alias or path, checked against a schema.

GPU and model specs share one file convention. A shipped file's stem is its canonical name. A user's own
file may name a shipped one as its ``base`` and give only the fields that differ; a field given replaces the
whole field of the base.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from capplan.errors import SpecError

Spec = TypeVar("Spec", bound=msgspec.Struct)

_PROBLEM = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?")
_ABSENT = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(\w+)`")
_WORDS = {
    "`float`": "a number",
    "`int`": "a whole number",
    "`str`": "text",
    "`bool`": "true or false",
    "`object`": "a table",
    "`array`": "a list",
}


def normalised(name: str) -> str:
    """Return `name` as names are compared: lower case, without spaces, dashes and underscores."""
    return re.sub(r"[\s_-]+", "", name.lower())


def shipped(kind: str) -> dict[str, Traversable]:
    """Return the shipped spec files of a kind (``"gpus"`` or ``"models"``) by canonical name, sorted."""
    folder = files("capplan") / "specs" / kind
    found = {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return dict(sorted(found.items()))


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML `text` that came from `where`.

    Raises
    ------
    SpecError
        The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{where}: not a TOML file: {error}") from None


def read_text(path: str | Path) -> str:
    """Return the text of a user's file.

    Raises
    ------
    SpecError
        The file cannot be read as UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: cannot be read: not UTF-8 text") from None


class _Shipped(Mapping[str, dict[str, Any]]):
    """Raw fields of shipped specs by canonical name, each file parsed when it is first asked for."""

    def __init__(self, entries: Mapping[str, Traversable]) -> None:
        self._entries = entries
        self._parsed: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in self._parsed:
            entry = self._entries[name]
            self._parsed[name] = parse_toml(entry.read_text(encoding="utf-8"), entry.name)
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def read_shipped(kind: str) -> Mapping[str, dict[str, Any]]:
    """Return the raw fields of every shipped spec of a kind by canonical name, parsed on first use."""
    return _Shipped(shipped(kind))


def resolve(wanted: str, noun: str, raw: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the canonical name that `wanted` stands for.

    Case, spaces, dashes and underscores do not count. An exact name or alias wins; only where no name is
    meant are aliases read.

    Raises
    ------
    SpecError
        `wanted` begins several names and equals none, or is unknown; the message lists candidates.
    """
    key = normalised(wanted)
    names = {normalised(name): name for name in raw}
    if key in names:
        return names[key]
    known = {normalised(alias): name for name, fields in raw.items() for alias in fields.get("aliases", [])} | names
    if key in known:
        return known[key]
    begun = sorted({name for spelling, name in known.items() if key and spelling.startswith(key)})
    if len(begun) > 1:
        raise SpecError(f"{noun} '{wanted}' is ambiguous: it begins {', '.join(begun)}")
    close = begun or _closest(key, known)
    hint = f"close to {', '.join(close)}; " if close else ""
    raise SpecError(f"unknown {noun} '{wanted}': {hint}`capplan {noun}s` lists all")


def resolve_base(wanted: object, noun: str, raw: Mapping[str, Mapping[str, Any]], where: str) -> str:
    """Return the canonical name of a user file's ``base``.

    Raises
    ------
    SpecError
        As `resolve`, with the file and the field in front.
    """
    if not isinstance(wanted, str):
        raise SpecError(f"{where}: base: expected the name of a {noun}; `capplan {noun}s` lists all")
    try:
        return resolve(wanted, noun, raw)
    except SpecError as error:
        raise SpecError(f"{where}: base: {error}") from None


def _closest(key: str, known: Mapping[str, str]) -> list[str]:
    spellings = difflib.get_close_matches(key, known, n=6, cutoff=0.6)
    return list(dict.fromkeys(known[spelling] for spelling in spellings))[:3]


def read_own(path: str | Path, known: Iterable[str]) -> tuple[dict[str, Any], object]:
    """Return the fields of a user's TOML file without ``base``, and its ``base`` (None without one).

    Raises
    ------
    SpecError
        The file cannot be read, is not TOML, or has a field that is neither ``base`` nor in `known`.
    """
    fields = parse_toml(read_text(path), str(path))
    accepted = sorted({"base", *known})
    for name in fields:
        if name not in accepted:
            raise SpecError(f"{path}: {name}: unknown field; accepted: {', '.join(accepted)}")
    return fields, fields.pop("base", None)


def checked(raw: Mapping[str, Any], schema: type[Spec], where: str, accepted: Mapping[str, str]) -> Spec:
    """Convert raw fields to a record, or say in one line what is wrong.

    Parameters
    ----------
    accepted : mapping
        For each top-level field, what it accepts, in words.

    Raises
    ------
    SpecError
        ``file: field: what is wrong; accepted: what would be``.
    """
    try:
        return msgspec.convert(raw, schema)
    except msgspec.ValidationError as error:
        raise SpecError(f"{where}: {_explained(str(error), accepted)}") from None


def _explained(problem: str, accepted: Mapping[str, str]) -> str:
    match = _PROBLEM.fullmatch(problem)
    what, field = (match["what"], match["field"] or "") if match else (problem, "")
    for pattern, said in ((_UNKNOWN, "unknown field"), (_ABSENT, "missing")):
        if named := pattern.fullmatch(what):
            field, what = f"{field}.{named[1]}".lstrip("."), said
    for spelled, words in _WORDS.items():
        what = what.replace(spelled, words)
    return f"{field}: {what[0].lower()}{what[1:]}; accepted: {accepted[re.split(r'[.[]', field)[0]]}"
