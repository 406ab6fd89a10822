"""Arrow files and streams: the same trace as the same columns in Parquet; damaged ones are refused in one line."""

import gzip

import polars as pl
import pytest
from damage import refusal
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import TraceError
from capplan.readers import parquet, read_trace

SAVE = {
    "file": lambda frame, path: frame.write_ipc(path),
    "compressed file": lambda frame, path: frame.write_ipc(path, compression="zstd"),
    "stream": lambda frame, path: frame.write_ipc_stream(path),
}
kinds = pytest.mark.parametrize("kind", SAVE)
rows = st.lists(st.lists(st.integers(0, 3), max_size=40), min_size=1, max_size=8)


@kinds
@given(rows, st.integers(1, 3))
def test_the_same_columns_are_the_same_trace(tmp_path_factory, kind, prompts, step):
    folder = tmp_path_factory.mktemp("a")
    columns = {"token_ids": pl.Series(prompts, dtype=pl.List(pl.UInt32)), "session_id": [str(len(p)) for p in prompts]}
    frame = pl.DataFrame(columns)
    frame.write_parquet(folder / "t.parquet")
    SAVE[kind](frame, folder / "t.arrow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "FIRST_ROWS", step)
        patch.setattr(parquet, "MOST_ROWS", step)
        trace = read_trace(folder / "t.arrow")
    assert trace.fingerprint == read_trace(folder / "t.parquet").fingerprint
    assert trace.notes == read_trace(folder / "t.parquet").notes


@kinds
def test_block_hashes_and_compression_as_a_whole(tmp_path, kind):
    frame = pl.DataFrame({"block_hashes": [[2**64 - 1, 2], [2**64 - 1]], "block_size": [16, 16]})
    SAVE[kind](frame, tmp_path / "t.arrow")
    (tmp_path / "t.gz").write_bytes(gzip.compress((tmp_path / "t.arrow").read_bytes()))
    for path in (tmp_path / "t.arrow", tmp_path / "t.gz"):
        assert read_trace(path).shared_tokens.tolist() == [0, 16]


def test_a_folder_of_arrow_files(tmp_path):
    for k in range(2):
        pl.DataFrame({"token_ids": [[1] * 16]}).write_ipc(tmp_path / f"{k}.arrow")
    assert read_trace(tmp_path).shared_tokens.tolist() == [0, 16]


def read_or_refuse(path):
    """Number of requests, or the one line of the refusal without the path."""
    try:
        return len(read_trace(path))
    except TraceError as error:
        return str(error).removeprefix(f"{path}: ")


@kinds
def test_cut_files_are_read_or_refused(tmp_path, kind):
    SAVE[kind](pl.DataFrame({"token_ids": [[1] * 99] * 40}), tmp_path / "t.arrow")
    whole, path = (tmp_path / "t.arrow").read_bytes(), tmp_path / "cut"
    for length in [*range(8, len(whole), max(1, len(whole) // 40)), len(whole) - 1]:
        path.write_bytes(whole[:length])
        found = read_or_refuse(path)
        if found == 40:
            assert kind == "stream"  # which may end without saying so
        else:
            assert found.endswith("is needed")
            assert "\n" not in found


def test_other_columns_are_named(tmp_path):
    pl.DataFrame({"prompt": ["hi"]}).write_ipc(tmp_path / "t.arrow")
    found = refusal(tmp_path / "t.arrow")
    assert found.startswith(": no known trace format (arrow with fields prompt); accepted: ")
