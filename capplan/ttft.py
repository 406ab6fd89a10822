"""Change of the time to first token, request by request, at one host capacity.

Modelled (docs/model.md section 5): without the host tier a request computes what the GPU does not
serve; with it, it loads what the host covers and computes the rest; no prefill is shorter than the
engine's floor. Not modelled: queueing, which a shorter prefill also shortens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.costs import Costs
from capplan.curve import cover_requests
from capplan.economics import TAU_FLOOR_S
from capplan.runs import Distance, Runs, Touch
from capplan.saving import SuffixTimes

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

PERCENTILES = (1, 10, 50, 90, 99)


@dataclass(frozen=True, slots=True)
class TtftChange:
    """Distribution over requests of TTFT with the host tier less TTFT without; below 0 is faster.

    Attributes
    ----------
    slots : int
        Host chunks of the tier.
    floor_s : float
        Time to first token no prefill goes below.
    without_mean_s, change_mean_s : float
        Mean TTFT without the tier, and mean change.
    change_percentiles_s : dict of int to float
        By percent of requests.
    faster_share, slower_share : float
        Of all counted requests (0-1).
    """

    slots: int
    floor_s: float
    without_mean_s: float
    change_mean_s: float
    change_percentiles_s: dict[int, float]
    faster_share: float
    slower_share: float


def measure_ttft(
    runs: Runs,
    n_input: Int64s,
    gpu_tokens: Int64s,
    slots: int,
    times: SuffixTimes,
    costs: Costs,
    *,
    touch: Touch = "leaf-first",
    distance: Distance = "lookup",
    first_request: int = 0,
    floor_s: float = TAU_FLOOR_S,
) -> TtftChange:
    """TTFT change of every counted request at a host tier of `slots` chunks, typical costs.

    Parameters
    ----------
    runs, n_input, gpu_tokens
        Host runs, prompt and GPU-served tokens, in stream order.
    """
    covered = cover_requests(runs, slots, touch, distance)
    return measure_change(
        covered,
        runs.chunk_tokens,
        n_input,
        gpu_tokens,
        slots,
        times,
        costs,
        first_request=first_request,
        floor_s=floor_s,
    )


def measure_change(
    covered: Int64s,
    chunk_tokens: int,
    n_input: Int64s,
    gpu_tokens: Int64s,
    slots: int,
    times: SuffixTimes,
    costs: Costs,
    *,
    first_request: int = 0,
    floor_s: float = TAU_FLOOR_S,
) -> TtftChange:
    """`measure_ttft` of requests that find `covered` tokens, in whole chunks, in the host tier; (n,)."""
    end = np.maximum(gpu_tokens, np.minimum(covered, n_input - 1))
    loads = end > gpu_tokens
    moved = np.where(loads, covered - gpu_tokens // chunk_tokens * chunk_tokens, 0)
    per_token = costs.restore_s_per_token(costs.h2d_bytes_per_s.typical)
    without = np.maximum(floor_s, times.seconds_from(gpu_tokens, n_input))
    load = moved * per_token + loads * costs.load_s.typical
    change = (np.maximum(floor_s, times.seconds_from(end, n_input)) + load - without)[first_request:]
    return TtftChange(
        slots=slots,
        floor_s=floor_s,
        without_mean_s=float(without[first_request:].mean()),
        change_mean_s=float(change.mean()),
        change_percentiles_s=dict(zip(PERCENTILES, np.percentile(change, PERCENTILES).tolist(), strict=True)),
        faster_share=float((change < 0).mean()),
        slower_share=float((change > 0).mean()),
    )
