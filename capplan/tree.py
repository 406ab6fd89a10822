"""PrefixTree: the union of all paths of a trace, rebuilt from its links alone. No order in it.

Depths are counted in blocks of the trace's resolution. Every row owns the part of its path deeper
than its `shared_tokens`; nodes are cut at every branch and wherever some path ends for a tier.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import relink
from capplan.trace import Trace

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Path-compressed nodes and where each request's path ends.

    Attributes
    ----------
    node_parent : (nodes,) int64
        Parent node, always a smaller number; -1 below the root.
    node_begin, node_end : (nodes,) int64
        The node covers block depths ``(begin, end]``.
    prompt_node, touched_node : (rows,) int64
        Node at the end of the prompt, and of the prompt and output but for the last sampled token,
        which has no KV (the same where outputs are unknown); -1 for an empty path.
    resolution_tokens : int
        Tokens per block of depth.
    """

    node_parent: Int64s
    node_begin: Int64s
    node_end: Int64s
    prompt_node: Int64s
    touched_node: Int64s
    resolution_tokens: int


def build_tree(trace: Trace) -> PrefixTree:
    """Rebuild the prefix tree from a trace's links (docs/model.md section 1)."""
    resolution = trace.resolution_tokens
    n_input = trace.requests.input_tokens
    shared = trace.shared_tokens // resolution
    prompt_end = n_input // resolution
    touched_end = count_touched_tokens(trace) // resolution
    path_end = np.maximum(np.maximum(prompt_end, touched_end), shared)
    rows = np.arange(len(trace), dtype=np.int64)

    linked = np.flatnonzero(shared > 0)
    branch_rows = relink.find_segment_rows(trace.parent, shared, trace.parent[linked], shared[linked])
    prompt_rows = relink.find_segment_rows(trace.parent, shared, rows, prompt_end)
    touched_rows = relink.find_segment_rows(trace.parent, shared, rows, touched_end)

    stride = int(path_end.max(initial=0)) + 1
    own = path_end > shared
    cuts = np.concatenate(
        [
            _key(branch_rows, shared[linked], stride),
            _key(prompt_rows, prompt_end, stride)[prompt_rows >= 0],
            _key(touched_rows, touched_end, stride)[touched_rows >= 0],
            _key(rows, path_end, stride)[own],
        ]
    )
    cuts.sort()
    is_first = np.ones(cuts.size, bool)
    is_first[1:] = cuts[1:] != cuts[:-1]
    nodes = cuts[is_first]
    node_row, node_end = nodes // stride, nodes % stride
    first = np.ones(nodes.size, bool)
    first[1:] = node_row[1:] != node_row[:-1]
    above = np.arange(-1, nodes.size - 1, dtype=np.int64)
    branch_node = np.full(len(trace), -1, np.int64)
    branch_node[linked] = np.searchsorted(nodes, _key(branch_rows, shared[linked], stride))
    node_parent = np.where(first, branch_node[node_row], above)
    node_begin = np.where(node_parent >= 0, node_end[node_parent], 0) if nodes.size else node_end
    return PrefixTree(
        node_parent=node_parent,
        node_begin=node_begin,
        node_end=node_end,
        prompt_node=_find_nodes(nodes, prompt_rows, prompt_end, stride),
        touched_node=_find_nodes(nodes, touched_rows, touched_end, stride),
        resolution_tokens=resolution,
    )


def count_touched_tokens(trace: Trace) -> Int64s:
    """Tokens whose KV exists when a request ends, (rows,): prompt + output - 1 where outputs are known."""
    if not trace.outputs_known:
        return trace.requests.input_tokens
    return trace.requests.input_tokens + np.maximum(trace.requests.output_tokens - 1, 0)


def _key(rows: Int64s, depths: Int64s, stride: int) -> Int64s:
    return rows * stride + depths


def _find_nodes(nodes: Int64s, rows: Int64s, depths: Int64s, stride: int) -> Int64s:
    found = np.searchsorted(nodes, _key(rows, depths, stride))
    return np.where(rows >= 0, found, -1).astype(np.int64)
