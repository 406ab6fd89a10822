"""Slow, obvious versions of what capplan computes fast. Everything here is meant to be checked by eye."""

from collections.abc import Sequence

Key = object


def cut(prompt: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Full chunks of a prompt, each named by its whole prefix."""
    return [tuple(prompt[: (i + 1) * size]) for i in range(len(prompt) // size)]


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = 0
    while n < min(len(left), len(right)) and left[n] == right[n]:
        n += 1
    return n


def link_by_search(paths: Sequence[Sequence[int]], resolution: int) -> tuple[list[int], list[int]]:
    """Earliest earlier path with the longest common prefix, in whole blocks, and that prefix in tokens."""
    parents, shares = [], []
    for row, path in enumerate(paths):
        best, parent = 0, -1
        for earlier in range(row):
            shared = common_prefix(paths[earlier], path) // resolution * resolution
            if shared > best:
                best, parent = shared, earlier
        parents.append(parent)
        shares.append(best)
    return parents, shares


class LruTier:
    """A real LRU list of chunks: index 0 is the least recent."""

    def __init__(self, n_slots: int, leaf_first: bool = True) -> None:
        self.n_slots = n_slots
        self.leaf_first = leaf_first
        self.stack: list[Key] = []

    def lookup(self, chunks: Sequence[Key]) -> int:
        """Leading resident chunks; moves nothing."""
        n = 0
        while n < len(chunks) and chunks[n] in self.stack:
            n += 1
        return n

    def touch(self, chunks: Sequence[Key]) -> int:
        """Touch every chunk once, inserting absent ones; returns how many were written."""
        if self.n_slots == 0:
            return 0
        written = 0
        for chunk in reversed(chunks) if self.leaf_first else chunks:
            if chunk in self.stack:
                self.stack.remove(chunk)
            else:
                written += 1
            self.stack.append(chunk)
            if len(self.stack) > self.n_slots:
                self.stack.pop(0)
        return written


def simulate(stream: Sequence[Sequence[Key]], n_slots: int, leaf_first: bool = True) -> tuple[list[int], int]:
    """Covered chunks per request and chunks written, for one capacity."""
    tier = LruTier(n_slots, leaf_first)
    covered, written = [], 0
    for chunks in stream:
        covered.append(tier.lookup(chunks))
        written += tier.touch(chunks)
    return covered, written


def stack_positions(stream: Sequence[Sequence[Key]], leaf_first: bool = True) -> tuple[list[int], list[int]]:
    """P and S of every reference, head to tail, from an unbounded recency list; -1 on first use."""
    stack: list[Key] = []  # index 0 is the most recent
    position, sequential = [], []
    for chunks in stream:
        position += [stack.index(chunk) if chunk in stack else -1 for chunk in chunks]
        at_touch = {}
        for chunk in reversed(chunks) if leaf_first else chunks:
            at_touch[chunk] = stack.index(chunk) if chunk in stack else -1
            if chunk in stack:
                stack.remove(chunk)
            stack.insert(0, chunk)
        sequential += [at_touch[chunk] for chunk in chunks]
    return position, sequential


def cover_sequentially(stream: Sequence[Sequence[Key]], n_slots: int, leaf_first: bool = True) -> list[int]:
    """Leading chunks with S < K per request: the published convention."""
    _, sequential = stack_positions(stream, leaf_first)
    covered, at = [], 0
    for chunks in stream:
        n = 0
        while n < len(chunks) and 0 <= sequential[at + n] < n_slots:
            n += 1
        covered.append(n)
        at += len(chunks)
    return covered
