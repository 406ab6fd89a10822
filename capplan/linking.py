"""Prompts become a Trace: for every path, the earlier path that shares its longest prefix.

Token ids are cut into blocks and hashed into chained keys, so that equal keys mean equal prefixes;
a source's own block hashes are used as they are, after checking that they are chained. The result
does not depend on where the input is cut into batches, nor on which earlier path was compared first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import link
from capplan.key_tree import KeyTree
from capplan.namespaces import ID_BITS, separate
from capplan.prompts import Labels, Prompts, Requests, join_requests
from capplan.trace import Trace

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Keys:
    """What linking needs, beside the trace, to go on with more requests.

    Attributes
    ----------
    segments : (keys,) uint64
        Keys of all blocks, each once: of every row's own part of the tree, row after row.
    starts : (n + 1,) int64
        Those of row `i` are ``segments[starts[i]:starts[i + 1]]``.
    kind : "tokens" or "hashes"
        What they were made from.
    rechains : bool
        Whether block hashes were chained anew.
    has_namespaces, has_large_ids : bool
        Whether some block ids mean the same only in parts of the trace; whether others have more bits
        than go beside a namespace.
    """

    segments: UInt64s
    starts: Int64s
    kind: Literal["tokens", "hashes"]
    rechains: bool
    has_namespaces: bool
    has_large_ids: bool


class Linker:
    """Takes batches of prompts and finds, for every path, its longest known prefix."""

    def __init__(self, ids: str = "chained") -> None:
        """`ids`: "chained" checks block hashes and refuses unchained ones, "content" re-chains them."""
        if ids not in ("chained", "content"):
            raise ValueError(f"ids is {ids!r}; accepted: 'chained', 'content'")
        self.rechains = ids == "content"
        self.kind: Literal["tokens", "hashes"] | None = None
        self._tree = KeyTree.empty()
        self._parts: list[Requests] = []
        self._block_tokens = 0
        self._outputs_known = False
        self._has_namespaces = False
        self._has_large_ids = False

    @classmethod
    def resume(cls, trace: Trace, keys: Keys) -> Self:
        """A linker that goes on where the one that made `trace` stopped."""
        linker = cls("content" if keys.rechains else "chained")
        linker.kind = keys.kind
        shared = trace.shared_tokens // trace.resolution_tokens
        linker._tree = KeyTree.rebuild(keys.segments, keys.starts, trace.parent, shared)
        linker._parts = [trace.requests]
        linker._block_tokens = trace.resolution_tokens
        linker._outputs_known = trace.outputs_known
        linker._has_namespaces = keys.has_namespaces
        linker._has_large_ids = keys.has_large_ids
        return linker

    @property
    def keys(self) -> Keys:
        """What `resume` needs beside the trace."""
        tree = self._tree
        if self.kind is None:
            raise ValueError("nothing is linked yet")
        return Keys(
            segments=tree.segments[: tree.n_keys],
            starts=tree.starts[: tree.n_rows + 1],
            kind=self.kind,
            rechains=self.rechains,
            has_namespaces=self._has_namespaces,
            has_large_ids=self._has_large_ids,
        )

    def feed(self, prompts: Prompts, where: str) -> None:
        """Link one batch.

        Raises
        ------
        TraceError
            Block hashes that are not prefix-chained, or a kind of ids or a block size that changes.
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
        """The linked trace of all batches; the table of keys is given up, and made anew if more follow."""
        if not self._parts:
            raise TraceError(f"{source}: no requests; at least one is needed")
        n = self._tree.n_rows
        self._tree.drop_table()
        self._parts = [join_requests(self._parts)]
        return Trace(
            requests=self._parts[0],
            parent=self._tree.parent[:n].copy(),
            shared_tokens=self._tree.shared[:n] * self._block_tokens,
            resolution_tokens=self._block_tokens,
            outputs_known=self._outputs_known,
            source=source,
            notes=notes,
        )

    def _check_batch(self, prompts: Prompts, where: str) -> None:
        if not self._parts:
            self.kind = prompts.kind
            self._block_tokens = prompts.block_tokens
            self._outputs_known = prompts.outputs_known
        if prompts.kind != self.kind:
            names = {"tokens": "token ids", "hashes": "block hashes", None: "nothing"}
            raise TraceError(
                f"{where}: {names[prompts.kind]} after {names[self.kind]}; one kind of ids per trace is accepted"
            )
        if prompts.block_tokens != self._block_tokens:
            raise TraceError(
                f"{where}: block size {prompts.block_tokens} after {self._block_tokens}; one size per trace is accepted"
            )
        if prompts.outputs_known != self._outputs_known:
            raise TraceError(f"{where}: output ids in some parts only; accepted: in all or in none")
        if prompts.kind == "hashes" and not self.rechains:
            self._check_namespaces(prompts, where)

    def _check_namespaces(self, prompts: Prompts, where: str) -> None:
        """Refuse what `namespaces.separate` could not keep apart, in this batch or together with earlier ones."""
        ids = np.asarray(prompts.ids, np.uint64)
        spaces = prompts.namespaces
        if spaces is not None and spaces.any():
            self._has_namespaces = True
            ids = ids[np.repeat(spaces == 0, np.diff(prompts.offsets))]
        self._has_large_ids |= int(ids.max(initial=0)) >> ID_BITS > 0
        if self._has_namespaces and self._has_large_ids:
            raise TraceError(
                f"{where}: block ids of more than {ID_BITS} bits that mean the same everywhere, and others that do "
                "not; --ids content keeps them apart"
            )

    def _link(self, prompts: Prompts, first: int = 0) -> tuple[int, int]:
        tree = self._tree
        state = (tree.table, tree.places, tree.room, tree.segments, tree.starts, tree.parent, tree.shared)
        lengths = np.diff(prompts.offsets)
        n = lengths.size
        namespaces = np.zeros(n, np.uint64) if prompts.namespaces is None else prompts.namespaces
        if prompts.kind == "hashes" and not self.rechains:
            keys = separate(np.asarray(prompts.ids, np.uint64), lengths, namespaces)
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
        if prompts.kind == "tokens" or self.rechains:
            return f"{where}, {row}: two different prefixes have one 64-bit key; link the parts of the trace apart"
        block_id = int(prompts.ids[prompts.offsets[path] + block])
        return (
            f"{where}, {row}: block id {block_id} (block {block} of the prompt) has a second predecessor or "
            "position, so ids are not prefix-chained; --ids content chains them anew"
        )


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
