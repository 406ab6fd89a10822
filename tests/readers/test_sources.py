"""Several files, folders, patterns, compression and standard input: one trace, the same however it is stored."""

import contextlib
import gzip
import io
import json
import random
import shutil
import sys

import numpy as np
import polars as pl
import pytest
from builders import dump, links, write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import paths

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from capplan.errors import CapplanError, TraceError
from capplan.readers import files, read_trace
from capplan.readers.first_look import take_sample
from capplan.readers.ledger import EARLIEST_LATER
from capplan.readers.sources import expand_sources

SQUEEZE = {".gz": gzip.compress, ".zst": zstd.compress}
squeezed = pytest.mark.parametrize("suffix", SQUEEZE)


def token_row(ids, **more):
    return {"token_ids": ids, **more}


def mooncake_row(k, ids, at):
    return {"timestamp": at, "input_length": 512 * len(ids), "output_length": k, "hash_ids": ids}


def same(left, right):
    return left.fingerprint == right.fingerprint and list(left.requests.request_ids) == list(right.requests.request_ids)


def refusal(sources, **options):
    with pytest.raises(TraceError) as caught:
        read_trace(sources, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- several files are one trace


@given(paths(max_requests=10), st.integers(0, 10), st.randoms(use_true_random=False))
def test_files_in_order_are_the_rows_in_order(tmp_path_factory, prompts, cut, random):
    folder = tmp_path_factory.mktemp("s")
    rows = [
        token_row(prompt * 8, arrival_s=5 + k, session_id=str(random.randint(0, 2))) for k, prompt in enumerate(prompts)
    ]
    whole = read_trace(write_jsonl(folder / "whole.jsonl", rows))
    cut = min(cut, len(rows))
    parts = [write_jsonl(folder / f"{k}.jsonl", part) for k, part in enumerate((rows[:cut], rows[cut:])) if part]
    assert same(read_trace(parts), whole)


def test_prefixes_are_found_across_files_and_names_are_numbers_of_the_trace(tmp_path):
    first = write_jsonl(tmp_path / "b.jsonl", [mooncake_row(1, [5, 6], 1000), mooncake_row(2, [5], 2000)])
    second = write_jsonl(tmp_path / "a.jsonl", [mooncake_row(3, [5, 6, 7], 4500)])
    trace = read_trace([first, second])
    assert links(trace) == ([-1, 0, 0], [0, 512, 1024])
    assert trace.requests.request_ids == ["0", "1", "2"]
    assert trace.requests.arrival_s.tolist() == [0, 1, 3.5]
    assert trace.source == "b.jsonl, a.jsonl"
    assert trace.notes[0] == "3 requests read as mooncake, 2 files"


def test_a_folder_is_its_files_by_path_and_others_do_not_matter(tmp_path):
    (tmp_path / "day" / "2").mkdir(parents=True)
    write_jsonl(tmp_path / "day" / "2" / "x.jsonl", [token_row([1] * 32, request_id="c")])
    write_jsonl(tmp_path / "day" / "a.jsonl", [token_row([1] * 16, request_id="a")])
    write_jsonl(tmp_path / "day" / "b.json", [token_row([1] * 16, request_id="b")])
    (tmp_path / "day" / "README.md").write_text("# not a trace")
    (tmp_path / "day" / "z.jsonl").touch()
    (tmp_path / "day" / ".hidden.jsonl").write_text("{")
    trace = read_trace(tmp_path / "day")
    assert trace.requests.request_ids == ["c", "a", "b"]
    assert trace.notes == ("3 requests read as token-ids, 3 files", "1 left out: empty files")


def test_a_pattern_is_its_matches_by_name(tmp_path):
    for name in ("d2.jsonl", "d10.jsonl", "d1.jsonl", "other.jsonl"):
        write_jsonl(tmp_path / name, [token_row([1], request_id=name)])
    assert read_trace(f"{tmp_path}/d*.jsonl").requests.request_ids == ["d1.jsonl", "d10.jsonl", "d2.jsonl"]
    assert refusal(f"{tmp_path}/x*.jsonl") == f"{tmp_path}/x*.jsonl: no such file, and nothing matches it as a pattern"


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path):
    path = write_jsonl(tmp_path / "a[1].jsonl", [token_row([1])])
    write_jsonl(tmp_path / "a1.jsonl", [token_row([1]), token_row([2])])
    assert len(read_trace(path)) == 1


def test_no_source_and_a_source_named_twice(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [token_row([1])])
    assert refusal([]) == "no source; at least one trace file or folder is needed"
    assert refusal([path, f"{tmp_path}/*.jsonl"]) == f"{path}: named twice; each source is accepted once"
    assert expand_sources([path, "-"]) == [[path], [files.STDIN]]


def test_sources_that_do_not_agree(tmp_path):
    tokens = write_jsonl(tmp_path / "t.jsonl", [token_row([1] * 20)])
    hashes = write_jsonl(tmp_path / "h.jsonl", [mooncake_row(1, [1], 0)])
    small = write_jsonl(tmp_path / "s.jsonl", [{"hash_ids": [7], "block_size": 16}])
    both = write_jsonl(tmp_path / "o.jsonl", [token_row([1] * 20, output_token_ids=[4])])
    assert refusal([tokens, hashes]) == f"{hashes}: block hashes after token ids; one kind of ids per trace is accepted"
    assert refusal([hashes, small]) == f"{small}: block size 16 after 512; one size per trace is accepted"
    assert refusal([tokens, both]) == f"{both}: output ids in some parts only; accepted: in all or in none"


def test_a_linked_trace_stands_alone(tmp_path):
    from capplan import write_trace

    path = write_jsonl(tmp_path / "t.jsonl", [token_row([1] * 20)])
    linked = tmp_path / "l.parquet"
    write_trace(read_trace(path), linked)
    assert refusal([path, linked]) == f"{linked}: a linked trace among 2 sources; it is accepted alone"
    assert refusal(linked, limit=1).startswith(f"{linked}: a linked trace is read as it is; --limit, ")
    assert read_trace(linked, ids="content").notes[-1].startswith("--ids content has no effect")


# --- clocks, names and namespaces


def test_files_with_dates_share_one_clock(tmp_path):
    import datetime as dt

    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)  # of the second file
    names = []
    for day in (1, 0):
        frame = pl.DataFrame(
            {"token_ids": [[1], [1]], "timestamp": [start + dt.timedelta(days=day, seconds=s) for s in (0, 9)]}
        )
        frame.write_parquet(tmp_path / f"{day}.parquet")
        names.append(tmp_path / f"{day}.parquet")
    trace = read_trace(names)
    assert trace.requests.arrival_s.tolist() == [86400, 86409, 0, 9]
    assert trace.notes[-1] == EARLIEST_LATER
    assert trace.provenance["ledger"]["is_epoch"]
    kept = read_trace(names, since=start + dt.timedelta(seconds=5), until=start + dt.timedelta(days=1, seconds=5))
    assert kept.requests.arrival_s.tolist() == [86391, 0]
    assert kept.requests.request_ids == ["0", "3"]
    assert kept.notes == (
        "2 requests read as token-ids, 2 files",
        "1 left out: sent at --until or later",
        "1 left out: sent before --since",
        EARLIEST_LATER,
    )


def test_namespaces_by_file_source_and_session(tmp_path):
    (tmp_path / "s").mkdir()
    row = {"block_ids": [1, 2], "block_size": 16}
    first = write_jsonl(tmp_path / "s" / "a.jsonl", [{**row, "session_id": "x", "request_id": "r"}])
    second = write_jsonl(tmp_path / "s" / "b.jsonl", [{**row, "session_id": "x", "request_id": "q"}])
    third = write_jsonl(tmp_path / "c.jsonl", [{**row, "session_id": "y", "request_id": "p"}])
    sources = [tmp_path / "s", third]
    assert links(read_trace([first, second, third])) == ([-1, 0, 0], [0, 32, 32])
    assert links(read_trace(sources, namespace="source")) == ([-1, 0, -1], [0, 32, 0])
    assert links(read_trace(sources, namespace="file")) == ([-1, -1, -1], [0, 0, 0])
    assert links(read_trace(sources, namespace="session")) == ([-1, 0, -1], [0, 32, 0])
    alone = read_trace(sources, namespace="file").requests
    assert alone.request_ids == ["a/r", "b/q", "c/p"]
    assert alone.session.decode() == ["a/x", "b/x", "c/y"]
    with pytest.raises(ValueError, match="namespace is 'day'; accepted: 'source', 'file', 'session'"):
        read_trace(first, namespace="day")


def test_session_scope_needs_sessions(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"block_ids": [1], "block_size": 16}])
    assert refusal(path, namespace="session") == (
        f"{path}: a request without a session; --namespace session needs one on every row"
    )


def test_wide_ids_can_be_local_to_files(tmp_path):
    rows = [{"block_ids": [2**63 + 1, 2**64 - 1], "block_size": 16}]
    parts = [write_jsonl(tmp_path / f"{k}.jsonl", rows * 2) for k in range(2)]
    assert links(read_trace(parts, namespace="file")) == ([-1, 0, -1, 2], [0, 32, 0, 32])


def test_local_ids_of_two_folders_stay_apart(tmp_path):
    session = {"id": "x", "block_size": 64, "hash_id_scope": "local",
               "requests": [{"t": 0, "type": "s", "in": 64, "out": 1, "hash_ids": [1]}]}  # fmt: skip
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("one", "two"):
            (tmp_path / folder / f"{folder}{name}.json").write_bytes(dump(session))
    assert links(read_trace([tmp_path / "a", tmp_path / "b"])) == ([-1] * 4, [0] * 4)


# --- selection


def test_limit_ends_reading_early(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [token_row([k] * 16) for k in range(5)])
    trace = read_trace([path, write_jsonl(tmp_path / "u.jsonl", ["{broken"])], "token-ids", limit=3)
    assert len(trace) == 3
    assert trace.notes == ("3 requests read as token-ids", "reading ended after 3 requests (--limit)")
    assert len(read_trace(path, limit=9)) == 5
    with pytest.raises(ValueError, match="limit is 0; 1 or more is accepted"):
        read_trace(path, limit=0)


def test_times_select_and_are_counted(tmp_path):
    rows = [token_row([1] * 16 * (k + 1), arrival_s=100 + 10 * k) for k in range(5)]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    trace = read_trace(path, since=10, until=30)
    assert trace.requests.arrival_s.tolist() == [10, 20]
    assert trace.requests.request_ids == ["1", "2"]
    assert links(trace) == ([-1, 0], [0, 32])
    assert trace.notes == (
        "2 requests read as token-ids", "2 left out: sent at --until or later", "1 left out: sent before --since",
    )  # fmt: skip


def test_times_need_a_clock(tmp_path):
    import datetime as dt

    path = write_jsonl(tmp_path / "t.jsonl", [token_row([1], request_id="x")])
    assert refusal(path, since=3) == (
        f"{path}: request 'x' has no arrival time; --since and --until need one on every row"
    )
    path = write_jsonl(tmp_path / "u.jsonl", [token_row([1], arrival_s=4)])
    assert refusal(path, until=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) == (
        f"{path}: its clock does not say the date; --since and --until accept seconds of arrival"
    )


def test_a_model_filter_needs_models(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [token_row([1])])
    assert refusal(path, model_filter="a*") == (
        f"{path}: no request names its model; --model-filter needs names to compare with"
    )


# --- compression


@squeezed
@pytest.mark.parametrize("n_frames", [1, 3])
def test_compressed_rows_are_the_rows(tmp_path, suffix, n_frames):
    rows = [token_row(list(range(k)), session_id="s") for k in range(40)]
    plain = write_jsonl(tmp_path / "t.jsonl", rows)
    lines = plain.read_bytes().splitlines(keepends=True)
    packed = tmp_path / f"t.jsonl{suffix}"
    packed.write_bytes(b"".join(SQUEEZE[suffix](b"".join(lines[k::n_frames])) for k in range(n_frames)))
    if n_frames == 1:
        assert same(read_trace(packed), read_trace(plain))
    assert len(read_trace(packed)) == 40


@squeezed
def test_compressed_parquet_and_documents_are_read_whatever_their_names(tmp_path, suffix):
    frame = pl.DataFrame({"token_ids": [[1] * 20, [1] * 40]})
    frame.write_parquet(tmp_path / "t.parquet")
    packed = tmp_path / "no-suffix"
    packed.write_bytes(SQUEEZE[suffix]((tmp_path / "t.parquet").read_bytes()))
    assert links(read_trace(packed)) == ([-1, 0], [0, 16])
    session = {"block_size": 64, "requests": [{"t": 0, "type": "s", "in": 64, "out": 1, "hash_ids": [1]}]}
    packed.write_bytes(SQUEEZE[suffix](json.dumps(session, indent=1).encode()))
    assert len(read_trace(packed)) == 1


@squeezed
def test_a_cut_compressed_file_is_one_line(tmp_path, suffix):
    generator = random.Random(3)
    rows = [token_row([generator.randrange(99_999) for _ in range(300)]) for _ in range(2000)]
    whole = SQUEEZE[suffix](b"\n".join(dump(row) for row in rows))
    path = tmp_path / f"t.jsonl{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    found = refusal(path)
    assert found.startswith(f"{path}: damaged compressed data (")
    assert found.endswith("; a complete file is needed")


@squeezed
@settings(max_examples=150)
@given(data=st.data())
def test_damaged_compressed_files_are_read_or_refused(tmp_path_factory, suffix, data):
    content = bytearray(SQUEEZE[suffix](b"\n".join(dump(token_row([k, 2, 3])) for k in range(9))))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(CapplanError):
        read_trace(path)


# --- standard input


@pytest.fixture
def feed(monkeypatch):
    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.mark.parametrize("suffix", ["", *SQUEEZE])
def test_standard_input_is_a_source_like_any_other(tmp_path, feed, suffix, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "spool"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "spool").mkdir()
    path = write_jsonl(tmp_path / "t.jsonl", [token_row([1] * 16 * k) for k in range(4)])
    feed(SQUEEZE.get(suffix, bytes)(path.read_bytes()))
    trace = read_trace("-")
    assert same(trace, read_trace(path))
    assert trace.source == "standard input"
    feed(b"{")
    assert refusal("-").startswith("-, line 1: neither Parquet nor JSON (")
    assert list((tmp_path / "spool").iterdir()) == []


def test_parquet_from_standard_input_beside_a_file(tmp_path, feed):
    pl.DataFrame({"token_ids": [[1] * 20]}).write_parquet(tmp_path / "t.parquet")
    feed((tmp_path / "t.parquet").read_bytes())
    assert links(read_trace([tmp_path / "t.parquet", "-"])) == ([-1, 0], [0, 16])


# --- samples


def test_sample_of_csv_takes_the_header_and_the_first_row(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfTimestamp,Session ID,Log Type\r\n5,12,Conversation log\r\n"))
    sample = take_sample(path)
    assert (sample.kind, sample.fields) == ("csv", frozenset({"Timestamp", "Session ID", "Log Type"}))
    assert sample.first == {"Timestamp": "5", "Session ID": "12", "Log Type": "Conversation log"}


@pytest.mark.parametrize(
    ("content", "layout"),
    [(b'{"a":1}\n{"a":2}', "lines"), (b'{"a":\n1}', "document"), (b'{"a":1}', "document"), (b'[{"a":1},\n{}]', "list")],
)
def test_sample_says_how_json_is_laid_out(tmp_path, content, layout):
    path = tmp_path / "x"
    path.write_bytes(content)
    sample = take_sample(path)
    assert (sample.kind, sample.layout, sample.fields, sample.first) == ("json", layout, frozenset("a"), {"a": 1})


def test_sample_of_binary_data_holds_its_head_and_of_a_folder_its_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.jsonl").write_bytes(b'{"a":1}\n')
    (tmp_path / "a.jsonl.zst").touch()
    sample = take_sample(tmp_path)
    assert (sample.kind, sample.names, sample.first) == ("folder", ("a.jsonl.zst", "sub/b.jsonl"), {"a": 1})
    path = tmp_path / "x"
    path.write_bytes(b"\x93\x00events")
    assert take_sample(path).first == {"head": b"\x93\x00events"}


def test_real_traces_are_the_same_compressed_and_in_parts(real_traces, tmp_path):
    source = real_traces / "mooncake" / "synthetic_trace.jsonl"
    lines = source.read_bytes().splitlines(keepends=True)
    (tmp_path / "1.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:2000])))
    (tmp_path / "2.jsonl.zst").write_bytes(zstd.compress(b"".join(lines[2000:])))
    assert same(read_trace(tmp_path), read_trace(source))
    sessions = tmp_path / "sessions"
    shutil.copytree(real_traces / "kv-cache-tester" / "sessions", sessions)
    for path in sorted(sessions.iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), 1))
        path.chmod(0o600)
        path.unlink()
    assert same(read_trace(sessions), read_trace(real_traces / "kv-cache-tester" / "sessions"))


def test_selection_leaves_arrays_of_the_right_types(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [token_row([k] * 16, arrival_s=k) for k in range(5)])
    requests = read_trace(path, since=2).requests
    assert requests.input_tokens.dtype == np.int64
    assert requests.arrival_s.dtype == np.float64


# --- threads


def test_files_decoded_side_by_side_give_the_same_trace(tmp_path, monkeypatch):
    from capplan.readers import Options, Selection, link_sources, workers

    monkeypatch.setattr(workers, "LEAST_BYTES", 0)
    monkeypatch.setattr(workers, "SMALL_BYTES", 4000)
    generator = random.Random(5)
    for k in range(12):
        rows = [token_row([generator.randrange(3) for _ in range(generator.randrange(90))]) for _ in range(9)]
        content = b"".join(dump(row) + b"\n" for row in rows)
        (tmp_path / f"{k:02}.jsonl").write_bytes(content if k % 3 else gzip.compress(content * (1 + 9 * (k == 6))))

    def read(n_workers, **selection):
        return link_sources(tmp_path, "auto", "chained", Options(), Selection(**selection), n_workers)[0]

    assert same(read(3), read(1))
    assert (read(3).notes, read(3).provenance) == (read(1).notes, read(1).provenance)
    assert read(3, limit=30).notes == read(1, limit=30).notes
    (tmp_path / "05.jsonl").write_bytes(b'{"token_ids":[1]}\n{"token_ids":')
    for n_workers in (1, 3):
        with pytest.raises(TraceError, match=r"05\.jsonl, line 2: not JSON"):
            read(n_workers)


def test_names_of_files_stay_even_where_they_look_like_numbers_of_rows(tmp_path):
    row = {"block_hashes": ["a1"], "input_tokens": 64, "block_size": 64}
    first = write_jsonl(tmp_path / "1.jsonl", [row | {"request_id": name} for name in ("1", "2")])
    second = write_jsonl(tmp_path / "2.jsonl", [row | {"request_id": "0"}])
    assert list(read_trace([first, second]).requests.request_ids) == ["1", "2", "0"]
    third = write_jsonl(tmp_path / "3.jsonl", [row | {"request_id": "0"}])
    with pytest.raises(TraceError, match="'0' stands twice"):
        read_trace([second, third])
