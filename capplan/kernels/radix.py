"""SGLang's RadixAttention with a host pool behind the device's, request by request, whole radix nodes.

A request runs alone: it matches at most its prompt but for one token, in whole pages; loads what only the
host holds behind the device's hit; takes pages for the rest; puts its prompt into the tree, then its output.
Evictions free as much as is asked for, not what is missing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels._jit import kernel
from capplan.kernels.leaves import remove
from capplan.kernels.radix_pools import (
    Rules,
    Tally,
    back_up,
    count_free,
    enter_device,
    evict_device,
    note_peak,
    take_device,
)
from capplan.kernels.radix_tree import (
    LOCKED_END,
    ON_DEVICE,
    ON_HOST,
    REQUEST,
    RUNNING,
    Tree,
    add_radix_node,
    find_last,
    list_path,
    mark_device_leaf,
    match,
    refresh,
    visit,
)

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Stream(NamedTuple):
    """Requests in stream order: the last nodes of their paths (-1 none), tokens of prompts and paths, (n,) each.

    Where a prompt is a whole number of pages, a node begins at its last page, since a match may end there.
    """

    path_node: Int64s
    n_tokens: Int64s
    path_tokens: Int64s


@kernel
def count_needed(n_tokens: int, page_tokens: int) -> int:
    """Pages that hold so many tokens."""
    return (n_tokens + page_tokens - 1) // page_tokens


@kernel
def find_end(tree: Tree, path: Int32s, n_nodes: int) -> int:
    """Pages that the first nodes of a path reach to."""
    return tree.end[path[n_nodes - 1]] if n_nodes > 0 else 0


@kernel
def hold(tree: Tree, path: Int32s, n_nodes: int) -> None:
    """Lock the first nodes of a path, which end with a radix node, instead of what was locked of it."""
    tree.totals[LOCKED_END] = find_end(tree, path, n_nodes)
    if n_nodes > 0:
        remove(tree.device_leaves, tree.accessed, path[n_nodes - 1])
        remove(tree.host_leaves, tree.accessed, path[n_nodes - 1])


@kernel
def load_back(tree: Tree, rules: Rules, path: Int32s, n_device: int, n_found: int, tally: Tally, c: int) -> int:
    """Bring what only the host holds of a match to the device, or nothing; how many nodes the device then holds.

    Room can always be made, since the request fits by itself; what is being loaded stays on the host.
    """
    if n_found == n_device:
        return n_device
    begin, end = tree.begin[path[n_device]], tree.end[path[n_found - 1]]
    if (end - begin) * rules.page_tokens < rules.min_load_tokens:
        return n_device
    hold(tree, path, n_found)
    if count_free(tree, rules) < end - begin:
        evict_device(tree, rules, end - begin, tally, c)
    at = n_device
    while at < n_found:
        at = find_last(tree.below, path, at, n_found) + 1
        enter_device(tree, path[at - 1])
    note_peak(tree)
    tally.loaded_end[c] = end
    return n_found


@kernel
def count_hit(tree: Tree, rules: Rules, node: int, tally: Tally, c: int) -> None:
    """Note a hit of a radix node, and copy it if it is due."""
    if rules.writes_back:
        return
    tree.hits[node] += 1
    if not tree.on_host[node] and tree.hits[node] >= rules.min_hits:
        back_up(tree, rules, node, tally, c)


@kernel
def insert(
    tree: Tree, rules: Rules, path: Int32s, begin: int, n_nodes: int, counted_from: int, tally: Tally, c: int
) -> int:
    """Put a path into the tree and on the device; nodes there before are hit if they end behind `counted_from`.

    The nodes before `begin` are settled: the request has accessed them, and a hit would not copy them. Returns
    how many are settled now.
    """
    at = begin
    n_settled = begin
    while at < n_nodes and tree.held[path[at]]:
        first, at = at, visit(tree, path, at, n_nodes) + 1
        node = path[at - 1]
        if not tree.on_device[node]:
            enter_device(tree, node)
        elif tree.end[node] > counted_from:
            count_hit(tree, rules, node, tally, c)
        if n_settled == first and (rules.writes_back or tree.on_host[node]):
            n_settled = at
    if at < n_nodes:
        add_radix_node(tree, path, at, n_nodes)
        node = path[n_nodes - 1]
        enter_device(tree, node)
        refresh(tree, node)
        count_hit(tree, rules, node, tally, c)
    return n_settled


@kernel
def prefill(tree: Tree, rules: Rules, n_tokens: int, known: int, tally: Tally, c: int) -> None:
    """Take pages for what the device does not hold of a prompt; with pages of several tokens, ask for one more."""
    asked = count_needed(n_tokens - known * rules.page_tokens, rules.page_tokens)
    if rules.page_tokens > 1:
        asked += 1
    if count_free(tree, rules) < asked:
        evict_device(tree, rules, asked, tally, c)
    take_device(tree, count_needed(n_tokens, rules.page_tokens) - known)


@kernel
def decode(tree: Tree, rules: Rules, n_tokens: int, path_tokens: int, tally: Tally, c: int) -> None:
    """Take the pages of an output as its tokens come; every step wants a free page, whether it takes it or not."""
    page = rules.page_tokens
    left = count_needed(path_tokens, page) - count_needed(n_tokens, page)
    is_last_taken = (path_tokens - 1) % page == 0
    while path_tokens > n_tokens:
        if count_free(tree, rules) < 1:
            evict_device(tree, rules, 1, tally, c)
        taken = min(left, count_free(tree, rules))
        take_device(tree, taken)
        left -= taken
        if taken == 0 or (left == 0 and (is_last_taken or count_free(tree, rules) > 0)):
            return


@kernel
def serve(
    tree: Tree, rules: Rules, path: Int32s, n_prompt: int, n_tokens: int, path_tokens: int, tally: Tally, c: int
) -> None:
    """One request: `path` are its nodes, of which the first `n_prompt` are the prompt's."""
    page = rules.page_tokens
    is_whole = n_tokens > 0 and n_tokens % page == 0
    n_asked = n_prompt - 1 if is_whole else n_prompt
    n_found, n_device, n_both = match(tree, path, n_asked)
    tally.device_end[c] = find_end(tree, path, n_device)
    n_settled = n_device if rules.writes_back else n_both
    hold(tree, path, n_device)
    n_loaded = load_back(tree, rules, path, n_device, n_found, tally, c)
    if n_settled == n_device:
        n_settled = n_loaded
    n_device = n_loaded
    tally.repeats[c] = is_whole and n_device == n_asked and tree.held[path[n_prompt - 1]]
    hold(tree, path, n_device)
    prefill(tree, rules, n_tokens, find_end(tree, path, n_device), tally, c)
    n_settled = insert(tree, rules, path, n_settled, n_prompt, 0, tally, c)
    hold(tree, path, n_prompt)
    tree.totals[RUNNING] = count_needed(n_tokens, page) - n_tokens // page
    decode(tree, rules, n_tokens, path_tokens, tally, c)
    counted_from = 0 if rules.counts_own_finish else n_tokens // page
    insert(tree, rules, path, n_settled, path.size, counted_from, tally, c)
    tree.totals[RUNNING] = 0
    hold(tree, path, 0)
    if path.size > 0:
        mark_device_leaf(tree, path[path.size - 1])


@kernel
def run_tiers(tree: Tree, rules: Rules, stream: Stream, buffer: Int32s, tally: Tally) -> None:
    """Run a stream through empty pools; a request that the device has no room for is not served.

    `buffer` has room for the longest path.
    """
    for c in range(stream.n_tokens.size):
        tree.totals[REQUEST] = c
        if count_needed(stream.path_tokens[c], rules.page_tokens) > rules.device_pages:
            tally.refused[c] += stream.path_tokens[c] // rules.page_tokens
        else:
            path = buffer[list_path(tree, stream.path_node[c], c, buffer) :]
            n_prompt = path.size
            while find_end(tree, path, n_prompt) > stream.n_tokens[c] // rules.page_tokens:
                n_prompt -= 1
            serve(tree, rules, path, n_prompt, stream.n_tokens[c], stream.path_tokens[c], tally, c)
        tally.device_used[c] = tree.totals[ON_DEVICE]
        tally.host_used[c] = tree.totals[ON_HOST]
