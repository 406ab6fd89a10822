"""TierSettings: a preset and what a user sets of it."""

from dataclasses import dataclass, field

from msgspec import structs

from capplan.errors import SpecError
from capplan.simulation.presets import End, Policy, Scope, TierPreset
from capplan.simulation.rules import AdmissionRule


@dataclass(frozen=True, slots=True)
class TierSettings:
    """What a user sets of a preset.

    Attributes
    ----------
    preset : TierPreset
    unit_tokens : int
    policy : Policy
    rule : AdmissionRule
    step_tokens : int
        Tokens of a prefill step, each of which stores; 0 stores a prompt in one call.
    min_offers : int
    """

    preset: TierPreset
    unit_tokens: int
    policy: Policy
    rule: AdmissionRule = field(default_factory=AdmissionRule)
    step_tokens: int = 0
    min_offers: int = 0

    @classmethod
    def of(cls, preset: TierPreset) -> "TierSettings":
        """A preset as it is released."""
        rule = AdmissionRule(preset.admission, preset.kappa)
        return cls(preset, preset.unit_tokens, preset.policy, rule, 0, preset.min_offers)

    def change(
        self,
        unit_tokens: int | None = None,
        policy: Policy | None = None,
        rule: AdmissionRule | None = None,
        step_tokens: int | None = None,
        min_offers: int | None = None,
        dedup: bool | None = None,
        stores: Scope | None = None,
        touch_order: End | None = None,
        insert_order: End | None = None,
    ) -> "TierSettings":
        """These settings with others where given.

        Raises
        ------
        SpecError
            A policy or a threshold the engine does not have.
        """
        preset = self.preset
        if policy is not None and policy not in (*preset.policies, "belady"):
            raise SpecError(
                f"tier {preset.name} has no policy '{policy}'; accepted: {', '.join(preset.policies)}, belady"
            )
        changed = {"dedup": dedup, "stores": stores, "touch_order": touch_order, "insert_order": insert_order}
        changed = {name: value for name, value in changed.items() if value is not None}
        if changed and preset.kind != "inclusive":
            raise SpecError(f"tier {preset.name} has {', '.join(changed)} of its own, which cannot be changed")
        preset = structs.replace(preset, **changed)
        if policy == "belady" and not preset.has_yardstick:
            raise SpecError(f"tier {preset.name}: Belady's policy is of prompts alone, looked up from token 0")
        if min_offers and not preset.counts_offers:
            raise SpecError(f"tier {preset.name} stores from the first offer on; a store threshold is of vllm-offload")
        return TierSettings(
            preset=preset,
            unit_tokens=self.unit_tokens if unit_tokens is None else unit_tokens,
            policy=self.policy if policy is None else policy,
            rule=self.rule if rule is None else rule,
            step_tokens=self.step_tokens if step_tokens is None else step_tokens,
            min_offers=self.min_offers if min_offers is None else min_offers,
        )

    @property
    def needs_times(self) -> bool:
        """Whether a rule looks at a clock."""
        return self.preset.evict_period_s > 0 or self.rule.kind == "conditioned"
