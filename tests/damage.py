"""Ways to break a file, for tests that a reader ends in an answer or in one line."""

import pytest
from hypothesis import strategies as st

from capplan.errors import TraceError
from capplan.readers import read_trace

edits = st.tuples(
    st.floats(0, 1, exclude_max=True), st.sampled_from(["flip", "cut", "drop", "add"]), st.integers(0, 255)
)


def damage(content, edit):
    """Bytes with one change: a byte flipped, the end cut off, bytes dropped or added."""
    place, kind, byte = edit
    at = int(place * len(content))
    match kind:
        case "flip":
            return content[:at] + bytes([byte]) + content[at + 1 :]
        case "cut":
            return content[:at]
        case "drop":
            return content[:at] + content[at + 1 + byte % 8 :]
        case _:
            return content[:at] + bytes([byte]) * (byte % 40) + content[at:]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


def refusal(path, **options):
    """The one line with which a source is refused, without its path."""
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}")
