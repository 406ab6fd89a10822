"""TierStream: a trace in an order, cut into the units of a tier and numbered, for the kernels of tiers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import paths, relink
from capplan.order import Order
from capplan.trace import Trace
from capplan.tree import PrefixTree, count_touched_tokens

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TierStream:
    """Requests in stream order, their paths as numbered units.

    Attributes
    ----------
    unit_tokens : int
        Tokens per unit: the tier's own, or the trace's resolution where that is coarser.
    nodes : Nodes
        Stretches of units; unit numbers run from 0 to `n_units` - 1.
    n_units : int
        Distinct units of prompts and outputs.
    n_tokens : (n,) int64
        Prompt tokens.
    prompt_node, prompt_units, path_node, path_units : (n,) int64
        Last node (-1 none) and full units of the prompt, and of prompt and output where known.
    path_tokens : (n,) int64
        Tokens whose KV exists when a request ends.
    time_s : (n,) float64
        Sending times; zeros where `has_clock` is False.
    task : (n,) int64
        Task number; -1 none.
    previous, shared : (n,) int64
        An earlier position that shares the longest prefix of the prompt (-1 none), and units shared.
    chains : Nodes
        The same units, numbered anew, as few long stretches (`join_nodes`).
    prompt_chain, path_chain : (n,) int64
        Chain in which the prompt, and prompt and output, end; -1 none.
    """

    unit_tokens: int
    nodes: paths.Nodes
    n_units: int
    n_tokens: Int64s
    prompt_node: Int64s
    prompt_units: Int64s
    path_node: Int64s
    path_units: Int64s
    path_tokens: Int64s
    time_s: Float64s
    has_clock: bool
    task: Int64s
    previous: Int64s
    shared: Int64s
    chains: paths.Nodes
    prompt_chain: Int64s
    path_chain: Int64s

    def __len__(self) -> int:
        """Number of requests."""
        return self.n_tokens.size

    @property
    def most_chains(self) -> int:
        """Chains on the path that goes through most."""
        return paths.count_levels(self.chains.parent)

    @property
    def longest_path(self) -> int:
        """Units of the longest path."""
        return int(np.maximum(self.prompt_units, self.path_units).max(initial=0))


def fit_unit(trace: Trace, unit_tokens: int) -> int:
    """The unit asked for, or the trace's resolution where that is a coarser multiple of it.

    Raises
    ------
    TraceError
        Neither divides the other.
    """
    resolution = trace.resolution_tokens
    if unit_tokens % resolution == 0:
        return unit_tokens
    if resolution % unit_tokens == 0:
        return resolution
    raise TraceError(
        f"{trace.source}: units of {unit_tokens} tokens cannot be cut from blocks of {resolution}; "
        f"multiples of {resolution} are accepted"
    )


def cut_stream(trace: Trace, tree: PrefixTree, order: Order, unit_tokens: int) -> TierStream:
    """Cut a trace's paths into units of a tier, a multiple of the trace's resolution."""
    scale = unit_tokens // trace.resolution_tokens
    begin, end = tree.node_begin // scale, tree.node_end // scale
    size = end - begin
    owner = paths.skip_empty(tree.node_parent, size)
    nodes = paths.Nodes(
        parent=np.where(tree.node_parent >= 0, owner[tree.node_parent], -1).astype(np.int64),
        first=np.cumsum(size) - size,
        begin=begin,
        end=end,
    )
    rows = order.rows
    prompt_node = _find_owners(owner, tree.prompt_node[rows])
    path_node = _find_owners(owner, tree.touched_node[rows])
    chain, chains = join_chains(nodes, np.concatenate([prompt_node, path_node]))
    previous, depth = relink.relink(rows, tree.prompt_node, tree.node_parent, tree.node_end)
    n_tokens = trace.requests.input_tokens[rows]
    path_tokens = np.maximum(n_tokens, count_touched_tokens(trace)[rows])
    has_clock = order.time_s is not None
    return TierStream(
        unit_tokens=unit_tokens,
        nodes=nodes,
        n_units=int(size.sum()),
        n_tokens=n_tokens,
        prompt_node=prompt_node,
        prompt_units=n_tokens // unit_tokens,
        path_node=path_node,
        path_units=path_tokens // unit_tokens,
        path_tokens=path_tokens,
        time_s=order.time_s if order.time_s is not None else np.zeros(rows.size),
        has_clock=has_clock,
        task=trace.requests.task.codes[rows].astype(np.int64),
        previous=previous,
        shared=depth // scale,
        chains=chains,
        prompt_chain=_find_owners(chain, prompt_node),
        path_chain=_find_owners(chain, path_node),
    )


def join_chains(nodes: paths.Nodes, end_node: Int64s) -> tuple[Int64s, paths.Nodes]:
    """Chain of every node, and the chains, for paths that end at the given nodes (-1 none)."""
    weight = np.bincount(end_node[end_node >= 0], minlength=nodes.parent.size).astype(np.int64)
    return paths.join_nodes(nodes, paths.find_heavy_children(nodes, weight))


def _find_owners(owner: Int64s, nodes: Int64s) -> Int64s:
    if owner.size == 0:
        return np.full(nodes.size, -1, np.int64)
    return np.where(nodes >= 0, owner[nodes], -1).astype(np.int64)
