"""JSON, format 1: everything a later reader needs without computing anything again.

Keys carry their units; shares are fractions of 1; unknown and infinite numbers are null. The file
holds no time stamp: the same input gives the same bytes.
"""

import json
import math
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from capplan.order import Order
from capplan.plan import Answer, Options, Plan
from capplan.prediction import BEST, TYPICAL, WORST, CapacityRow, Corner, Prediction
from capplan.report.card import describe_card
from capplan.report.sentences import list_cost_notes
from capplan.trace import Trace

FORMAT_VERSION = 1
CURVE_STEPS = 2000
ENDS = ("low", "typical", "high")


class Planned(Protocol):
    """What every answer tells of its question: a plan, or a study."""

    @property
    def trace(self) -> Trace:
        """What was planned from."""

    @property
    def order(self) -> Order:
        """The stream."""

    @property
    def options(self) -> Options:
        """What was asked."""

    @property
    def first_request(self) -> int:
        """Stream position from which on requests are counted."""


def render(plan: Plan) -> str:
    """The plan as one JSON object."""
    record = {
        "format": FORMAT_VERSION,
        "trace": describe_trace(plan),
        "order": describe_order(plan),
        "predictions": [describe_answer(plan, answer) for answer in plan.answers],
    }
    return dump(record)


def dump(record: dict[str, Any]) -> str:
    """A record as JSON text, without what JSON cannot hold."""
    return json.dumps(_clean(record), indent=1, allow_nan=False) + "\n"


def describe_trace(plan: Planned) -> dict[str, Any]:
    """What was planned from."""
    requests = plan.trace.requests
    return {
        "source": plan.trace.source,
        "fingerprint": plan.trace.fingerprint,
        "requests": len(plan.trace),
        "sessions": len(requests.session.names) or None,
        "tasks": len(requests.task.names) or None,
        "input_tokens": int(requests.input_tokens.sum()),
        "output_tokens": int(requests.output_tokens.sum()),
        "resolution_tokens": plan.trace.resolution_tokens,
        "outputs_known": plan.trace.outputs_known,
        "notes": plan.trace.notes,
    }


def describe_order(plan: Planned) -> dict[str, Any]:
    """The stream: how requests were ordered and which of them count."""
    return {
        "kind": plan.order.kind,
        "pool_size": plan.order.pool_size,
        "warmup_requests": plan.first_request,
        "counted_requests": len(plan.trace) - plan.first_request,
    }


def describe_answer(plan: Plan, answer: Answer) -> dict[str, Any]:
    """One GPU: inputs, scale, grid, curve, verdict."""
    prediction, verdict = answer.prediction, answer.verdict
    return {
        "inputs": describe_inputs(plan, prediction),
        "scale": describe_scale(prediction),
        "rows": [describe_row(prediction, row) for row in answer.rows],
        "curve": sample_curve(prediction),
        "transitions": [
            {"saving_share": share, **_at(prediction, slots)} for share, slots in verdict.transitions.items()
        ],
        "knee": _at(prediction, verdict.knee_slots),
        "recommendation": _at(prediction, verdict.recommended_slots),
        "verdict": describe_verdict(answer),
        "restore": describe_restore(answer),
        "ttft": {**asdict(answer.ttft), **_at(prediction, answer.ttft.slots)},
        "card": None if answer.card is None else describe_card(answer.card),
        "warnings": verdict.warnings,
        "assumptions": [*plan.assumptions, *prediction.deployment.notes, *list_cost_notes(prediction)],
    }


def describe_row(prediction: Prediction, row: CapacityRow) -> dict[str, Any]:
    """One capacity: the columns of the tables, and the bytes and copies its restores move on one rank."""
    restore = prediction.costs.restore
    return {
        **asdict(row),
        "moved_bytes_per_rank": row.moved_tokens * prediction.deployment.kv_bytes_per_token,
        "moved_fragments_per_rank": None if restore is None else row.moved_tokens * restore.fragments_per_token,
    }


def describe_verdict(answer: Answer) -> dict[str, Any]:
    """The answer, the numbers that decide it, and the stretches of the curve."""
    prediction, verdict = answer.prediction, answer.verdict
    worst, typical, best = verdict.best_net_s
    return {
        "answer": verdict.answer,
        "reason": verdict.reason,
        "deciding_input": verdict.deciding,
        "best_net_saved_s": {"worst": worst, "typical": typical, "best": best},
        "break_even": asdict(verdict.break_even),
        "regimes": [
            {"from_slots": slots, "from_gib_per_rank": prediction.gib_at(slots), "regime": regime}
            for slots, regime in verdict.regimes
        ],
    }


def describe_restore(answer: Answer) -> dict[str, Any]:
    """Restores: how they copy, how fast, from what length they pay, and OBR by the way of copying."""
    prediction = answer.prediction
    restore = prediction.costs.restore
    n_tokens = prediction.mean_restore_tokens(answer.ttft.slots)
    return {
        "mean_restore_tokens": n_tokens,
        "smallest_restore_tokens": {
            name: prediction.smallest_restore_tokens(corner)
            for name, corner in (("worst", WORST), ("typical", TYPICAL), ("best", BEST))
        },
        "method": None if restore is None else restore.method,
        "layout": None if restore is None else restore.layout,
        "fragment_bytes": None if restore is None else restore.fragment_bytes,
        "fragments_per_token": None if restore is None else restore.fragments_per_token,
        "contiguous_bytes_per_s": None if restore is None else dict(zip(ENDS, restore.contiguous, strict=True)),
        "by_method": {
            method: {
                "bytes_per_s": dict(zip(ENDS, rates, strict=True)),
                "obr": {
                    end: prediction.obr(n_tokens, rate, k)
                    for k, (end, rate) in enumerate(zip(ENDS, rates, strict=True))
                },
            }
            for method, rates in prediction.costs.by_method.items()
        },
    }


def describe_inputs(plan: Planned, prediction: Prediction) -> dict[str, Any]:
    """Everything the numbers depend on besides the trace and the order."""
    deployment, costs, tiers = prediction.deployment, prediction.costs, prediction.tiers
    prices = prediction.prices
    return {
        "gpu": deployment.gpu.name,
        "gpu_title": deployment.gpu.title,
        "model": deployment.model.name,
        "tp": deployment.tp,
        "engine": plan.options.engine,
        "tier": "stack-distance" if plan.options.tier is None else plan.options.tier.preset.name,
        "kv_dtype": deployment.kv_dtype,
        "weight_dtype": deployment.weight_dtype,
        "weight_bytes_per_rank": deployment.weight_bytes,
        "kv_bytes_per_token_per_rank": deployment.kv_bytes_per_token,
        "chunk_tokens": tiers.chunk_tokens,
        "chunk_bytes_per_rank": prediction.chunk_bytes,
        "touch": plan.options.touch,
        "distance": plan.options.distance,
        "gpu_slots": deployment.gpu_slots,
        "gpu_block_tokens": deployment.gpu_block_tokens,
        "gpu_kv_tokens": deployment.gpu_kv_tokens,
        "host_copies_per_node": deployment.host_copies,
        "prefill_origin": costs.prefill.origin,
        "prefill_s_per_restorable_token": prediction.savings.mean_s_per_token._asdict(),
        "prefill_s_without_host_tier": prediction.savings.without_s._asdict(),
        "h2d_bytes_per_s": costs.h2d_bytes_per_s._asdict(),
        "load_s_per_request": costs.load_s._asdict(),
        "load_s_per_token": costs.load_s_per_token,
        "dram_usd_per_gib": None if prices is None else prices.dram_usd_per_gib,
        "gpu_usd_per_hour": None if prices is None else prices.gpu_usd_per_hour,
    }


def describe_scale(prediction: Prediction) -> dict[str, Any]:
    """Scale estimates of docs/model.md section 5, and how much reuse there is at all."""
    workload, tiers = prediction.workload, prediction.tiers
    reuse = prediction.reuse_bytes
    return {
        "concurrent_tasks": workload.concurrent_tasks,
        "mean_prompt_tokens": workload.mean_prompt_tokens,
        "longest_prompt_tokens": workload.longest_prompt_tokens,
        "span_s": workload.span_s,
        "prompt_tokens": tiers.prompt_tokens,
        "distinct_chunks": tiers.n_distinct,
        "reuse_bytes_per_rank": reuse,
        "gamma_gpu": prediction.gamma_gpu,
        "peak_flop_per_link_byte": prediction.flop_per_link_byte,
        "first_use_share": workload.first_use_share,
        "small_chunk_tokens": workload.small_chunk_tokens,
        "small_chunk_gain_tokens": workload.small_chunk_gain_tokens,
    }


def sample_curve(prediction: Prediction) -> dict[str, Any]:
    """Exact points of the curve: the first capacity of every 0.05 % step of the unlimited saving."""
    tiers = prediction.tiers
    levels = -(-np.arange(1, CURVE_STEPS + 1) * tiers.restored_tokens[-1] // CURVE_STEPS)
    slots = np.unique(np.searchsorted(tiers.restored_tokens, levels))
    return {
        "slots": slots.tolist(),
        "saved_tokens": tiers.restored_tokens[slots].tolist(),
        "moved_tokens": tiers.moved_tokens[slots].tolist(),
        "loading_requests": tiers.loads[slots].tolist(),
        "written_tokens": (tiers.coverage.written(slots) * tiers.chunk_tokens).tolist(),
        "prefill_saved_s": dict(
            zip(ENDS, (saved[slots].tolist() for saved in prediction.savings.saved_s), strict=True)
        ),
        "restore_s": {
            end: prediction.restore_seconds(Corner(1, 2 - k, k))[slots].tolist() for k, end in enumerate(ENDS)
        },
        "net_saved_s": {
            name: prediction.net_seconds(corner)[slots].tolist()
            for name, corner in (("worst", WORST), ("typical", TYPICAL), ("best", BEST))
        },
    }


def _at(prediction: Prediction, slots: int) -> dict[str, Any]:
    gib = prediction.gib_at(slots)
    return {
        "slots": slots,
        "gib_per_rank": gib,
        "gib_per_node": gib * prediction.deployment.host_copies,
        "computed_tokens": int(prediction.tiers.computed_tokens[slots]),
    }


def _clean(value: Any) -> Any:
    """Plain JSON types: no NaN, no infinity, no numpy."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
