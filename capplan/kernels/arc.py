"""A host tier beside the GPU's under ARC, as vLLM's offload has it, at one capacity.

Units used once and units used again are listed apart, and so are the names of those evicted from either list: the
ghosts. A ghost that is offered again says which list was cut too short and moves the size the first one aims at
(Megiddo and Modha, FAST 2003). What differs here: storing a unit is no use of it, a request uses a unit once
however often it names it, and a store is made room for as a whole. Requests run one after another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import gate as gates
from capplan.kernels import inclusive, recency, tier_rules
from capplan.kernels._jit import kernel
from capplan.kernels.paths import list_units

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

ONCE, AGAIN = 0, 1  # lists of units, and of ghosts


class Lists(NamedTuple):
    """Units by how they were used, and ghosts by the list they were evicted from.

    Both stores keep two lists, by `uses`; `sizes` and `ghost_sizes` count them; `aim` is the size wanted of the
    first list of units.
    """

    store: recency.Store
    ghosts: recency.Store
    sizes: Int64s
    ghost_sizes: Int64s
    aim: Float64s


def open_lists(n_units: int) -> Lists:
    """An empty tier for units ``0 .. n_units - 1``."""
    store, ghosts = (recency.open_store(n_units, recency.LFU, 2) for _ in range(2))
    return Lists(store, ghosts, np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1))


@kernel
def insert(lists: Lists, unit: int) -> None:
    """Store an absent unit: the newest of those used once."""
    recency.insert(lists.store, unit)
    lists.sizes[ONCE] += 1
    if recency.is_resident(lists.ghosts, unit):
        lists.ghost_sizes[lists.ghosts.uses[unit]] -= 1
        recency.unlink(lists.ghosts, unit)


@kernel
def use(lists: Lists, unit: int) -> None:
    """Use a resident unit: the newest of those used again."""
    lists.sizes[lists.store.uses[unit]] -= 1
    lists.sizes[AGAIN] += 1
    recency.touch(lists.store, unit)


@kernel
def refresh(lists: Lists, unit: int) -> None:
    """Make a resident unit the newest of its list."""
    recency.unlink(lists.store, unit)
    recency.link_newest(lists.store, unit)


@kernel
def learn(lists: Lists, unit: int, n_slots: int) -> None:
    """Note that a unit is missed: if it is a ghost, its list was too short."""
    if not recency.is_resident(lists.ghosts, unit):
        return
    once, again = lists.ghost_sizes[ONCE], lists.ghost_sizes[AGAIN]
    if lists.ghosts.uses[unit] == ONCE:
        lists.aim[0] = min(lists.aim[0] + max(1.0, again / once), float(n_slots))
    else:
        lists.aim[0] = max(lists.aim[0] - max(1.0, once / again), 0.0)
    recency.unlink(lists.ghosts, unit)
    recency.link_newest(lists.ghosts, unit)


@kernel
def evict(lists: Lists, unit: int) -> None:
    """Drop a unit; its ghost is the newest of its list."""
    list_of = lists.store.uses[unit]
    recency.evict(lists.store, unit)
    lists.sizes[list_of] -= 1
    lists.ghosts.uses[unit] = list_of
    recency.link_newest(lists.ghosts, unit)
    lists.ghost_sizes[list_of] += 1


@kernel
def skip_marked(lists: Lists, unit: int, mark: Int32s, stamp: int) -> int:
    """The first unit of a list not marked, from `unit` on towards the newest; a sentinel where there is none."""
    while unit < lists.store.n_units and mark[unit] == stamp:
        unit = lists.store.newer[unit]
    return unit


@kernel
def make_room(lists: Lists, needed: int, n_slots: int, mark: Int32s, stamp: int) -> None:
    """Evict `needed` units not marked with `stamp`, of which there are so many.

    From the first list while it is as long as aimed at, else, or where all of it is marked, from the second.
    """
    n_units = lists.store.n_units
    once = lists.store.newer[n_units + ONCE]
    again = lists.store.newer[n_units + AGAIN]
    for _ in range(needed):
        once = skip_marked(lists, once, mark, stamp)
        again = skip_marked(lists, again, mark, stamp)
        is_long = lists.sizes[ONCE] >= np.floor(lists.aim[0])
        if once < n_units and (is_long or again >= n_units):
            victim = once
            once = lists.store.newer[once]
        else:
            victim = again
            again = lists.store.newer[again]
        evict(lists, victim)
    for k in range(2):
        while lists.ghost_sizes[k] > n_slots:
            recency.unlink(lists.ghosts, lists.ghosts.newer[n_units + k])
            lists.ghost_sizes[k] -= 1


@kernel
def offer(
    lists: Lists,
    rules: tier_rules.Rules,
    offers: inclusive.Offers,
    buffers: inclusive.Buffers,
    begin: int,
    end: int,
    tally: tier_rules.Tally,
    c: int,
) -> int:
    """One store call: the absent units of an offer, if there is room for all that may not be evicted for it.

    Returns where the next one begins. Ghosts among them teach whether it is refused or not. Unit marks are
    2 `call`, or one more where wanted.
    """
    if rules.retries:
        tally.refused[c] = 0  # this call offers again what the last one could not store
    units, mark = buffers.units, buffers.mark
    buffers.calls[0] += 1
    call = buffers.calls[0]
    wanted = 0
    present = 0
    for k in range(begin, end):
        is_resident = recency.is_resident(lists.store, units[k])
        is_wanted = inclusive.is_offered_enough(rules, offers, units[k]) and not is_resident
        mark[units[k]] = 2 * call + (1 if is_wanted else 0)
        wanted += 1 if is_wanted else 0
        present += 1 if is_resident else 0
    for k in range(end - 1, begin - 1, -1):
        if mark[units[k]] == 2 * call + 1:
            learn(lists, units[k], rules.n_slots)
    resident = lists.store.totals[recency.RESIDENT]
    needed = wanted - (rules.n_slots - resident)
    if needed > resident - present:
        tally.refused[c] += wanted
        return begin if rules.retries else end
    if needed > 0:
        make_room(lists, needed, rules.n_slots, mark, 2 * call)
        tally.evicted[c] += needed
    for k in range(begin, end):
        if mark[units[k]] == 2 * call + 1:
            insert(lists, units[k])
            tally.written[c] += 1
    return end


@kernel
def settle(
    lists: Lists,
    rules: tier_rules.Rules,
    buffers: inclusive.Buffers,
    gpu_tokens: int,
    covered: int,
    begin: int,
    end: int,
    first_call: int,
) -> None:
    """The end of a request, tail first: what it stored is refreshed, what it loaded or offered besides is used."""
    first = min(gpu_tokens // rules.unit_tokens, covered) if covered > 0 else begin
    for k in range(end - 1, min(first, begin) - 1, -1):
        unit = buffers.units[k]
        if recency.is_resident(lists.store, unit):
            mark = buffers.mark[unit]
            if mark % 2 == 1 and mark > 2 * first_call:
                refresh(lists, unit)
            else:
                use(lists, unit)


@kernel
def store_request(
    lists: Lists,
    rules: tier_rules.Rules,
    stream: tier_rules.Stream,
    offers: inclusive.Offers,
    buffers: inclusive.Buffers,
    tally: tier_rules.Tally,
    c: int,
) -> None:
    """All store calls of a request, as `inclusive.store_request`, and its end."""
    first_call = buffers.calls[0] + 1
    covered = tally.covered[c]
    begin = tier_rules.find_store_begin(rules, stream.gpu_tokens[c], covered)
    n_prompt = stream.prompt_units[c]
    first = begin
    filled = begin
    known = max(stream.gpu_tokens[c], covered * rules.unit_tokens)
    while filled < n_prompt:
        filled = tier_rules.find_step_end(rules, stream.n_tokens[c], known, filled)
        first = offer(lists, rules, offers, buffers, first, filled, tally, c)
    n_path = n_prompt
    if rules.stores_outputs and stream.path_units[c] > n_prompt:
        n_path = stream.path_units[c]
        list_units(stream.nodes, stream.path_node[c], n_path, buffers.units)
        offer(lists, rules, offers, buffers, first, n_path, tally, c)
    settle(lists, rules, buffers, stream.gpu_tokens[c], covered, begin, n_path, first_call)


@kernel
def run_tier(
    lists: Lists,
    rules: tier_rules.Rules,
    stream: tier_rules.Stream,
    offers: inclusive.Offers,
    buffers: inclusive.Buffers,
    gate_rules: gates.GateRules,
    gate: gates.Gate,
    decisions: gates.Decisions,
    tally: tier_rules.Tally,
) -> None:
    """Run a stream through an empty tier that settles what was used; fills `tally` and `decisions`."""
    for c in range(stream.n_tokens.size):
        now = stream.time_s[c]
        gates.pass_time(gate_rules, gate, now, lists.store.totals[recency.RESIDENT])
        n_units = stream.prompt_units[c]
        list_units(stream.nodes, stream.prompt_node[c], n_units, buffers.units)
        covered = inclusive.look_up(lists.store, rules, buffers.units, n_units, stream.gpu_tokens[c])
        tally.covered[c] = covered
        new_units = stream.n_tokens[c] // rules.unit_tokens - covered
        if gates.decide(gate_rules, gate, decisions, c, now, stream.task[c], stream.n_tokens[c], new_units):
            settle(lists, rules, buffers, stream.gpu_tokens[c], covered, covered, covered, buffers.calls[0] + 1)
            continue
        before = tally.evicted[c]
        store_request(lists, rules, stream, offers, buffers, tally, c)
        gates.note_evictions(gate, now, tally.evicted[c] - before)
