"""Formats that are recognised and refused with the reason, since they cannot be planned from."""

import contextlib
import gzip

import msgspec
import pytest
from builders import write_jsonl
from damage import damage, edits, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import CapplanError
from capplan.readers import FORMATS, detect_format, read_trace

AZURE = (
    ": Azure traces hold sizes and arrivals only, no content and no sessions, so what prompts share is unknown; "
    "accepted: a trace with token ids, block hashes or text"
)
KV_EVENTS = (
    ": KV-cache events tell which blocks were stored and removed, not which request asked for which blocks, so they "
    "show what was resident and no reuse; record requests instead (Dynamo request trace, LMCache lookup hashes, or "
    "prompts with token ids)"
)


@pytest.mark.parametrize("more", ["", ",NumImages"])
def test_azure(tmp_path, more):
    path = tmp_path / "azure.csv"
    header = f"TIMESTAMP,ContextTokens,GeneratedTokens{more}"
    path.write_bytes(f"{header}\r\n2024-05-11 00:00:01.2500000,812,33{',2' if more else ''}\r\n".encode())
    assert detect_format(path) is FORMATS["azure"]
    assert refusal(path) == AZURE
    assert refusal(path, assume_prefix="session") == AZURE


def test_published_azure_trace(real_traces):
    path = real_traces / "azure-2023" / "AzureLLMInferenceTrace_code.head2000.csv"
    assert refusal(path) == AZURE


LOG = (
    ": a server's log counts the tokens each request found at one capacity, not which prompts share them, and so says "
    "nothing of another capacity; record LMCache lookup hashes (JSONL with request_id, seq_len, chunk_hashes) or "
    "prompts with token ids instead"
)
LINE = (
    "[2026-01-02 03:04:05,006] LMCache INFO: Reqid: a, Total tokens 600, LMCache hit tokens: 512, need to load: 256 "
    "(adapter.py:1)\n"
)


@pytest.mark.parametrize("before", ["", "\n", "INFO 01-02 03:04:05 [core.py:7] Starting\n", "(Worker_0) "])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lmcache_log(tmp_path, before, pack):
    path = tmp_path / "server.log"
    path.write_bytes(pack((before + LINE).encode()))
    assert detect_format(path) is FORMATS["lmcache-log"]
    assert refusal(path) == LOG


def test_other_logs_are_unknown(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("[2026-01-02 03:04:05,006] nginx ERROR: gone\n")
    assert refusal(path).startswith(": no known trace format (lines of a log); accepted: capplan (")


def test_text_that_quotes_a_log_is_no_log(tmp_path):
    path = write_jsonl(tmp_path / "chat", [{"messages": [{"role": "user", "content": LINE}]}])
    assert detect_format(path) is FORMATS["openai-chat"]


CALLS = (
    ": LMCache storage traces hold calls of the storage manager by key, not which keys make up one prompt nor how long "
    "it was; record LMCache lookup hashes (JSONL with request_id, seq_len, chunk_hashes) or prompts with token ids "
    "instead"
)
HEADER = {"level": "storage", "format_version": 1, "trace_schema_version": 1, "sm_config_digest": "", "level_meta": {}}


def test_lmcache_storage_trace(tmp_path):
    frames = [HEADER, {"t_mono": 1.5, "qualname": "StorageManager.submit", "args": {"keys": [b"\x00\xff"]}}]
    path = tmp_path / "calls.lct"
    texts = [msgspec.msgpack.encode(frame) for frame in frames]
    path.write_bytes(b"".join(len(text).to_bytes(4, "big") + text for text in texts))
    assert detect_format(path) is FORMATS["lmcache-calls"]
    assert refusal(path) == CALLS
    assert refusal(write_jsonl(tmp_path / "calls.jsonl", [HEADER])) == CALLS


SPANS = (
    ": OpenTelemetry spans say what ran and when, and keep prompts, if at all, in attributes that differ between "
    "instrumentations; write the messages of every model call as OpenAI chat JSONL (messages, session_id, arrival_s), "
    "which is accepted"
)


@pytest.mark.parametrize(
    "row",
    [
        {"trace_id": "t", "spans": [{"span_id": "1", "trace_id": "t"}]},
        {"trace_id": "t", "span_id": "1", "name": "chat"},
        {"resourceSpans": [{"scopeSpans": []}]},
    ],
)
def test_spans(tmp_path, row):
    path = write_jsonl(tmp_path / "spans.json", [row])
    assert detect_format(path) is FORMATS["otel-spans"]
    assert refusal(path) == SPANS
    assert refusal(tmp_path).endswith(SPANS)


STORED = ["BlockStored", [111, 222], 99, [5, 6, 7, 8], 2, None, "GPU", None]
BATCH = [1_900_000_000.1, [STORED], 0]
JSON_FORMS = {
    "arrays": BATCH,
    "no rank": [1.5, [["AllBlocksCleared"]]],
    "removed": [1.5, [["BlockRemoved", [5], "GPU"]], 3],
    "with its topic": {"topic": "kv@10.1.1.1:8000@m", "seq": 17, "payload": BATCH},
    "maps": {"ts": 1.5, "events": [{"type": "BlockStored", "block_hashes": [1], "block_size": 16}]},
    "one event a line": {"event_type": "BlockRemoved", "block_hashes": [1, 2]},
}


@pytest.mark.parametrize("row", JSON_FORMS.values(), ids=JSON_FORMS)
def test_kv_events_as_json(tmp_path, row):
    path = write_jsonl(tmp_path / "events", [row, row])
    assert detect_format(path) is FORMATS["kv-events"]
    assert refusal(path) == KV_EVENTS


@pytest.mark.parametrize("row", JSON_FORMS.values(), ids=JSON_FORMS)
def test_kv_events_as_msgpack(tmp_path, row):
    path = tmp_path / "events.bin"
    path.write_bytes(b"".join(msgspec.msgpack.encode(row) for _ in range(3)))
    assert detect_format(path) is FORMATS["kv-events"]
    assert refusal(path) == KV_EVENTS


@pytest.mark.parametrize("row", [{"type": "BlockStorage"}, [[1.5, ["BlockMoved"]]], {"block_hashes": [1]}])
def test_other_rows_are_no_events(tmp_path, row):
    assert not FORMATS["kv-events"].matches(sample_of(write_jsonl(tmp_path / "x", [row])))


def sample_of(path):
    from capplan.readers.first_look import take_sample

    return take_sample(path)


REFUSED = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-11 00:00:01.2500000,812,33\r\n",
    "kv-events": msgspec.msgpack.encode(BATCH),
    "kv-events as JSON": msgspec.json.encode(BATCH),
    "lmcache-log": LINE.encode(),
    "lmcache-calls": msgspec.msgpack.encode(HEADER),
    "otel-spans": b'{"trace_id":"t","spans":[{"span_id":"1","trace_id":"t"}]}',
}


@pytest.mark.parametrize("case", REFUSED)
@settings(max_examples=100)
@given(changes=st.lists(edits, min_size=1, max_size=4), named=st.booleans())
def test_damaged_files_are_refused_in_one_line(tmp_path_factory, case, changes, named):
    content = REFUSED[case]
    for edit in changes:
        content = damage(content, edit)
    path = tmp_path_factory.getbasetemp() / "refused"
    path.write_bytes(content)
    with contextlib.suppress(CapplanError):
        read_trace(path, case.split()[0] if named else "auto")
