"""Two tiers on one stream: what the GPU tier serves, and what a host tier of any capacity adds.

Modelled (docs/model.md section 4): the GPU tier touches prompt and output in blocks, leaf-first; the
host tier touches prompts in chunks, and its lookup covers the whole prompt from token 0 whatever the
GPU holds, so host content does not depend on GPU hits and the tiers overlay. Both insert at lookup
time. Not modelled: pins, duplicates, copies in flight, other touch orders of real engines.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.curve import CoverageCurve, build_curve, cover_requests, sum_up_to
from capplan.kernels import spread
from capplan.order import Order
from capplan.runs import Distance, Runs, Touch, find_runs
from capplan.trace import Trace
from capplan.tree import PrefixTree

Int64s = NDArray[np.int64]

GPU_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class GpuService:
    """What a GPU tier of fixed size serves, in stream order.

    Attributes
    ----------
    block_tokens : int
        Block of the tier: 16 tokens, or the trace's resolution where that is coarser.
    n_slots : int
        Blocks `K_G` it holds; 0 is no tier.
    tokens : (n,) int64
        GPU-served tokens `g_r`.
    forced_tokens : (n,) int64
        Tokens computed only because a wholly covered prompt computes its last block again.
    """

    block_tokens: int
    n_slots: int
    tokens: Int64s
    forced_tokens: Int64s


@dataclass(frozen=True, slots=True)
class TierCurves:
    """Totals over the counted requests at every number of host slots `K` = 0 .. D.

    Attributes
    ----------
    chunk_tokens : int
    n_requests, prompt_tokens, gpu_tokens : int
        Requests counted, their prompt tokens, and those the GPU tier serves at any host capacity.
    coverage : CoverageCurve
        The host tier by itself.
    restored_tokens, moved_tokens, loads, forced_tokens : (D + 1,) int64
        Tokens restored; tokens of chunks moved over the link; requests that load anything; tokens
        computed only because at least one is.
    """

    chunk_tokens: int
    n_requests: int
    prompt_tokens: int
    gpu_tokens: int
    coverage: CoverageCurve
    restored_tokens: Int64s
    moved_tokens: Int64s
    loads: Int64s
    forced_tokens: Int64s

    @property
    def n_distinct(self) -> int:
        """Distinct host chunks `D`: more slots change nothing."""
        return self.restored_tokens.size - 1

    @property
    def computed_tokens(self) -> Int64s:
        """Computed prefill `U` at every number of slots; the three parts add up to the prompt tokens."""
        return self.prompt_tokens - self.gpu_tokens - self.restored_tokens


def serve_from_gpu(trace: Trace, tree: PrefixTree, order: Order, n_slots: int) -> GpuService:
    """What a GPU tier of `n_slots` blocks serves each request; a whole hit computes its last block again."""
    block = max(GPU_BLOCK_TOKENS, trace.resolution_tokens)
    n_input = trace.requests.input_tokens[order.rows]
    nothing = np.zeros(len(trace), np.int64)
    if n_slots == 0:
        return GpuService(block, 0, nothing, nothing)
    runs = find_runs(trace, tree, order, block, "touched")
    covered = np.minimum(cover_requests(runs, n_slots), n_input // block * block)
    served = np.minimum(covered, np.maximum(n_input - 1, 0) // block * block)
    return GpuService(block, n_slots, served, covered - served)


def overlay_tiers(
    runs: Runs,
    n_input: Int64s,
    gpu: GpuService,
    *,
    touch: Touch = "leaf-first",
    distance: Distance = "lookup",
    first_request: int = 0,
) -> TierCurves:
    """Host tier of every capacity on top of a fixed GPU tier.

    Parameters
    ----------
    runs : Runs
        Host runs of the prompts, in stream order.
    n_input : (n,) int64
        Prompt tokens in stream order.
    gpu : GpuService
    touch, distance
        Of the host tier, as in `build_curve`.
    first_request : int
        Stream position from which on requests are counted.
    """
    base, slope = runs.positions(touch, distance)
    restored, moved, loads, forced = spread.spread_restores(
        runs.offsets,
        runs.start,
        runs.length,
        base,
        slope,
        runs.chunk_tokens,
        n_input,
        gpu.tokens,
        gpu.forced_tokens,
        first_request,
        runs.n_distinct,
    )
    counted = slice(first_request, None)
    return TierCurves(
        chunk_tokens=runs.chunk_tokens,
        n_requests=n_input[counted].size,
        prompt_tokens=int(n_input[counted].sum()),
        gpu_tokens=int(gpu.tokens[counted].sum()),
        coverage=build_curve(runs, touch, distance, first_request),
        restored_tokens=sum_up_to(restored),
        moved_tokens=sum_up_to(moved) * runs.chunk_tokens,
        loads=sum_up_to(loads),
        forced_tokens=int(gpu.forced_tokens[counted].sum()) + sum_up_to(forced),
    )


def count_restorable(runs: Runs, n_input: Int64s, gpu_tokens: Int64s, first_request: int = 0) -> tuple[int, float]:
    """Tokens an unlimited host tier restores, and their mean position (NaN where there are none)."""
    chunks = np.zeros(n_input.size, np.int64)
    request = np.repeat(np.arange(n_input.size), np.diff(runs.offsets))
    np.add.at(chunks, request, runs.length)
    begin = gpu_tokens[first_request:]
    end = np.maximum(np.minimum(chunks * runs.chunk_tokens, n_input - 1)[first_request:], begin)
    n_tokens = int((end - begin).sum())
    if n_tokens == 0:
        return 0, float("nan")
    return n_tokens, float((end.astype(float) ** 2 - begin.astype(float) ** 2).sum() / 2 / n_tokens)
