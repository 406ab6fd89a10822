"""`capplan ingest`: any source becomes a file that predicts the same."""

import json

import pytest
from commands import invoke, misuse_of, notes_of, refusal_of

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
    import polars as pl

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


def test_a_file_may_replace_its_source(linked, tmp_path):
    path = tmp_path / "own.parquet"
    path.write_bytes(linked.read_bytes())
    ingest(path, path)
    assert read_trace(path).fingerprint == read_trace(linked).fingerprint


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
    ],
)
def test_wrong_usage(linked, arguments, message):
    assert message in misuse_of("ingest", linked, *arguments.split())
