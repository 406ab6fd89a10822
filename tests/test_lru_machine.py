"""A live LRU fed call by call agrees with the curve of the trace so far, at every step."""

import os

from builders import in_order, link_tokens
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from oracles import LruTier, cut

from capplan.curve import build_curve, cover_requests
from capplan.runs import find_runs
from capplan.tree import build_tree

CAPACITIES = (0, 1, 2, 3, 5, 8, 13)
tokens = st.lists(st.integers(0, 2), max_size=6)


class LiveTier(RuleBasedStateMachine):
    """Agents that go on, branch off, start anew or ask again, before tiers of several sizes."""

    @initialize(chunk=st.integers(1, 2), leaf_first=st.booleans())
    def begin(self, chunk, leaf_first):
        self.chunk, self.touch = chunk, "leaf-first" if leaf_first else "head-first"
        self.calls = []
        self.tiers = [LruTier(k, leaf_first) for k in CAPACITIES]
        self.covered, self.written = [0] * len(CAPACITIES), [0] * len(CAPACITIES)

    def call(self, prompt):
        self.calls.append(prompt)
        self.found = []
        for k, tier in enumerate(self.tiers):
            self.found.append(tier.lookup(cut(prompt, self.chunk)))
            self.covered[k] += self.found[k]
            self.written[k] += tier.touch(cut(prompt, self.chunk))

    @rule(prompt=tokens)
    def start_session(self, prompt):
        self.call(prompt)

    @rule(data=st.data(), more=tokens)
    def extend_session(self, data, more):
        self.call([*self.draw_call(data), *more])

    @rule(data=st.data(), more=tokens)
    def branch_off(self, data, more):
        earlier = self.draw_call(data)
        self.call([*earlier[: data.draw(st.integers(0, len(earlier)))], *more])

    @rule(data=st.data())
    def ask_again(self, data):
        self.call(self.draw_call(data))

    def draw_call(self, data):
        return self.calls[data.draw(st.integers(0, len(self.calls) - 1))] if self.calls else []

    @invariant()
    def curve_of_the_trace_so_far_agrees(self):
        if not getattr(self, "calls", None):
            return
        trace = link_tokens(self.calls)
        runs = find_runs(trace, build_tree(trace), in_order(range(len(self.calls))), self.chunk)
        curve = build_curve(runs, self.touch)
        assert [int(curve.covered_tokens(k)) for k in CAPACITIES] == [n * self.chunk for n in self.covered]
        assert [int(curve.written(k)) for k in CAPACITIES] == self.written
        last = [int(cover_requests(runs, k, self.touch)[-1]) for k in CAPACITIES]
        assert last == [n * self.chunk for n in self.found]


without_jit = os.environ.get("NUMBA_DISABLE_JIT") == "1"
TestLiveTier = LiveTier.TestCase
TestLiveTier.settings = settings(deadline=None, max_examples=8 if without_jit else 40, stateful_step_count=20)
