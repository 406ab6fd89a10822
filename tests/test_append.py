"""A trace that grows day by day equals one made of everything at once, and refuses what does not fit it."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
from builders import chain, write_jsonl
from commands import invoke, notes_of, refusal_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import paths

from capplan import read_trace
from capplan.errors import CapplanError, TraceError
from capplan.readers import canonical, extend_trace
from capplan.readers.key_file import name_keys, read_keys

MORE = {"namespace": [None, "file", "source"], "kind": ["tokens", "chained", "content", "mooncake"]}


def make_rows(prompts, kind, draw):
    keys, rows = {}, []
    for k, prompt in enumerate(prompts):
        if kind == "tokens":
            row = {"token_ids": prompt * 9, "arrival_s": 1000 + 0.25 * k, "session_id": draw(st.sampled_from("abc"))}
        elif kind == "mooncake":
            ids = chain(prompt, 1, keys)
            row = {"timestamp": 70 + k, "input_length": 512 * len(ids), "output_length": k, "hash_ids": ids}
        else:
            ids = chain(prompt, 1, keys) if kind == "chained" else prompt
            row = {"block_ids": ids, "block_size": 32, "task_id": draw(st.sampled_from(["t", "u"]))}
        rows.append(row)
    return rows


def content_of(path):
    """The table, and everything of the metadata but what tells how the file was made."""
    trace = canonical.read(path)
    kept = {name: value for name, value in trace.provenance.items() if name not in ("command", "source")}
    columns = {}
    for field in dataclasses.fields(trace.requests):
        column = getattr(trace.requests, field.name)
        columns[field.name] = column.decode() if hasattr(column, "decode") else list(column)
    return trace.fingerprint, repr(columns), trace.notes, json.dumps(kept, sort_keys=True)


@settings(max_examples=40)
@given(data=st.data(), kind=st.sampled_from(MORE["kind"]), namespace=st.sampled_from(MORE["namespace"]))
def test_days_one_by_one_equal_all_days_at_once(tmp_path_factory, data, kind, namespace):
    folder = tmp_path_factory.mktemp("a")
    rows = make_rows(data.draw(paths(max_requests=9)), kind, data.draw)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=3)))
    days = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True) if a < b]
    files = [write_jsonl(folder / f"{k}.jsonl", day) for k, day in enumerate(days)]
    options = ("--ids", "content") if kind == "content" else ()
    options += ("--namespace", namespace) if namespace else ()
    grown, whole = folder / "grown.parquet", folder / "whole.parquet"
    for file in files:
        assert invoke("ingest", file, "-o", grown, "--append", *options).exit_code == 0
    assert invoke("ingest", *files, "-o", whole, "--keep-keys", *options).exit_code == 0
    assert content_of(grown) == content_of(whole)
    left, right = (read_keys(canonical.read(path), path) for path in (grown, whole))
    np.testing.assert_array_equal(left.segments, right.segments)
    np.testing.assert_array_equal(left.starts, right.starts)
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".jsonl") == [
        "grown.parquet", "grown.parquet.keys", "whole.parquet", "whole.parquet.keys",
    ]  # fmt: skip


@pytest.fixture
def days(tmp_path):
    rows = [{"token_ids": list(range(16 * k)), "task_id": "s"} for k in range(1, 5)]
    return write_jsonl(tmp_path / "1.jsonl", rows[:2]), write_jsonl(tmp_path / "2.jsonl", rows[2:])


@pytest.fixture
def grown(tmp_path, days):
    out = tmp_path / "t.parquet"
    assert invoke("ingest", days[0], "-o", out, "--append").exit_code == 0
    return out


def test_where_it_comes_from_grows_too(days, grown):
    result = invoke("ingest", days[1], "-o", grown, "--append")
    assert notes_of(result) == ["capplan: 4 requests read as token-ids, 2 files"]
    trace = read_trace(grown)
    assert trace.provenance["source"] == "1.jsonl, 2.jsonl"
    assert trace.provenance["command"] == "capplan ingest 1.jsonl; capplan ingest 2.jsonl"


def test_keys_are_not_written_unless_asked_for(tmp_path, days):
    out = tmp_path / "u.parquet"
    assert invoke("ingest", days[0], "-o", out).exit_code == 0
    assert not name_keys(out).exists()
    assert refusal_of("ingest", days[1], "-o", out, "--append") == (
        f"{out}.keys: No such file; --append needs what --keep-keys writes beside a trace"
    )


def refuse_and_keep(grown, *arguments):
    before = grown.read_bytes(), name_keys(grown).read_bytes()
    line = refusal_of("ingest", *arguments, "-o", grown, "--append")
    assert (grown.read_bytes(), name_keys(grown).read_bytes()) == before
    assert len(list(grown.parent.glob("*.part"))) + len(list(grown.parent.glob(".*"))) == 0
    return line


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path, grown, days):
    blocks = write_jsonl(tmp_path / "b.jsonl", [{"block_ids": [1], "block_size": 16}])
    outputs = write_jsonl(tmp_path / "o.jsonl", [{"token_ids": [1], "output_token_ids": [2]}])
    named = write_jsonl(tmp_path / "n.jsonl", [{"token_ids": [1], "request_id": "0"}] * 2)
    kinds = "block hashes after token ids; one kind of ids per trace is accepted"
    assert refuse_and_keep(grown, blocks).endswith(kinds)
    assert refuse_and_keep(grown, outputs).endswith("output ids in some parts only; accepted: in all or in none")
    assert refuse_and_keep(grown, named).endswith("request_id '0' stands twice; names must be unique")
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(grown.read_bytes())
    assert refuse_and_keep(grown, copy) == f"{copy}: a linked trace; --append accepts sources that are not linked yet"
    assert refuse_and_keep(grown, days[1], "--namespace", "file").endswith(
        "linked with --namespace as the format says; it can only grow so"
    )
    assert refuse_and_keep(grown, tmp_path / "absent").startswith(f"{tmp_path / 'absent'}: No such file")


def test_ids_must_be_treated_as_before(tmp_path):
    rows = [{"block_ids": [1, 2], "block_size": 16}]
    first, second = (write_jsonl(tmp_path / f"{k}.jsonl", rows) for k in range(2))
    out = tmp_path / "t.parquet"
    invoke("ingest", first, "-o", out, "--append", "--ids", "content")
    assert refuse_and_keep(out, second) == (
        "t.parquet: linked with --ids content, so --ids chained cannot go on with it"
    )
    assert refuse_and_keep(out, write_jsonl(tmp_path / "x.jsonl", [{"block_ids": [1], "block_size": 32}]), "--ids",
                           "content").endswith("block size 32 after 16; one size per trace is accepted")  # fmt: skip


def test_keys_of_another_trace_or_damaged_ones_are_refused(tmp_path, days, grown):
    other = tmp_path / "o.parquet"
    invoke("ingest", days[1], "-o", other, "--keep-keys")
    mine, theirs = name_keys(grown), name_keys(other).read_bytes()
    mine.write_bytes(theirs)
    assert refuse_and_keep(grown, days[1]) == (
        f"{mine}: keys of another trace than the one beside it; link it again with --keep-keys"
    )
    for damaged in (b"", b"capplan keys 2\n{}\n", theirs[:-1], theirs[:-1] + b"?", b"capplan keys 1\n{}\n"):
        mine.write_bytes(damaged)
        assert refuse_and_keep(grown, days[1]) == f"{mine}: not a whole file of keys; --keep-keys writes one"


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_keys_are_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "damage"
    folder.mkdir(exist_ok=True)
    out = folder / "t.parquet"
    if not out.exists():
        invoke("ingest", write_jsonl(folder / "1.jsonl", [{"token_ids": [1] * 40}]), "-o", out, "--keep-keys")
        (folder / "good").write_bytes(name_keys(out).read_bytes())
    content = bytearray((folder / "good").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    name_keys(out).write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(CapplanError):
        read_keys(canonical.read(out), out)


def test_a_linked_source_has_no_keys_to_keep(tmp_path, grown):
    out = tmp_path / "again.parquet"
    assert refusal_of_last("ingest", grown, "-o", out, "--keep-keys") == (
        f"{grown}: linked already, so its keys are not known; link its sources again"
    )
    assert not out.exists()


def refusal_of_last(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 1
    return notes_of(result)[-1].removeprefix("Error: ")


def test_a_trace_without_an_account_cannot_grow(tmp_path, days, grown):
    trace = canonical.read(grown)
    bare = dataclasses.replace(trace, provenance={})
    canonical.write_trace(bare, grown)
    keys = read_keys(bare, grown)
    with pytest.raises(TraceError, match="no account of its sources, so it cannot grow; link it again"):
        extend_trace(canonical.read(grown), keys, days[1])
