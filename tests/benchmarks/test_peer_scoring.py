"""The simulator's scoring rule against a live leaf-first LRU."""

from builders import chain
from hypothesis import given
from hypothesis import strategies as st
from oracles import simulate
from peer_scoring import BLOCK_TOKENS, score

prompts = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, BLOCK_TOKENS - 1)),
    min_size=1,
    max_size=12,
)


@given(prompts, st.integers(5, 30))
def test_equals_a_live_lru_scored_on_the_second_half(drawn, n_slots):
    """Last blocks may be partial: a prompt is up to one block less a token shorter than its ids say."""
    keys = {}
    ids = [chain(path, 1, keys) for path, _ in drawn]
    lengths = [BLOCK_TOKENS * len(path) - missing for path, missing in drawn]
    covered, _ = simulate(ids, n_slots)
    hits = [min(BLOCK_TOKENS * n, length) for n, length in zip(covered, lengths, strict=True)]
    half = len(drawn) // 2
    scored = score(ids, lengths)
    assert scored.hit_tokens(n_slots) == sum(hits[half:])
    assert scored.scored_tokens == sum(lengths[half:])
