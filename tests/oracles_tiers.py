"""Engines' host tiers in plain Python: one list of keys, index 0 is dropped first. Meant to be checked by eye.

A key names a unit by its whole prefix. Every tier has the same three steps of a request:
`lookup` (returns the leading units found), `store`, `finish`.
"""

from dataclasses import dataclass
from itertools import pairwise


def cut(tokens, unit):
    """Full units, each named by its whole prefix."""
    return [tuple(tokens[: (i + 1) * unit]) for i in range(len(tokens) // unit)]


@dataclass
class Call:
    """One request: its prompt, the tokens that have KV when it ends, and what the GPU serves."""

    n_tokens: int
    prompt: list
    path: list
    gpu_tokens: int
    gpu_units: int


class Tier:
    """What all share: the list, room, and counts of what happened."""

    def __init__(self, n_slots, unit):
        self.n_slots, self.unit = n_slots, unit
        self.order = []
        self.written = self.evicted = self.duplicates = self.refused = 0

    def run(self, prompt, path, gpu_tokens, declines=lambda found: False):
        """One request, given as tokens; `declines` is asked after the lookup."""
        unit = self.unit
        call = Call(len(prompt), cut(prompt, unit), cut(path, unit), gpu_tokens, gpu_tokens // unit)
        self.check()
        found = self.lookup(call)
        if declines(found):
            self.decline(call, found)
        else:
            self.store(call, found)
            self.finish(call, found)
        self.check()
        return found

    def decline(self, call, found):
        """A request whose writes are declined: nothing more, by default."""

    def finish(self, call, found):
        """Nothing more, by default."""

    def check(self):
        assert len(self.order) <= self.n_slots
        assert len(set(self.order)) == len(self.order)
        assert len(self.order) == self.written - self.evicted

    def leading(self, keys, begin=0):
        """End of the run of resident units from `begin` on."""
        end = begin
        while end < len(keys) and keys[end] in self.order:
            end += 1
        return end

    def leading_beyond_gpu(self, call):
        """The run that starts where the GPU's hit ends; one that gains less than a unit is none."""
        end = self.leading(call.prompt, min(call.gpu_units, len(call.prompt)))
        return end if end * self.unit - call.gpu_tokens >= self.unit else 0

    def touch(self, keys):
        """Resident ones become most recent, the first touched the oldest of them."""
        for key in keys:
            if key in self.order:
                self.order.remove(key)
                self.order.append(key)

    def evict(self, key):
        self.order.remove(key)
        self.evicted += 1

    def put(self, keys):
        for key in keys:
            self.order.append(key)
            self.written += 1


class Lmcache(Tier):
    """Lookup from the first unit, hits most recent, head last; the rest stored head first, duplicates too."""

    def __init__(self, n_slots, unit, policy="lru", step=None):
        super().__init__(n_slots, unit)
        self.policy, self.step = policy, step
        self.uses = {}

    def lookup(self, call):
        found = self.leading(call.prompt)
        for key in reversed(call.prompt[:found]):
            if self.policy == "lfu":
                self.uses[key] += 1
            if self.policy != "fifo":
                self.touch([key])
        return found

    def victim(self):
        if self.policy == "mru":
            return self.order[-1]
        if self.policy == "lfu":
            return min(self.order, key=lambda key: self.uses[key])  # the first of those used least
        return self.order[0]

    def store(self, call, found):
        for begin, end in self.list_calls(call, found):
            self.store_call(call.prompt[begin:end])

    def list_calls(self, call, found):
        """A call for everything behind the hit, or one for the units that every prefill step fills."""
        if self.step is None:
            return [(found, len(call.prompt))]
        done, bounds = max(call.gpu_tokens, found * self.unit), [found]
        while bounds[-1] < len(call.prompt):
            done = min(done + self.step, call.n_tokens)
            bounds.append(max(done // self.unit, found))
        return [(begin, end) for begin, end in pairwise(bounds) if end > begin]

    def store_call(self, keys):
        allocated = 0
        for _ in keys:
            if len(self.order) + allocated == self.n_slots:
                if not self.order:
                    break
                self.evict(self.victim())
            allocated += 1
        self.refused += len(keys) - allocated
        for key in keys[:allocated]:
            if key in self.order:
                self.duplicates += 1
            else:
                self.uses[key] = 0
                self.put([key])


class EfficientAgent(Lmcache):
    """The paper's connector: of a store only what was absent before it, one call a stretch."""

    def store(self, call, found):
        for begin, end in self.list_calls(call, found):
            keys = call.prompt[begin:end]
            stretch = []
            for key, is_absent in [(key, key not in self.order) for key in keys] + [(None, False)]:
                if is_absent:
                    stretch.append(key)
                elif stretch:
                    self.store_call(stretch)
                    stretch = []


class AllOrNothing(Tier):
    """Stores that are refused whole where not enough may be evicted for them, and then offered again, longer."""

    protects_offer = False

    def __init__(self, n_slots, unit, min_offers=0, step=None):
        super().__init__(n_slots, unit)
        self.min_offers, self.step = min_offers, step
        self.offers = {}

    list_calls = Lmcache.list_calls

    def store_call(self, keys):
        """Units stored, and units refused."""
        wanted = []
        for key in keys:
            self.offers[key] = self.offers.get(key, 0) + 1
            if key not in self.order and self.offers[key] >= self.min_offers:
                wanted.append(key)
        needed = len(wanted) - (self.n_slots - len(self.order))
        victims = [key for key in self.order if not (self.protects_offer and key in keys)]
        if needed > len(victims):
            return 0, len(wanted)
        for key in victims[: max(0, needed)]:
            self.evict(key)
        self.put(reversed(wanted))
        return len(wanted), 0

    def offer_until(self, keys, begin, ends, after):
        """A call up to each end, from where the last one that was not refused ended; `after` ends each."""
        refused = 0
        for end in ends:
            stored, refused = self.store_call(keys[begin:end])
            begin = begin if refused else end
            after(stored, end)
        self.refused += refused


class VllmOffload(AllOrNothing):
    """vLLM 0.26 and later: the lookup moves nothing; what is loaded or offered is used at once, the tail oldest."""

    protects_offer = True

    def lookup(self, call):
        found = self.leading_beyond_gpu(call)
        self.touch(reversed(call.prompt[call.gpu_units : found]))
        return found

    def store(self, call, found):
        used = call.gpu_units if found else 0
        ends = [end for _, end in self.list_calls(call, found)]
        self.offer_until(call.prompt, found, ends, lambda _, end: self.touch(reversed(call.prompt[used:end])))


class VllmOffload13(AllOrNothing):
    """vLLM 0.13: a lookup touches every resident unit of the prompt; so does each store of the path so far."""

    def lookup(self, call):
        found = self.leading_beyond_gpu(call)
        self.touch(reversed(call.prompt))
        return found

    def store(self, call, found):
        ends = [end for _, end in self.list_calls(call, found)] + [len(call.path)]

        def refresh(stored, end):
            if stored:
                self.touch(reversed(call.path[:end]))

        self.offer_until(call.path, found, ends, refresh)


class Swept(Tier):
    """Tiers that never evict for a store: a sweep empties them from the oldest end."""

    def sweep(self, share):
        for key in self.order[: max(1, int(len(self.order) * share))]:
            self.evict(key)

    def lookup(self, call):
        found = self.leading(call.prompt)
        self.touch(reversed(call.prompt[:found]))
        return found


class LmcacheMp(Swept):
    """Whole batches or nothing, and 20 % of the keys go where 80 % is filled, at every tick."""

    def tick(self):
        if self.order and len(self.order) >= 0.8 * self.n_slots:
            self.sweep(0.2)

    def store(self, call, found):
        for keys in (call.prompt[found:], call.path[max(found, len(call.prompt)) :]):
            wanted = [key for key in keys if key not in self.order]
            if len(wanted) > self.n_slots - len(self.order):
                self.refused += len(wanted)
            else:
                self.put(reversed(wanted))


class MooncakeStore(Swept):
    """What fits is put, the head first; above 90 % the excess and 5 % of the objects go."""

    def store(self, call, found):
        wanted = [key for key in call.prompt[found:] if key not in self.order]
        kept = wanted[: self.n_slots - len(self.order)]
        self.refused += len(wanted) - len(kept)
        self.put(reversed(kept))

    def finish(self, call, found):
        excess = len(self.order) - 0.9 * self.n_slots
        if excess > 0:
            self.sweep(0.05 + excess / self.n_slots)


class Kvbm(Tier):
    """Dynamo's: blocks beyond the GPU's hit, as many as fit; blocks the GPU serves are not refreshed."""

    def lookup(self, call):
        found = self.leading_beyond_gpu(call)
        self.touch(reversed(call.prompt[call.gpu_units : found]))
        return found

    def store(self, call, found):
        for keys in (call.prompt[call.gpu_units :], call.path[max(call.gpu_units, len(call.prompt)) :]):
            wanted = [key for key in keys if key not in self.order]
            kept = wanted[: self.n_slots]
            self.refused += len(wanted) - len(kept)
            for key in list(self.order[: max(0, len(kept) - (self.n_slots - len(self.order)))]):
                self.evict(key)
            self.put(reversed(kept))
            self.touch(reversed(call.prompt[call.gpu_units :]))

    def finish(self, call, found):
        self.touch(reversed(call.path[call.gpu_units :]))


def keep_best(stream, n_slots):
    """Belady with bypass: of what is held and touched, keep what is used again soonest, heads first.

    `stream` holds lists of keys; returns the leading units found by each request, and units written.
    """
    held, found, written = set(), [], []
    for at, keys in enumerate(stream):
        n = 0
        while n < len(keys) and keys[n] in held:
            n += 1
        found.append(n)

        def next_use(key, at=at):
            return next((k for k in range(at + 1, len(stream)) if key in stream[k]), None)

        useful = [(next_use(key), len(key), key) for key in held | set(keys) if next_use(key) is not None]
        kept = {key for _, _, key in sorted(useful)[:n_slots]}
        written.append(len(kept - held))
        held = kept
    return found, written
