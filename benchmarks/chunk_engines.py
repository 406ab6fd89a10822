"""Chunk-level stack-distance engines to compare the run kernel with: one step for every chunk reference.

Both take dense chunk ids and count, at every stack position, the references that find their chunk
there (docs/model.md section 2: leaf-first touch, position at the lookup). Both work on deaths: every
touch takes the next time slot, and a touch at `t` of a chunk last touched at `p` marks slot `p` dead.
Of the ``t - p - 1`` slots in between, those not dead hold the chunks touched since. The deeper chunks
of the same path are among them at the touch but not at the lookup, so the position there is that many
less. A first touch writes nothing. `curve_from_counts` makes a curve of either result.
"""

from collections.abc import Callable

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

# Slots per word, line and group of the bitmap, as powers of two.
WORD, LINE, GROUP = 6, 10, 15

compiled: Callable = numba.njit(cache=True, fastmath=False)


@intrinsic
def count_ones(typingctx, word):
    """Ones of a 64-bit word, by the processor's own instruction."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def count_with_fenwick(ids: Int32s, offsets: Int64s, n_chunks: int) -> Int64s:
    """References by stack position, (n_chunks,), with the deaths in a Fenwick tree over time."""
    counts = np.zeros(n_chunks, np.int64)
    last = np.full(n_chunks, -1, np.int32)
    fill_with_fenwick(ids, offsets, last, np.zeros(ids.size + 1, np.int32), counts)
    return counts


@compiled
def fill_with_fenwick(ids: Int32s, offsets: Int64s, last: Int32s, deaths: Int32s, counts: Int64s) -> None:
    """One prefix sum and one addition for every reference that is not a first one."""
    now = 0
    n_dead = 0
    for r in range(offsets.size - 1):
        end = offsets[r + 1]
        for k in range(end - 1, offsets[r] - 1, -1):
            before = np.int64(last[ids[k]])
            last[ids[k]] = now
            if before >= 0:
                dead_before = 0
                i = before + 1
                while i > 0:
                    dead_before += deaths[i]
                    i &= i - 1
                i = before + 1
                while i < deaths.size:
                    deaths[i] += 1
                    i += i & -i
                deeper = end - 1 - k
                counts[now - before - 1 - (n_dead - dead_before) - deeper] += 1
                n_dead += 1
            now += 1


def count_with_bitmap(ids: Int32s, offsets: Int64s, n_chunks: int) -> Int64s:
    """References by stack position, (n_chunks,), with the deaths in a bitmap counted at two levels."""
    counts = np.zeros(n_chunks, np.int64)
    last = np.full(n_chunks, -1, np.int32)
    n_groups = (ids.size >> GROUP) + 1
    words = np.zeros(n_groups << (GROUP - WORD), np.uint64)
    lines = np.zeros(n_groups << (GROUP - LINE), np.int32)
    groups = np.zeros(n_groups, np.int32)
    fill_with_bitmap(ids, offsets, last, words, lines, groups, counts)
    return counts


@compiled
def fill_with_bitmap(
    ids: Int32s, offsets: Int64s, last: Int32s, words: UInt64s, lines: Int32s, groups: Int32s, counts: Int64s
) -> None:
    """A masked popcount in the line of the slot, then whole lines to the end of its group, then groups.

    The word of the slot is read by itself: it was written a moment ago, and a wider read of what was
    just written would stall.
    """
    one = np.uint64(1)
    all_ones = ~np.uint64(0)
    now = 0
    for r in range(offsets.size - 1):
        end = offsets[r + 1]
        for k in range(end - 1, offsets[r] - 1, -1):
            before = np.int64(last[ids[k]])
            last[ids[k]] = now
            if before >= 0:
                word = before >> WORD
                line = before >> LINE
                group = before >> GROUP
                bit = np.uint64(before & 63)
                dead = count_ones(words[word] & ((all_ones << bit) << one))
                for i in range(word + 1, (line + 1) << (LINE - WORD)):
                    dead += count_ones(words[i])
                for i in range(line + 1, (group + 1) << (GROUP - LINE)):
                    dead += lines[i]
                for i in range(group + 1, (now >> GROUP) + 1):
                    dead += groups[i]
                words[word] |= one << bit
                lines[line] += 1
                groups[group] += 1
                deeper = end - 1 - k
                counts[now - before - 1 - dead - deeper] += 1
            now += 1


def curve_from_counts(counts: Int64s) -> Int64s:
    """Chunks covered at ``K`` = 0 .. D slots, from references by stack position."""
    covered = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=covered[1:])
    return covered
