"""TensorRT-LLM's two pools in plain Python: lists of free blocks, index 0 is taken next. Meant to be checked by eye."""

from oracles import cut


class Block:
    """A block is somewhere ("gpu" or "host"), may have been filled, and may hold a unit, its whole prefix."""

    def __init__(self, place):
        self.place, self.is_filled, self.key = place, False, None


class TwoPools:
    def __init__(self, n_gpu, n_host, block_tokens):
        self.block_tokens = block_tokens
        self.free = {"gpu": [Block("gpu") for _ in range(n_gpu)], "host": [Block("host") for _ in range(n_host)]}
        self.holder = {}
        self.n = {"gpu": n_gpu, "host": n_host}
        self.written = self.unfindable = self.evicted = self.restored = 0

    def drop(self, block):
        """The block's unit and every longer one that begins with it are gone."""
        if block.key is None:
            return
        for key in [key for key in self.holder if key[: len(block.key)] == block.key]:
            holder = self.holder.pop(key)
            if holder is not block:
                holder.key = None
            self.evicted += holder.place == "host"
        block.key = None

    def take(self):
        """A free GPU block; one that was filled goes to the host, and the block it replaces there comes."""
        block = self.free["gpu"].pop(0)
        if not block.is_filled or not self.free["host"]:
            self.drop(block)
            return block
        other = self.free["host"].pop(0)
        self.drop(other)
        self.written += block.key is not None
        self.unfindable += block.key is None
        block.place, other.place = "host", "gpu"
        self.free["host"].append(block)
        return other

    def fetch(self, block):
        """Bring a block from the host; the GPU block taken for it goes there."""
        other = self.take()
        block.place, other.place = "gpu", "host"
        self.free["host"].append(other)
        self.restored += 1

    def run(self, prompt, path):
        """One request: the prompt and all tokens that have KV when it ends; blocks hit, restored and held."""
        n, b = len(prompt), self.block_tokens
        keys = cut(path, b)
        blocks, restored = [], 0
        while len(blocks) < (n - 1) // b and keys[len(blocks)] in self.holder:
            block = self.holder[keys[len(blocks)]]
            self.free[block.place].remove(block)
            if block.place == "host":
                self.fetch(block)
                restored += 1
            blocks.append(block)
        found = len(blocks)
        held = found + (found < n // b and keys[found] in self.holder)
        while len(blocks) * b < len(path):
            block = self.take()
            if len(blocks) * b < n:  # of a prompt all tokens but the last name its blocks
                block.is_filled = len(blocks) * b < n - 1
            blocks.append(block)
        for key, block in zip(keys, blocks, strict=False):
            if key not in self.holder:
                self.holder[key], block.key, block.is_filled = block, key, True
        if len(keys) < len(blocks):
            blocks[-1].is_filled = True
        self.free["gpu"] += blocks[::-1]
        self.check()
        return found - restored, restored, held

    def check(self):
        for place, blocks in self.free.items():
            assert len(blocks) == self.n[place]
            assert all(block.place == place for block in blocks)
        assert all(self.holder[block.key] is block for blocks in self.free.values() for block in blocks if block.key)
        assert all(key[: -self.block_tokens] in self.holder or len(key) == self.block_tokens for key in self.holder)
        on_host = sum(block.key is not None for block in self.free["host"])
        assert on_host == self.written - self.evicted - self.restored
