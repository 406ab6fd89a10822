"""Advice: which rule of write admission to set at a capacity, if any, and why."""

from collections.abc import Sequence

from capplan.admission_candidates import NO_RULE
from capplan.admission_outcome import CORNERS, Outcome, compare_times
from capplan.costs import Triple
from capplan.prediction import TYPICAL
from capplan.units import format_seconds, format_tokens

# A rule is worth setting where it gains this share of all prefill time, or costs no more than this other one and
# saves this share of the writes.
GAIN_SHARE = 0.01
SAME_SHARE = 0.001
WRITES_SHARE = 0.25
NO_TIER = "no host tier"
DOUBT = ", not at every end of the uncertain inputs"


def advise(outcomes: Sequence[Outcome], without_s: Triple, can_restore: bool = True) -> tuple[str, str]:
    """Which rule to set at a capacity, or that no host tier is better, and why (docs/model.md section 6).

    The rule with the most net time, where it gains 1 % of all prefill time on the tier without one, or where that
    one restores nothing or loses time; else one that costs no more than 0.1 % whatever the uncertain inputs are and
    saves a quarter of the writes; else no rule. No host tier where none saves time against that.

    Parameters
    ----------
    outcomes : Outcomes
        The tier without a rule first; those that are no setting are left out.
    without_s : Triple
        Seconds of prefill without a host tier.
    can_restore : bool
        Whether a tier without limit would restore anything.

    Returns
    -------
    label, reason : str
        The label is an outcome's, or `NO_TIER`.
    """
    none, settable = outcomes[0], [outcome for outcome in outcomes if outcome.is_setting]
    if not any(outcome.totals.restored_tokens for outcome in settable):
        small = "the tier is too small to restore anything under any rule"
        return NO_TIER, small if can_restore else "a tier of any size restores nothing"
    best = max(settable, key=lambda outcome: (outcome.net_s(), -outcome.totals.written_tokens))
    if best.net_s() <= 0:
        return NO_TIER, _say_loss(best, none, settable)
    gain = best.net_s() - none.net_s()
    if gain > GAIN_SHARE * without_s.typical or none.net_s() < 0 or not none.totals.restored_tokens:
        return best.label, _say_gain(best, none)
    return _spare_writes(none, settable[1:], without_s)


def _say_loss(best: Outcome, none: Outcome, settable: Sequence[Outcome]) -> str:
    if not none.totals.restored_tokens:
        most = max(settable, key=lambda outcome: outcome.totals.restored_tokens)
        restored = format_tokens(most.totals.restored_tokens)
        return (
            f"the tier restores nothing without a rule, at most {restored} tokens with {most.label}: it saves no time"
        )
    if not best.totals.restored_tokens:
        return f"the tier loses time wherever it restores anything, which it does not with {best.label}"
    doubt = DOUBT if max(best.net_s(corner) for corner in CORNERS) >= 0 else ""
    least = "without one" if best is none else f"with {best.label}"
    return f"the tier loses time with and without a rule, least {least}: {format_seconds(-best.net_s())}{doubt}"


def _say_gain(best: Outcome, none: Outcome) -> str:
    change = compare_times(best, none)
    flaw = ""
    if not none.totals.restored_tokens:
        flaw = ", which restores nothing"
    elif none.net_s() < 0:
        flaw = f", which loses time against {NO_TIER}"
    return f"saves {format_seconds(change.typical)} more than {NO_RULE}{flaw}{'' if change.low > 0 else DOUBT}"


def _spare_writes(none: Outcome, rules: Sequence[Outcome], without_s: Triple) -> tuple[str, str]:
    """The rule that saves most writes among those that cost no time."""
    written = none.copied_tokens
    spared = [
        (written - outcome.copied_tokens, outcome)
        for outcome in rules
        if outcome.net_s() > 0 and _costs_at_most(outcome, none, without_s)
    ]
    most, sparing = max(spared, key=lambda pair: pair[0], default=(0, none))
    if most <= WRITES_SHARE * written:
        return NO_RULE, "none of the rules gains 1 % of prefill time, or saves a quarter of the writes at no cost"
    same = f"same time as {NO_RULE} within 0.1 % of prefill"
    if not _costs_at_most(none, sparing, without_s):
        same = f"at most 0.1 % of prefill slower than {NO_RULE}"
    return sparing.label, f"{same}, {100 * most / written:.0f} % fewer writes"


def _costs_at_most(outcome: Outcome, other: Outcome, without_s: Triple) -> bool:
    """Whether an outcome is at most 0.1 % of prefill time slower than another, whatever the uncertain inputs are."""
    return all(
        other.net_s(corner) - outcome.net_s(corner) <= SAME_SHARE * without_s[corner.prefill]
        for corner in (TYPICAL, *CORNERS)
    )
