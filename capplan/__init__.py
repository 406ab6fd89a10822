"""capplan: how much host memory an LLM agent fleet's KV cache needs, and whether it pays, from a trace.

The public names, loaded on first use::

    import capplan

    trace = capplan.read_trace("data/synthetic/coding_agents.parquet")
    plan = capplan.predict(trace, gpus="h20")
    print(plan.answers[0].verdict.answer)
    curve = capplan.measure_coverage(trace, chunk_tokens=1024)
    print(curve.covered_tokens(4096))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capplan.admission import CapacityConditioned
    from capplan.curve import measure_coverage
    from capplan.errors import CapplanError, SpecError, TraceError
    from capplan.order import choose_order
    from capplan.pipeline import predict
    from capplan.plan import Options
    from capplan.readers import read_trace
    from capplan.readers.canonical import write_trace

__version__ = "0.1.0"

_HOMES = {
    "CapacityConditioned": "capplan.admission",
    "CapplanError": "capplan.errors",
    "SpecError": "capplan.errors",
    "TraceError": "capplan.errors",
    "Options": "capplan.plan",
    "choose_order": "capplan.order",
    "measure_coverage": "capplan.curve",
    "predict": "capplan.pipeline",
    "read_trace": "capplan.readers",
    "write_trace": "capplan.readers.canonical",
}

__all__ = [
    "CapacityConditioned",
    "CapplanError",
    "Options",
    "SpecError",
    "TraceError",
    "choose_order",
    "measure_coverage",
    "predict",
    "read_trace",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'capplan' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted([*globals(), *_HOMES])
