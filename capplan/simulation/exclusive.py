"""A host tier that takes what the GPU drops and gives it back: one block is in one of the two.

Modelled: TensorRT-LLM's first block manager (`capplan.kernels.exclusive`), beam width 1, one retention
priority, no reuse of parts of a block. Both pools are simulated together, so what the GPU serves depends on the
host's size a little, and is not that of `serve_from_gpu`.
"""

import numpy as np

from capplan.errors import SpecError
from capplan.kernels import exclusive
from capplan.simulation.gpu_queue import refuse_rule, refuse_small_pool
from capplan.simulation.stream import TierStream
from capplan.simulation.tier_input import TierInput
from capplan.simulation.tier_run import TierRun


def simulate_exclusive(tier: TierInput, n_slots: int) -> TierRun:
    """Both pools together, for a host's of `n_slots` blocks.

    `written` are blocks copied to the host with a unit that a lookup can find, `duplicates` those without
    (partly filled ones, second copies); `evicted` are units dropped from the host.

    Raises
    ------
    SpecError
        A rule of write admission, no GPU tier, or one without room for the longest request.
    """
    refuse_rule(tier)
    stream, gpu = tier.stream, tier.gpu
    n_gpu = gpu.n_slots * gpu.block_tokens // stream.unit_tokens
    if n_gpu == 0:
        raise SpecError(f"{tier.settings.preset.name}: its host tier takes what the GPU's drops; accepted: a GPU tier")
    refuse_small_pool(tier, n_gpu)
    tally = exclusive.open_tally(len(stream))
    # No more blocks are ever needed than all paths have together, partly filled ones included.
    n_most = int((-(-stream.path_tokens // stream.unit_tokens)).sum())
    run_pools(stream, n_gpu, min(n_slots, n_most), tally)
    unit = stream.unit_tokens
    found = (tally.hit + tally.restored).astype(np.int64)
    return TierRun(
        n_slots=n_slots,
        unit_tokens=unit,
        n_tokens=stream.n_tokens,
        gpu_tokens=tally.hit.astype(np.int64) * unit,
        gpu_forced_tokens=(tally.held - found) * unit,
        found_tokens=np.where(tally.restored > 0, found * unit, 0),
        written=tally.written,
        evicted=tally.evicted,
        duplicates=tally.unfindable,
        refused=np.zeros(len(stream), np.int32),
        declined=np.zeros(len(stream), np.int64),
    )


def run_pools(stream: TierStream, n_gpu: int, n_host: int, tally: exclusive.Tally) -> exclusive.Pools:
    """Run a stream through pools of so many blocks; fills `tally` and returns the pools at the end."""
    pools = exclusive.open_pools(n_gpu, n_host, stream.n_units)
    exclusive.run_pools(
        pools,
        stream.unit_tokens,
        stream.nodes,
        stream.n_tokens,
        stream.prompt_units,
        stream.path_node,
        stream.path_units,
        stream.path_tokens,
        tally,
    )
    return pools
