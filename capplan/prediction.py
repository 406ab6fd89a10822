"""Prediction: tiers and costs together, at every host capacity and at the ones that are shown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.costs import Costs, Triple
from capplan.deployment import Deployment
from capplan.economics import flop_per_link_byte, gamma_gpu, gamma_host, obr, reuse_working_set_bytes
from capplan.saving import Savings
from capplan.tiers import TierCurves
from capplan.units import GIB, bytes_to_gib, gib_to_bytes, round_up

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

TRANSITION_SHARES = (0.10, 0.50, 0.90, 0.99)
HOURS_PER_MONTH = 365.25 * 24 / 12
SPACING = 1.02
GRID_SHARES = (0.001, 0.01, 0.02, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class Workload:
    """What a prediction takes from the stream besides the tiers.

    Attributes
    ----------
    mean_prompt_tokens : float
    longest_prompt_tokens : int
    concurrent_tasks : float or None
        `A`: the pool, or the time average of open tasks; None where unknown.
    span_s : float or None
        From the first counted request to the last response; None without a clock.
    first_use_share : float
        Share of prompt tokens that no host tier could have held: first use, and tails of chunks.
    small_chunk_tokens, small_chunk_gain_tokens : int or None
        A smaller chunk, and the tokens it would restore beyond the chosen one; None where the trace
        is too coarse.
    """

    mean_prompt_tokens: float
    longest_prompt_tokens: int
    concurrent_tasks: float | None
    span_s: float | None
    first_use_share: float
    small_chunk_tokens: int | None = None
    small_chunk_gain_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """What the user pays: host memory, dollars per GiB; a GPU, dollars per hour."""

    dram_usd_per_gib: float
    gpu_usd_per_hour: float


class Corner(NamedTuple):
    """Which end (0 low, 1 typical, 2 high) of prefill time, restore rate and load time."""

    prefill: int
    rate: int
    load: int


TYPICAL, WORST, BEST = Corner(1, 1, 1), Corner(0, 0, 2), Corner(2, 2, 0)


class Measured(NamedTuple):
    """What two tiers do at one host capacity: tokens, requests that load, and seconds of prefill saved."""

    covered_tokens: int
    gpu_tokens: int
    restored_tokens: int
    moved_tokens: int
    loads: int
    written_tokens: int
    forced_tokens: int
    saved_s: Triple


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """One host capacity; every field carries its unit, shares are of prompt tokens (0-1).

    Times are typical; `_low` and `_high` are the ends of their own input, `_worst` and `_best` the
    corners where every uncertain input is against the tier, or for it. Dollars and hours are of one
    model replica (a tensor-parallel group) and month; dollars are None without prices, what is per month
    without a clock.
    """

    host_gib_per_rank: float
    host_gib_per_node: float
    slots: int
    host_covered_tokens: int
    host_covered_share: float
    gpu_tokens: int
    gpu_share: float
    restored_tokens: int
    restored_share: float
    moved_tokens: int
    moved_share: float
    loading_requests: int
    written_tokens: int
    written_share: float
    computed_tokens: int
    computed_share: float
    forced_recompute_tokens: int
    prefill_saved_s: float
    prefill_saved_s_low: float
    prefill_saved_s_high: float
    prefill_saved_share: float
    prefill_saved_s_per_hour: float | None
    restore_s: float
    restore_s_at_low_rate: float
    restore_s_at_high_rate: float
    net_saved_s: float
    net_saved_s_at_low_rate: float
    net_saved_s_at_high_rate: float
    net_saved_s_worst: float
    net_saved_s_best: float
    write_gib_per_s: float | None
    gamma_host: float | None
    dram_usd: float | None
    gpu_hours_saved_per_month: float | None
    gpu_usd_saved_per_month: float | None
    payback_months: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A deployment's answer at every host capacity.

    `slots` counts chunks of `tiers.chunk_tokens` tokens per rank; everything is constant from
    `tiers.n_distinct` slots on. Net time is prefill time saved less restore time.
    """

    deployment: Deployment
    costs: Costs
    tiers: TierCurves
    savings: Savings
    workload: Workload
    prices: Prices | None = None

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk on one rank."""
        return self.tiers.chunk_tokens * self.deployment.kv_bytes_per_token

    def slots_at(self, gib_per_rank: float) -> int:
        """Slots `K` of a capacity."""
        return gib_to_bytes(gib_per_rank) // self.chunk_bytes

    def gib_at(self, slots: int) -> float:
        """GiB per rank that hold so many slots."""
        return bytes_to_gib(slots * self.chunk_bytes)

    @property
    def saving_tokens(self) -> Int64s:
        """saving(K) = U(0) - U(K) in tokens: what the host tier restores, (D + 1,)."""
        return self.tiers.restored_tokens

    def restore_seconds(self, corner: Corner = TYPICAL) -> Float64s:
        """Seconds spent on restores at `K` = 0 .. D slots, (D + 1,)."""
        costs, tiers = self.costs, self.tiers
        rate, load_s = costs.h2d_bytes_per_s[corner.rate], costs.load_s[corner.load]
        return costs.restore_seconds(tiers.moved_tokens, tiers.loads, rate, load_s)

    def net_seconds(self, corner: Corner = TYPICAL) -> Float64s:
        """Prefill time saved less restore time, at a corner of the uncertain inputs, (D + 1,)."""
        return self.savings.saved_s[corner.prefill] - self.restore_seconds(corner)

    def find_slots(self, share: float) -> int:
        """Smallest number of slots that saves such a share of what an unlimited tier saves."""
        saving = self.saving_tokens
        needed = Fraction(str(share)) * int(saving[-1])
        return int(np.argmax(saving >= math.ceil(needed)))

    @property
    def reuse_bytes(self) -> float | None:
        """`C_reuse` in bytes per rank; None where concurrency is unknown."""
        if self.workload.concurrent_tasks is None:
            return None
        return reuse_working_set_bytes(
            self.workload.concurrent_tasks, self.workload.mean_prompt_tokens, self.deployment.kv_bytes_per_token
        )

    @property
    def gamma_gpu(self) -> float | None:
        """`gamma_G`; None where concurrency is unknown or there is no GPU tier."""
        if self.workload.concurrent_tasks is None or self.deployment.gpu_slots == 0:
            return None
        return gamma_gpu(
            self.workload.concurrent_tasks, self.workload.mean_prompt_tokens, self.deployment.gpu_kv_tokens
        )

    @property
    def flop_per_link_byte(self) -> float:
        """Peak dense BF16 FLOP per byte of the host link: ranks GPUs, and does not give the sign of `obr`."""
        gpu = self.deployment.gpu
        return flop_per_link_byte(gpu.peak_flops("bf16"), gpu.link_bytes_per_s)

    def mean_restore_tokens(self, slots: int) -> float:
        """Tokens a loading request restores in the mean; NaN where nothing is restored."""
        k = min(slots, self.tiers.n_distinct)
        loads = int(self.tiers.loads[k])
        return int(self.tiers.restored_tokens[k]) / loads if loads else math.nan

    def obr(self, n_tokens: float, rate: float, end: int = 1) -> float:
        """OBR of restoring so many tokens at a restore rate, and an end of prefill and load time."""
        per_token = self.savings.mean_s_per_token[end]
        load_s = self.costs.load_s[2 - end] + self.costs.load_s_per_token * n_tokens
        return obr(n_tokens, per_token, self.deployment.kv_bytes_per_token, rate, load_s)

    def smallest_restore_tokens(self, corner: Corner = TYPICAL) -> float:
        """Tokens from which a restore is faster than computing them; infinite where none is."""
        spare = self.savings.mean_s_per_token[corner.prefill] - self.costs.restore_s_per_token(
            self.costs.h2d_bytes_per_s[corner.rate]
        )
        return self.costs.load_s[corner.load] / spare if spare > 0 else math.inf

    def row_at(self, gib_per_rank: float) -> CapacityRow:
        """Everything predicted for one host capacity."""
        slots = self.slots_at(gib_per_rank)
        return self.make_row(gib_per_rank, slots, self.measure(min(slots, self.tiers.n_distinct)))

    def measure(self, k: int) -> Measured:
        """What the tiers do at `k` slots, at most `tiers.n_distinct`."""
        tiers = self.tiers
        return Measured(
            covered_tokens=int(tiers.coverage.covered_tokens(k)),
            gpu_tokens=tiers.gpu_tokens,
            restored_tokens=int(tiers.restored_tokens[k]),
            moved_tokens=int(tiers.moved_tokens[k]),
            loads=int(tiers.loads[k]),
            written_tokens=int(tiers.coverage.written(k)) * tiers.chunk_tokens,
            forced_tokens=int(tiers.forced_tokens[k]),
            saved_s=Triple(*(float(saved[k]) for saved in self.savings.saved_s)),
        )

    def make_row(self, gib_per_rank: float, slots: int, found: Measured) -> CapacityRow:
        """A row of what was measured at a host capacity."""
        span, reuse = self.workload.span_s, self.reuse_bytes
        low, typical, high = found.saved_s
        restore = [self._restore_s(found, Corner(1, rate, 1)) for rate in range(3)]
        net = typical - restore[1]
        computed = self.tiers.prompt_tokens - found.gpu_tokens - found.restored_tokens
        return CapacityRow(
            host_gib_per_rank=gib_per_rank,
            host_gib_per_node=gib_per_rank * self.deployment.host_copies,
            slots=slots,
            host_covered_tokens=found.covered_tokens,
            host_covered_share=self._share(found.covered_tokens),
            gpu_tokens=found.gpu_tokens,
            gpu_share=self._share(found.gpu_tokens),
            restored_tokens=found.restored_tokens,
            restored_share=self._share(found.restored_tokens),
            moved_tokens=found.moved_tokens,
            moved_share=self._share(found.moved_tokens),
            loading_requests=found.loads,
            written_tokens=found.written_tokens,
            written_share=self._share(found.written_tokens),
            computed_tokens=computed,
            computed_share=self._share(computed),
            forced_recompute_tokens=found.forced_tokens,
            prefill_saved_s=typical,
            prefill_saved_s_low=low,
            prefill_saved_s_high=high,
            prefill_saved_share=typical / self.savings.without_s.typical if self.savings.without_s.typical > 0 else 0.0,
            prefill_saved_s_per_hour=typical / span * 3600 if span else None,
            restore_s=restore[1],
            restore_s_at_low_rate=restore[0],
            restore_s_at_high_rate=restore[2],
            net_saved_s=net,
            net_saved_s_at_low_rate=typical - restore[0],
            net_saved_s_at_high_rate=typical - restore[2],
            net_saved_s_worst=low - self._restore_s(found, WORST),
            net_saved_s_best=high - self._restore_s(found, BEST),
            write_gib_per_s=found.written_tokens * self.deployment.kv_bytes_per_token / span / GIB if span else None,
            gamma_host=gamma_host(reuse, gib_per_rank * GIB) if reuse is not None and gib_per_rank > 0 else None,
            **self._pay(gib_per_rank, net),
        )

    def _restore_s(self, found: Measured, corner: Corner) -> float:
        costs = self.costs
        per_token = costs.restore_s_per_token(costs.h2d_bytes_per_s[corner.rate])
        return found.moved_tokens * per_token + found.loads * costs.load_s[corner.load]

    def _pay(self, gib_per_rank: float, net_s: float) -> dict[str, float | None]:
        """Dollars of memory, GPU hours and dollars saved per month, and months until they meet."""
        span, prices = self.workload.span_s, self.prices
        hours = net_s * self.deployment.tp / span * HOURS_PER_MONTH if span else None
        if prices is None:
            return {
                "dram_usd": None,
                "gpu_hours_saved_per_month": hours,
                "gpu_usd_saved_per_month": None,
                "payback_months": None,
            }
        dram_usd = gib_per_rank * self.deployment.host_copies * prices.dram_usd_per_gib
        saved_usd = None if hours is None else hours * prices.gpu_usd_per_hour
        return {
            "dram_usd": dram_usd,
            "gpu_hours_saved_per_month": hours,
            "gpu_usd_saved_per_month": saved_usd,
            "payback_months": dram_usd / saved_usd if saved_usd is not None and saved_usd > 0 else None,
        }

    def _share(self, n_tokens: int) -> float:
        return n_tokens / self.tiers.prompt_tokens if self.tiers.prompt_tokens else 0.0


def choose_capacities(predictions: Sequence[Prediction], n_points: int = 20) -> list[float]:
    """Host capacities in GiB per rank that bracket where the curves move: 0 and about 20 more."""
    points = {
        round_up(prediction.gib_at(prediction.find_slots(share)))
        for prediction in predictions
        for share in GRID_SHARES
        if prediction.saving_tokens[-1] > 0
    } or {round_up(max(prediction.gib_at(prediction.tiers.n_distinct) for prediction in predictions))}
    ordered: list[float] = []
    for point in sorted(points - {0.0}):
        if not ordered or point > SPACING * ordered[-1]:
            ordered.append(point)
    if ordered:
        ordered[-1] = max(points)
    if len(ordered) > n_points:
        picked = np.unique(np.linspace(0, len(ordered) - 1, n_points).round().astype(int))
        ordered = [ordered[k] for k in picked]
    return [0.0, *ordered]
