"""vLLM's GPU prefix cache in plain Python: a list of free blocks, index 0 is taken next. Meant to be checked by eye."""

from oracles import cut


class FreeQueue:
    """Blocks are numbers; `holds` says which unit a block was filled with, a unit is its whole prefix.

    `copies` lists the blocks that hold a unit, earliest first.
    """

    def __init__(self, n_blocks, block_tokens, tails_first=False, tails=True, twins=True):
        self.block_tokens, self.tails_first, self.tails, self.twins = block_tokens, tails_first, tails, twins
        self.n_blocks = n_blocks
        self.queue = list(range(n_blocks))
        self.holds = {}
        self.copies = {}
        self.filled = self.evicted = 0

    def take(self):
        block = self.queue.pop(0)
        if block in self.holds:
            self.copies[self.holds.pop(block)].remove(block)
            self.evicted += 1
        return block

    def fill(self, block, key):
        self.holds[block] = key
        self.copies.setdefault(key, []).append(block)
        self.filled += 1

    def reuse(self, key):
        block = self.copies[key][0]
        self.queue.remove(block)
        return block

    def give_back(self, blocks):
        """`blocks` from head to tail."""
        tail_first = blocks[::-1]
        if self.tails_first:
            empty = [block for block in tail_first if block not in self.holds]
            full = [block for block in tail_first if block in self.holds]
            self.queue = empty + self.queue + full
        else:
            self.queue += tail_first

    def run(self, prompt, path):
        """One request: the prompt and all tokens that have KV when it ends; returns the tokens served."""
        b, keys = self.block_tokens, cut(path, self.block_tokens)
        held = 0
        while held < len(prompt) // b and self.copies.get(keys[held]):
            held += 1
        hit = min(held, max(len(prompt) - 1, 0) // b)
        n_blocks = -(-len(path) // b) if self.tails else len(keys)
        blocks = {}
        for k, key in enumerate(keys):
            if k < hit or (not self.twins and self.copies.get(key)):
                blocks[k] = self.reuse(key)
        for k in range(n_blocks):
            if k not in blocks:
                blocks[k] = self.take()
        for k in range(hit, len(keys)):
            if blocks[k] not in self.holds:
                self.fill(blocks[k], keys[k])
        self.give_back([blocks[k] for k in range(n_blocks)])
        self.check()
        return hit * b

    def check(self):
        assert sorted(self.queue) == list(range(self.n_blocks))
        assert len(self.holds) == self.filled - self.evicted == sum(map(len, self.copies.values()))
        assert all(self.holds[block] == key for key, blocks in self.copies.items() for block in blocks)
