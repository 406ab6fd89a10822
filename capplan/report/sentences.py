"""Sentences that several reports share: what costs rest on, what restores and first tokens come to."""

import math

from capplan.plan import Answer
from capplan.prediction import BEST, TYPICAL, WORST, Prediction
from capplan.units import format_number, format_seconds, format_share


def list_cost_notes(prediction: Prediction) -> list[str]:
    """Where prefill and restore times come from."""
    costs, means = prediction.costs, prediction.savings.mean_s_per_token
    low, typical, high = (format_number(1e6 * mean) for mean in means)
    span = f" ({low}-{high})" if means.high > means.low else ""
    what = "a token the host tier restores" if prediction.tiers.restored_tokens[-1] else "a computed token"
    models = costs.prefill.models
    estimated = ", estimated" if costs.prefill.origin == "formula" and models and models[1].estimated else ""
    return [
        f"prefill {typical} us{span} for {what}, in the mean: {costs.prefill.origin}{estimated}",
        *(f"prefill: {note}" for note in costs.prefill.notes),
        *costs.notes,
    ]


def list_restore_lines(answer: Answer) -> list[str]:
    """From what length a restore pays, and OBR by the way of copying."""
    prediction = answer.prediction
    n_tokens = prediction.mean_restore_tokens(answer.ttft.slots)
    if math.isnan(n_tokens):
        return []
    here = prediction.obr(n_tokens, prediction.costs.h2d_bytes_per_s.typical)
    ratio = f"OBR of a mean restore of {n_tokens:,.0f} tokens: {here:.2f}"
    methods = ", ".join(
        f"{method} {prediction.obr(n_tokens, rates.typical):.2f}"
        for method, rates in prediction.costs.by_method.items()
    )
    return [_say_smallest(prediction), f"{ratio}; by way of copying: {methods}" if methods else ratio]


def _say_smallest(prediction: Prediction) -> str:
    best, typical, worst = (prediction.smallest_restore_tokens(corner) for corner in (BEST, TYPICAL, WORST))
    if math.isinf(best):
        return "no restore pays, however long"
    said = "smallest restore that pays:"
    if math.isinf(typical):
        return f"{said} none at typical inputs, {_tokens(best)} tokens at the best"
    if math.isinf(worst):
        return f"{said} {_tokens(typical)} tokens ({_tokens(best)} at the best inputs, none at the worst)"
    return f"{said} {_tokens(typical)} tokens" + (f" ({_tokens(best)} to {_tokens(worst)})" if worst > best else "")


def describe_ttft(answer: Answer) -> str:
    """Change of the time to first token at the recommended capacity, or at the 99 % point."""
    ttft = answer.ttft
    spread = ", ".join(f"p{percent} {_signed(value)}" for percent, value in ttft.change_percentiles_s.items())
    return (
        f"mean TTFT {format_seconds(ttft.without_mean_s)} changes by {_signed(ttft.change_mean_s)} ({spread}); "
        f"{format_share(ttft.faster_share)} of requests faster, {format_share(ttft.slower_share)} slower"
    )


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{format_seconds(abs(seconds))}"


def _tokens(n_tokens: float) -> str:
    return f"{math.ceil(n_tokens):,}"
