"""The canonical Parquet file: written whole or not at all, read back exactly, refused when it contradicts itself."""

import dataclasses
import re

import numpy as np
import polars as pl
import pytest

from capplan.errors import TraceError
from capplan.prompts import Labels, Requests
from capplan.readers import canonical, read_trace
from capplan.readers.canonical import write_trace
from capplan.schema import COLUMNS
from capplan.trace import Trace


def make_trace():
    requests = Requests.of(
        np.array([32, 48, 64]),
        output_tokens=np.array([5, 0, 2**31 - 1]),
        request_ids=["a", "ü/1", ""],
        session=Labels.encode([None, "s", None]),
        task=Labels.encode(["t", "t", None]),
        arrival_s=np.array([0.0, 0.1 + 0.2, np.nan]),
        start_s=np.array([np.nan, np.nan, np.nan]),
        gap_s=np.array([-1.5, np.nan, 1e-300]),
        service_s=np.array([np.nan, 0.0, 3.0]),
        tail_gap_s=np.array([np.nan, np.nan, 9.0]),
    )
    return Trace(requests, np.array([-1, 0, 1]), np.array([0, 32, 48]), 16, True, "made.jsonl", ("first", "second"))


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "trace.parquet"
    write_trace(make_trace(), path, "capplan ingest made.jsonl")
    return path


def metadata_of(path):
    return dict(pl.read_parquet_metadata(path))


def rewrite(path, frame=None, **metadata):
    """The written file again with another frame or other metadata; None removes a key."""
    kept = {key: value for key, value in metadata_of(path).items() if key.startswith("capplan.")}
    kept |= {f"capplan.{key}": value for key, value in metadata.items()}
    frame = pl.read_parquet(path) if frame is None else frame
    frame.write_parquet(path, metadata={key: value for key, value in kept.items() if value is not None})


def refusal(path):
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    found = str(caught.value)
    assert found.startswith(str(path))
    assert "\n" not in found
    return found.removeprefix(str(path))


def test_round_trip_is_exact(written):
    trace, again = make_trace(), read_trace(written)
    for field in dataclasses.fields(Requests):
        left, right = getattr(trace.requests, field.name), getattr(again.requests, field.name)
        if isinstance(left, Labels):
            left, right = left.decode(), right.decode()
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(again.parent, trace.parent)
    np.testing.assert_array_equal(again.shared_tokens, trace.shared_tokens)
    assert (again.resolution_tokens, again.outputs_known, again.notes) == (16, True, ("first", "second"))
    assert again.source == "trace.parquet"
    assert again.fingerprint == trace.fingerprint


def test_file_has_the_declared_columns_and_says_where_it_comes_from(written):
    schema = pl.read_parquet_schema(written)
    assert [(name, str(dtype).lower()) for name, dtype in schema.items()] == [(c.name, c.dtype) for c in COLUMNS]
    metadata = metadata_of(written)
    assert metadata["capplan.format"] == "1"
    assert metadata["capplan.source"] == "made.jsonl"
    assert metadata["capplan.command"] == "capplan ingest made.jsonl"
    frame = pl.read_parquet(written)
    assert frame["session_id"].to_list() == [None, "s", None]
    assert frame["start_s"].null_count() == 3


def test_same_trace_same_bytes(written, tmp_path):
    again = tmp_path / "again.parquet"
    write_trace(make_trace(), again, "capplan ingest made.jsonl")
    assert again.read_bytes() == written.read_bytes()


def test_reading_and_writing_again_keeps_every_column(written, tmp_path):
    again = tmp_path / "again.parquet"
    write_trace(read_trace(written), again)
    assert pl.read_parquet(again).equals(pl.read_parquet(written))


# --- writing


def test_missing_folder_is_one_line(tmp_path):
    path = tmp_path / "none" / "x.parquet"
    with pytest.raises(TraceError) as caught:
        write_trace(make_trace(), path)
    assert str(caught.value).startswith(f"{path}: No such file or directory")
    assert str(caught.value).endswith("; a writable path is needed")


def test_folder_as_target_is_refused_and_leaves_nothing(tmp_path):
    target = tmp_path / "x.parquet"
    target.mkdir()
    with pytest.raises(TraceError) as caught:
        write_trace(make_trace(), target)
    assert str(caught.value) == f"{target}: Is a directory; a writable path is needed"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stopped"]
)
def test_failed_write_keeps_the_old_file_and_leaves_no_part(written, monkeypatch, error):
    before = written.read_bytes()

    def write_half(frame, file, **_):
        file.write_bytes(b"PAR1 and then")
        raise error

    monkeypatch.setattr(pl.DataFrame, "write_parquet", write_half)
    expected = TraceError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        write_trace(make_trace(), written)
    if expected is TraceError:
        assert str(caught.value) == f"{written}: No space left on device; a writable path is needed"
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_name_that_is_no_text_is_refused(tmp_path):
    trace = make_trace()
    requests = dataclasses.replace(trace.requests, request_ids=["a", "b", "\udcff"])
    path = tmp_path / "x.parquet"
    with pytest.raises(TraceError) as caught:
        write_trace(dataclasses.replace(trace, requests=requests), path)
    assert str(caught.value) == f"{path}: a name is not valid Unicode ('\\udcff'); text is needed"
    assert list(tmp_path.iterdir()) == []


# --- reading


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"format": "2"}, ": trace format 2; version 1 is accepted"),
        ({"format": None}, ": trace format not stated; version 1 is accepted"),
        ({"resolution_tokens": None}, ": metadata capplan.resolution_tokens is missing; capplan ingest writes it"),
        ({"outputs_known": None}, ": metadata capplan.outputs_known is missing; capplan ingest writes it"),
        ({"outputs_known": "yes"}, ": capplan.outputs_known is 'yes'; true or false is accepted"),
        ({"resolution_tokens": "0"}, ": resolution_tokens is 0; 1 to 2147483647 is accepted"),
        ({"resolution_tokens": "-16"}, ": capplan.resolution_tokens is '-16'; 1 to 2147483647 is accepted"),
        ({"resolution_tokens": "1.5"}, ": capplan.resolution_tokens is '1.5'; 1 to 2147483647 is accepted"),
        ({"resolution_tokens": "9" * 10}, ": resolution_tokens is 9999999999; 1 to 2147483647 is accepted"),
        (
            {"resolution_tokens": "9" * 5000},
            f": capplan.resolution_tokens is '{'9' * 40}'; 1 to 2147483647 is accepted",
        ),
        ({"resolution_tokens": "32"}, ", row 2: shared_tokens is off the resolution; accepted: multiples of 32"),
        ({"outputs_known": "false"}, None),
    ],
)
def test_metadata(written, metadata, text):
    rewrite(written, **metadata)
    if text is None:
        assert not read_trace(written).outputs_known
    else:
        assert refusal(written) == text


@pytest.mark.parametrize("name", [column.name for column in COLUMNS])
def test_missing_column_is_named(written, name):
    rewrite(written, pl.read_parquet(written).drop(name))
    dtype = next(column.dtype for column in COLUMNS if column.name == name)
    assert refusal(written) == f": column {name} is missing; {dtype} is accepted"


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("input_tokens", pl.Float64, "int64"),
        ("parent", pl.Int32, "int64"),
        ("gap_s", pl.Float32, "float64"),
        ("session_id", pl.Categorical, "string"),
    ],
)
def test_column_of_another_type_is_named(written, name, dtype, expected):
    rewrite(written, pl.read_parquet(written).with_columns(pl.col(name).cast(dtype)))
    found = pl.read_parquet_schema(written)[name]
    assert refusal(written) == f": column {name} is {found}; {expected} is accepted"


@pytest.mark.parametrize("column", [c for c in COLUMNS if not c.nullable], ids=lambda c: c.name)
def test_null_in_a_column_that_has_none(written, column):
    holed = pl.when(pl.int_range(pl.len()) != 1).then(pl.col(column.name)).alias(column.name)
    rewrite(written, pl.read_parquet(written).with_columns(holed))
    assert refusal(written) == f", row 1: {column.name} is null; {column.dtype} on every row is accepted"


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("parent", [-1, 2, 1], "row 1: parent is not an earlier row; accepted: -1 or a smaller row number"),
        ("shared_tokens", [0, 64, 48], "row 1: shared_tokens exceeds the path; accepted: 0 to its length"),
        ("request_id", ["a", "b", "a"], "row 2: request_id 'a' stands twice; names must be unique"),
        ("service_s", [0.0, 0.0, -1.0], "row 2: service_s is negative; accepted: seconds from 0 up, or null"),
        (
            "arrival_s",
            [0.0, np.inf, 0.0],
            "row 1: arrival_s is out of range; accepted: seconds up to 1e+12 either way, or null",
        ),
    ],
)
def test_contradictions_are_refused(written, name, values, text):
    rewrite(written, pl.read_parquet(written).with_columns(pl.Series(name, values)))
    assert refusal(written) == f", {text}"


def test_no_rows_are_refused(written):
    rewrite(written, pl.read_parquet(written).head(0))
    assert refusal(written) == ": no requests; at least one is needed"


def test_column_order_and_further_columns_do_not_matter(written):
    frame = pl.read_parquet(written)
    rewrite(written, frame.select(reversed(frame.columns)).with_columns(cached_tokens=pl.lit(3)))
    assert read_trace(written).fingerprint == make_trace().fingerprint


def test_link_columns_without_the_mark_are_still_this_format(written):
    pl.read_parquet(written).write_parquet(written)
    assert refusal(written) == ": trace format not stated; version 1 is accepted"


def test_truncated_file_is_refused_at_every_length(written):
    whole = written.read_bytes()
    for length in [*range(4, len(whole), 97), len(whole) - 1]:
        written.write_bytes(whole[:length])
        found = refusal(written)
        assert re.fullmatch(r": not readable as Parquet \(.+\); a complete file is needed", found), found


def test_name_with_pattern_characters_is_one_file(written):
    for name in ("a*.parquet", "a[1].parquet", "ab.parquet"):
        (written.parent / name).write_bytes(written.read_bytes())
    assert len(read_trace(written.parent / "a*.parquet")) == 3
    assert len(read_trace(written.parent / "a[1].parquet")) == 3


def test_block_size_of_a_linked_trace_cannot_be_set(written):
    with pytest.raises(TraceError) as caught:
        read_trace(written, block_size=16)
    assert str(caught.value) == f"{written}: --block-size is given, but a linked trace states its own resolution"


@pytest.mark.parametrize("path", ["missing", "folder"])
def test_named_format_on_something_unreadable(tmp_path, path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError) as caught:
        canonical.read(tmp_path / path)
    reason = {"missing": "No such file or directory", "folder": "Is a directory"}[path]
    assert str(caught.value) == f"{tmp_path / path}: {reason}; a readable file is needed"
