"""Verdict: does a host tier pay, and how large should it be; with the numbers that decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from capplan.prediction import TRANSITION_SHARES, Prediction
from capplan.units import GB, format_number, format_share, format_tokens

Answer = Literal["fits in GPU memory", "pays", "does not pay", "undecided"]

NOTHING_TO_GAIN_SHARE = 0.01
ENOUGH_SHARE = 0.99
SHORT_TRACE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one deployment.

    Attributes
    ----------
    answer : str
        "fits in GPU memory" where an unlimited tier saves under 1 % of prefill; "pays" where the best
        net time is positive at both ends of the restore rate, "does not pay" where at neither.
    reason : str
        One sentence with the deciding numbers.
    transitions : dict of float to int
        Slots at which 10, 50, 90 and 99 % of the unlimited saving is reached.
    knee_slots : int
        Where the normalised saving is farthest above the chord from 0 to the 99 % point.
    recommended_slots : int
        Smallest capacity with 99 % of the best net time; 0 unless it pays.
    break_even_bytes_per_s : float
        Restore rate at which the best net time is 0; infinite where no rate suffices.
    warnings : tuple of str
    """

    answer: Answer
    reason: str
    transitions: dict[float, int]
    knee_slots: int
    recommended_slots: int
    break_even_bytes_per_s: float
    warnings: tuple[str, ...]


def judge(prediction: Prediction, node_ram_gib: float | None = None, asked_gib: Sequence[float] = ()) -> Verdict:
    """Judge a prediction (docs/model.md section 5).

    Parameters
    ----------
    prediction : Prediction
    node_ram_gib : float, optional
        Host memory of the node, for the warning that a tier exceeds it.
    asked_gib : floats
        Capacities per rank the user asked for: warned of like the recommended one.
    """
    tiers, costs = prediction.tiers, prediction.costs
    best = [float(prediction.net_seconds(rate).max()) for rate in costs.h2d_bytes_per_s]
    break_even = costs.break_even_rate(tiers.restored_tokens, tiers.moved_tokens, tiers.loads)
    answer, reason = _decide(prediction, best, break_even)
    recommended = 0
    if answer == "pays":
        net = prediction.net_seconds(costs.h2d_bytes_per_s[1])
        recommended = int(np.argmax(net >= ENOUGH_SHARE * best[1]))
    return Verdict(
        answer=answer,
        reason=reason,
        transitions={share: prediction.find_slots(share) for share in TRANSITION_SHARES},
        knee_slots=find_knee(prediction),
        recommended_slots=recommended,
        break_even_bytes_per_s=break_even,
        warnings=_warn(prediction, recommended, node_ram_gib, asked_gib),
    )


def _decide(prediction: Prediction, best: list[float], break_even: float) -> tuple[Answer, str]:
    tiers = prediction.tiers
    saving, without = int(tiers.restored_tokens[-1]), int(tiers.computed_tokens[0])
    if saving < NOTHING_TO_GAIN_SHARE * without or saving == 0:
        return "fits in GPU memory", (
            f"nothing to gain: an unlimited host tier would save {format_tokens(saving)} of "
            f"{format_tokens(without)} computed prefill tokens"
        )
    low, _, high = (rate / GB for rate in prediction.costs.h2d_bytes_per_s)
    span = f"{format_number(low)}-{format_number(high)} GB/s" if high > low else f"{format_number(low)} GB/s"
    at = f"break-even at {format_number(break_even / GB)} GB/s" if math.isfinite(break_even) else "no break-even rate"
    if best[0] > 0 and best[2] > 0:
        return "pays", f"restoring beats recomputing over the whole restore rate of {span}; {at}"
    if best[0] <= 0 and best[2] <= 0:
        return "does not pay", f"no capacity gains time at a restore rate of {span}; {at}"
    return "undecided", f"it turns on the restore rate: {at}, the profile says {span}; measure it on the host"


def find_knee(prediction: Prediction) -> int:
    """Slots where saving over saving(99 %) stands highest above slots over slots(99 %); 0 without a saving."""
    end = prediction.find_slots(ENOUGH_SHARE)
    saving = prediction.saving_tokens[: end + 1].astype(np.float64)
    if end == 0 or saving[-1] == 0:
        return 0
    return int(np.argmax(saving / saving[-1] - np.arange(end + 1) / end))


def _warn(
    prediction: Prediction, recommended: int, node_ram_gib: float | None, asked_gib: Sequence[float]
) -> tuple[str, ...]:
    deployment, workload = prediction.deployment, prediction.workload
    tiers = [("the recommended tier", prediction.gib_at(recommended))] if recommended else []
    tiers += [(f"{format_number(gib)} GiB per rank", gib) for gib in asked_gib if gib > 0]
    tokens = {name: prediction.slots_at(gib) * prediction.tiers.chunk_tokens for name, gib in tiers}
    warnings = []
    if small := [name for name, n_tokens in tokens.items() if n_tokens <= deployment.gpu_kv_tokens]:
        warnings.append(
            f"{', '.join(small)}: no larger than the GPU tier ({deployment.gpu_kv_tokens:,} tokens), "
            "adds little beyond tails and outputs"
        )
    if short := [name for name, n_tokens in tokens.items() if n_tokens < workload.longest_prompt_tokens]:
        warnings.append(
            f"{', '.join(short)}: smaller than the longest prompt ({workload.longest_prompt_tokens:,} tokens), "
            "of which only the head is kept"
        )
    if workload.first_use_share > SHORT_TRACE_SHARE:
        warnings.append(
            f"{format_share(workload.first_use_share)} of prompt tokens are first use or tails of chunks (above "
            f"{format_share(SHORT_TRACE_SHARE)}): the trace may be too short to judge reuse"
        )
    needed = {name: gib * deployment.host_copies for name, gib in tiers}
    if node_ram_gib is not None and max(needed.values(), default=0) > node_ram_gib:
        over = [f"{name} ({format_number(gib)} GiB per node)" for name, gib in needed.items() if gib > node_ram_gib]
        warnings.append(f"{', '.join(over)}: over --node-ram {format_number(node_ram_gib)} GiB")
    return tuple(warnings)
