"""`inclusive.run_tier` extent by extent: the same rules, at the cost of a path's nodes instead of its units.

For tiers that note no offers, count no uses, and touch the tail first; tests hold both equal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import extent_paths as walk
from capplan.kernels import extents as ext
from capplan.kernels import gate as gates
from capplan.kernels._jit import kernel
from capplan.kernels.extents import Extents
from capplan.kernels.recency import EVICTED, INSERTED, RESIDENT
from capplan.kernels.tier_rules import (
    FROM_GPU,
    ROOM_BY_TURNS,
    ROOM_OR_REFUSE,
    TOUCH_HITS,
    TOUCH_PATH,
    TOUCH_USED,
    Rules,
    Stream,
    find_step_end,
    find_store_begin,
)

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
COVERED = 0  # row of a tally; the others are the places of `totals`, up to REFUSED
SPARE = 32  # free items a request needs beyond those of its path: touches that end inside an extent


class Call(NamedTuple):
    """One request; `path_units` are those of the output too where its tier stores them.

    `refused` is what the totals counted before it.
    """

    n_tokens: int
    gpu_tokens: int
    prompt_units: int
    path_units: int
    refused: int


@kernel
def look_up(extents: Extents, rules: Rules, call: Call) -> int:
    """End of the leading run of resident units, in units from the head; 0 where nothing is found."""
    is_from_gpu = rules.lookup_from == FROM_GPU
    begin = min(call.gpu_tokens // rules.unit_tokens, call.prompt_units) if is_from_gpu else 0
    end = walk.find_leading_end(extents, begin, call.prompt_units)
    if is_from_gpu and end * rules.unit_tokens - call.gpu_tokens < rules.unit_tokens:
        return 0
    return end


@kernel
def store_by_turns(extents: Extents, rules: Rules, begin: int, end: int) -> None:
    """A slot for each unit, resident or not; the head of the store is kept, duplicates are dropped."""
    resident = extents.totals[RESIDENT]
    wanted = end - begin
    evicted = min(resident, max(0, resident + wanted - rules.n_slots))
    found = min(wanted, rules.n_slots - (resident - evicted))
    ext.evict_units(extents, evicted)
    written = walk.insert_range(extents, begin, begin + found, rules.inserts_tail_first)
    extents.totals[ext.DUPLICATES] += found - written
    extents.totals[ext.REFUSED] += wanted - found


@kernel
def store_absent(extents: Extents, rules: Rules, begin: int, end: int) -> None:
    """`store_by_turns` of every stretch of units absent before the first of them is stored."""
    walk.list_absent(extents, begin, end)
    for k in range(extents.totals[ext.N_STRETCHES]):
        store_by_turns(extents, rules, extents.path[k, ext.STRETCH_BEGIN], extents.path[k, ext.STRETCH_END])


@kernel
def store_together(extents: Extents, rules: Rules, begin: int, end: int) -> None:
    """Store the absent units of an offer at once, if room can be made for all: else none, or as many as fit.

    Resident units of a protected offer are touched before room is made: the end of the request touches them
    anyway, and nothing else can tell.
    """
    totals = extents.totals
    wanted = walk.list_absent(extents, begin, end)
    needed = wanted - (rules.n_slots - totals[RESIDENT])
    if needed <= 0:
        walk.insert_range(extents, begin, end, rules.inserts_tail_first)
        return
    evictable = totals[RESIDENT] if rules.watermark == 1 else 0
    if rules.protects_offer and evictable > 0:
        evictable -= end - begin - wanted
    if needed > evictable and rules.room == ROOM_OR_REFUSE:
        totals[ext.REFUSED] += wanted
        return
    refused = max(0, needed - evictable)
    totals[ext.REFUSED] += refused
    cut_listed(extents, wanted - refused)
    if rules.protects_offer:
        walk.touch_range(extents, begin, end)
    ext.evict_units(extents, needed - refused)
    put_listed(extents, rules)


@kernel
def cut_listed(extents: Extents, kept: int) -> None:
    """Cut the list of stretches behind their first `kept` units."""
    path = extents.path
    left = kept
    k = 0
    while left > 0:
        n = path[k, ext.STRETCH_END] - path[k, ext.STRETCH_BEGIN]
        path[k, ext.STRETCH_END] -= max(0, n - left)
        left -= n
        k += 1
    extents.totals[ext.N_STRETCHES] = k


@kernel
def put_listed(extents: Extents, rules: Rules) -> None:
    """Insert the listed stretches, the head or the tail first."""
    path = extents.path
    n = extents.totals[ext.N_STRETCHES]
    for step in range(n):
        k = n - 1 - step if rules.inserts_tail_first else step
        walk.insert_range(extents, path[k, ext.STRETCH_BEGIN], path[k, ext.STRETCH_END], rules.inserts_tail_first)


@kernel
def offer(extents: Extents, rules: Rules, call: Call, begin: int, end: int) -> int:
    """One store call of a request, for the units ``begin .. end - 1`` of its path; where the next one begins."""
    if end <= begin or rules.n_slots == 0:
        return end
    totals = extents.totals
    if rules.room != ROOM_BY_TURNS:
        if rules.retries:
            totals[ext.REFUSED] = call.refused  # this call offers again what the last one could not store
        before = totals[INSERTED]
        store_together(extents, rules, begin, end)
        if rules.settles == TOUCH_PATH and totals[INSERTED] > before:
            walk.touch_range(extents, 0, end)
        if rules.retries and totals[ext.REFUSED] > call.refused:
            return begin
    elif rules.drops_duplicates:
        store_absent(extents, rules, begin, end)
    else:
        store_by_turns(extents, rules, begin, end)
    return end


@kernel
def settle(extents: Extents, rules: Rules, call: Call, covered: int, begin: int, end: int) -> None:
    """What the end of a request moves: what it loaded and offered."""
    if rules.settles == TOUCH_USED:
        first = min(call.gpu_tokens // rules.unit_tokens, covered) if covered > 0 else begin
        walk.touch_range(extents, min(first, begin), end)


@kernel
def note_uses(extents: Extents, rules: Rules, call: Call, covered: int, begin: int, end: int) -> None:
    """What is loaded or offered is used at once: no later store of the same request evicts it first."""
    if rules.settles == TOUCH_USED:
        settle(extents, rules, call, covered, begin, end)


@kernel
def sweep(extents: Extents, rules: Rules) -> None:
    """Drop a share of the units where the tier is filled to its watermark, as `inclusive.sweep`."""
    resident = extents.totals[RESIDENT]
    excess = resident - rules.watermark * rules.n_slots
    if resident > 0 and (excess > 0 or (excess == 0 and rules.sweep_period_s > 0)):
        share = rules.sweep_share
        if rules.sweep_period_s == 0:
            share += excess / rules.n_slots
        ext.evict_units(extents, min(resident, max(1, int(resident * share))))


@kernel
def sweep_due(extents: Extents, rules: Rules, clock: Float64s, now: float) -> None:
    """The sweeps of a thread that wakes every `sweep_period_s`, up to `now`."""
    while clock[0] <= now and extents.totals[RESIDENT] >= rules.watermark * rules.n_slots:
        sweep(extents, rules)
        clock[0] += rules.sweep_period_s
    if clock[0] <= now:
        clock[0] += (np.floor((now - clock[0]) / rules.sweep_period_s) + 1) * rules.sweep_period_s


@kernel
def find(extents: Extents, rules: Rules, call: Call) -> int:
    """The lookup of a request and what it moves; leading units found."""
    covered = look_up(extents, rules, call)
    if rules.touch == TOUCH_HITS:
        walk.touch_range(extents, 0, covered)
    elif rules.touch == TOUCH_PATH:
        walk.touch_range(extents, 0, call.prompt_units)
    note_uses(extents, rules, call, covered, covered, covered)
    return covered


@kernel
def store_prompt(extents: Extents, rules: Rules, call: Call, covered: int, begin: int) -> int:
    """Offer prompt units from `begin` on as prefill steps fill them; where the next offer begins."""
    known = max(call.gpu_tokens, covered * rules.unit_tokens)
    first = begin
    filled = begin
    while filled < call.prompt_units:
        filled = find_step_end(rules, call.n_tokens, known, filled)
        first = offer(extents, rules, call, first, filled)
        if filled < call.prompt_units:
            note_uses(extents, rules, call, covered, begin, filled)
    return first


@kernel
def store_request(extents: Extents, rules: Rules, call: Call, covered: int) -> None:
    """All store calls of a request: prompt units as prefill steps fill them, then those of the output."""
    begin = find_store_begin(rules, call.gpu_tokens, covered)
    first = store_prompt(extents, rules, call, covered, begin)
    if call.path_units > call.prompt_units:
        note_uses(extents, rules, call, covered, begin, call.prompt_units)
        offer(extents, rules, call, first, call.path_units)
    settle(extents, rules, call, covered, begin, call.path_units)


@kernel
def count_needed(rules: Rules, n_tokens: int, spare: int) -> int:
    """Free items a request may take, along a path of which a step may take `spare`."""
    steps = n_tokens // rules.step_tokens + 1 if rules.step_tokens > 0 else 0
    return SPARE + steps + (2 * spare if rules.stores_outputs else spare)


@kernel
def note_totals(totals: Int64s, seen: Int64s, tally: Int32s, c: int) -> None:
    """Note as request `c`'s what the totals went up by."""
    for k in range(COVERED + 1, ext.REFUSED + 1):
        tally[k, c] = totals[k] - seen[k]
        seen[k] = totals[k]


@kernel
def run_tier(
    extents: Extents,
    rules: Rules,
    stream: Stream,
    gate_rules: gates.GateRules,
    gate: gates.Gate,
    decisions: gates.Decisions,
    tally: Int32s,
    clock: Float64s,
) -> bool:
    """Run a stream through an empty tier; False where it ran out of extents and has to be run with more.

    `tally` is (5, n) int32, a row for each part of `inclusive.Tally`; it is filled, as are the decisions.
    """
    is_gated = gate_rules.kind != gates.NONE
    totals = extents.totals
    seen = np.zeros(ext.REFUSED + 1, np.int64)
    for c in range(stream.n_tokens.size):
        now = stream.time_s[c]
        if rules.sweep_period_s > 0:
            sweep_due(extents, rules, clock, now)
        if is_gated:
            gates.pass_time(gate_rules, gate, now, totals[RESIDENT])
        n_tokens, n_units = stream.n_tokens[c], stream.prompt_units[c]
        node, n_path = stream.prompt_node[c], n_units
        if rules.stores_outputs and stream.path_units[c] > n_units:
            node, n_path = stream.path_node[c], stream.path_units[c]
        if totals[ext.FREE] < count_needed(rules, n_tokens, walk.list_nodes(extents, node, n_path)):
            return False
        call = Call(n_tokens, stream.gpu_tokens[c], n_units, n_path, extents.totals[ext.REFUSED])
        covered = find(extents, rules, call)
        tally[COVERED, c] = covered
        new_units = n_tokens // rules.unit_tokens - covered
        if is_gated and gates.decide(gate_rules, gate, decisions, c, now, stream.task[c], n_tokens, new_units):
            settle(extents, rules, call, covered, covered, covered)
        else:
            before = totals[EVICTED]
            store_request(extents, rules, call, covered)
            if is_gated:
                gates.note_evictions(gate, now, totals[EVICTED] - before)
            if rules.watermark < 1 and rules.sweep_period_s == 0:
                sweep(extents, rules)
        note_totals(totals, seen, tally, c)
    return True
