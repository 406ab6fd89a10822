"""Block ids made from lengths, where a source says how much of a path is old but not what it holds.

A path repeats the beginning of its session's previous path and goes on with blocks nobody has seen.
"""

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError

UInt64s = NDArray[np.uint64]

LARGEST_PATH_TOKENS = 1 << 24
NONE = np.zeros(0, np.uint64)


class GrowingPaths:
    """The last path of every session. Ids it makes count from `first_id`: they are those of one file."""

    def __init__(self, block_tokens: int, first_id: int = 0) -> None:
        """`first_id`: above all ids that `start` is given."""
        self._block = block_tokens
        self._next = first_id
        self._paths: dict[str, UInt64s] = {}

    def start(self, session: str, ids: UInt64s, n_tokens: int) -> UInt64s:
        """A path of `n_tokens` that begins with the given block ids."""
        return self._extend(session, ids, n_tokens)

    def grow(self, session: str, shared_tokens: int, n_tokens: int) -> UInt64s:
        """A path of `n_tokens` whose first `shared_tokens` are those of the session's previous path."""
        previous = self._paths.get(session, NONE)
        return self._extend(session, previous[: min(shared_tokens, n_tokens) // self._block], n_tokens)

    def forget(self, session: str) -> None:
        """Drop the path of a session that has ended."""
        self._paths.pop(session, None)

    def _extend(self, session: str, head: UInt64s, n_tokens: int) -> UInt64s:
        first = self._next
        self._next += n_tokens // self._block - head.size
        path = np.concatenate([head, np.arange(first, self._next, dtype=np.uint64)])
        self._paths[session] = path
        return path


def check_length(n_tokens: int, where: str) -> None:
    """Raise for a prompt and output whose block ids would take a gigabyte to write down."""
    if n_tokens > LARGEST_PATH_TOKENS:
        raise TraceError(
            f"{where}: prompt and output come to {n_tokens} tokens; up to {LARGEST_PATH_TOKENS} are accepted"
        )


def in_one_file(n_rows: int) -> UInt64s:
    """Namespaces of rows whose ids mean the same within their file only."""
    return np.ones(n_rows, np.uint64)
