"""`inclusive.run_tier` extent by extent: the same rules, at the cost of a path's nodes instead of its units.

For tiers that note no offers, count no uses, and touch the tail first; tests hold both equal.
"""

import numpy as np
from numpy.typing import NDArray

from capplan.kernels import extents as ext
from capplan.kernels import gate as gates
from capplan.kernels._jit import kernel
from capplan.kernels.extents import Extents, Path
from capplan.kernels.inclusive import (
    FROM_GPU,
    ROOM_BY_TURNS,
    ROOM_OR_REFUSE,
    TOUCH_HITS,
    TOUCH_PATH,
    TOUCH_USED,
    Rules,
    Stream,
    Tally,
    find_store_begin,
)
from capplan.kernels.recency import RESIDENT

Float64s = NDArray[np.float64]
SPARE = 32  # free items a request needs beyond those of its path: touches that end inside an extent


@kernel
def look_up(extents: Extents, rules: Rules, stream: Stream, path: Path, c: int) -> int:
    """End of the leading run of resident units, in units from the head; 0 where nothing is found."""
    n_units = stream.prompt_units[c]
    gpu_tokens = stream.gpu_tokens[c]
    begin = min(gpu_tokens // rules.unit_tokens, n_units) if rules.lookup_from == FROM_GPU else 0
    end = ext.find_leading_end(extents, stream.nodes, path, begin, n_units)
    if rules.lookup_from == FROM_GPU and end * rules.unit_tokens - gpu_tokens < rules.unit_tokens:
        return 0
    return int(end)


@kernel
def store_by_turns(
    extents: Extents, rules: Rules, stream: Stream, path: Path, begin: int, end: int, tally: Tally, c: int
) -> None:
    """A slot for each unit, resident or not; the head of the store is kept, duplicates are dropped."""
    resident = extents.totals[RESIDENT]
    wanted = end - begin
    evicted = min(resident, max(0, resident + wanted - rules.n_slots))
    found = min(wanted, rules.n_slots - (resident - evicted))
    ext.evict_units(extents, evicted)
    written = ext.insert_range(extents, stream.nodes, path, begin, begin + found, rules.inserts_tail_first)
    tally.evicted[c] += evicted
    tally.written[c] += written
    tally.duplicates[c] += found - written
    tally.refused[c] += wanted - found


@kernel
def store_absent(
    extents: Extents, rules: Rules, stream: Stream, path: Path, begin: int, end: int, tally: Tally, c: int
) -> None:
    """`store_by_turns` of every stretch of units absent before the first of them is stored."""
    ext.list_absent(extents, stream.nodes, path, begin, end)
    for k in range(path.sizes[1]):
        store_by_turns(extents, rules, stream, path, path.stretch_begin[k], path.stretch_end[k], tally, c)


@kernel
def store_together(
    extents: Extents, rules: Rules, stream: Stream, path: Path, begin: int, end: int, tally: Tally, c: int
) -> None:
    """Store the absent units of an offer at once, if room can be made for all: else none, or as many as fit.

    Resident units of a protected offer are touched before room is made: the end of the request touches them
    anyway, and nothing else can tell.
    """
    wanted = ext.list_absent(extents, stream.nodes, path, begin, end)
    needed = wanted - (rules.n_slots - extents.totals[RESIDENT])
    kept = wanted
    if needed > 0:
        evictable = extents.totals[RESIDENT] if rules.watermark == 1 else 0
        if rules.protects_offer and evictable > 0:
            evictable -= end - begin - wanted
        if needed > evictable:
            if rules.room == ROOM_OR_REFUSE:
                tally.refused[c] += wanted
                return
            kept = wanted - (needed - evictable)
            needed = evictable
        tally.refused[c] += wanted - kept
        stop = find_stop(path, kept)
        if rules.protects_offer:
            ext.touch_range(extents, stream.nodes, path, begin, end)
        ext.evict_units(extents, needed)
        tally.evicted[c] += needed
        put_listed(extents, rules, stream, path, stop, tally, c)
    else:
        tally.written[c] += ext.insert_range(extents, stream.nodes, path, begin, end, rules.inserts_tail_first)


@kernel
def find_stop(path: Path, kept: int) -> int:
    """Depth behind the first `kept` units of the listed stretches; the list is cut there."""
    left = kept
    for k in range(path.sizes[1]):
        n = path.stretch_end[k] - path.stretch_begin[k]
        if n >= left:
            path.stretch_end[k] = path.stretch_begin[k] + left
            path.sizes[1] = k + 1 if left > 0 else k
            return int(path.stretch_end[k])
        left -= n
    return 0


@kernel
def put_listed(extents: Extents, rules: Rules, stream: Stream, path: Path, stop: int, tally: Tally, c: int) -> None:
    """Insert the listed stretches, the head or the tail first."""
    n = path.sizes[1]
    for step in range(n):
        k = n - 1 - step if rules.inserts_tail_first else step
        begin = path.stretch_begin[k]
        end = min(path.stretch_end[k], stop)
        tally.written[c] += ext.insert_range(extents, stream.nodes, path, begin, end, rules.inserts_tail_first)


@kernel
def offer(
    extents: Extents, rules: Rules, stream: Stream, path: Path, begin: int, end: int, tally: Tally, c: int
) -> None:
    """One store call of a request, for the units ``begin .. end - 1`` of its path."""
    if end <= begin or rules.n_slots == 0:
        tally.refused[c] += max(0, end - begin)
    elif rules.room != ROOM_BY_TURNS:
        store_together(extents, rules, stream, path, begin, end, tally, c)
    elif rules.drops_duplicates:
        store_absent(extents, rules, stream, path, begin, end, tally, c)
    else:
        store_by_turns(extents, rules, stream, path, begin, end, tally, c)


@kernel
def settle(
    extents: Extents, rules: Rules, stream: Stream, path: Path, c: int, covered: int, begin: int, end: int
) -> None:
    """What the end of a request moves: its whole path, or what it loaded and offered."""
    if rules.settles == TOUCH_PATH:
        ext.touch_range(extents, stream.nodes, path, 0, end)
    elif rules.settles == TOUCH_USED:
        first = min(stream.gpu_tokens[c] // rules.unit_tokens, covered) if covered > 0 else begin
        ext.touch_range(extents, stream.nodes, path, min(first, begin), end)


@kernel
def note_uses(
    extents: Extents, rules: Rules, stream: Stream, path: Path, c: int, covered: int, begin: int, end: int
) -> None:
    """What is loaded or offered is used at once: no later store of the same request evicts it first."""
    if rules.settles == TOUCH_USED:
        settle(extents, rules, stream, path, c, covered, begin, end)


@kernel
def sweep(extents: Extents, rules: Rules, tally: Tally, c: int) -> None:
    """Drop a share of the units where the tier is filled to its watermark, as `inclusive.sweep`."""
    resident = extents.totals[RESIDENT]
    excess = resident - rules.watermark * rules.n_slots
    if resident > 0 and (excess > 0 or (excess == 0 and rules.sweep_period_s > 0)):
        share = rules.sweep_share
        if rules.sweep_period_s == 0:
            share += excess / rules.n_slots
        n = min(resident, max(1, int(resident * share)))
        ext.evict_units(extents, n)
        tally.evicted[c] += n


@kernel
def sweep_due(extents: Extents, rules: Rules, clock: Float64s, now: float, tally: Tally, c: int) -> None:
    """The sweeps of a thread that wakes every `sweep_period_s`, up to `now`."""
    while clock[0] <= now and extents.totals[RESIDENT] >= rules.watermark * rules.n_slots:
        sweep(extents, rules, tally, c)
        clock[0] += rules.sweep_period_s
    if clock[0] <= now:
        clock[0] += (np.floor((now - clock[0]) / rules.sweep_period_s) + 1) * rules.sweep_period_s


@kernel
def store_request(extents: Extents, rules: Rules, stream: Stream, path: Path, tally: Tally, c: int) -> None:
    """All store calls of a request: prompt units as prefill steps fill them, then those of the output."""
    covered = tally.covered[c]
    begin = find_store_begin(rules, stream.gpu_tokens[c], covered)
    n_prompt = stream.prompt_units[c]
    first = begin
    done = max(stream.gpu_tokens[c], covered * rules.unit_tokens)
    while first < n_prompt:
        done = stream.n_tokens[c] if rules.step_tokens == 0 else min(done + rules.step_tokens, stream.n_tokens[c])
        last = min(done // rules.unit_tokens, n_prompt)
        if last > first:
            offer(extents, rules, stream, path, first, last, tally, c)
            first = last
            if last < n_prompt:
                note_uses(extents, rules, stream, path, c, covered, begin, last)
    n_path = n_prompt
    if rules.stores_outputs and stream.path_units[c] > n_prompt:
        note_uses(extents, rules, stream, path, c, covered, begin, first)
        n_path = stream.path_units[c]
        ext.list_nodes(stream.nodes, stream.path_node[c], stream.path_units[c], path)
        offer(extents, rules, stream, path, max(first, n_prompt), n_path, tally, c)
    settle(extents, rules, stream, path, c, covered, begin, n_path)


@kernel
def count_needed(extents: Extents, rules: Rules, stream: Stream, path: Path, c: int) -> int:
    """Free items a request may take; `path` holds its prompt before and after."""
    needed = SPARE + ext.count_spare(extents, path)
    if rules.step_tokens > 0:
        needed += stream.n_tokens[c] // rules.step_tokens + 1
    if rules.stores_outputs:
        ext.list_nodes(stream.nodes, stream.path_node[c], stream.path_units[c], path)
        needed += ext.count_spare(extents, path)
        ext.list_nodes(stream.nodes, stream.prompt_node[c], stream.prompt_units[c], path)
    return int(needed)


@kernel
def run_tier(
    extents: Extents,
    rules: Rules,
    stream: Stream,
    path: Path,
    gate_rules: gates.GateRules,
    gate: gates.Gate,
    decisions: gates.Decisions,
    tally: Tally,
    clock: Float64s,
) -> bool:
    """Run a stream through an empty tier; False where it ran out of extents and has to be run with more."""
    is_gated = gate_rules.kind != gates.NONE
    for c in range(stream.n_tokens.size):
        now = stream.time_s[c]
        if rules.sweep_period_s > 0:
            sweep_due(extents, rules, clock, now, tally, c)
        if is_gated:
            gates.pass_time(gate_rules, gate, now, extents.totals[RESIDENT])
        n_units = stream.prompt_units[c]
        ext.list_nodes(stream.nodes, stream.prompt_node[c], stream.prompt_units[c], path)
        if extents.totals[ext.FREE] < count_needed(extents, rules, stream, path, c):
            return False
        covered = look_up(extents, rules, stream, path, c)
        if rules.touch == TOUCH_HITS:
            ext.touch_range(extents, stream.nodes, path, 0, covered)
        elif rules.touch == TOUCH_PATH:
            ext.touch_range(extents, stream.nodes, path, 0, n_units)
        note_uses(extents, rules, stream, path, c, covered, covered, covered)
        tally.covered[c] = covered
        new_units = stream.n_tokens[c] // rules.unit_tokens - covered
        if is_gated and gates.decide(
            gate_rules, gate, decisions, c, now, stream.task[c], stream.n_tokens[c], new_units
        ):
            settle(extents, rules, stream, path, c, covered, covered, covered)
            continue
        before = tally.evicted[c]
        store_request(extents, rules, stream, path, tally, c)
        if is_gated:
            gates.note_evictions(gate, now, tally.evicted[c] - before)
        if rules.watermark < 1 and rules.sweep_period_s == 0:
            sweep(extents, rules, tally, c)
    return True
