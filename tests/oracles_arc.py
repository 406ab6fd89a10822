"""vLLM's offload under ARC in plain Python: four lists of keys, index 0 is the oldest. Meant to be checked by eye."""

from oracles import cut


class ArcOffload:
    """`once` and `again` hold units, `gone_once` and `gone_again` the names of those evicted from either."""

    def __init__(self, n_slots, unit, min_offers=0, step=None, outputs=False):
        self.n_slots, self.unit, self.min_offers, self.step, self.outputs = n_slots, unit, min_offers, step, outputs
        self.once, self.again, self.gone_once, self.gone_again = [], [], [], []
        self.aim = 0.0
        self.offers = {}
        self.written = self.evicted = self.refused = self.duplicates = 0

    def run(self, prompt, path, gpu_tokens, declines=lambda found: False):
        keys, at_gpu = cut(prompt, self.unit), gpu_tokens // self.unit
        end = min(at_gpu, len(keys))
        while end < len(keys) and self.has(keys[end]):
            end += 1
        found = end if end * self.unit - gpu_tokens >= self.unit else 0
        used, stored = keys[at_gpu:found] if found else [], []
        if not declines(found):
            done, begin, filled, refused = max(gpu_tokens, found * self.unit), found, found, 0
            while filled < len(keys):
                done = min(done + (self.step or len(prompt)), len(prompt))
                if done // self.unit > filled:  # a call that is refused is made again, longer
                    filled = done // self.unit
                    new, refused = self.store(keys[begin:filled])
                    stored, begin = stored + new, begin if refused else filled
            used += keys[found:]
            if self.outputs:
                rest = cut(path, self.unit)
                new, refused = self.store(rest[begin:])
                stored, used = stored + new, used + rest[max(found, len(keys)) :]
            self.refused += refused
        for key in reversed(used):
            if key in stored:
                self.move_to_end(self.once if key in self.once else self.again, key)
            elif self.has(key):
                (self.once if key in self.once else self.again).remove(key)
                self.again.append(key)
        self.check()
        return found

    def has(self, key):
        return key in self.once or key in self.again

    def move_to_end(self, keys, key):
        if key in keys:
            keys.remove(key)
            keys.append(key)

    def store(self, keys):
        """One call; returns what is stored, and how many are refused."""
        for key in keys:
            self.offers[key] = self.offers.get(key, 0) + 1
        wanted = [key for key in keys if not self.has(key) and self.offers[key] >= self.min_offers]
        for key in reversed(wanted):
            self.learn(key)
        needed = len(wanted) - (self.n_slots - len(self.once) - len(self.again))
        if needed > sum(key not in keys for key in self.once + self.again):
            return [], len(wanted)
        for _ in range(needed):
            self.evict(keys)
        for gone in (self.gone_once, self.gone_again):
            del gone[: max(0, len(gone) - self.n_slots) if needed > 0 else 0]
        for key in wanted:
            self.once.append(key)
            for gone in (self.gone_once, self.gone_again):
                if key in gone:
                    gone.remove(key)
        self.written += len(wanted)
        return wanted, 0

    def learn(self, key):
        b1, b2 = len(self.gone_once), len(self.gone_again)
        if key in self.gone_once:
            self.aim = min(self.aim + max(1, b2 / b1), self.n_slots)
            self.move_to_end(self.gone_once, key)
        elif key in self.gone_again:
            self.aim = max(self.aim - max(1, b1 / b2), 0)
            self.move_to_end(self.gone_again, key)

    def evict(self, protected):
        once = [key for key in self.once if key not in protected]
        again = [key for key in self.again if key not in protected]
        if once and (len(self.once) >= int(self.aim) or not again):
            self.once.remove(once[0])
            self.gone_once.append(once[0])
        else:
            self.again.remove(again[0])
            self.gone_again.append(again[0])
        self.evicted += 1

    def check(self):
        lists = (self.once, self.again, self.gone_once, self.gone_again)
        names = [key for keys in lists for key in keys]
        assert len(set(names)) == len(names)
        assert len(self.once) + len(self.again) == self.written - self.evicted <= self.n_slots
        assert 0 <= self.aim <= self.n_slots >= max(len(self.gone_once), len(self.gone_again))
