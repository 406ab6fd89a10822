"""SGLang's radix tree over a device and a host pool, at one size of each.

Modelled (`capplan.kernels.radix`): one request after another, copies that take no time, whole radix nodes
that are copied, evicted and loaded. The device's hit is simulated too, since loads take the device's room.
Not modelled: requests that run at the same time, prefill in chunks, a third tier.
"""

import numpy as np
from numpy.typing import NDArray

from capplan.errors import SpecError
from capplan.kernels import radix, radix_pools, radix_tree
from capplan.kernels.paths import Nodes
from capplan.simulation.presets import TierPreset
from capplan.simulation.stream import TierStream
from capplan.simulation.tier_input import TierInput
from capplan.simulation.tier_run import TierRun

Int64s = NDArray[np.int64]


def simulate_radix(tier: TierInput, device_slots: int, n_slots: int) -> TierRun:
    """What a device of `device_slots` pages and a host of `n_slots` pages serve of every request.

    A request that the device has no room for is computed, and its pages count as refused.

    Raises
    ------
    SpecError
        A rule of write admission: the engine copies by rules of its own.
    """
    refuse_rule(tier)
    stream, settings = tier.stream, tier.settings
    rules = read_rules(settings.preset, stream.unit_tokens, device_slots, n_slots, settings.min_offers)
    _, tally = run_pools(stream, rules)
    unit = stream.unit_tokens
    return TierRun(
        n_slots=n_slots,
        unit_tokens=unit,
        n_tokens=stream.n_tokens,
        gpu_tokens=tally.device_end * unit,
        gpu_forced_tokens=np.where(tally.repeats, unit, 0).astype(np.int64),
        found_tokens=tally.loaded_end * unit,
        written=tally.written,
        evicted=tally.evicted,
        duplicates=np.zeros(len(stream), np.int32),
        refused=tally.refused,
        declined=np.zeros(len(stream), np.int64),
        min_load_tokens=settings.preset.min_load_tokens,
    )


def read_rules(
    preset: TierPreset, page_tokens: int, device_pages: int, host_pages: int, min_offers: int
) -> radix_pools.Rules:
    """A preset of kind "radix" as numbers, for one size of both pools."""
    return radix_pools.Rules(
        device_pages=device_pages,
        host_pages=host_pages,
        page_tokens=page_tokens,
        min_hits=min_offers,
        writes_back=preset.write_back,
        counts_own_finish=preset.counts_own_finish,
        min_load_tokens=preset.min_load_tokens,
    )


def run_pools(stream: TierStream, rules: radix_pools.Rules) -> tuple[radix_tree.Tree, radix_pools.Tally]:
    """Run a stream through empty pools; the tree at the end, and what happened."""
    tree = radix_tree.open_tree(cut_last_pages(stream))
    tally = radix_pools.open_tally(len(stream))
    requests = radix.Stream(stream.path_node, stream.n_tokens, stream.path_tokens)
    radix.run_tiers(tree, rules, requests, np.zeros(stream.longest_path, np.int32), tally)
    return tree, tally


def cut_last_pages(stream: TierStream) -> Nodes:
    """A stream's nodes, cut once more before the last page of each prompt that ends with a whole page.

    A match leaves at least one token to compute, so that is where it splits such a prompt. The tail keeps
    the node's number; the new head has the next free one.
    """
    nodes, unit = stream.nodes, stream.unit_tokens
    is_whole = (stream.n_tokens % unit == 0) & (stream.prompt_node >= 0)
    ends = np.unique(stream.prompt_node[is_whole])
    tails = ends[nodes.end[ends] - nodes.begin[ends] > 1]
    heads = nodes.parent.size + np.arange(tails.size)
    parent, begin = nodes.parent.copy(), nodes.begin.copy()
    parent[tails] = heads
    begin[tails] = nodes.end[tails] - 1
    return Nodes(
        parent=np.concatenate([parent, nodes.parent[tails]]),
        first=np.concatenate([nodes.first, nodes.first[tails]]),
        begin=np.concatenate([begin, nodes.begin[tails]]),
        end=np.concatenate([nodes.end, nodes.end[tails] - 1]),
    )


def refuse_rule(tier: TierInput) -> None:
    """Refuse a rule of write admission."""
    settings = tier.settings
    if settings.rule.kind != "none":
        raise SpecError(
            f"tier {settings.preset.name} has no admission rule '{settings.rule.kind}': it copies by hits or when the "
            "device evicts; accepted: none"
        )
