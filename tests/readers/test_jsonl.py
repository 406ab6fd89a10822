"""Lines in batches: numbers, blank lines, and a narrow shape that is tried first."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import TraceError
from capplan.readers import jsonl


class Narrow(msgspec.Struct, forbid_unknown_fields=True):
    n: int


class Wide(Narrow, forbid_unknown_fields=False):
    more: Any = None


LINES = st.sampled_from(['{"n": 1}', '{"n": 2, "more": [1]}', '{"n": 3, "odd": {}}', "", "  ", "\t"])


def read(path, plain, batch_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", batch_bytes)
        return [
            (batch.where(k), row.n, getattr(row, "more", None))
            for batch in jsonl.read_batches(path, Wide, plain)
            for k, row in enumerate(batch.rows)
        ]


@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([1, 30, 4096]))
def test_rows_and_numbers_are_those_of_the_lines(tmp_path_factory, lines, line_end, ends, batch_bytes):
    path = tmp_path_factory.mktemp("j") / "j.jsonl"
    path.write_bytes((line_end.join(lines) + line_end * ends).encode())
    expected = [
        (f"{path}, line {number}", json.loads(line)["n"], json.loads(line).get("more"))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    assert read(path, None, batch_bytes) == expected
    assert read(path, Narrow, batch_bytes) == expected


@pytest.mark.parametrize("batch_bytes", [1, 4096])
@pytest.mark.parametrize("plain", [None, Narrow])
def test_a_broken_line_is_named_whichever_shape_is_tried_first(tmp_path, plain, batch_bytes):
    path = tmp_path / "j.jsonl"
    path.write_text('{"n": 1}\n\n{"n": "x"}\n')
    with pytest.raises(TraceError) as caught:
        read(path, plain, batch_bytes)
    assert str(caught.value) == f"{path}, line 3: Expected `int`, got `str` - at `$.n`"
