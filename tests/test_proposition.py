"""Proposition 1 of the paper: which insertions cost nothing to decline, and which do."""

from hypothesis import given
from hypothesis import strategies as st
from oracles import LruTier, cut, stack_positions
from strategies import paths


def next_distances(stream, leaf_first, sequential):
    """Of every reference, the position P (or S) of the same chunk at its next use; None where there is none."""
    found = stack_positions(stream, leaf_first)[1 if sequential else 0]
    references = [(r, i) for r, chunks in enumerate(stream) for i in range(len(chunks))]
    last, after = {}, {}
    for reference, distance in zip(references, found, strict=True):
        chunk = stream[reference[0]][reference[1]]
        if chunk in last:
            after[last[chunk]] = distance
        last[chunk] = reference
    return after


def run_declining(stream, n_slots, leaf_first, after):
    """Chunks resident at each lookup, and leading ones, where insertions without a near next use are declined."""
    tier, hits, covered = LruTier(n_slots, leaf_first), [], []
    for r, chunks in enumerate(stream):
        hits.append({chunk for chunk in chunks if chunk in tier.stack})
        covered.append(tier.lookup(chunks))
        order = range(len(chunks) - 1, -1, -1) if leaf_first else range(len(chunks))
        for i in order:
            is_near = after is None or after.get((r, i), n_slots) < n_slots
            if chunks[i] in tier.stack or is_near:
                tier.touch([chunks[i]])
    return hits, covered


@given(paths(max_requests=16), st.integers(1, 3), st.integers(1, 14), st.booleans())
def test_declining_what_is_used_next_beyond_capacity_loses_no_hit(prompts, size, n_slots, leaf_first):
    stream = [cut(prompt, size) for prompt in prompts]
    after = next_distances(stream, leaf_first, sequential=False)
    full, full_covered = run_declining(stream, n_slots, leaf_first, None)
    hits, covered = run_declining(stream, n_slots, leaf_first, after)
    assert all(kept <= now for kept, now in zip(full, hits, strict=True))
    assert all(kept <= now for kept, now in zip(full_covered, covered, strict=True))


def test_by_sequential_distance_it_loses_hits():
    # One prompt of three chunks, sent twice: a tier of two slots holds its head when it comes again (P = 0, 1),
    # but each chunk's own touch finds all three above it (S = 2), so every insertion would be declined.
    stream = [cut([1, 2, 3], 1)] * 2
    assert run_declining(stream, 2, True, None)[1] == [0, 2]
    assert run_declining(stream, 2, True, next_distances(stream, True, sequential=False))[1] == [0, 2]
    assert run_declining(stream, 2, True, next_distances(stream, True, sequential=True))[1] == [0, 0]
