"""Prediction: tiers and costs together, at every host capacity and at the ones that are shown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from capplan.costs import Costs
from capplan.deployment import Deployment
from capplan.economics import gamma_gpu, gamma_host, reuse_working_set_bytes
from capplan.tiers import TierCurves
from capplan.units import GIB, bytes_to_gib, gib_to_bytes, round_up

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

TRANSITION_SHARES = (0.10, 0.50, 0.90, 0.99)
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
class CapacityRow:
    """One host capacity; every field carries its unit, shares are of prompt tokens (0-1)."""

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
    prefill_saved_share: float
    prefill_saved_s_per_hour: float | None
    restore_s: float
    restore_s_at_low_rate: float
    restore_s_at_high_rate: float
    net_saved_s: float
    net_saved_s_at_low_rate: float
    net_saved_s_at_high_rate: float
    write_gib_per_s: float | None
    gamma_host: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A deployment's answer at every host capacity.

    `slots` counts chunks of `tiers.chunk_tokens` tokens per rank; everything is constant from
    `tiers.n_distinct` slots on. The net time at a rate is prefill time saved less restore time.
    """

    deployment: Deployment
    costs: Costs
    tiers: TierCurves
    workload: Workload

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

    def net_seconds(self, rate: float) -> Float64s:
        """Prefill time saved less restore time at a restore rate in bytes/s, (D + 1,)."""
        tiers = self.tiers
        restore = self.costs.restore_seconds(tiers.moved_tokens, tiers.loads, rate)
        return self.costs.prefill_seconds(tiers.restored_tokens) - restore

    def find_slots(self, share: float) -> int:
        """Smallest number of slots that saves such a share of what an unlimited tier saves."""
        saving = self.saving_tokens
        return int(np.searchsorted(saving, math.ceil(Fraction(str(share)) * int(saving[-1]))))

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

    def row_at(self, gib_per_rank: float) -> CapacityRow:
        """Everything predicted for one host capacity."""
        tiers, costs = self.tiers, self.costs
        slots = self.slots_at(gib_per_rank)
        k = min(slots, tiers.n_distinct)
        restored, moved, loads = (int(a[k]) for a in (tiers.restored_tokens, tiers.moved_tokens, tiers.loads))
        covered = int(tiers.coverage.covered_tokens(k))
        written = int(tiers.coverage.written(k)) * tiers.chunk_tokens
        computed = int(tiers.computed_tokens[k])
        saved_s = restored * costs.prefill_s_per_token
        restore_s = [
            moved * (costs.kv_bytes_per_token / rate + costs.load_s_per_token) + loads * costs.load_s
            for rate in costs.h2d_bytes_per_s
        ]
        without_s = int(tiers.computed_tokens[0]) * costs.prefill_s_per_token
        span = self.workload.span_s
        reuse = self.reuse_bytes
        return CapacityRow(
            host_gib_per_rank=gib_per_rank,
            host_gib_per_node=gib_per_rank * self.deployment.host_copies,
            slots=slots,
            host_covered_tokens=covered,
            host_covered_share=self._share(covered),
            gpu_tokens=tiers.gpu_tokens,
            gpu_share=self._share(tiers.gpu_tokens),
            restored_tokens=restored,
            restored_share=self._share(restored),
            moved_tokens=moved,
            moved_share=self._share(moved),
            loading_requests=loads,
            written_tokens=written,
            written_share=self._share(written),
            computed_tokens=computed,
            computed_share=self._share(computed),
            forced_recompute_tokens=int(tiers.forced_tokens[k]),
            prefill_saved_s=saved_s,
            prefill_saved_share=saved_s / without_s if without_s > 0 else 0.0,
            prefill_saved_s_per_hour=saved_s / span * 3600 if span else None,
            restore_s=restore_s[1],
            restore_s_at_low_rate=restore_s[0],
            restore_s_at_high_rate=restore_s[2],
            net_saved_s=saved_s - restore_s[1],
            net_saved_s_at_low_rate=saved_s - restore_s[0],
            net_saved_s_at_high_rate=saved_s - restore_s[2],
            write_gib_per_s=written * costs.kv_bytes_per_token / span / GIB if span else None,
            gamma_host=gamma_host(reuse, gib_per_rank * GIB) if reuse is not None and gib_per_rank > 0 else None,
        )

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
