"""`capplan ingest`: any source becomes a file that predicts the same."""

import gzip
import json
import os
import pty
import signal
import subprocess
import time

import polars as pl
import pytest
from builders import write_jsonl
from commands import COMPILING, finish, invoke, misuse_of, notes_of, refusal_of, start
from plans import token_rows

from capplan import read_trace


def ingest(source, out, *arguments):
    result = invoke("ingest", source, "-o", out, *arguments)
    assert (result.exit_code, result.stdout) == (0, "")
    return notes_of(result)


def answer_of(source, *arguments):
    result = invoke("predict", source, "--gpu", "h20", "--format", "json", *arguments)
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    del record["trace"]["notes"], record["trace"]["source"]
    return record


def test_predictions_from_the_file_equal_those_from_the_source(tokens, tmp_path):
    out = tmp_path / "linked.parquet"
    assert ingest(tokens, out) == ["capplan: 6 requests read as token-ids"]
    for chunk in (16, 64, 1024):
        arguments = ("--chunk-tokens", chunk, "--gpu-kv-tokens", 192)
        assert answer_of(out, *arguments) == answer_of(tokens, *arguments)
    assert list(tmp_path.iterdir()) == [out]


def test_source_and_command_are_kept(tokens, tmp_path):
    out = tmp_path / "linked.parquet"
    ingest(tokens, out)
    metadata = pl.read_parquet_metadata(out)
    assert metadata["capplan.source"] == "tokens.jsonl"
    assert metadata["capplan.command"] == "capplan ingest tokens.jsonl"
    assert metadata["capplan.notes"] == "6 requests read as token-ids"


def test_same_source_gives_the_same_bytes(tokens, tmp_path):
    for name in ("first", "second"):
        ingest(tokens, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_linked_file_passes_unchanged(linked, tmp_path):
    out = tmp_path / "again.parquet"
    assert ingest(linked, out) == []
    assert read_trace(out).fingerprint == read_trace(linked).fingerprint


def test_a_source_is_not_overwritten(linked, tmp_path):
    path = tmp_path / "own.parquet"
    path.write_bytes(linked.read_bytes())
    assert misuse_of("ingest", path, "-o", path) == (
        f"{path} would overwrite the source {path}; another name is needed"
    )
    assert path.read_bytes() == linked.read_bytes()


def test_ids_that_are_not_chained(unchained, tmp_path):
    out = tmp_path / "linked.parquet"
    line = refusal_of("ingest", unchained, "-o", out, "--block-size", 16)
    assert line.endswith("so ids are not prefix-chained; --ids content chains them anew")
    assert not out.exists()
    assert ingest(unchained, out, "--block-size", 16, "--ids", "content") == [
        "capplan: 4 requests read as block-hashes",
        "capplan: no prompt lengths: taken as block size times block hashes",
        "capplan: block ids chained anew by content (--ids content)",
    ]


def test_a_linked_file_keeps_where_it_comes_from(tokens, tmp_path):
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    ingest(tokens, first)
    ingest(first, second)
    metadata = pl.read_parquet_metadata(second)
    assert metadata["capplan.source"] == "tokens.jsonl"
    assert metadata["capplan.command"] == "capplan ingest tokens.jsonl; capplan ingest first.parquet"
    assert metadata["capplan.ledger"] == pl.read_parquet_metadata(first)["capplan.ledger"]


def test_several_sources_in_one_command(tmp_path):
    rows = token_rows()
    whole = write_jsonl(tmp_path / "whole.jsonl", rows)
    (tmp_path / "days").mkdir()
    write_jsonl(tmp_path / "days" / "1.jsonl", rows[:2])
    (tmp_path / "days" / "2.jsonl.gz").write_bytes(gzip.compress(write_jsonl(tmp_path / "2", rows[2:4]).read_bytes()))
    last = write_jsonl(tmp_path / "3.jsonl", rows[4:])
    notes = ingest(f"{tmp_path}/days/*", tmp_path / "parts.parquet", last)
    assert notes == ["capplan: 6 requests read as token-ids, 3 files"]
    ingest(tmp_path / "days", tmp_path / "folder.parquet", last)
    ingest(whole, tmp_path / "whole.parquet")
    expected = read_trace(tmp_path / "whole.parquet")
    for name in ("parts", "folder"):
        trace = read_trace(tmp_path / f"{name}.parquet")
        assert trace.fingerprint == expected.fingerprint
        assert list(trace.requests.request_ids) == list(expected.requests.request_ids)
    assert answer_of(tmp_path / "days", last) == answer_of(whole)


def test_options_reach_the_readers_and_are_accounted_for(tmp_path):
    rows = [{"token_ids": [1], "arrival_s": k} for k in range(9)]
    path, out = write_jsonl(tmp_path / "t.jsonl", rows), tmp_path / "out.parquet"
    notes = ingest(path, out, "--since", 2, "--until", "7", "--limit", 3)
    assert notes[0] == "capplan: 3 requests read as token-ids"
    assert notes[-1] == "capplan: reading ended after 3 requests (--limit)"
    trace = read_trace(out)
    assert trace.requests.arrival_s.tolist() == [2, 3, 4]
    assert "2 left out: sent before --since" in trace.notes
    assert refusal_of("ingest", path, "-o", out, "--since", "2026-01-01T00:00").endswith(
        "its clock does not say the date; --since and --until accept seconds of arrival"
    )


def test_lengths_that_contradict_the_ids(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"hash_ids": [1, 2], "block_size": 16, "input_tokens": 0}])
    out = tmp_path / "out.parquet"
    assert refusal_of("ingest", path, "-o", out).endswith(
        "2 block hashes for 0 tokens; accepted: 0 to 0 of 16 tokens each"
    )
    notes = ingest(path, out, "--lengths", "ids")
    assert notes[1] == (
        "capplan: 1 x request whose length contradicts its block ids: block size times ids is taken (--lengths ids)"
    )
    assert read_trace(out).requests.input_tokens.tolist() == [32]


def test_standard_input(tokens, tmp_path):
    out = tmp_path / "linked.parquet"
    with tokens.open("rb") as file:
        code, _, _ = finish(start("ingest", "-", "-o", out, stdin=file))
    assert code == 0
    assert read_trace(out).fingerprint == read_trace(tokens).fingerprint
    assert pl.read_parquet_metadata(out)["capplan.source"] == "standard input"


def test_ctrl_c_leaves_no_file_and_no_traceback(tmp_path):
    out, spool = tmp_path / "out", tmp_path / "spool"
    out.mkdir()
    spool.mkdir()
    arguments = ("ingest", "-", "-o", out / "linked.parquet", "--keep-keys")
    with start(*arguments, stdin=subprocess.PIPE, env={"TMPDIR": str(spool)}) as process:
        process.stdin.write('{"token_ids":[1]}\n' * 200_000)
        process.stdin.flush()
        time.sleep(0.5)  # until it waits for more
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        code = process.wait(timeout=120)
        process.stdin.close()
    assert code == 130
    assert [line for line in err.splitlines() if line != COMPILING] == ["capplan: interrupted, nothing was written"]
    assert list(out.iterdir()) == list(spool.iterdir()) == []


def test_a_terminal_shows_how_far_it_is(tokens, tmp_path):
    ours, theirs = pty.openpty()
    with start("ingest", tokens, "-o", tmp_path / "t.parquet", stderr=theirs, env={"TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                break
            if not part:
                break
            shown += part
        process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 0
    assert b"reading" in shown
    assert b"capplan: 6 requests read as token-ids" in shown


def test_a_folder_that_is_not_there(tokens, tmp_path):
    out = tmp_path / "absent" / "linked.parquet"
    assert refusal_of("ingest", tokens, "-o", out) == f"{out}: its folder does not exist; a writable path is needed"


def test_a_source_that_cannot_be_read(tmp_path):
    out = tmp_path / "linked.parquet"
    assert refusal_of("ingest", tmp_path / "absent", "-o", out).startswith(f"{tmp_path / 'absent'}: No such file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing option '-o'"),
        ("-o .", "is a directory"),
        ("-o x --from parquet", "Invalid value for '--from'"),
        ("-o x --gpu h20", "No such option"),
        ("-o x --limit 0", "Invalid value for '--limit'"),
        ("-o x --since soon", "'soon' is neither seconds nor a time such as 2026-01-31T08:00:00"),
        ("-o x --until nan", "'nan' is not a number up to 1e+12 either way"),
        ("-o x --namespace day", "Invalid value for '--namespace'"),
        ("-o x --lengths in", "Invalid value for '--lengths'"),
    ],
)
def test_wrong_usage(linked, arguments, message):
    assert message in misuse_of("ingest", linked, *arguments.split())
