"""Warnings of simulated tiers: capacities too small to behave as larger ones do, rules that cannot act."""

from collections.abc import Sequence

from capplan.admission_candidates import LEAST_TASKS
from capplan.admission_study import AdmissionAnswer
from capplan.plan import AdmissionStudy, Answer, Plan
from capplan.prediction import Prediction
from capplan.simulation.settings import TierSettings
from capplan.simulation.wording import describe_long_prompts
from capplan.trace import Trace
from capplan.units import format_capacity


def list_tier_warnings(plan: Plan, answer: Answer) -> list[str]:
    """Of one simulated tier."""
    tier = answer.simulated
    if tier is None or tier.settings.preset.kind == "gpu":
        return []
    sizes = [(found.host_gib_per_rank, found.slots * tier.unit_tokens) for found in tier.capacities]
    warnings = list_small_capacities(tier.settings, answer.prediction, sizes)
    if tier.settings.rule.kind == "conditioned" and count_tasks(plan.trace) < LEAST_TASKS:
        warnings.append(f"{_say_tasks(plan.trace)}: the conditioned rule sees no pressure and never declines")
    return warnings


def list_study_warnings(study: AdmissionStudy, answer: AdmissionAnswer) -> list[str]:
    """Of a tier under rules."""
    unit = answer.tier.stream.unit_tokens
    sizes = [(capacity.host_gib_per_rank, capacity.slots * unit) for capacity in answer.capacities]
    return [*list_small_capacities(answer.tier.settings, answer.prediction, sizes), *list_left_out(study)]


def list_left_out(study: AdmissionStudy) -> list[str]:
    """Rules that are not compared, because they could not act on such a trace."""
    tier = study.options.tier
    if tier is None or tier.preset.kind == "radix" or count_tasks(study.trace) >= LEAST_TASKS:
        return []
    return [f"{_say_tasks(study.trace)}: conditioned rules would see no pressure and never decline; they are left out"]


def list_small_capacities(
    settings: TierSettings, prediction: Prediction, sizes: Sequence[tuple[float, int]]
) -> list[str]:
    """Capacities (GiB per rank, tokens held) below the longest prompt, or the GPU tier."""
    held = [(gib, n_tokens) for gib, n_tokens in sizes if n_tokens]
    longest, gpu_tokens = prediction.workload.longest_prompt_tokens, prediction.deployment.gpu_kv_tokens
    warnings = []
    if short := [gib for gib, n_tokens in held if n_tokens < longest]:
        lot = describe_long_prompts(settings)
        warnings.append(f"{_list_gib(short)}: smaller than the longest prompt ({longest:,} tokens), {lot}")
    if little := [gib for gib, n_tokens in held if n_tokens <= gpu_tokens]:
        warnings.append(f"{_list_gib(little)}: no larger than the GPU tier ({gpu_tokens:,} tokens)")
    return warnings


def count_tasks(trace: Trace) -> int:
    """Tasks that requests name."""
    return len(trace.requests.task.names)


def _say_tasks(trace: Trace) -> str:
    return "all requests with a task are of one" if count_tasks(trace) else "no request names a task"


def _list_gib(gibs: Sequence[float]) -> str:
    return f"{', '.join(format_capacity(gib) for gib in gibs)} GiB"
