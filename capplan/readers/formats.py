"""The formats there are, and which of them a source has."""

from pathlib import Path
from types import ModuleType

from capplan.errors import TraceError
from capplan.readers import (
    agent_run,
    applied_compute,
    azure,
    baseten,
    block_hashes,
    burstgpt,
    canonical,
    dynamo,
    kv_cache_tester,
    kv_events,
    llmservingsim,
    lmcache_hashes,
    mooncake,
    mooncake_delta,
    mooncake_extended,
    qwen_bailian,
    replay_trace,
    token_ids,
    tracelab,
)
from capplan.readers.sample import Sample, take_sample
from capplan.readers.text import (
    aibrix,
    aiperf_inputs,
    lmcache_agent,
    mini_swe_agent,
    openai_chat,
    openhands,
    sagemaker,
    swe_agent,
    tau_bench,
)

# In the order in which they are asked; a format that says more of itself comes before one that says less.
LINKED = (
    kv_cache_tester,
    qwen_bailian,
    mooncake_delta,
    mooncake_extended,
    mooncake,
    dynamo,
    lmcache_hashes,
    baseten,
    tracelab,
    applied_compute,
    burstgpt,
    azure,
    kv_events,
    replay_trace,
    agent_run,
    llmservingsim,
    mini_swe_agent,
    swe_agent,
    tau_bench,
    openhands,
    lmcache_agent,
    aiperf_inputs,
    aibrix,
    sagemaker,
    openai_chat,
    token_ids,
    block_hashes,
)
FORMATS: dict[str, ModuleType] = {module.NAME: module for module in (canonical, *LINKED)}


def detect_format(path: Path) -> ModuleType:
    """The reader whose format the content has; raises TraceError naming what was found."""
    sample = take_sample(path)
    reader = find_reader(sample)
    if reader is None:
        raise TraceError(
            f"{path}: no known trace format ({sample.describe()}); accepted: "
            + "; ".join(f"{name} ({module.CARRIES})" for name, module in FORMATS.items())
        )
    return reader


def find_reader(sample: Sample) -> ModuleType | None:
    """The first reader that recognises a sample."""
    return next((reader for reader in FORMATS.values() if reader.matches(sample)), None)
