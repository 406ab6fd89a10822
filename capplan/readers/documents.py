"""Files that hold one JSON value."""

from pathlib import Path
from typing import TypeVar

import msgspec

from capplan.readers import files, jsonl
from capplan.readers.sample import Account

Shape = TypeVar("Shape")

EMPTY = "empty files"


def read_document(path: Path, shape: type[Shape], account: Account) -> Shape | None:
    """What a file holds; None, counted, for an empty one.

    Raises
    ------
    TraceError
        Unreadable, not JSON, or not of the shape.
    """
    text = files.read_bytes(path)
    if text.strip():
        return jsonl.decode_row(msgspec.json.Decoder(shape), text, str(path))
    account.skipped[EMPTY] += 1
    return None
