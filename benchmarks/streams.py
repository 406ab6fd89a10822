"""Inputs made from seeded synthetic traces: streams of dense chunk ids, and prompts as token ids."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from capplan.kernels import relink
from capplan.order import Order
from capplan.prompts import Prompts
from capplan.trace import Trace
from capplan.tree import PrefixTree, build_tree
from capplan.workloads import CODING, Workload

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

compiled: Callable = numba.njit(cache=True, fastmath=False)

# Contexts that grow by about 1,500 tokens a call up to 65k, with edits; 32k tokens on average.
POOLED = Workload(
    n_tasks=1_000,
    n_calls=40_000,
    calls_sigma=0.4,
    shared_prompt_tokens=4_000,
    instruction_tokens=4_000,
    instruction_sigma=0.5,
    observation_tokens=1_200,
    observation_sigma=0.8,
    output_tokens=300,
    output_sigma=0.7,
    window_tokens=65_536,
    edit_probability=0.03,
    gap_s=8.0,
    gap_sigma=0.7,
    tail_gap_s=10.0,
)

# Long agent runs: about 100k tokens a prompt on average, up to 262k.
LONG = Workload(
    n_tasks=230,
    n_calls=46_000,
    calls_sigma=0.5,
    shared_prompt_tokens=12_000,
    instruction_tokens=8_000,
    instruction_sigma=0.5,
    observation_tokens=820,
    observation_sigma=1.2,
    output_tokens=250,
    output_sigma=0.7,
    window_tokens=262_144,
    edit_probability=0.015,
    gap_s=8.0,
    gap_sigma=0.7,
    tail_gap_s=10.0,
    first_token_s=2.0,
)

# What the linker reads as token ids: about 33k tokens a prompt.
TOKENS = replace(CODING, n_tasks=16, n_calls=1_000)


def shrink(workload: Workload, share: float) -> Workload:
    """The same workload with fewer tasks, of as many calls each."""
    n_tasks = max(2, round(share * workload.n_tasks))
    return replace(workload, n_tasks=n_tasks, n_calls=n_tasks * (workload.n_calls // workload.n_tasks))


@dataclass(frozen=True, slots=True)
class Stream:
    """The same stream twice: as a linked trace in an order, and as dense chunk ids, request by request."""

    trace: Trace
    tree: PrefixTree
    order: Order
    ids: Int32s
    offsets: Int64s
    n_distinct: int


def make_stream(trace: Trace, order: Order) -> Stream:
    """Write out every chunk of the trace's resolution, in stream order."""
    tree = build_tree(trace)
    previous, shared = relink.relink(order.rows, tree.prompt_node, tree.node_parent, tree.node_end)
    n_chunks = trace.requests.input_tokens[order.rows] // trace.resolution_tokens
    offsets = np.concatenate([[0], np.cumsum(n_chunks)]).astype(np.int64)
    ids = np.empty(int(offsets[-1]), np.int32)
    n_distinct = write_ids(previous, shared, offsets, ids)
    return Stream(trace, tree, order, ids, offsets, n_distinct)


@compiled
def write_ids(previous: Int64s, shared: Int64s, offsets: Int64s, ids: Int32s) -> int:
    """Fill `ids`: the prefix shared with an earlier path, then numbers not used before; how many there are."""
    n_distinct = 0
    for c in range(previous.size):
        begin = offsets[c]
        for k in range(shared[c]):
            ids[begin + k] = ids[offsets[previous[c]] + k]
        for k in range(begin + shared[c], offsets[c + 1]):
            ids[k] = n_distinct
            n_distinct += 1
    return n_distinct


def make_prompts(trace: Trace, seed: int = 0) -> Prompts:
    """Token ids that have exactly the trace's links: random ones, but for the shared prefixes.

    Paths go on into the outputs where the trace knows them.
    """
    requests = trace.requests
    lengths = requests.input_tokens + (requests.output_tokens if trace.outputs_known else 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.random.default_rng(seed).integers(0, 1 << 32, int(offsets[-1]), np.uint32)
    copy_prefixes(trace.parent, trace.shared_tokens, offsets, ids)
    return Prompts(requests, ids, offsets, "tokens", trace.resolution_tokens, outputs_known=trace.outputs_known)


@compiled
def copy_prefixes(parent: Int64s, shared_tokens: Int64s, offsets: Int64s, ids: NDArray[np.uint32]) -> None:
    """Write every row's shared prefix over its random ids."""
    for row in range(parent.size):
        for k in range(shared_tokens[row]):
            ids[offsets[row] + k] = ids[offsets[parent[row]] + k]
