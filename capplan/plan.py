"""Plan: what a prediction is asked and what it answers with, for reports and plots to read."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from capplan.card import Card
from capplan.costs import Overrides
from capplan.deployment import GpuRoom
from capplan.order import Order
from capplan.prediction import CapacityRow, Prediction, Prices
from capplan.runs import Distance, Touch
from capplan.trace import Trace
from capplan.ttft import TtftChange
from capplan.verdict import Verdict

if TYPE_CHECKING:
    from capplan.admission_candidates import Candidate
    from capplan.admission_study import AdmissionAnswer
    from capplan.simulated import SimulatedTier
    from capplan.simulation.settings import TierSettings

DEFAULT_CHUNK_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Options:
    """Everything `plan` may be told; see `capplan predict --help`.

    `host_gib` is per rank; `pool_size` implies the pool order; `warmup` is a share of requests left
    out of totals, not out of state; `engine` says how the host tier copies and lays out its KV. With a
    `tier` capacities are simulated under its rules, in its units instead of `chunk_tokens`.
    """

    order: str | None = None
    pool_size: int | None = None
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    touch: Touch = "leaf-first"
    distance: Distance = "lookup"
    warmup: float = 0.0
    host_gib: tuple[float, ...] = ()
    tp: int | None = None
    kv_dtype: str = "bf16"
    weight_dtype: str | None = None
    room: GpuRoom = field(default_factory=GpuRoom)
    host_copies: int | None = None
    overrides: Overrides = field(default_factory=Overrides)
    node_ram_gib: float | None = None
    engine: str = "lmcache"
    prices: Prices | None = None
    tier: "TierSettings | None" = None

    def __post_init__(self) -> None:
        """Refuse a warm-up that leaves no request, and capacities or chunks that are no sizes."""
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is {self.warmup}; accepted: 0 up to, not including, 1")
        if any(not 0 <= gib < float("inf") for gib in self.host_gib):
            raise ValueError(f"host_gib is {self.host_gib}; accepted: GiB per rank from 0 up")


@dataclass(frozen=True, slots=True)
class Answer:
    """One GPU's part of a plan.

    `ttft` is at the recommended capacity, or where 99 % of the saving is reached; `card` holds
    engines' settings for the recommended capacity, or for the only one asked for; None without one.
    `simulated` is the tier that was simulated, of which `prediction` holds a step curve; `curve` is then
    the one-pass prediction it is compared with.
    """

    prediction: Prediction
    verdict: Verdict
    rows: tuple[CapacityRow, ...]
    ttft: TtftChange
    card: Card | None
    simulated: "SimulatedTier | None" = None
    curve: Prediction | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What `predict` answers with: the stream it judged, and one Answer per GPU."""

    trace: Trace
    order: Order
    options: Options
    first_request: int
    answers: tuple[Answer, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdmissionStudy:
    """Rules of write admission compared on one stream, one answer a GPU."""

    trace: Trace
    order: Order
    options: Options
    first_request: int
    candidates: "tuple[Candidate, ...]"
    answers: "tuple[AdmissionAnswer, ...]"
    assumptions: tuple[str, ...]
