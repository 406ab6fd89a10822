"""Random agent workloads for property tests."""

from hypothesis import strategies as st


@st.composite
def paths(draw, max_requests=14, max_piece=9, alphabet=3):
    """Token paths that share prefixes: each extends a cut of an earlier one."""
    n = draw(st.integers(1, max_requests))
    made: list[list[int]] = []
    for _ in range(n):
        head: list[int] = []
        if made and draw(st.booleans()):
            earlier = made[draw(st.integers(0, len(made) - 1))]
            head = earlier[: draw(st.integers(0, len(earlier)))]
        tail = draw(st.lists(st.integers(0, alphabet - 1), max_size=max_piece))
        made.append(head + tail)
    return made


@st.composite
def split_paths(draw, **options):
    """Paths with the place where each prompt ends and its output begins."""
    made = draw(paths(**options))
    return [(path, draw(st.integers(0, len(path)))) for path in made]
