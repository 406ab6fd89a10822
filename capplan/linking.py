"""Prompts become a Trace: for every path, the earlier path that shares its longest prefix.

Token ids are cut into blocks and hashed into chained keys, so that equal keys mean equal prefixes;
a source's own block hashes are used as they are, after checking that they are chained. The result
does not depend on where the input is cut into batches, nor on which earlier path was compared first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import link
from capplan.prompts import Labels, Prompts, Requests, join_requests
from capplan.trace import Trace

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
T = TypeVar("T", bound=np.generic)

FIRST_ROOM = 1 << 12
NAMESPACE_BITS = 24
ID_BITS = 64 - NAMESPACE_BITS


@dataclass(slots=True)
class Tree:
    """Segments of the prefix tree and the table of their keys; grows as paths are added."""

    table: UInt64s
    segments: UInt64s
    starts: Int64s
    parent: Int64s
    shared: Int64s
    n_rows: int = 0

    @property
    def room(self) -> int:
        """Keys that fit without enlarging: the table is kept at most half full."""
        return int(min(self.segments.size, self.table.shape[0] // 2))

    @property
    def shift(self) -> np.uint64:
        """Bits a spread key is shifted by to give a slot."""
        return np.uint64(65 - self.table.shape[0].bit_length())

    def add_rows(self, n_rows: int) -> None:
        """Make room for `n_rows` more rows."""
        needed = self.n_rows + n_rows
        if needed > self.parent.size:
            size = max(needed, 2 * self.parent.size)
            self.parent = _enlarge(self.parent, size)
            self.shared = _enlarge(self.shared, size)
            self.starts = _enlarge(self.starts, size + 1)

    def add_room(self, n_used: int, n_more: int) -> None:
        """Keep the first `n_used` keys and make room for `n_more`, at least doubling what there is."""
        capacity = 1 << (max(2 * self.room, n_used + n_more) - 1).bit_length()
        self.segments = _enlarge(self.segments, capacity)
        self.table = np.zeros((2 * capacity, 2), np.uint64)
        link.fill_table(self.table, self.shift, self.segments, n_used)


def _enlarge(array: NDArray[T], size: int) -> NDArray[T]:
    larger = np.zeros(size, array.dtype)
    larger[: array.size] = array
    return larger


class Linker:
    """Takes batches of prompts and finds, for every path, its longest known prefix."""

    def __init__(self, ids: str = "chained") -> None:
        """`ids`: "chained" checks block hashes and refuses unchained ones, "content" re-chains them."""
        if ids not in ("chained", "content"):
            raise ValueError(f"ids is {ids!r}; accepted: 'chained', 'content'")
        self._rechain = ids == "content"
        self._tree = Tree(
            table=np.zeros((2 * FIRST_ROOM, 2), np.uint64),
            segments=np.zeros(FIRST_ROOM, np.uint64),
            starts=np.zeros(1, np.int64),
            parent=np.zeros(0, np.int64),
            shared=np.zeros(0, np.int64),
        )
        self._parts: list[Requests] = []
        self._block_tokens = 0
        self._outputs_known = False
        self._has_namespaces = False
        self._has_large_ids = False

    def feed(self, prompts: Prompts, where: str) -> None:
        """Link one batch.

        Raises
        ------
        TraceError
            Block hashes that are not prefix-chained or too large for their namespaces, or a block size
        that changes.
        """
        self._check_batch(prompts, where)
        tree = self._tree
        n = len(prompts.requests)
        tree.add_rows(n)
        with np.errstate(over="ignore"):
            done, block = self._link(prompts)
            while block == link.MATCHED and done < n:
                longest = int(prompts.offsets[done + 1] - prompts.offsets[done])
                tree.add_room(int(tree.starts[tree.n_rows + done]), longest)
                done, block = self._link(prompts, done)
        if block != link.MATCHED:
            raise TraceError(self._describe_clash(prompts, done, block, where))
        tree.n_rows += n
        self._parts.append(prompts.requests)

    def finish(self, source: str = "", notes: tuple[str, ...] = ()) -> Trace:
        """The linked trace of all batches."""
        if not self._parts:
            raise TraceError(f"{source}: no requests; at least one is needed")
        n = self._tree.n_rows
        return Trace(
            requests=join_requests(self._parts),
            parent=self._tree.parent[:n].copy(),
            shared_tokens=self._tree.shared[:n] * self._block_tokens,
            resolution_tokens=self._block_tokens,
            outputs_known=self._outputs_known,
            source=source,
            notes=notes,
        )

    def _check_batch(self, prompts: Prompts, where: str) -> None:
        if not self._parts:
            self._block_tokens = prompts.block_tokens
            self._outputs_known = prompts.outputs_known
        if prompts.block_tokens != self._block_tokens:
            raise TraceError(
                f"{where}: block size {prompts.block_tokens} after {self._block_tokens}; one size per trace is accepted"
            )
        if prompts.outputs_known != self._outputs_known:
            raise TraceError(f"{where}: output ids in some parts only; accepted: in all or in none")
        if prompts.kind == "hashes" and not self._rechain:
            self._check_namespaces(prompts, where)

    def _check_namespaces(self, prompts: Prompts, where: str) -> None:
        """Refuse what `_separate` could not keep apart, in this batch or together with earlier ones."""
        largest = 0 if prompts.namespaces is None else int(prompts.namespaces.max(initial=0))
        self._has_namespaces |= largest > 0
        self._has_large_ids |= int(np.asarray(prompts.ids, np.uint64).max(initial=0)) >> ID_BITS > 0
        if largest >> NAMESPACE_BITS or (self._has_namespaces and self._has_large_ids):
            raise TraceError(
                f"{where}: block ids of more than {ID_BITS} bits, or more than {NAMESPACE_BITS} bits of namespaces; "
                "where ids are comparable only in parts of the trace, link the parts apart or use --ids content"
            )

    def _link(self, prompts: Prompts, first: int = 0) -> tuple[int, int]:
        tree = self._tree
        state = (tree.table, tree.shift, tree.room, tree.segments, tree.starts, tree.parent, tree.shared)
        lengths = np.diff(prompts.offsets)
        n = lengths.size
        namespaces = np.zeros(n, np.uint64) if prompts.namespaces is None else prompts.namespaces
        if prompts.kind == "hashes" and not self._rechain:
            keys = _separate(np.asarray(prompts.ids, np.uint64), lengths, namespaces)
            return link.link_keys(keys, prompts.offsets, tree.n_rows, first, *state)
        ids, offsets, block = np.asarray(prompts.ids, np.uint32), prompts.offsets, prompts.block_tokens
        if prompts.kind == "hashes":
            ids = np.ascontiguousarray(prompts.ids, "<u8").view("<u4")
            offsets, block = 2 * prompts.offsets, 2
        candidate = find_candidates(prompts.requests.session)
        scratch = np.zeros(int(lengths.max(initial=0)) * (2 if block == 2 else 1) // block + 1, np.uint64)
        return link.link_ids(ids, offsets, block, candidate, tree.n_rows, first, *state, namespaces, scratch)

    def _describe_clash(self, prompts: Prompts, path: int, block: int, where: str) -> str:
        name = prompts.requests.request_ids[path]
        row = f"row {self._tree.n_rows + path} (request {name!r})"
        if prompts.kind == "tokens" or self._rechain:
            return f"{where}, {row}: two different prefixes have one 64-bit key; link the parts of the trace apart"
        block_id = int(prompts.ids[prompts.offsets[path] + block])
        return (
            f"{where}, {row}: block id {block_id} (block {block} of the prompt) has a second predecessor or "
            "position, so ids are not prefix-chained; --ids content chains them anew"
        )


def _separate(ids: UInt64s, lengths: Int64s, namespaces: UInt64s) -> UInt64s:
    """Keys that differ between namespaces: the namespace goes into the upper bits of small ids."""
    if not namespaces.any():
        return ids
    return (np.repeat(namespaces, lengths) << np.uint64(ID_BITS)) | ids


def find_candidates(session: Labels) -> Int64s:
    """The row worth comparing with first: the session's previous row, else the row before; (n,)."""
    n = session.codes.size
    candidate = np.arange(-1, n - 1, dtype=np.int64)
    order = np.argsort(session.codes, kind="stable")
    codes = session.codes[order]
    follows = (codes[1:] == codes[:-1]) & (codes[1:] >= 0)
    candidate[order[1:][follows]] = order[:-1][follows]
    return candidate


def link_prompts(
    batches: Iterable[Prompts], where: str = "prompts", *, ids: str = "chained", notes: tuple[str, ...] = ()
) -> Trace:
    """Link batches of prompts, in order, into one checked Trace.

    Parameters
    ----------
    batches : iterable of Prompts
        All of one block size.
    where : str
        Name of the source for messages.
    ids : "chained" or "content"
        Refuse block hashes that are not prefix-chained, or chain them anew over the raw ids.
    notes : tuple of str
        What the trace's `notes` are to say.

    Raises
    ------
    TraceError
        Unchained block hashes, no requests, or columns that contradict themselves.
    """
    linker = Linker(ids)
    for prompts in batches:
        linker.feed(prompts, where)
    trace = linker.finish(where, notes)
    trace.check(where)
    return trace
