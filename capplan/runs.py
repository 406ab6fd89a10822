"""Runs: a stream's reuse at one chunk size, as a table from which every curve is arithmetic."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import relink
from capplan.kernels import runs as runs_kernel
from capplan.order import Order
from capplan.trace import Trace
from capplan.tree import PrefixTree

Int64s = NDArray[np.int64]
Touch = Literal["leaf-first", "head-first"]
Distance = Literal["lookup", "sequential"]
Path = Literal["prompt", "touched"]


@dataclass(frozen=True, slots=True)
class Runs:
    """Run table of a stream (docs/model.md section 3).

    Attributes
    ----------
    chunk_tokens : int
        Chunk size `b`.
    n_chunks : (n,) int64
        Full chunks `m_r` of the path at each stream position.
    offsets : (n + 1,) int64
        Runs of position `c` are ``offsets[c]:offsets[c + 1]``, head to tail.
    start, length : (runs,) int64
        First chunk of the run and how many follow on, itself included.
    above, live : (runs,) int64
        Distinct chunks last touched after the run's last toucher, and by it.
    holder : (runs,) int64
        Stream position of the run's last toucher.
    n_distinct : int
        Distinct chunks of the whole stream.
    """

    chunk_tokens: int
    n_chunks: Int64s
    offsets: Int64s
    start: Int64s
    length: Int64s
    above: Int64s
    live: Int64s
    holder: Int64s
    n_distinct: int

    def positions(self, touch: Touch = "leaf-first", distance: Distance = "lookup") -> tuple[Int64s, int]:
        """Position that counts for coverage: of the run's first chunk, and its growth per chunk (1 or 0).

        The running maximum along the prefix, of `P` for "lookup" and of `S` for "sequential"
        (table of docs/model.md section 2).
        """
        if touch == "head-first":
            return self.above + self.live - 1, 0
        if distance == "sequential":
            return self.touch_positions(touch), 0
        return self.above, 1

    def touch_positions(self, touch: Touch = "leaf-first") -> Int64s:
        """`S` of the run's chunks at their own touch, (runs,): one value a run."""
        if touch == "head-first":
            return self.above + self.live - 1
        per_run = np.repeat(self.n_chunks, np.diff(self.offsets))
        return self.above + per_run - 1 - self.start


def find_runs(trace: Trace, tree: PrefixTree, order: Order, chunk_tokens: int, path: Path = "prompt") -> Runs:
    """Run table of `trace` in `order`, cut into chunks, for a tier that touches `path`.

    Raises
    ------
    TraceError
        A chunk size that is not a multiple of the trace's resolution.
    """
    resolution = trace.resolution_tokens
    if chunk_tokens < 1 or chunk_tokens % resolution:
        raise TraceError(
            f"{trace.source}: chunks of {chunk_tokens} tokens cannot be cut from blocks of {resolution}; "
            f"multiples of {resolution} are accepted"
        )
    end_node = tree.prompt_node if path == "prompt" else tree.touched_node
    end = np.where(end_node >= 0, tree.node_end[end_node], 0) if tree.node_end.size else np.zeros(len(trace), np.int64)
    previous, depth = relink.relink(order.rows, end_node, tree.node_parent, tree.node_end)
    scale = chunk_tokens // resolution
    return tabulate_runs(end[order.rows] // scale, previous, depth // scale, chunk_tokens)


def tabulate_runs(n_chunks: Int64s, previous: Int64s, shared: Int64s, chunk_tokens: int) -> Runs:
    """Run table of a stream given its links in chunks; refuses links out of range.

    Raises
    ------
    ValueError
        `previous` not an earlier position, or `shared` longer than either path.
    """
    n_chunks, previous, shared = (np.ascontiguousarray(a, np.int64) for a in (n_chunks, previous, shared))
    positions = np.arange(n_chunks.size)
    earlier = np.where(previous >= 0, previous, 0)
    limit = np.where(previous >= 0, np.minimum(n_chunks, n_chunks[earlier]), 0) if n_chunks.size else n_chunks
    if (previous >= positions).any() or (shared < 0).any() or (shared > limit).any():
        raise ValueError("links out of range: previous must be earlier, shared at most either path's chunks")
    offsets, table, holder = runs_kernel.find_runs(n_chunks, previous, shared)
    start, length, above, live = (np.ascontiguousarray(table[:, k]) for k in range(4))
    n_distinct = int((n_chunks - shared).sum())
    return Runs(chunk_tokens, n_chunks, offsets, start, length, above, live, holder, n_distinct)
