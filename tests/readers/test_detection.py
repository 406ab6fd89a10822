"""Formats are told by content, never by name; anything else is one line that says what was found."""

import contextlib

import polars as pl
import pytest
from builders import dump, link_tokens, write_jsonl
from damage import damage, edits, refusal, values
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import CapplanError
from capplan.readers import FORMATS, detect_format, read_trace
from capplan.readers.canonical import write_trace

SESSION = {
    "id": "x",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        {"t": 0.5, "type": "s", "in": 130, "out": 3, "hash_ids": [1, 2], "api_time": 1.5},
        {
            "t": 2,
            "type": "subagent",
            "agent_id": "b",
            "requests": [{"t": 0, "type": "n", "in": 9, "out": 0, "hash_ids": []}],
        },
    ],
}
MOONCAKE = {"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
TOKENS = {"token_ids": [1, 2, 3], "output_token_ids": [4], "session_id": "s", "timestamp": 1.5}
BLOCKS = {"block_hashes": ["0xab", 7], "block_size": 16, "input_tokens": 40, "request_id": "r"}


BASIC = ("capplan", "kv-cache-tester", "mooncake", "token-ids", "block-hashes")


def write_all(folder):
    """One small valid file or folder of the basic formats, under names that say nothing."""
    made = {name: folder / f"{name}.dat" for name in BASIC}
    write_trace(link_tokens([[1] * 20, [1] * 20], 4), made["capplan"])
    made["kv-cache-tester"].write_bytes(dump(SESSION))
    write_jsonl(made["mooncake"], [MOONCAKE, MOONCAKE])
    write_jsonl(made["token-ids"], [TOKENS, TOKENS])
    write_jsonl(made["block-hashes"], [BLOCKS, BLOCKS | {"request_id": "q"}])
    made["token-ids in Parquet"] = folder / "p1.jsonl"
    pl.DataFrame([TOKENS, TOKENS]).write_parquet(made["token-ids in Parquet"])
    made["block-hashes in Parquet"] = folder / "p2.txt"
    pl.DataFrame([{"block_ids": [1, 2], "block_size": 16}]).write_parquet(made["block-hashes in Parquet"])
    made["kv-cache-tester in a folder"] = folder / "sessions"
    made["kv-cache-tester in a folder"].mkdir()
    (made["kv-cache-tester in a folder"] / "one.json").write_bytes(dump(SESSION))
    return made


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("valid"))


CASES = [*BASIC, "token-ids in Parquet", "block-hashes in Parquet", "kv-cache-tester in a folder"]


@pytest.mark.parametrize("case", CASES)
def test_format_is_told_by_content(valid, case):
    name = case.split(" in ")[0]
    assert detect_format(valid[case]) is FORMATS[name]
    assert len(read_trace(valid[case])) >= 1
    assert read_trace(valid[case], name).fingerprint == read_trace(valid[case]).fingerprint


def test_spread_out_json_and_leading_blank_lines_do_not_matter(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbf\n \n" + dump(SESSION).replace(b",", b",\n  "))
    assert detect_format(path) is FORMATS["kv-cache-tester"]
    path.write_bytes(b"\n\n" + dump(MOONCAKE) + b"\n" + dump(MOONCAKE))
    assert detect_format(path) is FORMATS["mooncake"]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"block_size": 16}, "block-hashes"),
        ({"session_id": "s"}, "mooncake-extended"),
    ],
)
def test_mooncake_needs_its_four_fields_and_no_block_size(tmp_path, more, name):
    assert detect_format(write_jsonl(tmp_path / "x", [MOONCAKE | more])) is FORMATS[name]


ACCEPTED = "; ".join(f"{name} ({module.CARRIES})" for name, module in FORMATS.items())


def test_unknown_fields_are_named_with_all_that_is_known(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"prompt": "hi", "answer": 1}])
    assert refusal(path) == f": no known trace format (json with fields answer, prompt); accepted: {ACCEPTED}"
    pl.DataFrame({"prompt": ["hi"]}).write_parquet(path)
    assert refusal(path) == f": no known trace format (parquet with fields prompt); accepted: {ACCEPTED}"
    path.write_bytes(b"{}")
    assert refusal(path) == f": no known trace format (json with fields nothing); accepted: {ACCEPTED}"


def test_folder_of_unknown_json_names_the_file(tmp_path):
    write_jsonl(tmp_path / "x.json", [{"a": 1}])
    assert refusal(tmp_path).startswith("/x.json: no known trace format (json with fields a); accepted: ")


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n", b"\xef\xbb\xbf"])
def test_empty_file(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    assert refusal(path) == ": empty file; at least one request is needed"


def test_missing_file(tmp_path):
    path = tmp_path / "x"
    assert refusal(path) == ": No such file or directory; a readable trace file or folder is needed"


def test_folder_without_traces(tmp_path):
    (tmp_path / "notes.txt").write_text("{}")
    assert refusal(tmp_path) == (
        ": no .json, .jsonl, .ndjson, .traj, .parquet, .arrow, .csv files; at least one is needed, also with .gz or "
        ".zst"
    )


def test_folder_of_empty_files(tmp_path):
    (tmp_path / "a.json").touch()
    assert refusal(tmp_path).endswith("a.json: empty file; at least one request is needed")


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"hello there\n", 1, "JSON is malformed: invalid character (byte 0)"),
        (b"\n1,2,3\n4,5,6", 2, "JSON is malformed: trailing characters (byte 2)"),
        (dump(MOONCAKE)[:-5], 1, "Input data was truncated"),
        (b"\n\n" + dump(SESSION)[:-5], 3, "Input data was truncated"),
        (b'{"a":"\xff"}', 1, "Invalid UTF-8 encoded string"),
        (b'{"a":' + b"[" * 100_000, 1, "maximum recursion depth exceeded while deserializing an object"),
    ],
)
def test_neither_parquet_nor_json(tmp_path, content, line, reason):
    path = tmp_path / "x"
    path.write_bytes(content)
    assert refusal(path) == f", line {line}: neither Parquet nor JSON ({reason}); a known trace format is needed"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (bytes(range(256)), "binary data that begins with 00 01 02 03 04 05 06 07"),
        (b"\xff\xfe{\x00}\x00", "binary data that begins with ff fe 7b 00 7d 00"),
        (b"\xef\xbb\xbfwhen,ContextWords\r\n1,2\r\n", "csv with fields ContextWords, when"),
    ],
)
def test_binary_data_and_csv_are_named(tmp_path, content, found):
    path = tmp_path / "x"
    path.write_bytes(content)
    assert refusal(path) == f": no known trace format ({found}); accepted: {ACCEPTED}"


@pytest.mark.parametrize(("content", "kind"), [(b"[1]", "list"), (b"5", "int"), (b'"a"', "str"), (b"null", "NoneType")])
def test_json_that_is_no_object(tmp_path, content, kind):
    path = tmp_path / "x"
    path.write_bytes(b"\n" + content)
    assert refusal(path) == f", line 2: JSON {kind}; one object per request or session is accepted"


def test_parquet_of_the_first_bytes_only(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"PAR1")
    found = refusal(path)
    assert found.startswith(": not readable as Parquet (")
    assert found.endswith("); a complete file is needed")


def test_unknown_format_and_block_size_are_the_callers_mistake(valid):
    with pytest.raises(ValueError, match="format is 'csv'; accepted: 'auto', 'capplan', 'kv-cache-tester', "):
        read_trace(valid["mooncake"], "csv")
    with pytest.raises(ValueError, match="block_size is 0; 1 to 2147483647 is accepted"):
        read_trace(valid["mooncake"], block_size=0)


# --- broken files of every format never raise anything else


def read_or_refuse(path, **options):
    with contextlib.suppress(CapplanError):
        read_trace(path, **options)


TEXT = ("kv-cache-tester", "mooncake", "token-ids", "block-hashes")
PARQUET = ("capplan", "token-ids in Parquet", "block-hashes in Parquet")


@pytest.mark.parametrize("case", TEXT)
@settings(max_examples=300)
@given(st.lists(edits, min_size=1, max_size=4), st.booleans())
def test_damaged_text_is_read_or_refused(valid, tmp_path_factory, case, changes, named):
    content = valid[case].read_bytes()
    for edit in changes:
        content = damage(content, edit)
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    read_or_refuse(path, format=case if named else "auto")


@pytest.mark.parametrize("row", [SESSION, MOONCAKE, TOKENS, BLOCKS], ids=TEXT)
@settings(max_examples=200)
@given(st.data())
def test_fields_of_any_value_are_read_or_refused(row, tmp_path_factory, data):
    changed = dict(row)
    for name in data.draw(st.lists(st.sampled_from(sorted(row)), min_size=1, max_size=2)):
        changed[name] = data.draw(values)
    if "requests" in row and data.draw(st.booleans()):
        call = row["requests"][0] | {
            data.draw(st.sampled_from(["t", "in", "out", "hash_ids", "requests"])): data.draw(values)
        }
        changed["requests"] = [call, call]
    path = tmp_path_factory.getbasetemp() / "changed"
    write_jsonl(path, [changed] if "requests" in row else [row, changed])
    read_or_refuse(path)


@pytest.mark.parametrize("case", PARQUET)
def test_truncated_parquet_is_refused(valid, tmp_path, case):
    """Cut only: polars itself aborts the process on some flipped bytes."""
    whole = valid[case].read_bytes()
    path = tmp_path / "x"
    for length in [*range(4, len(whole), 61), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert refusal(path).startswith(": not readable as Parquet (")


def test_panic_of_the_parquet_reader_is_one_line(valid, monkeypatch):
    def panic(*_, **__):
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value\nnote: details")

    monkeypatch.setattr(pl, "scan_parquet", panic)
    assert refusal(valid["capplan"]) == (
        ": not readable as Parquet (called `Option::unwrap()` on a `None` value); a complete file is needed"
    )


columns = st.sampled_from(
    ["token_ids", "block_ids", "block_size", "input_tokens", "request_id", "timestamp", "gap_s", "session_id"]
)
scalars = [1, -1, 2**62, None, 1.5, float("nan"), "a", b"a", True, {"a": 1}]
lists = [[1], [], [None], ["0a"], [1.5], [[1]]]
series = st.sampled_from([[value] for value in scalars + lists])


@settings(max_examples=200)
@given(st.dictionaries(columns, series, min_size=1), st.sampled_from(["token-ids", "block-hashes", "auto"]))
def test_parquet_of_any_column_types_is_read_or_refused(tmp_path_factory, made, format):
    path = tmp_path_factory.getbasetemp() / "types.parquet"
    pl.DataFrame(made).write_parquet(path)
    read_or_refuse(path, format=format)
