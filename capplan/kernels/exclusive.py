"""TensorRT-LLM's two pools of blocks: what the GPU drops moves to the host, and back when it is found again.

Blocks form a tree: a block that holds a full unit hangs below the block of the unit before it. Both pools have a
queue of free blocks, next to be taken first. A GPU block that is taken although it was filled changes place with
the block at the head of the host's queue, which loses what it held and everything below it. A block found on
the host changes place with a GPU block taken for it, one at a time from the head of the prompt, so the first of
them may push out the last. Blocks return to their queue's end when the request ends, tail first. Requests run one
after another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import recency
from capplan.kernels._jit import kernel
from capplan.kernels.paths import Nodes, list_units

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

GPU, HOST = 0, 1
FREE = 0  # places in `free`: free host blocks
PARENT, CHILD, BEFORE, AFTER = 0, 1, 2, 3  # rows of `tree`


class Pools(NamedTuple):
    """All blocks of both pools.

    `queue` holds two lists, by `queue.uses`: GPU and HOST, which is also where a block is. `unit` is what a
    block holds that can be found, -1 nothing; `is_filled` whether it was ever written; `block` the block of a
    unit, -1 none. `tree` has a block's parent, first child, and siblings on both sides, -1 none.
    """

    queue: recency.Store
    unit: Int32s
    is_filled: NDArray[np.bool_]
    block: Int32s
    tree: Int32s
    free: Int64s


class Tally(NamedTuple):
    """What happened to each request, in blocks, (n,) each.

    `hit` were found on the GPU and `restored` on the host; `held` lead the prompt and were there at its end, found
    or not; `written` moved to the host with a unit, `unfindable` without one that can be found; `evicted` units
    were dropped from the host.
    """

    hit: Int32s
    restored: Int32s
    held: Int32s
    written: Int32s
    unfindable: Int32s
    evicted: Int32s


def open_pools(n_gpu: int, n_host: int, n_units: int) -> Pools:
    """Blocks that were never used, all free: the GPU's come first."""
    n = n_gpu + n_host
    queue = recency.open_store(n, recency.LFU, 2)
    queue.uses[n_gpu:] = HOST
    for block in range(n):
        recency.link_newest(queue, block)
    unit, block_of = np.full(n, -1, np.int32), np.full(n_units, -1, np.int32)
    tree = np.full((4, n), -1, np.int32)
    return Pools(queue, unit, np.zeros(n, np.bool_), block_of, tree, np.array([n_host], np.int64))


def open_tally(n_requests: int) -> Tally:
    """Room for the tally of a stream."""
    return Tally(*(np.zeros(n_requests, np.int32) for _ in range(6)))


@kernel
def head_of(pools: Pools, place: int) -> int:
    """The free block of a pool that is taken next."""
    return int(pools.queue.newer[pools.queue.n_units + place])


@kernel
def claim(pools: Pools, block: int) -> None:
    """Take a free block out of its queue."""
    recency.unlink(pools.queue, block)
    if pools.queue.uses[block] == HOST:
        pools.free[FREE] -= 1


@kernel
def release(pools: Pools, block: int) -> None:
    """Put a block at the end of its pool's queue."""
    recency.link_newest(pools.queue, block)
    if pools.queue.uses[block] == HOST:
        pools.free[FREE] += 1


@kernel
def hang(pools: Pools, block: int, parent: int, unit: int) -> None:
    """Note that a block holds a unit, below the block of the one before it (-1 the root)."""
    tree = pools.tree
    pools.unit[block] = unit
    pools.block[unit] = block
    tree[PARENT, block] = parent
    if parent >= 0:
        after = tree[CHILD, parent]
        tree[AFTER, block] = after
        if after >= 0:
            tree[BEFORE, after] = block
        tree[CHILD, parent] = block


@kernel
def cut_off(pools: Pools, block: int, tally: Tally, c: int) -> None:
    """Drop what a childless block holds."""
    tree = pools.tree
    parent, before, after = tree[PARENT, block], tree[BEFORE, block], tree[AFTER, block]
    if before >= 0:
        tree[AFTER, before] = after
    elif parent >= 0:
        tree[CHILD, parent] = after
    if after >= 0:
        tree[BEFORE, after] = before
    tree[:, block] = -1
    pools.block[pools.unit[block]] = -1
    pools.unit[block] = -1
    if pools.queue.uses[block] == HOST:
        tally.evicted[c] += 1


@kernel
def prune(pools: Pools, block: int, tally: Tally, c: int) -> None:
    """Drop what a block holds and everything below it; blocks stay where they are."""
    if pools.unit[block] < 0:
        return
    at = block
    while True:
        while pools.tree[CHILD, at] >= 0:
            at = pools.tree[CHILD, at]
        parent = pools.tree[PARENT, at]
        cut_off(pools, at, tally, c)
        if at == block:
            return
        at = parent


@kernel
def take(pools: Pools, tally: Tally, c: int) -> int:
    """Take a GPU block; if it was filled, it moves to the host and the block that comes for it is taken."""
    block = head_of(pools, GPU)
    claim(pools, block)
    if pools.is_filled[block] and pools.free[FREE] > 0:
        given = head_of(pools, HOST)
        prune(pools, given, tally, c)
        claim(pools, given)
        if pools.unit[block] >= 0:
            tally.written[c] += 1
        else:
            tally.unfindable[c] += 1
        pools.queue.uses[given] = GPU
        pools.queue.uses[block] = HOST
        release(pools, block)
        return given
    prune(pools, block, tally, c)
    return block


@kernel
def fetch(pools: Pools, block: int, tally: Tally, c: int) -> None:
    """Bring a claimed host block to the GPU; the one taken for it goes to the end of the host's queue."""
    given = take(pools, tally, c)
    pools.queue.uses[block] = GPU
    pools.queue.uses[given] = HOST
    release(pools, given)
    tally.restored[c] += 1


@kernel
def find(pools: Pools, units: Int64s, limit: int, blocks: Int64s, tally: Tally, c: int) -> int:
    """Claim the leading units that are there, from the head, each brought to the GPU before the next is looked for."""
    k = 0
    while k < limit and pools.block[units[k]] >= 0:
        blocks[k] = pools.block[units[k]]
        claim(pools, blocks[k])
        if pools.queue.uses[blocks[k]] == HOST:
            fetch(pools, blocks[k], tally, c)
        else:
            tally.hit[c] += 1
        k += 1
    return k


@kernel
def store(pools: Pools, units: Int64s, n_path: int, blocks: Int64s) -> None:
    """Hang a path's blocks into the tree below what is there of it already."""
    parent = -1
    for k in range(n_path):
        if pools.block[units[k]] < 0:
            hang(pools, blocks[k], parent, units[k])
            pools.is_filled[blocks[k]] = True
        parent = pools.block[units[k]]


@kernel
def serve(
    pools: Pools,
    block_tokens: int,
    units: Int64s,
    blocks: Int64s,
    n_tokens: int,
    n_prompt: int,
    n_path: int,
    path_tokens: int,
    tally: Tally,
    c: int,
) -> None:
    """One request: its prompt and path in units, and how many tokens have KV when it ends."""
    found = find(pools, units, max(n_tokens - 1, 0) // block_tokens, blocks, tally, c)
    tally.held[c] = found
    if found < n_prompt and pools.block[units[found]] >= 0:
        tally.held[c] += 1
    n_blocks = -(-path_tokens // block_tokens)
    for k in range(found, n_blocks):
        blocks[k] = take(pools, tally, c)
        if k * block_tokens < n_tokens:
            pools.is_filled[blocks[k]] = k * block_tokens < n_tokens - 1
    store(pools, units, n_path, blocks)
    if n_path < n_blocks:
        pools.is_filled[blocks[n_path]] = True
    for k in range(n_blocks - 1, -1, -1):
        release(pools, blocks[k])


@kernel
def run_pools(
    pools: Pools,
    block_tokens: int,
    nodes: Nodes,
    n_tokens: Int64s,
    prompt_units: Int64s,
    path_node: Int64s,
    path_units: Int64s,
    path_tokens: Int64s,
    tally: Tally,
) -> None:
    """Run a stream through both pools, the GPU's at least as large as the longest path; fills `tally`."""
    longest = 0
    for c in range(n_tokens.size):
        longest = max(longest, path_units[c])
    units = np.empty(longest, np.int64)
    blocks = np.empty(longest + 1, np.int64)
    for c in range(n_tokens.size):
        list_units(nodes, path_node[c], path_units[c], units)
        serve(pools, block_tokens, units, blocks, n_tokens[c], prompt_units[c], path_units[c], path_tokens[c], tally, c)
