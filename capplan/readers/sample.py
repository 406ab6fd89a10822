"""What format detection looks at, what the caller says of a source, and the account every reader keeps."""

import fnmatch
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

PARQUET_MAGIC = b"PAR1"
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Namespace = Literal["source", "file", "session"]
Lengths = Literal["stated", "ids"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller says about a source that does not say it itself.

    Attributes
    ----------
    block_tokens : int, optional
        Tokens per block hash.
    tokenizer : str, optional
        Path of a tokenizer, or "bytes".
    model_filter : str, optional
        Name or pattern (``*``, ``?``) of the models whose calls are kept.
    namespace : "source", "file" or "session", optional
        Where ids mean the same; without it, as the format says. Applied by `read_trace` to what a
        reader yields.
    assume_prefix : "session", optional
        Where a source has sizes only: every call repeats its session's previous prompt.
    lengths : "stated" or "ids"
        Where a prompt's length contradicts its block ids: which of them is believed.
    """

    block_tokens: int | None = None
    tokenizer: str | None = None
    model_filter: str | None = None
    namespace: Namespace | None = None
    assume_prefix: Literal["session"] | None = None
    lengths: Lengths = "stated"

    def keeps_model(self, model: str | None, account: "Account") -> bool:
        """Whether a call of this model is wanted; what is not is counted as skipped."""
        if self.model_filter is None:
            return True
        account.knows_models |= model is not None
        if model is not None and fnmatch.fnmatchcase(model, self.model_filter):
            return True
        account.skipped[f"of another model than {self.model_filter} (--model-filter)"] += 1
        return False


@dataclass(slots=True)
class Account:
    """What a reader did with every row it met; nothing is dropped without being counted here.

    Attributes
    ----------
    n_read : int
        Requests read.
    skipped, found : Counter
        Rows left out by reason, and oddities.
    assumed : list of str
        What had to be assumed, each once.
    origin_s : float, optional
        What the source's own clock shows, in seconds, where `arrival_s` is 0: sources of one trace are
        brought onto one clock by it. None where the source has no clock, or one of its own.
    is_epoch : bool
        Whether that clock counts from 1970 (UTC).
    last_s : float
        The arrival met last, on the source's clock, where rows are meant to be in the order of time.
    knows_models : bool
        Whether a row named its model; set by `Options.keeps_model`.
    """

    n_read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    origin_s: float | None = None
    is_epoch: bool = False
    last_s: float = math.nan
    knows_models: bool = False

    def assume(self, what: str) -> None:
        """Note an assumption once."""
        if what not in self.assumed:
            self.assumed.append(what)


@dataclass(frozen=True, slots=True)
class Sample:
    """The first look at a source.

    Attributes
    ----------
    kind : "parquet", "arrow", "json", "csv", "log", "binary" or "folder"
        Of a compressed file, what is in it.
    fields : frozenset of str
        Column names, or the keys of the first JSON object (of a list: of its first element); in a
        folder, those of its first file that is not empty.
    first : mapping
        The first JSON object; Parquet's own metadata; the first CSV row by column; ``{"head": bytes}``
        of logs and of what is none of these.
    layout : "lines", "document", "list" or ""
        How JSON is laid out: one object a line, one object in all, one list of objects.
    path : Path
        The file, or the folder.
    names : tuple of str
        In a folder, its files of a known suffix, relative, in reading order.
    """

    kind: Literal["parquet", "arrow", "json", "csv", "log", "binary", "folder"]
    fields: frozenset[str]
    first: Mapping[str, Any]
    layout: Literal["lines", "document", "list", ""] = ""
    path: Path = Path()
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        """What was found, for an error message."""
        if self.kind == "log":
            return "lines of a log"
        if self.kind == "binary":
            return f"binary data that begins with {bytes(self.first['head'][:8]).hex(' ')}"
        names = ", ".join(sorted(self.fields)[:8]) or "nothing"
        return f"{self.kind} with fields {names}"
