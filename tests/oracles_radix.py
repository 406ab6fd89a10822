"""A slow radix tree shared by a device and a host pool, one object a node, written to be checked by eye.

Requests run one after another. All sizes are pages; a node's key is a list of pages, each a tuple of tokens.
"""

from dataclasses import dataclass, field

WRITE_THROUGH, SELECTIVE, WRITE_BACK = "write-through", "selective", "write-back"


@dataclass(eq=False)
class TreeNode:
    """A stretch of pages between two branches or ends; what the pools move and drop as a whole."""

    key: list
    parent: "TreeNode | None"
    accessed: int = 0
    hits: int = 0
    on_device: bool = False
    on_host: bool = False
    locked: bool = False
    leaving: bool = False  # copied by the eviction under way, which has not freed the device's pages yet
    children: dict = field(default_factory=dict)

    @property
    def size(self):
        return len(self.key)


@dataclass
class Served:
    """What one request got, in pages from the head, and what it did to the host."""

    device: int = 0
    host_hit: int = 0
    loaded_end: int = 0
    whole: bool = False
    written: int = 0
    evicted: int = 0
    refused: int = 0


class RadixTiers:
    """RadixAttention with a host pool behind the device's."""

    def __init__(self, device, host, page=1, mode=WRITE_THROUGH, min_load_tokens=10, counts_own_finish=True):
        self.device, self.host, self.page, self.mode = device, host, page, mode
        self.min_hits = 2 if mode == SELECTIVE else 1
        self.min_load_tokens = min_load_tokens
        self.counts_own_finish = counts_own_finish
        self.root = TreeNode([], None, on_device=True, on_host=True, locked=True)
        self.clock = 0
        self.running = 0  # pages of the running request that are not in the tree
        self.peak_device = self.peak_host = 0
        self.now = Served()

    # the request

    def serve(self, prompt, generated=()):
        """One request: its prompt, and the generated tokens that have KV when it ends."""
        self.now = Served()
        path, n = [*prompt, *generated], len(prompt)
        if self.pages_for(len(path)) > self.device:
            self.now.refused = len(path) // self.page
            return self.now
        last = self.match(self.cut(prompt[: max(n - 1, 0)]))
        deepest = self.device_end(last)
        self.now.device = self.depth(deepest)
        self.now.host_hit = self.depth(last) - self.depth(deepest)
        deepest = self.load_back(last, deepest)
        self.now.whole = self.depth(deepest) == len(self.cut(prompt[: max(n - 1, 0)])) and self.holds(
            self.cut(prompt), n
        )
        self.lock(deepest)
        self.prefill(n, self.depth(deepest))
        self.insert(self.cut(prompt), 0)
        self.running = self.pages_for(n) - n // self.page
        self.lock(self.match(self.cut(prompt)))
        self.decode(n, len(path))
        self.insert(self.cut(path), 0 if self.counts_own_finish else n // self.page)
        self.running = 0
        self.lock(self.root)
        self.check()
        return self.now

    def prefill(self, n, known):
        asked = -(-(n - known * self.page) // self.page) + (1 if self.page > 1 else 0)
        if self.device_free < asked:
            self.evict(asked)
        self.running = self.pages_for(n) - known
        self.check()

    def decode(self, n, end):
        for at in range(n, end):
            if self.device_free < 1:
                self.evict(1)
            if at % self.page == 0:
                self.running += 1
                self.check()

    # the tree

    def match(self, key):
        """Refresh and return the deepest node of a path, splitting the one in which the path ends."""
        node = self.root
        while key and key[0] in node.children:
            node = self.step(node.children[key[0]], key)
            key = key[node.size :]
        return node

    def step(self, child, key):
        """The part of `child` that `key` shares: the whole of it, or a new node split off its head."""
        self.refresh(child)
        shared = 0
        while shared < min(child.size, len(key)) and child.key[shared] == key[shared]:
            shared += 1
        if shared == child.size:
            return child
        head = TreeNode(child.key[:shared], child.parent, hits=child.hits, on_device=child.on_device)
        head.on_host, head.locked = child.on_host, child.locked
        self.refresh(head)
        child.parent.children[child.key[0]] = head
        child.key, child.parent = child.key[shared:], head
        head.children[child.key[0]] = child
        return head

    def insert(self, key, counted_from):
        """Put a path into the tree; nodes already on the device that end after `counted_from` are hit."""
        node, depth = self.root, 0
        while key and key[0] in node.children:
            node = self.step(node.children[key[0]], key)
            key, depth = key[node.size :], depth + node.size
            if not node.on_device:
                node.on_device = True
            elif depth > counted_from:
                self.hit(node)
        if key:
            new = TreeNode(key, node, on_device=True)
            node.children[key[0]] = new
            self.refresh(new)
            self.hit(new)

    def hit(self, node):
        if self.mode == WRITE_BACK:
            return
        node.hits += 1
        if not node.on_host and node.hits >= self.min_hits:
            self.back_up(node)

    # the pools

    def back_up(self, node):
        if self.host_free < node.size:
            self.evict_host(node.size)
        if self.host_free < node.size:
            self.now.refused += node.size
            return False
        node.on_host = True
        self.now.written += node.size
        self.peak_host = max(self.peak_host, self.host - self.host_free)
        return True

    def load_back(self, last, deepest):
        """Bring all that only the host holds to the device, or nothing; the deepest node then on the device."""
        nodes = [node for node in self.up(last) if not node.on_device]
        n_pages = sum(node.size for node in nodes)
        if n_pages == 0 or n_pages * self.page < self.min_load_tokens:
            return deepest
        self.lock(last)
        if self.device_free < n_pages:
            self.evict(n_pages)
        for node in nodes:
            node.on_device = True
        self.check()
        self.now.loaded_end = self.depth(last)
        return last

    def evict(self, n_pages):
        """Free at least so many pages of the device, least recent leaves first, each whole."""
        freed, leaving = 0, []
        while freed < n_pages and (leaves := [node for node in self.nodes() if self.is_device_leaf(node)]):
            node = min(leaves, key=lambda leaf: leaf.accessed)
            freed += node.size
            if node.on_host:
                node.on_device = False
            elif self.mode == WRITE_BACK and self.back_up(node):
                node.leaving = True
                leaving.append(node)
            else:
                self.drop(node)
        for node in leaving:
            node.on_device = node.leaving = False

    def evict_host(self, n_pages):
        """Free at least so many pages of the host: leaves of the tree that only the host holds."""
        freed = 0
        while freed < n_pages and (leaves := [node for node in self.nodes() if self.is_host_leaf(node)]):
            node = min(leaves, key=lambda leaf: leaf.accessed)
            freed += node.size
            self.drop(node)

    def drop(self, node):
        """Take a node and all below it out of the tree."""
        del node.parent.children[node.key[0]]
        self.now.evicted += sum(below.size for below in self.below(node) if below.on_host)

    def is_device_leaf(self, node):
        children = node.children.values()
        is_free = node.on_device and not node.locked and not node.leaving
        return is_free and all(child.leaving or not child.on_device for child in children)

    def is_host_leaf(self, node):
        return not node.on_device and not node.children and not node.locked

    # sums and walks

    @property
    def device_free(self):
        return self.device - self.running - sum(node.size for node in self.nodes() if node.on_device)

    @property
    def host_free(self):
        return self.host - sum(node.size for node in self.nodes() if node.on_host)

    def nodes(self):
        return self.below(self.root)[1:]

    def below(self, node):
        return [node] + [one for child in node.children.values() for one in self.below(child)]

    def up(self, node):
        return [] if node is self.root else [node, *self.up(node.parent)]

    def depth(self, node):
        return sum(one.size for one in self.up(node))

    def device_end(self, node):
        return node if node.on_device else self.device_end(node.parent)

    def lock(self, node):
        for one in self.nodes():
            one.locked = False
        for one in self.up(node):
            one.locked = True

    def refresh(self, node):
        self.clock += 1
        node.accessed = self.clock

    def cut(self, tokens):
        return [tuple(tokens[k : k + self.page]) for k in range(0, len(tokens) // self.page * self.page, self.page)]

    def pages_for(self, n_tokens):
        return -(-n_tokens // self.page)

    def holds(self, pages, n_tokens):
        """Whether a prompt of whole pages lies in the tree; a look, which moves nothing."""
        node, at = self.root, 0
        while at < len(pages) and pages[at] in node.children:
            node = node.children[pages[at]]
            at += sum(1 for k, page in enumerate(node.key) if pages[at : at + k + 1] == node.key[: k + 1])
        return n_tokens > 0 and n_tokens % self.page == 0 and at == len(pages)

    def check(self):
        """What must hold at every moment."""
        self.peak_device = max(self.peak_device, self.device - self.device_free)
        assert self.device_free >= 0
        assert self.host_free >= 0
        for node in self.nodes():
            assert node.on_device or node.on_host
            assert node.parent.on_device or not node.on_device
            assert node.parent.children[node.key[0]] is node
