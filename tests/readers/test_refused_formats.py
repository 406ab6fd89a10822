"""Formats that are recognised and refused with the reason, since they cannot be planned from."""

import msgspec
import pytest
from builders import write_jsonl
from writers_hashes import refusal

from capplan.readers import FORMATS, detect_format

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
    from capplan.readers.sample import take_sample

    return take_sample(path)
