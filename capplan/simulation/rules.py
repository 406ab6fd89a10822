"""Write admission rules of a simulation, and a preset's words as the numbers kernels read."""

from dataclasses import dataclass
from typing import Literal

from capplan.kernels import gate, recency, tier_rules
from capplan.simulation.presets import Policy, TierPreset

RuleName = Literal["none", "fixed", "conditioned"]

_KINDS = {"none": gate.NONE, "fixed": gate.FIXED, "conditioned": gate.CONDITIONED}
_POLICIES = {"lru": recency.LRU, "fifo": recency.FIFO, "mru": recency.MRU, "lfu": recency.LFU}
_TOUCHES = {"none": tier_rules.TOUCH_NONE, "hits": tier_rules.TOUCH_HITS, "path": tier_rules.TOUCH_PATH,
            "used": tier_rules.TOUCH_USED}  # fmt: skip
_STARTS = {"zero": tier_rules.FROM_ZERO, "gpu-end": tier_rules.FROM_GPU, "gpu-hit": tier_rules.FROM_GPU,
           "host-hit": tier_rules.FROM_HOST}  # fmt: skip
_ROOMS = {"keep-prefix": tier_rules.ROOM_BY_TURNS, "refuse": tier_rules.ROOM_OR_REFUSE, "skip": tier_rules.ROOM_OR_SKIP}


@dataclass(frozen=True, slots=True)
class AdmissionRule:
    """A rule of write admission and its constants (docs/model.md section 6).

    Attributes
    ----------
    kind : "none", "fixed" or "conditioned"
    kappa : float
        New full chunks a request may have; more are declined (under pressure).
    theta : float
        Share of its slots from which on a tier counts as full.
    window_s, n_recent
        Seconds that tasks and evictions count, and first lookups that make the mean prompt.
    report_period_s, read_interval_s, max_age_s
        How often the tier reports (0: at every moment), how often a decision reads it anew, and how old
        a report may be.
    """

    kind: RuleName = "none"
    kappa: float = 8
    theta: float = 0.95
    window_s: float = 60.0
    n_recent: int = 256
    report_period_s: float = 1.0
    read_interval_s: float = 0.5
    max_age_s: float = 5.0

    @property
    def label(self) -> str:
        """The rule in short."""
        return self.kind if self.kind == "none" else f"{self.kind} kappa {self.kappa:g}"

    def for_tier(self, capacity_bytes: int, kv_bytes_per_token: int, n_slots: int) -> gate.GateRules:
        """The numbers kernels read, for a tier of one capacity."""
        return gate.GateRules(
            _KINDS[self.kind],
            float(self.kappa),
            float(self.theta),
            float(self.window_s),
            self.n_recent,
            float(self.report_period_s),
            float(self.read_interval_s),
            float(self.max_age_s),
            float(capacity_bytes),
            float(kv_bytes_per_token),
            n_slots,
        )


def read_rules(
    preset: TierPreset, n_slots: int, unit_tokens: int, policy: Policy, step_tokens: int, min_offers: int
) -> tier_rules.Rules:
    """A preset of kind "inclusive" as numbers, for one capacity."""
    return tier_rules.Rules(
        n_slots=n_slots,
        unit_tokens=unit_tokens,
        lookup_from=_STARTS[preset.lookup_from],
        touch=_TOUCHES[preset.touch],
        settles=_TOUCHES[preset.settles],
        touches_tail_first=preset.touch_order == "tail-first",
        inserts_tail_first=preset.insert_order == "tail-first",
        stores_outputs=preset.stores != "prompts",
        store_from=_STARTS[preset.store_from],
        drops_duplicates=preset.dedup,
        room=_ROOMS[preset.overflow],
        retries=preset.retries,
        protects_offer=preset.protects_offer,
        step_tokens=step_tokens,
        min_offers=min_offers,
        watermark=float(preset.watermark),
        sweep_share=float(preset.evict_fraction),
        sweep_period_s=float(preset.evict_period_s),
    )


def policy_number(policy: Policy) -> int:
    """How kernels number an eviction policy."""
    return _POLICIES[policy]
