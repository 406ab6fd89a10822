"""vLLM's GPU prefix cache, block by block: one queue of free blocks, and which of them still hold what.

A request takes the blocks it finds out of the queue, fills others from the queue's head, and returns all of
them to its end when it ends, the tail first. A block loses what it holds only when it is taken again. Several
blocks may hold one unit; a lookup finds the earliest. Requests run one after another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import recency
from capplan.kernels._jit import kernel
from capplan.kernels.paths import Nodes, list_units

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Rules(NamedTuple):
    """A version's rules.

    `keeps_tails` gives the tokens behind the last full block a block of their own; `keeps_twins` fills a new
    block although another one holds the same unit; `returns_tails_first` puts blocks that hold no unit at
    the queue's head when a request ends.
    """

    block_tokens: int
    keeps_tails: bool
    keeps_twins: bool
    returns_tails_first: bool


class Pool(NamedTuple):
    """The blocks: `queue` lists the free ones, next to be taken first.

    `unit` is what a block holds, -1 nothing that can be found; `first` and `last` are the ends of the chain of
    blocks that hold a unit, earliest first, and `twin` the next one in it.
    """

    queue: recency.Store
    unit: Int32s
    twin: Int32s
    first: Int32s
    last: Int32s


class Tally(NamedTuple):
    """What happened to each request, in blocks, (n,) each.

    `hit` were taken over; `held` lead the prompt and were cached; `cached` and `twins` were filled with a unit
    that no other, and that another block held; `evicted` lost theirs.
    """

    hit: Int32s
    held: Int32s
    cached: Int32s
    twins: Int32s
    evicted: Int32s


def open_pool(n_blocks: int, n_units: int) -> Pool:
    """Blocks that were never used, all free."""
    queue = recency.open_store(n_blocks, recency.LRU, 1)
    for block in range(n_blocks):
        recency.link_newest(queue, block)
    unit, twin = np.full((2, n_blocks), -1, np.int32)
    first, last = np.full((2, n_units), -1, np.int32)
    return Pool(queue, unit, twin, first, last)


def open_tally(n_requests: int) -> Tally:
    """Room for the tally of a stream."""
    return Tally(*(np.zeros(n_requests, np.int32) for _ in range(5)))


@kernel
def cache(pool: Pool, block: int, unit: int) -> None:
    """Note that a block holds a unit."""
    pool.unit[block] = unit
    pool.twin[block] = -1
    if pool.first[unit] < 0:
        pool.first[unit] = block
    else:
        pool.twin[pool.last[unit]] = block
    pool.last[unit] = block


@kernel
def forget(pool: Pool, block: int) -> None:
    """Note that a block no longer holds its unit."""
    unit = pool.unit[block]
    before = -1
    at = pool.first[unit]
    while at != block:
        before = at
        at = pool.twin[at]
    if before < 0:
        pool.first[unit] = pool.twin[block]
    else:
        pool.twin[before] = pool.twin[block]
    if pool.last[unit] == block:
        pool.last[unit] = before
    pool.unit[block] = -1


@kernel
def take(pool: Pool) -> int:
    """Take the block at the head of the queue."""
    block = pool.queue.newer[pool.queue.n_units]
    recency.unlink(pool.queue, block)
    return int(block)


@kernel
def link_oldest(queue: recency.Store, block: int) -> None:
    """Put a block at the head of the queue."""
    sentinel = queue.n_units
    oldest = queue.newer[sentinel]
    queue.newer[block] = oldest
    queue.older[block] = sentinel
    queue.older[oldest] = block
    queue.newer[sentinel] = block


@kernel
def release(pool: Pool, rules: Rules, blocks: Int64s, n_blocks: int) -> None:
    """Return a request's blocks, listed from the head to the tail of its path."""
    for k in range(n_blocks - 1, -1, -1):
        if pool.unit[blocks[k]] >= 0 or not rules.returns_tails_first:
            recency.link_newest(pool.queue, blocks[k])
    for k in range(n_blocks):
        if pool.unit[blocks[k]] < 0 and rules.returns_tails_first:
            link_oldest(pool.queue, blocks[k])


@kernel
def look_up(pool: Pool, units: Int64s, n_units: int) -> int:
    """Leading cached units of a prompt; moves nothing."""
    held = 0
    while held < n_units and pool.first[units[held]] >= 0:
        held += 1
    return held


@kernel
def serve(
    pool: Pool,
    rules: Rules,
    units: Int64s,
    blocks: Int64s,
    n_tokens: int,
    n_prompt: int,
    n_path: int,
    path_tokens: int,
    tally: Tally,
    c: int,
) -> None:
    """One request: its prompt and path in units, and how many tokens have KV when it ends.

    At least one prompt token is computed, so a prompt that is cached whole computes its last block again
    (docs/model.md section 4).
    """
    held = look_up(pool, units, n_prompt)
    hit = min(held, max(n_tokens - 1, 0) // rules.block_tokens)
    tally.held[c] = held
    tally.hit[c] = hit
    n_blocks = -(-path_tokens // rules.block_tokens) if rules.keeps_tails else n_path
    for k in range(n_blocks):
        blocks[k] = -1
        if k < hit or (k < n_path and not rules.keeps_twins):
            blocks[k] = pool.first[units[k]]
            if blocks[k] >= 0:
                recency.unlink(pool.queue, blocks[k])
    for k in range(n_blocks):
        if blocks[k] < 0:
            blocks[k] = take(pool)
            if pool.unit[blocks[k]] >= 0:
                forget(pool, blocks[k])
                tally.evicted[c] += 1
    for k in range(hit, n_path):
        if pool.unit[blocks[k]] < 0:
            if pool.first[units[k]] >= 0:
                tally.twins[c] += 1
            else:
                tally.cached[c] += 1
            cache(pool, blocks[k], units[k])
    release(pool, rules, blocks, n_blocks)


@kernel
def run_pool(
    pool: Pool,
    rules: Rules,
    nodes: Nodes,
    n_tokens: Int64s,
    prompt_units: Int64s,
    path_node: Int64s,
    path_units: Int64s,
    path_tokens: Int64s,
    tally: Tally,
) -> None:
    """Run a stream through a pool at least as large as its longest path; fills `tally`."""
    longest = 0
    for c in range(n_tokens.size):
        longest = max(longest, path_units[c])
    units = np.empty(longest, np.int64)
    blocks = np.empty(longest + 1, np.int64)
    for c in range(n_tokens.size):
        list_units(nodes, path_node[c], path_units[c], units)
        serve(pool, rules, units, blocks, n_tokens[c], prompt_units[c], path_units[c], path_tokens[c], tally, c)
