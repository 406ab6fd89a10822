"""A GPU prefix cache by itself, with the blocks an exact stack leaves out.

Modelled: vLLM's queue of free blocks (`capplan.kernels.gpu_queue`). What the stack distances of
`serve_from_gpu` do not know is the room that partly filled blocks and second copies of a block take.
Not modelled: requests that run at the same time, preemption, blocks of a request that is still running.
"""

import numpy as np

from capplan.errors import SpecError
from capplan.kernels import gpu_queue
from capplan.simulation.stream import TierStream
from capplan.simulation.tier_input import TierInput
from capplan.simulation.tier_run import TierRun

NULL_BLOCKS = 1  # the pool's first block stands for blocks that a window has left behind


def simulate_gpu_queue(tier: TierInput) -> TierRun:
    """What the GPU serves of every request, block by block; there is no host tier.

    The pool has the blocks of `tier.gpu`, one of which is never used.

    Raises
    ------
    SpecError
        A rule of write admission, or a pool without room for the longest request.
    """
    refuse_rule(tier)
    stream, gpu = tier.stream, tier.gpu
    n_blocks = gpu.n_slots * gpu.block_tokens // stream.unit_tokens
    tally = gpu_queue.open_tally(len(stream))
    if n_blocks > 0:
        n_usable = n_blocks - NULL_BLOCKS
        refuse_small_pool(tier, n_usable)
        rules = gpu_queue.Rules(stream.unit_tokens, True, True, tier.settings.preset.returns_tails_first)
        run_pool(stream, rules, n_usable, tally)
    hit = tally.hit.astype(np.int64) * stream.unit_tokens
    none = np.zeros(len(stream), np.int64)
    return TierRun(
        n_slots=0,
        unit_tokens=stream.unit_tokens,
        n_tokens=stream.n_tokens,
        gpu_tokens=hit,
        gpu_forced_tokens=tally.held.astype(np.int64) * stream.unit_tokens - hit,
        found_tokens=none,
        written=none.astype(np.int32),
        evicted=none.astype(np.int32),
        duplicates=none.astype(np.int32),
        refused=none.astype(np.int32),
        declined=none,
    )


def run_pool(stream: TierStream, rules: gpu_queue.Rules, n_blocks: int, tally: gpu_queue.Tally) -> gpu_queue.Pool:
    """Run a stream through a pool of `n_blocks` usable blocks; fills `tally` and returns the pool at the end."""
    pool = gpu_queue.open_pool(n_blocks, stream.n_units)
    gpu_queue.run_pool(
        pool,
        rules,
        stream.nodes,
        stream.n_tokens,
        stream.prompt_units,
        stream.path_node,
        stream.path_units,
        stream.path_tokens,
        tally,
    )
    return pool


def refuse_rule(tier: TierInput) -> None:
    """Refuse a rule of write admission: it says what a host tier stores, and these tiers store all or nothing."""
    if tier.settings.rule.kind != "none":
        raise SpecError(
            f"{tier.settings.preset.name}: rule '{tier.settings.rule.kind}' declines writes to a host tier beside "
            "the GPU's, which it does not have; accepted: none"
        )


def refuse_small_pool(tier: TierInput, n_blocks: int) -> None:
    """Refuse a GPU pool that cannot hold the longest request."""
    unit = tier.stream.unit_tokens
    longest = int(tier.stream.path_tokens.max(initial=0))
    if -(-longest // unit) > n_blocks:
        raise SpecError(
            f"{tier.settings.preset.name}: the longest request needs {longest:,} tokens of GPU KV, there is room for "
            f"{n_blocks * unit:,}; accepted: more of it"
        )
