"""TierRun: what a tier did to every request at one capacity, and what that comes to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capplan.kernels.gate import Decisions

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TierRun:
    """One simulation, in stream order; units of `unit_tokens` tokens.

    Attributes
    ----------
    n_slots, unit_tokens : int
    n_tokens : (n,) int64
        Prompt tokens.
    gpu_tokens, gpu_forced_tokens : (n,) int64
        Tokens the GPU tier serves, and those it computes again of a prompt it holds whole.
    found_tokens : (n,) int64
        End of what the host tier finds, in whole units from token 0; 0 where it finds nothing.
    written, evicted, duplicates, refused : (n,) int32
        Units stored; dropped for them; copied though resident; offered without room.
    declined : (n,) int64
        Units that write admission kept out.
    decisions : Decisions or None
        What each decision of a rule rested on.
    rule_slots : int
        Slots the rule reckoned with.
    min_load_tokens : int
        Hits that would load fewer tokens are not loaded.
    full_hit_tokens : int
        Of a prompt it holds whole, the last token is computed (1), or the last unit.
    """

    n_slots: int
    unit_tokens: int
    n_tokens: Int64s
    gpu_tokens: Int64s
    gpu_forced_tokens: Int64s
    found_tokens: Int64s
    written: Int32s
    evicted: Int32s
    duplicates: Int32s
    refused: Int32s
    declined: Int64s
    decisions: Decisions | None = None
    rule_slots: int = 0
    min_load_tokens: int = 0
    full_hit_tokens: int = 1

    @property
    def covered_tokens(self) -> Int64s:
        """Tokens a load brings the prompt up to, `c_r`: at least one is always computed; (n,)."""
        limit = np.maximum(self.n_tokens - 1, 0) // self.full_hit_tokens * self.full_hit_tokens
        covered = np.minimum(self.found_tokens, limit)
        gain = covered - self.gpu_tokens
        return np.where((gain > 0) & (gain < self.min_load_tokens), 0, covered)

    @property
    def known_tokens(self) -> Int64s:
        """Tokens that need no computing, from either tier; (n,)."""
        return np.maximum(self.gpu_tokens, self.covered_tokens)

    @property
    def restored_tokens(self) -> Int64s:
        """Tokens restored from the host; (n,)."""
        return self.known_tokens - self.gpu_tokens

    @property
    def moved_tokens(self) -> Int64s:
        """Tokens of the units that are loaded whole; (n,)."""
        begin = self.gpu_tokens // self.unit_tokens * self.unit_tokens
        return np.where(self.restored_tokens > 0, np.maximum(self.found_tokens - begin, 0), 0)

    @property
    def computed_tokens(self) -> Int64s:
        """Tokens computed; with the GPU's and the restored ones they make up the prompt; (n,)."""
        return self.n_tokens - self.known_tokens

    @property
    def forced_tokens(self) -> Int64s:
        """Tokens computed although a tier holds the whole prompt; (n,)."""
        is_whole = (self.gpu_forced_tokens > 0) | ((self.found_tokens >= self.n_tokens) & (self.n_tokens > 0))
        return np.where(is_whole, self.computed_tokens, 0)


@dataclass(frozen=True, slots=True)
class TierTotals:
    """Sums over the counted requests; units in tokens."""

    requests: int
    prompt_tokens: int
    gpu_tokens: int
    host_covered_tokens: int
    restored_tokens: int
    moved_tokens: int
    loading_requests: int
    computed_tokens: int
    forced_recompute_tokens: int
    written_tokens: int
    evicted_tokens: int
    duplicate_tokens: int
    refused_tokens: int
    declined_tokens: int
    declined_requests: int


def sum_run(run: TierRun, first_request: int = 0) -> TierTotals:
    """Totals of a run from a stream position on."""
    counted = slice(first_request, None)

    def total(values: NDArray[np.integer]) -> int:
        return int(values[counted].sum(dtype=np.int64))

    unit = run.unit_tokens
    declined = run.decisions.is_declined[counted] if run.decisions is not None else np.zeros(0, bool)
    return TierTotals(
        requests=run.n_tokens[counted].size,
        prompt_tokens=total(run.n_tokens),
        gpu_tokens=total(run.gpu_tokens),
        host_covered_tokens=total(run.found_tokens),
        restored_tokens=total(run.restored_tokens),
        moved_tokens=total(run.moved_tokens),
        loading_requests=int((run.restored_tokens[counted] > 0).sum()),
        computed_tokens=total(run.computed_tokens),
        forced_recompute_tokens=total(run.forced_tokens),
        written_tokens=total(run.written) * unit,
        evicted_tokens=total(run.evicted) * unit,
        duplicate_tokens=total(run.duplicates) * unit,
        refused_tokens=total(run.refused) * unit,
        declined_tokens=total(run.declined) * unit,
        declined_requests=int(declined.sum()),
    )
