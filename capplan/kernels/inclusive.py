"""A host tier beside the GPU's, unit by unit, under an engine's own rules, at one capacity.

Requests run one after another: lookup, decision, stores, then the next one. What the GPU tier served is
given, since no engine of this kind changes it. The functions of one request stand apart, so that other
drivers can call them at other moments.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import gate as gates
from capplan.kernels import recency
from capplan.kernels._jit import kernel
from capplan.kernels.paths import list_units
from capplan.kernels.tier_rules import (
    FROM_GPU,
    ROOM_BY_TURNS,
    ROOM_OR_REFUSE,
    TOUCH_HITS,
    TOUCH_PATH,
    TOUCH_USED,
    Rules,
    Stream,
    Tally,
    find_step_end,
    find_store_begin,
)

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

PRESENT, WANTED = 0, 1


class Offers(NamedTuple):
    """How often a unit was offered for storage, forgotten least recently offered first."""

    counts: Int32s
    tracked: recency.Store
    limit: int


def open_offers(n_units: int, limit: int) -> Offers:
    """No offers yet, and room to track `limit` units; 0 tracks none."""
    n = n_units if limit else 0
    return Offers(np.zeros(n, np.int32), recency.open_store(n, recency.LRU, 1), limit)


class Buffers(NamedTuple):
    """Scratch: the units of a request, the last store call that marked a unit, and the calls' number."""

    units: Int64s
    mark: Int32s
    calls: Int64s


def open_buffers(n_units: int, longest_path: int) -> Buffers:
    """Scratch for paths of at most `longest_path` units."""
    return Buffers(np.zeros(longest_path, np.int64), np.full(n_units, -1, np.int32), np.zeros(1, np.int64))


@kernel
def look_up(store: recency.Store, rules: Rules, units: Int64s, n_units: int, gpu_tokens: int) -> int:
    """End of the leading run of resident units, in units from the head; 0 where nothing is found."""
    begin = gpu_tokens // rules.unit_tokens if rules.lookup_from == FROM_GPU else 0
    end = recency.count_leading(store, units, min(begin, n_units), n_units)
    if rules.lookup_from == FROM_GPU and end * rules.unit_tokens - gpu_tokens < rules.unit_tokens:
        return 0
    return end


@kernel
def touch_found(store: recency.Store, rules: Rules, units: Int64s, n_units: int, covered: int) -> None:
    """What a lookup moves."""
    if rules.touch == TOUCH_HITS:
        recency.touch_path(store, units, 0, covered, rules.touches_tail_first)
    elif rules.touch == TOUCH_PATH:
        recency.touch_path(store, units, 0, n_units, rules.touches_tail_first)


@kernel
def make_room(store: recency.Store, needed: int, mark: Int32s, stamp: int) -> int:
    """Evict up to `needed` units not marked with `stamp`, in one walk; how many went."""
    victim = recency.find_victim(store)
    freed = 0
    while freed < needed and victim >= 0:
        after = recency.find_next_victim(store, victim)
        if mark[victim] != stamp:
            recency.evict(store, victim)
            freed += 1
        victim = after
    return freed


@kernel
def store_by_turns(
    store: recency.Store, rules: Rules, units: Int64s, begin: int, end: int, tally: Tally, c: int
) -> None:
    """A slot for each unit, resident or not, each failure evicting one; then put them, duplicates dropped.

    Where nothing is left to evict, the units that found a slot are kept: the head of the store.
    """
    n_found = 0
    while n_found < end - begin:
        if store.totals[recency.RESIDENT] + n_found >= rules.n_slots:
            victim = recency.find_victim(store)
            if victim < 0:
                break
            recency.evict(store, victim)
            tally.evicted[c] += 1
        n_found += 1
    for k in range(n_found):
        unit = units[begin + n_found - 1 - k] if rules.inserts_tail_first else units[begin + k]
        if recency.is_resident(store, unit):
            tally.duplicates[c] += 1
        else:
            recency.insert(store, unit)
            tally.written[c] += 1
    tally.refused[c] += end - begin - n_found


@kernel
def count_offers(offers: Offers, unit: int) -> int:
    """Note one more offer of a unit; how many are known of it."""
    tracked = offers.tracked
    if recency.is_resident(tracked, unit):
        recency.touch(tracked, unit)
    else:
        offers.counts[unit] = 0
        if tracked.totals[recency.RESIDENT] >= offers.limit:
            recency.evict(tracked, recency.find_victim(tracked))
        recency.insert(tracked, unit)
    offers.counts[unit] += 1
    return int(offers.counts[unit])


@kernel
def is_offered_enough(rules: Rules, offers: Offers, unit: int) -> bool:
    """Whether an offer of a unit, noted here, is one that stores it."""
    return rules.min_offers < 2 or count_offers(offers, unit) >= rules.min_offers


@kernel
def store_absent(
    store: recency.Store, rules: Rules, offers: Offers, buffers: Buffers, begin: int, end: int, tally: Tally, c: int
) -> None:
    """`store_by_turns` of every stretch of units wanted and absent before the first of them is stored."""
    units, mark = buffers.units, buffers.mark
    for k in range(begin, end):
        is_wanted = is_offered_enough(rules, offers, units[k]) and not recency.is_resident(store, units[k])
        mark[units[k]] = WANTED if is_wanted else PRESENT
    k = begin
    while k < end:
        first = k
        while k < end and mark[units[k]] == WANTED:
            k += 1
        if k > first:
            store_by_turns(store, rules, units, first, k, tally, c)
        k = max(k, first + 1)


@kernel
def store_together(
    store: recency.Store,
    rules: Rules,
    offers: Offers,
    buffers: Buffers,
    begin: int,
    end: int,
    tally: Tally,
    c: int,
) -> None:
    """Store the absent units of an offer at once, if room can be made for all: else none, or as many as fit."""
    units, mark = buffers.units, buffers.mark
    buffers.calls[0] += 1
    call = buffers.calls[0]
    wanted = 0
    for k in range(begin, end):
        unit = units[k]
        is_wanted = is_offered_enough(rules, offers, unit) and not recency.is_resident(store, unit)
        mark[unit] = 2 * call + (1 if is_wanted else 0)
        wanted += 1 if is_wanted else 0
    needed = wanted - (rules.n_slots - store.totals[recency.RESIDENT])
    kept = wanted
    if needed > 0:
        evictable = store.totals[recency.RESIDENT] if rules.watermark == 1 else 0
        if rules.protects_offer and evictable > 0:
            for k in range(begin, end):
                if recency.is_resident(store, units[k]):
                    evictable -= 1
        if needed > evictable:
            if rules.room == ROOM_OR_REFUSE:
                tally.refused[c] += wanted
                return
            kept = wanted - (needed - evictable)
            needed = evictable
        tally.refused[c] += wanted - kept
        stamp = 2 * call if rules.protects_offer else -1
        tally.evicted[c] += make_room(store, needed, mark, stamp)
    put_marked(store, rules, buffers, begin, end, kept, tally, c)


@kernel
def put_marked(
    store: recency.Store, rules: Rules, buffers: Buffers, begin: int, end: int, kept: int, tally: Tally, c: int
) -> None:
    """Insert the first `kept` of the units marked as wanted."""
    units, mark = buffers.units, buffers.mark
    last = begin
    found = 0
    wanted = 2 * buffers.calls[0] + 1
    while found < kept:
        if mark[units[last]] == wanted:
            found += 1
        last += 1
    for k in range(begin, last):
        unit = units[last - 1 - (k - begin)] if rules.inserts_tail_first else units[k]
        if mark[unit] == wanted:
            recency.insert(store, unit)
            tally.written[c] += 1


@kernel
def offer(
    store: recency.Store, rules: Rules, offers: Offers, buffers: Buffers, begin: int, end: int, tally: Tally, c: int
) -> int:
    """One store call of a request, for the units ``begin .. end - 1`` of its path; where the next one begins."""
    if end <= begin or rules.n_slots == 0:
        return end
    if rules.room != ROOM_BY_TURNS:
        if rules.retries:
            tally.refused[c] = 0  # this call offers again what the last one could not store
        before = tally.written[c]
        store_together(store, rules, offers, buffers, begin, end, tally, c)
        if rules.settles == TOUCH_PATH and tally.written[c] > before:
            recency.touch_path(store, buffers.units, 0, end, rules.touches_tail_first)
        if rules.retries and tally.refused[c] > 0:
            return begin
    elif rules.drops_duplicates:
        store_absent(store, rules, offers, buffers, begin, end, tally, c)
    else:
        store_by_turns(store, rules, buffers.units, begin, end, tally, c)
    return end


@kernel
def settle(
    store: recency.Store, rules: Rules, units: Int64s, gpu_tokens: int, covered: int, begin: int, end: int
) -> None:
    """What the end of a request moves: what it loaded and offered."""
    if rules.settles == TOUCH_USED:
        first = min(gpu_tokens // rules.unit_tokens, covered) if covered > 0 else begin
        recency.touch_path(store, units, min(first, begin), end, rules.touches_tail_first)


@kernel
def note_uses(
    store: recency.Store, rules: Rules, units: Int64s, gpu_tokens: int, covered: int, begin: int, end: int
) -> None:
    """What is loaded or offered is used at once: no later store of the same request evicts it first."""
    if rules.settles == TOUCH_USED:
        settle(store, rules, units, gpu_tokens, covered, begin, end)


@kernel
def sweep(store: recency.Store, rules: Rules, tally: Tally, c: int) -> None:
    """Drop a share of the units where the tier is filled to its watermark.

    After a store the share is what goes beyond the watermark, and `sweep_share` more.
    """
    resident = store.totals[recency.RESIDENT]
    excess = resident - rules.watermark * rules.n_slots
    if resident > 0 and (excess > 0 or (excess == 0 and rules.sweep_period_s > 0)):
        share = rules.sweep_share
        if rules.sweep_period_s == 0:
            share += excess / rules.n_slots
        for _ in range(max(1, int(resident * share))):
            recency.evict(store, recency.find_victim(store))
            tally.evicted[c] += 1


@kernel
def sweep_due(store: recency.Store, rules: Rules, clock: Float64s, now: float, tally: Tally, c: int) -> None:
    """The sweeps of a thread that wakes every `sweep_period_s`, up to `now`."""
    while clock[0] <= now and store.totals[recency.RESIDENT] >= rules.watermark * rules.n_slots:
        sweep(store, rules, tally, c)
        clock[0] += rules.sweep_period_s
    if clock[0] <= now:
        clock[0] += (np.floor((now - clock[0]) / rules.sweep_period_s) + 1) * rules.sweep_period_s


@kernel
def store_request(
    store: recency.Store, rules: Rules, stream: Stream, offers: Offers, buffers: Buffers, tally: Tally, c: int
) -> None:
    """All store calls of a request: prompt units as prefill steps fill them, then those of the output."""
    covered = tally.covered[c]
    begin = find_store_begin(rules, stream.gpu_tokens[c], covered)
    n_prompt = stream.prompt_units[c]
    known = max(stream.gpu_tokens[c], covered * rules.unit_tokens)
    first = begin
    filled = begin
    while filled < n_prompt:
        filled = find_step_end(rules, stream.n_tokens[c], known, filled)
        first = offer(store, rules, offers, buffers, first, filled, tally, c)
        if filled < n_prompt:
            note_uses(store, rules, buffers.units, stream.gpu_tokens[c], covered, begin, filled)
    n_path = n_prompt
    if rules.stores_outputs and stream.path_units[c] > n_prompt:
        note_uses(store, rules, buffers.units, stream.gpu_tokens[c], covered, begin, filled)
        n_path = stream.path_units[c]
        list_units(stream.nodes, stream.path_node[c], n_path, buffers.units)
        offer(store, rules, offers, buffers, first, n_path, tally, c)
    settle(store, rules, buffers.units, stream.gpu_tokens[c], covered, begin, n_path)


@kernel
def run_tier(
    store: recency.Store,
    rules: Rules,
    stream: Stream,
    offers: Offers,
    buffers: Buffers,
    gate_rules: gates.GateRules,
    gate: gates.Gate,
    decisions: gates.Decisions,
    tally: Tally,
    clock: Float64s,
) -> None:
    """Run a stream through an empty tier; fills `tally` and `decisions`."""
    for c in range(stream.n_tokens.size):
        now = stream.time_s[c]
        if rules.sweep_period_s > 0:
            sweep_due(store, rules, clock, now, tally, c)
        gates.pass_time(gate_rules, gate, now, store.totals[recency.RESIDENT])
        n_units = stream.prompt_units[c]
        list_units(stream.nodes, stream.prompt_node[c], n_units, buffers.units)
        covered = look_up(store, rules, buffers.units, n_units, stream.gpu_tokens[c])
        touch_found(store, rules, buffers.units, n_units, covered)
        note_uses(store, rules, buffers.units, stream.gpu_tokens[c], covered, covered, covered)
        tally.covered[c] = covered
        new_units = stream.n_tokens[c] // rules.unit_tokens - covered
        if gates.decide(gate_rules, gate, decisions, c, now, stream.task[c], stream.n_tokens[c], new_units):
            settle(store, rules, buffers.units, stream.gpu_tokens[c], covered, covered, covered)
            continue
        before = tally.evicted[c]
        store_request(store, rules, stream, offers, buffers, tally, c)
        gates.note_evictions(gate, now, tally.evicted[c] - before)
        if rules.watermark < 1 and rules.sweep_period_s == 0:
            sweep(store, rules, tally, c)
