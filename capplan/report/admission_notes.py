"""What a study of write admission assumes, and what its columns mean."""

from collections.abc import Sequence

from capplan.admission_advice import NO_TIER
from capplan.admission_candidates import DEDUP, NO_RULE
from capplan.admission_study import AdmissionAnswer
from capplan.plan import AdmissionStudy
from capplan.report.sentences import list_cost_notes


def list_notes(study: AdmissionStudy, answer: AdmissionAnswer) -> list[str]:
    """Every assumption that changes the answer."""
    labels = [one.label for one in study.candidates]
    own = [f"{NO_RULE} is the tier as released, without a rule of write admission; {NO_TIER} leaves the GPU's alone"]
    if answer.tier.settings.preset.kind == "radix":
        own.append(
            "second hit and on eviction: the engine's other write policies, copying at a node's second insertion, "
            f"and when the device evicts it; {NO_RULE} copies at the first insertion"
        )
    else:
        own += list_rule_notes(labels)
    effects = [f"`{one.label}`" for one in study.candidates if not one.is_setting]
    if effects:
        own.append(f"{' and '.join(effects)} is no setting of the engine: it shows an effect and is never advised")
    return [
        *own,
        "lost: tokens of requests that are computed under the rule and not without one; gained: the other way round",
        "link: bytes written, copied twice and restored over the typical rate of restores, without the fixed time of "
        "a load; net: prefill time saved less restore time, least and most over the ends of the uncertain inputs",
        *study.assumptions,
        *answer.prediction.deployment.notes,
        *list_cost_notes(answer.prediction),
    ]


def list_rule_notes(labels: Sequence[str]) -> list[str]:
    """What the rules do, and what their columns count."""
    kinds = ["fixed k declines a request with more than k new units"]
    if any(label.startswith("conditioned") for label in labels):
        at = " (@ theta)" if any("@" in label for label in labels) else ""
        kinds.append(f"conditioned k only under pressure{at}")
    if any(label.endswith("offers") for label in labels):
        kinds.append("k offers stores a unit from its k-th offer on; what it withholds before is in no column")
    others = (
        f"every rule leaves resident units out of a store, as the published connector does: what that does alone is "
        f"the row `{DEDUP}`"
        if DEDUP in labels
        else "every rule changes only what is written"
    )
    return [
        "; ".join(kinds),
        others,
        "declined: all full units behind the host's hit, those resident behind a hole too",
        "in vain: declined units not used again, or used again from a stack position beyond the capacity (P >= K in "
        "one LRU list of the whole stream); would hit: the rest",
    ]
