"""The whole flow, trace file to answer; composes the stages and computes nothing itself.

The simulator is imported where a tier is named: it takes a tenth of a second, which the one-pass curve does not need.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capplan.card import make_card
from capplan.costs import estimate_costs
from capplan.deployment import deploy
from capplan.hardware import load_gpu
from capplan.hardware.gpu_spec import GpuSpec
from capplan.models import load_model
from capplan.models.model_spec import ModelSpec
from capplan.order import Order, choose_order, count_open_tasks
from capplan.plan import AdmissionStudy, Answer, Options, Plan
from capplan.prediction import Prediction, Workload, choose_capacities
from capplan.readers import read_trace
from capplan.runs import Runs, find_runs
from capplan.saving import measure_savings
from capplan.tiers import GPU_BLOCK_TOKENS, GpuService, count_restorable, overlay_tiers, serve_from_gpu
from capplan.trace import Trace
from capplan.tree import PrefixTree, build_tree
from capplan.ttft import TtftChange, measure_change, measure_ttft
from capplan.verdict import judge

if TYPE_CHECKING:
    from capplan.simulation.settings import TierSettings
    from capplan.simulation.tier_input import TierInput

DEFAULT_MODEL = "qwen3-coder-30b-a3b"
SMALL_CHUNK_TOKENS = 256
STUDY_POINTS = 5
JOINT_KINDS = ("gpu", "radix", "exclusive")  # whose GPU tier is simulated with the host's


def predict(
    trace: Trace | str | Path,
    gpus: str | Sequence[str | GpuSpec] = "h20",
    model: str | ModelSpec = DEFAULT_MODEL,
    options: Options | None = None,
) -> Plan:
    """Predict prefill, restores and writes at every host capacity, and judge whether the tier pays.

    Parameters
    ----------
    trace : Trace, or a path `read_trace` accepts
    gpus : name, or several names or GpuSpecs
    model : name, path of a model config, or ModelSpec
    options : Options, optional

    Returns
    -------
    Plan
        One Answer per GPU, all with the same capacities.

    Raises
    ------
    CapplanError
        A trace, GPU or model that cannot be used.
    """
    options = Options() if options is None else options
    trace = trace if isinstance(trace, Trace) else read_trace(trace)
    names = gpus.split(",") if isinstance(gpus, str) else gpus
    specs = [load_gpu(gpu.strip()) if isinstance(gpu, str) else gpu for gpu in names]
    spec = load_model(model) if isinstance(model, str) else model
    if not specs:
        raise ValueError("no GPU given; at least one is needed")
    tier = options.tier
    if tier is not None:
        from capplan.simulation.stream import fit_unit

        options = replace(options, chunk_tokens=fit_unit(trace, tier.unit_tokens))
        if tier.preset.kind == "gpu":
            options = replace(options, host_gib=(0.0,))  # without a host tier there is one capacity
    stream = _Stream.open(trace, options)
    deployed = [_predict_one(stream, gpu, spec, options) for gpu in specs]
    capacities = options.host_gib or choose_capacities([prediction for prediction, _ in deployed])
    answers = tuple(_answer(stream, prediction, served, capacities) for prediction, served in deployed)
    return Plan(trace, stream.order, options, stream.first_request, answers, stream.describe())


def compare_admission(
    trace: Trace,
    gpus: Sequence[str | GpuSpec],
    model: str | ModelSpec,
    options: Options,
    kappas: Sequence[float] = (2, 4, 8, 16, 32),
    thetas: Sequence[float] = (0.95,),
    thresholds: Sequence[int] = (2,),
) -> AdmissionStudy:
    """Simulate a tier under every rule of write admission, at every host capacity.

    Parameters
    ----------
    trace : Trace
    gpus, model
        As in `predict`.
    options : Options
        With the `tier` whose rules of storing are kept; capacities without any are chosen as in `predict`.
    kappas, thetas : floats
        New units a request may write, and how full a tier must be. Conditioned rules are left out where
        fewer than two tasks are named: they would never decline.
    thresholds : ints
        Offers from which on a unit is stored, as a rule of its own, where the engine has such a threshold.

    Raises
    ------
    CapplanError
        A trace, GPU, model or tier that cannot be used.
    """
    from capplan.admission_candidates import list_candidates
    from capplan.admission_study import AdmissionAnswer, study_capacities
    from capplan.simulation.stream import fit_unit
    from capplan.simulation.tier_input import prepare_tier

    base = options.tier
    if base is None:
        raise ValueError("options hold no tier; one is needed")
    options = replace(options, chunk_tokens=fit_unit(trace, base.unit_tokens))
    candidates = list_candidates(base, kappas, thetas, thresholds, len(trace.requests.task.names))
    if base.rule.kind == "conditioned" and not any(one.settings.rule.kind == "conditioned" for one in candidates):
        base = base.change(rule=replace(base.rule, kind="none"))
        options = replace(options, tier=base)
    spec = load_model(model) if isinstance(model, str) else model
    stream = _Stream.open(trace, options)
    answers = []
    for gpu in gpus:
        prediction, served = _predict_one(stream, load_gpu(gpu) if isinstance(gpu, str) else gpu, spec, options)
        beta = prediction.deployment.kv_bytes_per_token
        needs = next((one for one in candidates if one.settings.needs_times), candidates[0])
        prepared = prepare_tier(trace, stream.tree, stream.order, served, needs.settings, beta)
        tier = replace(prepared, settings=base)
        capacities = options.host_gib or [gib for gib in choose_capacities([prediction], STUDY_POINTS) if gib > 0]
        studies = study_capacities(tier, prediction, capacities, candidates, stream.first_request)
        answers.append(AdmissionAnswer(prediction, tier, studies))
    return AdmissionStudy(
        trace, stream.order, options, stream.first_request, candidates, tuple(answers), stream.describe()
    )


@dataclass(frozen=True, slots=True)
class _Stream:
    """What all GPUs share."""

    trace: Trace
    tree: PrefixTree
    order: Order
    runs: Runs
    small_runs: Runs | None
    first_request: int
    options: Options

    @classmethod
    def open(cls, trace: Trace, options: Options) -> "_Stream":
        order = choose_order(trace, options.order, options.pool_size)
        tree = build_tree(trace)
        runs = find_runs(trace, tree, order, options.chunk_tokens)
        small = None
        if SMALL_CHUNK_TOKENS % trace.resolution_tokens == 0 and options.chunk_tokens > SMALL_CHUNK_TOKENS:
            small = find_runs(trace, tree, order, SMALL_CHUNK_TOKENS)
        return cls(trace, tree, order, runs, small, int(options.warmup * len(trace)), options)

    def describe(self) -> tuple[str, ...]:
        """Assumptions of the stream, in words."""
        options = self.options
        notes = list(self.order.assumptions)
        if self.order.kind == "pool":
            given = "" if options.pool_size else " (the default; --pool sets it)"
            notes.append(
                f"pool of {self.order.pool_size} tasks{given}: a task starts when a slot frees, its calls keep their "
                "recorded times however long serving takes"
            )
        if options.room.is_used and options.tier is not None and options.tier.preset.kind in JOINT_KINDS:
            notes.append(f"GPU tier: simulated by the rules of {options.tier.preset.name}, in its units")
        elif options.room.is_used:
            block = max(GPU_BLOCK_TOKENS, self.trace.resolution_tokens)
            paths = "prompts and outputs" if self.trace.outputs_known else "prompts only"
            notes.append(f"GPU tier: LRU of {block}-token blocks, leaf-first touch, {paths}")
        if options.tier is None:
            notes.append(f"host tier: LRU of {options.chunk_tokens}-token chunks, {options.touch} touch, prompts only")
        else:
            notes += describe_tier(options.tier, options.chunk_tokens)
            if options.tier.rule.kind == "conditioned" and len(self.trace.requests.task.names) < 2:
                notes.append("fewer than two tasks are named: the conditioned rule sees no pressure, never declines")
        if not self.trace.outputs_known:
            notes.append("output ids are unknown: no reuse of generated tokens until a prompt repeats them")
        if options.distance == "sequential":
            notes.append("sequential distance: the published convention, which under-predicts coverage")
        if self.first_request:
            notes.append(f"warm-up: the first {self.first_request:,} requests fill the tiers and are not counted")
        return tuple(notes)


def describe_tier(settings: "TierSettings", unit_tokens: int) -> list[str]:
    """What is simulated, what its preset leaves out, and what is not confirmed of it."""
    from capplan.simulation.wording import describe_rules, describe_settings, list_gaps

    preset, rule = settings.preset, settings.rule
    missing, unsure = list_gaps(settings)
    said = f"{describe_settings(settings, unit_tokens)}: {describe_rules(settings)}"
    notes = [f"host tier {preset.name}, simulated at every capacity shown: {said}"]
    if unit_tokens != settings.unit_tokens:
        notes.append(f"units of {unit_tokens} tokens, not {settings.unit_tokens}: the trace is no finer")
    if rule.kind == "conditioned":
        notes.append(
            "the rule's windows run on the sending times of this order; the tier reports every "
            f"{rule.report_period_s:g} s"
        )
    notes += [f"not modelled of {preset.name}: {text}" for text in missing]
    notes += [f"not confirmed of {preset.name}: {text}" for text in unsure]
    return [*notes, "requests run one after another: lookup, then stores, then the next"]


def _answer(stream: _Stream, prediction: Prediction, served: GpuService, capacities: Sequence[float]) -> Answer:
    options = stream.options
    if options.tier is None:
        return _judge(stream, prediction, served, capacities)
    from capplan.simulated import endless_gib, simulate_capacities, step_prediction
    from capplan.simulation.tier_input import prepare_tier

    trace, order = stream.trace, stream.order
    beta = prediction.deployment.kv_bytes_per_token
    tier = prepare_tier(trace, stream.tree, order, served, options.tier, beta)
    endless = endless_gib(tier, prediction)
    found = simulate_capacities(tier, prediction, [*capacities, endless], stream.first_request)
    stepped = step_prediction(prediction, found, endless)
    answer = _judge(stream, stepped, served, capacities, tier)
    at = {capacity.host_gib_per_rank: capacity for capacity in found.capacities}
    shown = tuple(at[gib] for gib in capacities)
    rows = tuple(stepped.make_row(one.host_gib_per_rank, one.slots, one.measured) for one in shown)
    return replace(answer, rows=rows, simulated=replace(found, capacities=shown), curve=prediction)


def _judge(
    stream: _Stream,
    prediction: Prediction,
    served: GpuService,
    capacities: Sequence[float],
    tier: "TierInput | None" = None,
) -> Answer:
    options = stream.options
    lot = {} if tier is None else {"lot_of_long_prompts": tier.settings.preset.lot_of_long_prompts}
    verdict = judge(prediction, options.node_ram_gib, options.host_gib, **lot)
    slots = verdict.recommended_slots or verdict.transitions[0.99]
    ttft = _measure_ttft(stream, prediction, served, slots, tier)
    sized = verdict.recommended_slots
    if len(options.host_gib) == 1:
        sized = prediction.slots_at(options.host_gib[0])
    card = None
    if sized:
        deployment = prediction.deployment
        card = make_card(
            sized * prediction.chunk_bytes,
            deployment,
            prediction.tiers.chunk_tokens,
            deployment.gpu_kv_tokens,
            options.node_ram_gib,
        )
    return Answer(prediction, verdict, tuple(prediction.row_at(gib) for gib in capacities), ttft, card)


def _measure_ttft(
    stream: _Stream, prediction: Prediction, served: GpuService, slots: int, tier: "TierInput | None"
) -> TtftChange:
    options = stream.options
    n_input = stream.trace.requests.input_tokens[stream.order.rows]
    times, costs, first = prediction.savings.times, prediction.costs, stream.first_request
    if tier is None:
        return measure_ttft(
            stream.runs, n_input, served.tokens, slots, times, costs,
            touch=options.touch, distance=options.distance, first_request=first,
        )  # fmt: skip
    from capplan.simulation.simulator import simulate_tier

    run = simulate_tier(tier, slots * prediction.chunk_bytes)
    found = np.where(run.restored_tokens > 0, run.found_tokens, 0)
    return measure_change(found, run.unit_tokens, n_input, run.gpu_tokens, slots, times, costs, first_request=first)


def _predict_one(stream: _Stream, gpu: GpuSpec, model: ModelSpec, options: Options) -> tuple[Prediction, GpuService]:
    trace, order = stream.trace, stream.order
    requests = trace.requests
    deployment = deploy(
        gpu,
        model,
        longest_tokens=int((requests.input_tokens + requests.output_tokens).max()),
        block_tokens=max(GPU_BLOCK_TOKENS, trace.resolution_tokens),
        tp=options.tp,
        kv_dtype=options.kv_dtype,
        weight_dtype=options.weight_dtype,
        room=options.room,
        copies=options.host_copies,
        engine=options.engine,
    )
    n_input = requests.input_tokens[order.rows]
    first = stream.first_request
    served = serve_from_gpu(trace, stream.tree, order, deployment.gpu_slots)
    tiers = overlay_tiers(
        stream.runs, n_input, served, touch=options.touch, distance=options.distance, first_request=first
    )
    restorable, position = count_restorable(stream.runs, n_input, served.tokens, first)
    gain = None
    if stream.small_runs is not None:
        gain = count_restorable(stream.small_runs, n_input, served.tokens, first)[0] - restorable
    counted = n_input[first:]
    workload = Workload(
        mean_prompt_tokens=float(counted.mean()),
        longest_prompt_tokens=int(counted.max()),
        concurrent_tasks=count_open_tasks(trace, order),
        span_s=order.span_from(first),
        first_use_share=1 - int(tiers.coverage.covered_tokens(tiers.n_distinct)) / max(1, tiers.prompt_tokens),
        small_chunk_tokens=SMALL_CHUNK_TOKENS if gain is not None else None,
        small_chunk_gain_tokens=gain,
    )
    if not np.isfinite(position):
        position = workload.mean_prompt_tokens / 2
    costs = estimate_costs(deployment, position, options.overrides, options.engine)
    savings = measure_savings(
        stream.runs, n_input, served.tokens, costs.prefill, restorable, options.touch, options.distance, first
    )
    return Prediction(deployment, costs, tiers, savings, workload, options.prices), served
