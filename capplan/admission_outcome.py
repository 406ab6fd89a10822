"""Outcome: what one rule of write admission does at one capacity, and between which constants it does the same."""

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from capplan.costs import Triple
from capplan.kernels.gate import Decisions
from capplan.prediction import TYPICAL, Corner
from capplan.simulation.next_uses import NextUses
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.tier_run import TierRun, TierTotals

Range = tuple[float, float]

EVERY: Range = (-math.inf, math.inf)
# Every combination of the ends of the uncertain inputs: a difference of two rules may be largest at any of them.
CORNERS = tuple(Corner(*ends) for ends in product((0, 2), repeat=3))


class Declined(NamedTuple):
    """Declined units by their next use, as an LRU stack of the whole stream has it.

    `never` are not used again, `beyond` are used again from a stack position `P >= K`, `would_hit` from a
    nearer one: what the rule may cost (Proposition 1 of the paper).
    """

    never: int
    beyond: int
    would_hit: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.never + self.beyond + self.would_hit


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rule at one capacity, against the tier without admission.

    Attributes
    ----------
    label : str
    rule : AdmissionRule
    is_simulated : bool
        False where another run's decisions hold for it too.
    totals : TierTotals
    saved_s : Triple
        Seconds of prefill saved against the tier of no capacity.
    copy_s, load_s : Triple
        Seconds restores take by the token, at the low, typical and high rate, and by the load.
    link_s, write_s : float
        Seconds of bytes over the typical rate of restores: all that is written, copied twice and restored, and
        what is written and copied twice alone.
    declined : Declined
        In units.
    lost_tokens, gained_tokens : int
        Tokens of requests that are computed under the rule and not without, and the other way round.
    kappa_range : (low, high)
        Whole values of kappa that make the same decisions, both included.
    theta_range : (low, high)
        Values of theta that do: above `low`, up to `high`.
    is_setting : bool
        Whether it can be set; else it shows an effect.
    """

    label: str
    rule: AdmissionRule
    is_simulated: bool
    totals: TierTotals
    saved_s: Triple
    copy_s: Triple
    load_s: Triple
    link_s: float
    write_s: float
    declined: Declined
    lost_tokens: int
    gained_tokens: int
    kappa_range: Range
    theta_range: Range
    is_setting: bool = True

    @property
    def restore_s(self) -> float:
        """Typical seconds of restores."""
        return self.copy_s.typical + self.load_s.typical

    @property
    def copied_tokens(self) -> int:
        """Tokens written, once or twice."""
        return self.totals.written_tokens + self.totals.duplicate_tokens

    def net_s(self, corner: Corner = TYPICAL) -> float:
        """Prefill time saved less restore time: what the tier gains on none at all."""
        return self.saved_s[corner.prefill] - self.copy_s[corner.rate] - self.load_s[corner.load]


def compare_times(outcome: Outcome, other: Outcome | None = None) -> Triple:
    """Net seconds of an outcome above those of another, or of no host tier: least, typical and most.

    Least and most over the ends of the uncertain inputs, the same ends for both.
    """
    corners = (TYPICAL, *CORNERS)
    changes = [outcome.net_s(corner) - (0.0 if other is None else other.net_s(corner)) for corner in corners]
    return Triple(min(changes), changes[0], max(changes))


def find_ranges(run: TierRun, rule: AdmissionRule, capacity_bytes: int) -> tuple[Range, Range]:
    """Values of kappa, and of theta, under which a run would have been the very same."""
    if run.decisions is None or rule.kind == "none":
        return EVERY, EVERY
    kappas = find_kappa_range(run.decisions, rule.kappa)
    return kappas, find_theta_range(run.decisions, rule, run.rule_slots, capacity_bytes)


def split_declined(run: TierRun, uses: NextUses, first_request: int = 0) -> Declined:
    """Declined units by whether, and from how far down the stack, they are used next.

    Parameters
    ----------
    run : TierRun
    uses : NextUses
        Of the stream the run saw.
    first_request : int
        Stream position from which on requests are counted.
    """
    n = run.n_tokens.size
    declined = run.declined.copy()
    declined[:first_request] = 0
    request = np.repeat(np.arange(n), np.diff(uses.offsets))
    found = run.found_tokens[request] // run.unit_tokens
    begin = np.maximum(uses.start, found)
    length = np.where(declined[request] > 0, np.maximum(uses.start + uses.length - begin, 0), 0)
    position = uses.position + (begin - uses.start)
    would_hit = int(np.clip(run.n_slots - position, 0, length).sum())
    used = int(length.sum())
    return Declined(int(declined.sum()) - used, used - would_hit, would_hit)


def find_kappa_range(decisions: Decisions, kappa: float) -> Range:
    """Whole values of kappa under which every decision would have been the same: the run would be too."""
    pressured = decisions.new_units[decisions.is_pressured]
    saved, declined = pressured[pressured <= kappa], pressured[pressured > kappa]
    low = float(saved.max()) if saved.size else -math.inf
    high = float(declined.min()) - 1 if declined.size else math.inf
    return low, high


def find_theta_range(decisions: Decisions, rule: AdmissionRule, n_slots: int, capacity_bytes: int) -> Range:
    """Values of theta under which every decision would have been the same: above the first, up to the second.

    Only decisions count that theta could turn: a report is fresh and holds evictions, the estimate says
    pressure, and the request has more than kappa new units.
    """
    if rule.kind != "conditioned" or n_slots == 0:
        return EVERY
    turns = decisions.is_fresh & (decisions.evictions > 0) & (decisions.new_units > rule.kappa)
    turns &= decisions.is_pressured | (decisions.estimate_bytes > capacity_bytes)
    filled = decisions.resident[turns] / n_slots
    pressured = decisions.is_pressured[turns]
    low = float(filled[~pressured].max()) if (~pressured).any() else -math.inf
    high = float(filled[pressured].min()) if pressured.any() else math.inf
    return low, high
