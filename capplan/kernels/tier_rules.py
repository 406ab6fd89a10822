"""What kernels of host tiers beside the GPU's share: an engine's rules as numbers, the stream, the tally."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel
from capplan.kernels.paths import Nodes

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

FROM_ZERO, FROM_GPU, FROM_HOST = 0, 1, 2  # where a lookup starts; where a store starts
TOUCH_NONE, TOUCH_HITS, TOUCH_PATH, TOUCH_USED = 0, 1, 2, 3
ROOM_BY_TURNS, ROOM_OR_REFUSE, ROOM_OR_SKIP = 0, 1, 2


class Rules(NamedTuple):
    """An engine's rules, as numbers; `capplan.simulation.presets` names them.

    `touch` says what a lookup moves: nothing, the hits, or every resident unit of the prompt; `settles` what
    goes on to move: nothing, what is loaded and offered, or the path so far whenever any of it is stored.
    Where the engine `retries`, a refused store is offered again, longer, with the next step. `sweep_share` of
    the tier goes where it is `watermark` full, every `sweep_period_s` (0: after any store); such a tier evicts
    nothing else, so a store finds the room there is.
    """

    n_slots: int
    unit_tokens: int
    lookup_from: int
    touch: int
    settles: int
    touches_tail_first: bool
    inserts_tail_first: bool
    stores_outputs: bool
    store_from: int
    drops_duplicates: bool
    room: int
    retries: bool
    protects_offer: bool
    step_tokens: int
    min_offers: int
    watermark: float
    sweep_share: float
    sweep_period_s: float


class Stream(NamedTuple):
    """Requests in stream order: end nodes, lengths, what the GPU tier served, times and tasks."""

    nodes: Nodes
    prompt_node: Int64s
    prompt_units: Int64s
    path_node: Int64s
    path_units: Int64s
    n_tokens: Int64s
    gpu_tokens: Int64s
    time_s: Float64s
    task: Int64s


class Tally(NamedTuple):
    """What happened to each request, in units, (n,) each.

    `covered` counts leading units found from where the lookup starts, from the head; `duplicates`
    were copied though resident; `refused` were offered and found no room.
    """

    covered: Int32s
    written: Int32s
    evicted: Int32s
    duplicates: Int32s
    refused: Int32s


def open_tally(n_requests: int) -> Tally:
    """Room for the tally of a stream."""
    return Tally(*(np.zeros(n_requests, np.int32) for _ in range(5)))


@kernel
def find_store_begin(rules: Rules, gpu_tokens: int, covered: int) -> int:
    """First unit a request offers."""
    if rules.store_from == FROM_GPU:
        return gpu_tokens // rules.unit_tokens
    if rules.store_from == FROM_HOST or (rules.lookup_from == FROM_GPU and covered > 0):
        return covered
    return 0


@kernel
def find_step_end(rules: Rules, n_tokens: int, known_tokens: int, first: int) -> int:
    """End of the store call that begins with unit `first`: what is full after the prefill step that fills it.

    Steps begin where the prompt is known up to, in either tier.
    """
    if rules.step_tokens == 0:
        return n_tokens // rules.unit_tokens
    missing = (first + 1) * rules.unit_tokens - known_tokens
    n_steps = max(1, (missing + rules.step_tokens - 1) // rules.step_tokens)
    return min(known_tokens + n_steps * rules.step_tokens, n_tokens) // rules.unit_tokens
