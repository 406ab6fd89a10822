"""TierInput: what every capacity of a tier shares; how its kernels are begun, and what they counted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.kernels import gate
from capplan.order import Order
from capplan.simulation.settings import TierSettings
from capplan.simulation.stream import TierStream, cut_stream, fit_unit
from capplan.simulation.tier_run import TierRun
from capplan.tiers import GpuService
from capplan.trace import Trace
from capplan.tree import PrefixTree

Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TierInput:
    """What every capacity of one preset shares: the stream in its units, and what the GPU serves.

    Attributes
    ----------
    stream : TierStream
    gpu : GpuService
    kv_bytes_per_token : int
        `beta`, of which a capacity in bytes holds slots.
    """

    stream: TierStream
    gpu: GpuService
    settings: TierSettings
    kv_bytes_per_token: int


def prepare_tier(
    trace: Trace, tree: PrefixTree, order: Order, gpu: GpuService, settings: TierSettings, kv_bytes_per_token: int
) -> TierInput:
    """Cut a stream for a preset.

    Raises
    ------
    TraceError
        Units that cannot be cut from the trace, or rules that look at a clock the order does not have.
    """
    if settings.needs_times and order.time_s is None:
        raise TraceError(
            f"{trace.source}: {settings.preset.name} looks at a clock, and the trace has none; accepted: arrival "
            "times, or tasks with --order pool"
        )
    unit = fit_unit(trace, settings.unit_tokens)
    return TierInput(cut_stream(trace, tree, order, unit), gpu, settings, kv_bytes_per_token)


def open_gate(tier: TierInput, capacity_bytes: int) -> tuple[gate.GateRules, gate.Gate, gate.Decisions]:
    """A rule of write admission for one capacity, its empty windows, and room for its decisions.

    The slots a rule reckons with are not rounded as the tier's own are.
    """
    stream, beta = tier.stream, tier.kv_bytes_per_token
    rules = tier.settings.rule.for_tier(capacity_bytes, beta, capacity_bytes // (stream.unit_tokens * beta))
    n_tasks = int(stream.task.max(initial=-1)) + 1
    gates = gate.open_gate(rules, len(stream), n_tasks, first_time(stream))
    return rules, gates, gate.open_decisions(len(stream))


def first_time(stream: TierStream) -> float:
    """When the first request is sent; 0 without any."""
    return float(stream.time_s[0]) if len(stream) else 0.0


def collect_run(
    tier: TierInput,
    n_slots: int,
    covered: Int32s,
    written: Int32s,
    evicted: Int32s,
    duplicates: Int32s,
    refused: Int32s,
    decisions: gate.Decisions | None,
    rule_slots: int = 0,
) -> TierRun:
    """What kernels counted in units, as a run."""
    stream = tier.stream
    declined = np.zeros(len(stream), np.int64)
    if decisions is not None:
        declined = np.where(decisions.is_declined, stream.prompt_units - covered, 0)
    return TierRun(
        n_slots=n_slots,
        unit_tokens=stream.unit_tokens,
        n_tokens=stream.n_tokens,
        gpu_tokens=tier.gpu.tokens,
        gpu_forced_tokens=tier.gpu.forced_tokens,
        found_tokens=covered.astype(np.int64) * stream.unit_tokens,
        written=written,
        evicted=evicted,
        duplicates=duplicates,
        refused=refused,
        declined=declined,
        decisions=decisions,
        rule_slots=rule_slots,
        min_load_tokens=tier.settings.preset.min_load_tokens,
        full_hit_tokens=stream.unit_tokens if tier.settings.preset.full_hit == "unit" else 1,
    )
