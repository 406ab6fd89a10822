"""Verdict: does a host tier pay, and how large should it be; with the numbers that decide.

Uncertain inputs (prefill time, restore rate, time of a load) are triples. The verdict is computed at
the corner where all are against the tier, and at the one where all are for it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capplan.prediction import BEST, TRANSITION_SHARES, TYPICAL, WORST, Corner, Prediction
from capplan.units import GB, format_number, format_share, format_tokens

Answer = Literal["fits in GPU memory", "pays", "does not pay", "undecided"]
Regime = Literal["overhead only", "pays", "loses"]

NOTHING_TO_GAIN_SHARE = 0.01
ENOUGH_SHARE = 0.99
SHORT_TRACE_SHARE = 0.5
# Uncertain inputs by name, and the field of a Corner each one is.
INPUTS = {"restore rate": "rate", "prefill time": "prefill", "load time": "load"}
ADVICE = {
    "restore rate": "time your engine's own restores (bytes over seconds) and pass --h2d-gbps",
    "prefill time": "time an uncached prompt of the mean length and pass --prefill-tok-s, or use capplan calibrate",
    "load time": "compare first tokens of a short prompt cached on the host and on the GPU, and pass --load-latency-ms",
}


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where the best net time of all capacities is 0, the other inputs typical.

    Attributes
    ----------
    rate_bytes_per_s : float
        Restore rate; above it the tier pays. Infinite where no rate suffices.
    prefill_s_per_token : float
        Mean prefill time of what is restored; above it the tier pays. Infinite where nothing is restored.
    load_s : float
        Time of a load; below it the tier pays. Below 0 where none is short enough.
    """

    rate_bytes_per_s: float
    prefill_s_per_token: float
    load_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one deployment.

    Attributes
    ----------
    answer : str
        "fits in GPU memory" where an unlimited tier saves under 1 % of prefill; "pays" where the best
        net time is positive at the worst corner of the uncertain inputs, "does not pay" where it is
        not even at the best one, else "undecided".
    reason : str
        The deciding numbers, in words.
    deciding : str or None
        The input that decides an undecided verdict; several, joined by "and", where no single one does.
    best_net_s : (worst, typical, best)
        Largest net time over all capacities, at three corners.
    transitions : dict of float to int
        Slots at which 10, 50, 90 and 99 % of the unlimited saving is reached.
    knee_slots : int
        Where the normalised saving is farthest above the chord from 0 to the 99 % point.
    recommended_slots : int
        Smallest capacity with 99 % of the best net time; 0 unless it pays.
    break_even : BreakEven
    regimes : tuple of (slots, regime)
        First slots of each stretch of the curve: "overhead only" where the tier restores under 1 % of
        prefill, else "pays" or "loses" by the sign of the typical net time.
    warnings : tuple of str
    """

    answer: Answer
    reason: str
    deciding: str | None
    best_net_s: tuple[float, float, float]
    transitions: dict[float, int]
    knee_slots: int
    recommended_slots: int
    break_even: BreakEven
    regimes: tuple[tuple[int, Regime], ...]
    warnings: tuple[str, ...]


def judge(
    prediction: Prediction,
    node_ram_gib: float | None = None,
    asked_gib: Sequence[float] = (),
    lot_of_long_prompts: str = "of which only the head is kept",
) -> Verdict:
    """Judge a prediction (docs/model.md section 5).

    Parameters
    ----------
    prediction : Prediction
    node_ram_gib : float, optional
        Host memory of the node, for the warning that a tier exceeds it.
    asked_gib : floats
        Capacities per rank the user asked for: warned of like the recommended one.
    lot_of_long_prompts : str
        What becomes of a prompt longer than the tier, in words.
    """
    worst, typical, best = (float(prediction.net_seconds(corner).max()) for corner in (WORST, TYPICAL, BEST))
    break_even = find_break_even(prediction)
    answer = _decide(prediction, worst, best)
    deciding = find_deciding(prediction) if answer == "undecided" else None
    recommended = 0
    if answer == "pays":
        recommended = int(np.argmax(prediction.net_seconds() >= ENOUGH_SHARE * typical))
    return Verdict(
        answer=answer,
        reason=_explain(prediction, answer, deciding, break_even),
        deciding=deciding,
        best_net_s=(worst, typical, best),
        transitions={share: prediction.find_slots(share) for share in TRANSITION_SHARES},
        knee_slots=find_knee(prediction),
        recommended_slots=recommended,
        break_even=break_even,
        regimes=find_regimes(prediction),
        warnings=_warn(prediction, recommended, node_ram_gib, asked_gib, lot_of_long_prompts),
    )


def _decide(prediction: Prediction, worst: float, best: float) -> Answer:
    saving, without = int(prediction.tiers.restored_tokens[-1]), int(prediction.tiers.computed_tokens[0])
    if saving < NOTHING_TO_GAIN_SHARE * without or saving == 0:
        return "fits in GPU memory"
    if worst > 0:
        return "pays"
    return "undecided" if best > 0 else "does not pay"


def find_break_even(prediction: Prediction, corner: Corner = TYPICAL) -> BreakEven:
    """The value of each uncertain input, the others at a corner, at which the best capacity gains nothing."""
    costs, tiers = prediction.costs, prediction.tiers
    load_s, rate = costs.load_s[corner.load], costs.h2d_bytes_per_s[corner.rate]
    restored = (tiers.restored_tokens > 0) & (prediction.savings.saved_s[1] > 0)
    if not restored.any():
        return BreakEven(math.inf, math.inf, -math.inf)
    saved = prediction.savings.saved_s[corner.prefill][restored]
    moved, loads = tiers.moved_tokens[restored], tiers.loads[restored]
    spare = saved - loads * load_s - moved * costs.load_s_per_token
    rates = np.full(spare.size, math.inf)
    np.divide(moved * float(costs.kv_bytes_per_token), spare, out=rates, where=spare > 0)
    restore = prediction.restore_seconds(corner)[restored]
    per_token = prediction.savings.mean_s_per_token[corner.prefill]
    link = moved * costs.restore_s_per_token(rate)
    return BreakEven(
        rate_bytes_per_s=float(rates.min()),
        prefill_s_per_token=float((restore / saved).min()) * per_token,
        load_s=float(((saved - link) / loads).max()),
    )


def find_deciding(prediction: Prediction) -> str:
    """The fewest inputs that turn the verdict between their ends, others typical; joined where no single one does."""
    for count in range(1, len(INPUTS)):
        for names in itertools.combinations(INPUTS, count):
            fields = [INPUTS[name] for name in names]
            against, for_it = (
                prediction.net_seconds(TYPICAL._replace(**{field: getattr(end, field) for field in fields})).max() > 0
                for end in (WORST, BEST)
            )
            if against != for_it:
                return " and ".join(names)
    return " and ".join(INPUTS)


def _explain(prediction: Prediction, answer: Answer, deciding: str | None, break_even: BreakEven) -> str:
    tiers, costs = prediction.tiers, prediction.costs
    if answer == "fits in GPU memory":
        return (
            f"nothing to gain: an unlimited host tier would save {format_tokens(int(tiers.restored_tokens[-1]))} of "
            f"{format_tokens(int(tiers.computed_tokens[0]))} computed prefill tokens"
        )
    rate = _span(costs.h2d_bytes_per_s.low / GB, costs.h2d_bytes_per_s.high / GB, "GB/s")
    means = prediction.savings.mean_s_per_token
    prefill = _span(1e6 * means.low, 1e6 * means.high, "us per token")
    at_rate = "no restore rate breaks even"
    if math.isfinite(break_even.rate_bytes_per_s):
        at_rate = f"break-even restore rate {format_number(break_even.rate_bytes_per_s / GB)} GB/s"
    if answer == "pays":
        return f"restoring beats recomputing at every restore rate of {rate} and prefill of {prefill}; {at_rate}"
    if answer == "does not pay":
        return f"no capacity gains time at any restore rate of {rate} and prefill of {prefill}; {at_rate}"
    names = (deciding or "").split(" and ")
    told = [_tell(prediction, name, [other for other in names if other != name]) for name in names]
    return f"it turns on the {deciding}: {'; '.join((*told, *(ADVICE[name] for name in names)))}"


def _tell(prediction: Prediction, name: str, others: Sequence[str]) -> str:
    """Break-even value of one deciding input, the other deciding ones at the end where the answer turns."""
    end, said = (WORST, "worst") if prediction.net_seconds().max() > 0 else (BEST, "best")
    corner = TYPICAL._replace(**{INPUTS[other]: getattr(end, INPUTS[other]) for other in others})
    found, costs, means = find_break_even(prediction, corner), prediction.costs, prediction.savings.mean_s_per_token
    value, ends, scale, unit = {
        "restore rate": (found.rate_bytes_per_s, costs.h2d_bytes_per_s, 1 / GB, "GB/s"),
        "prefill time": (found.prefill_s_per_token, means, 1e6, "us per token"),
        "load time": (found.load_s, costs.load_s, 1e3, "ms"),
    }[name]
    given = f" with the {' and '.join(others)} at {said}" if others else ""
    return (
        f"break-even {name} {format_number(scale * value)} {unit}{given}, assumed "
        f"{_span(scale * ends.low, scale * ends.high, unit)}"
    )


def _span(low: float, high: float, unit: str) -> str:
    return f"{format_number(low)}-{format_number(high)} {unit}" if high > low else f"{format_number(low)} {unit}"


def find_regimes(prediction: Prediction) -> tuple[tuple[int, Regime], ...]:
    """Stretches of the curve by what the tier does there, each with its first slots."""
    tiers = prediction.tiers
    idle = tiers.restored_tokens < max(1.0, NOTHING_TO_GAIN_SHARE * int(tiers.computed_tokens[0]))
    code: NDArray[np.int64] = np.where(idle, 0, np.where(prediction.net_seconds() > 0, 1, 2))
    names: tuple[Regime, Regime, Regime] = ("overhead only", "pays", "loses")
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    return tuple((int(start), names[code[start]]) for start in starts)


def find_knee(prediction: Prediction) -> int:
    """Slots where saving over saving(99 %) stands highest above slots over slots(99 %); 0 without a saving."""
    end = prediction.find_slots(ENOUGH_SHARE)
    saving = prediction.saving_tokens[: end + 1].astype(np.float64)
    if end == 0 or saving[-1] == 0:
        return 0
    return int(np.argmax(saving / saving[-1] - np.arange(end + 1) / end))


def _warn(
    prediction: Prediction,
    recommended: int,
    node_ram_gib: float | None,
    asked_gib: Sequence[float],
    lot_of_long_prompts: str,
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
            f"{lot_of_long_prompts}"
        )
    if workload.first_use_share > SHORT_TRACE_SHARE:
        warnings.append(
            f"{format_share(workload.first_use_share)} of prompt tokens are first use or tails of chunks (above "
            f"{format_share(SHORT_TRACE_SHARE)}): the trace may be too short to judge reuse"
        )
    span, without = workload.span_s, prediction.savings.without_s.typical
    if span and without > span:
        warnings.append(
            f"without a host tier prefill takes {format_number(without / span)} times as long as the trace lasts: one "
            "replica cannot keep this pace, so times saved are work, not hours on a clock"
        )
    needed = {name: gib * deployment.host_copies for name, gib in tiers}
    if node_ram_gib is not None and max(needed.values(), default=0) > node_ram_gib:
        over = [f"{name} ({format_number(gib)} GiB per node)" for name, gib in needed.items() if gib > node_ram_gib]
        warnings.append(f"{', '.join(over)}: over --node-ram {format_number(node_ram_gib)} GiB")
    return tuple(warnings)
