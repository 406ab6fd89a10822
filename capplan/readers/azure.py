"""Azure LLM inference traces (2023, 2024, and multimodal 2025): CSV of sizes and arrivals. Refused."""

from collections.abc import Iterator
from pathlib import Path

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers.sample import Account, Options, Sample

NAME = "azure"
CARRIES = "CSV with TIMESTAMP, ContextTokens, GeneratedTokens: recognised, but sizes say nothing of reuse"


def matches(sample: Sample) -> bool:
    """Whether the columns are those of the release."""
    return sample.kind == "csv" and {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Raise TraceError: there is nothing to plan from."""
    raise TraceError(
        f"{path}: Azure traces hold sizes and arrivals only, no content and no sessions, so what prompts share is "
        "unknown; accepted: a trace with token ids, block hashes or text"
    )
