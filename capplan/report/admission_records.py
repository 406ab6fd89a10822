"""Rules of write admission as JSON and CSV."""

import csv
import io
import math
from dataclasses import asdict
from typing import Any

from capplan.admission_candidates import Candidate
from capplan.admission_outcome import Outcome, compare_times
from capplan.admission_study import AdmissionAnswer, CapacityStudy
from capplan.costs import Triple
from capplan.plan import AdmissionStudy
from capplan.report import as_json
from capplan.report.admission_notes import list_notes
from capplan.report.tier import describe_settings
from capplan.report.tier_warnings import list_study_warnings


def render_json(study: AdmissionStudy) -> str:
    """Everything of the tables as one JSON object, format 1."""
    record = {
        "format": as_json.FORMAT_VERSION,
        "trace": as_json.describe_trace(study),
        "order": as_json.describe_order(study),
        "studies": [describe_answer(study, answer) for answer in study.answers],
    }
    return as_json.dump(record)


def describe_answer(study: AdmissionStudy, answer: AdmissionAnswer) -> dict[str, Any]:
    """One GPU."""
    return {
        "inputs": as_json.describe_inputs(study, answer.prediction),
        "tier": describe_settings(answer.tier.settings, answer.tier.stream.unit_tokens),
        "capacities": [
            {
                "host_gib_per_rank": capacity.host_gib_per_rank,
                "slots": capacity.slots,
                "recommended": capacity.best,
                "reason": capacity.advice,
                "computed_tokens_without_host_tier": capacity.alone_tokens,
                "rules": [
                    describe_outcome(answer, capacity, candidate, outcome)
                    for candidate, outcome in zip(study.candidates, capacity.outcomes, strict=True)
                ],
            }
            for capacity in answer.capacities
        ],
        "warnings": list_study_warnings(study, answer),
        "assumptions": list_notes(study, answer),
    }


def describe_outcome(
    answer: AdmissionAnswer, capacity: CapacityStudy, candidate: Candidate, outcome: Outcome
) -> dict[str, Any]:
    """One rule at one capacity."""
    unit = answer.tier.stream.unit_tokens
    return {
        "rule": outcome.label,
        "constants": describe_constants(candidate),
        "is_setting": outcome.is_setting,
        "is_simulated": outcome.is_simulated,
        **asdict(outcome.totals),
        "declined_never_reused_tokens": outcome.declined.never * unit,
        "declined_reused_beyond_tokens": outcome.declined.beyond * unit,
        "declined_would_hit_tokens": outcome.declined.would_hit * unit,
        "lost_tokens": outcome.lost_tokens,
        "gained_tokens": outcome.gained_tokens,
        "prefill_saved_s": outcome.saved_s._asdict(),
        "restore_s": outcome.restore_s,
        "write_s": outcome.write_s,
        "link_saved_s": capacity.none.link_s - outcome.link_s,
        "net_s_against_no_rule": _name_span(compare_times(outcome, capacity.none)),
        "net_s_against_no_host_tier": _name_span(compare_times(outcome)),
        "same_for_kappa": outcome.kappa_range,
        "same_for_theta": outcome.theta_range,
    }


def describe_constants(candidate: Candidate) -> dict[str, Any]:
    """The numbers a rule rests on; None for those it does not have."""
    rule, settings = candidate.settings.rule, candidate.settings
    own = {"none": ("kind",), "fixed": ("kind", "kappa")}.get(rule.kind)
    constants = {name: value if own is None or name in own else None for name, value in asdict(rule).items()}
    return {
        **constants,
        "store_threshold": settings.min_offers,
        "stores": settings.preset.stores,
        "leaves_resident_out": settings.preset.dedup,
    }


def _name_span(seconds: Triple) -> dict[str, float]:
    return {"least": seconds.low, "typical": seconds.typical, "most": seconds.high}


def render_csv(study: AdmissionStudy) -> str:
    """One row per GPU, capacity and rule."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for answer in study.answers:
        for capacity in answer.capacities:
            for candidate, outcome in zip(study.candidates, capacity.outcomes, strict=True):
                record = _flatten(answer, capacity, candidate, outcome)
                if writer is None:
                    writer = csv.DictWriter(out, list(record), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(record)
    return out.getvalue()


def _flatten(
    answer: AdmissionAnswer, capacity: CapacityStudy, candidate: Candidate, outcome: Outcome
) -> dict[str, Any]:
    deployment = answer.prediction.deployment
    record: dict[str, Any] = {
        "gpu": deployment.gpu.name,
        "model": deployment.model.name,
        "tp": deployment.tp,
        "tier": answer.tier.settings.preset.name,
        "host_gib_per_rank": capacity.host_gib_per_rank,
        "slots": capacity.slots,
        "is_recommended": outcome.label == capacity.best,
    }
    for key, value in describe_outcome(answer, capacity, candidate, outcome).items():
        if isinstance(value, dict):
            record |= {f"{key}_{name}": item for name, item in value.items()}
        elif isinstance(value, tuple):
            record |= {
                f"{key}_{end}": _empty_if_infinite(bound) for end, bound in zip(("from", "to"), value, strict=True)
            }
        else:
            record[key] = value
    return record


def _empty_if_infinite(value: float) -> float | None:
    return value if math.isfinite(value) else None
