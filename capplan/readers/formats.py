"""The formats there are, and which of them a source has. A format's module is imported when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from capplan.errors import TraceError
from capplan.readers.first_look import take_sample
from capplan.readers.sample import Sample

# In the order in which they are asked; a format that says more of itself comes before one that says less.
MODULES = {
    "capplan": "canonical",
    "kv-cache-tester": "kv_cache_tester",
    "qwen-bailian": "qwen_bailian",
    "mooncake-delta": "mooncake_delta",
    "mooncake-extended": "mooncake_extended",
    "mooncake": "mooncake",
    "dynamo": "dynamo",
    "lmcache-hashes": "lmcache_hashes",
    "baseten": "baseten",
    "tracelab": "tracelab",
    "applied-compute": "applied_compute",
    "burstgpt": "burstgpt",
    "azure": "azure",
    "kv-events": "kv_events",
    "lmcache-calls": "lmcache_calls",
    "lmcache-log": "lmcache_log",
    "otel-spans": "otel_spans",
    "replay-trace": "replay_trace",
    "agent-run": "agent_run",
    "llmservingsim": "llmservingsim",
    "mini-swe-agent": "text.mini_swe_agent",
    "swe-agent": "text.swe_agent",
    "tau-bench": "text.tau_bench",
    "openhands": "text.openhands",
    "lmcache-agent": "text.lmcache_agent",
    "aiperf-inputs": "text.aiperf_inputs",
    "aibrix": "text.aibrix",
    "sagemaker-capture": "text.sagemaker",
    "openai-chat": "text.openai_chat",
    "token-ids": "token_ids",
    "block-hashes": "block_hashes",
}

# Which times of a format are those of real requests; nothing is said of formats that anybody may fill.
CLOCKS = {
    "kv-cache-tester": "gaps and service times within a session are recorded, its start only where _start_ts says it",
    "qwen-bailian": "arrivals are recorded; service times are not",
    "mooncake-delta": "delays are generated, and arrivals of first calls only",
    "mooncake": "arrivals are recorded in the conversation and tool-and-agent traces, drawn in the synthetic one",
    "dynamo": "arrivals and service times are recorded",
    "lmcache-hashes": "arrivals are recorded, as lookups; service times are not",
    "baseten": "arrivals and service times are recorded",
    "tracelab": "arrivals and service times are recorded",
    "applied-compute": "tool latencies are recorded, nothing else",
    "burstgpt": "arrivals and service times are recorded",
    "replay-trace": "gaps, and the last one of every task, are recorded; arrivals follow from a replay",
    "agent-run": "arrivals, gaps and service times are recorded",
    "llmservingsim": "arrivals and tool times are generated",
    "mini-swe-agent": "responses are recorded, in whole seconds; gaps and service times are not told apart",
    "swe-agent": "execution times of actions are recorded at most; there are no arrivals",
    "tau-bench": "there are no times",
    "openhands": "ends of responses are recorded; gaps and service times are not told apart",
    "lmcache-agent": "arrivals are recorded, or pauses before calls (pre_gap)",
    "aiperf-inputs": "there are no times",
    "aibrix": "arrivals are made up",
    "sagemaker-capture": "arrivals are recorded; service times are not",
}


class Registry(Mapping[str, ModuleType]):
    """Reader modules by the name of their format."""

    def __getitem__(self, name: str) -> ModuleType:
        """The module of a format; raises KeyError where there is no such format."""
        return import_module(f"capplan.readers.{MODULES[name]}")

    def __contains__(self, name: object) -> bool:
        """Whether there is such a format."""
        return name in MODULES

    def __iter__(self) -> Iterator[str]:
        """Names in the order in which formats are asked."""
        return iter(MODULES)

    def __len__(self) -> int:
        """Number of formats."""
        return len(MODULES)


FORMATS = Registry()


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
