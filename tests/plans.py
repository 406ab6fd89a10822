"""Small traces, deployments and predictions for tests of what stands above the tiers."""

from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import strategies as st

from capplan.costs import Costs, PrefillCost, Triple
from capplan.curve import CoverageCurve
from capplan.deployment import GpuRoom, deploy
from capplan.hardware import load_gpu
from capplan.linking import link_prompts
from capplan.models import load_model
from capplan.order import Order
from capplan.plan import Answer, Options, Plan
from capplan.prediction import Prediction, Workload
from capplan.prompts import Labels, Prompts, Requests
from capplan.saving import Savings, linear_times
from capplan.tiers import TierCurves
from capplan.ttft import TtftChange
from capplan.verdict import judge

BETA = 98_304  # Qwen3-Coder-30B-A3B, TP1
SYSTEM, OUTPUT = 64, 16
SMALL = {"chunk_tokens": 64, "room": GpuRoom(kv_tokens=672)}  # options that make the small trace move


def agent_trace(n_tasks=4, n_calls=6, *, step=96, has_clock=True, has_tasks=True):
    """Tasks that take turns behind one system prompt; every call adds to its task's context."""
    paths, n_input, task, arrival, start = [], [], [], [], []
    for call in range(n_calls):
        for number in range(n_tasks):
            n_prompt = SYSTEM + (call + 1) * step
            own = range(10_000 * (number + 1), 10_000 * (number + 1) + n_prompt + OUTPUT - SYSTEM)
            paths.append([*range(SYSTEM), *own])
            n_input.append(n_prompt)
            task.append(f"task-{number}")
            start.append(100.0 * call)
            arrival.append(100.0 * call + 10 * number)
    lengths = np.array([len(path) for path in paths], np.int64)
    n = lengths.size
    requests = Requests.of(
        np.array(n_input, np.int64),
        output_tokens=lengths - np.array(n_input, np.int64),
        session=Labels.encode(task) if has_tasks else None,
        task=Labels.encode(task) if has_tasks else None,
        arrival_s=np.array(arrival) if has_clock else None,
        start_s=np.array(start),
        service_s=np.full(n, 5.0),
    )
    ids = np.array([token for path in paths for token in path], np.uint32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return link_prompts([Prompts(requests, ids, offsets, "tokens", 16, outputs_known=True)], "agents")


@cache
def place(kv_tokens, tp):
    """The default model on an H20."""
    gpu, model, room = load_gpu("h20"), load_model("qwen3-coder-30b-a3b"), GpuRoom(kv_tokens=kv_tokens)
    return deploy(gpu, model, longest_tokens=0, block_tokens=16, tp=tp, room=room)


def make_deployment(kv_tokens=1 << 20, tp=1, **changes):
    """The default model on an H20 with a GPU tier of the given size."""
    return replace(place(kv_tokens, tp), **changes)


def ends(value):
    """A triple of equal ends out of one number; a triple stays."""
    return Triple(*value) if isinstance(value, tuple) else Triple(value, value, value)


def make_costs(prefill_s=1e-4, gb_per_s=(50.0, 52.0, 55.0), load_s=0.0, load_s_per_token=0.0, beta=BETA):
    """Costs in round numbers, the same for every token; times may have three ends."""
    low, typical, high = ends(prefill_s)
    band = Triple(low / typical, 1.0, high / typical)
    rate = Triple(*(1e9 * end for end in ends(gb_per_s)))
    return Costs(
        prefill=PrefillCost(None, typical, None, band, "given", ("prefill for a test",)),
        h2d_bytes_per_s=rate,
        load_s=ends(load_s),
        load_s_per_token=load_s_per_token,
        kv_bytes_per_token=beta,
        restore=None,
        by_method={"per-fragment": Triple(0.5e9, 1e9, 2e9), "contiguous": rate},
        notes=("costs for a test",),
    )


def make_prediction(
    restored,
    *,
    moved=None,
    loads=None,
    written=None,
    computed=None,
    gpu_tokens=0,
    chunk=1024,
    deployment=None,
    costs=None,
    workload=None,
    prices=None,
):
    """A prediction whose curves are given: restored tokens at 0, 1, .. slots, and the rest to match."""
    restored = np.array(restored, np.int64)
    saved = int(restored[-1])
    computed = saved + chunk if computed is None else computed
    covered = np.arange(restored.size, dtype=np.int64)
    written = np.zeros(restored.size, np.int64) if written is None else np.array(written, np.int64)
    tiers = TierCurves(
        chunk_tokens=chunk,
        n_requests=10,
        prompt_tokens=computed + gpu_tokens,
        gpu_tokens=gpu_tokens,
        coverage=CoverageCurve(chunk, covered, written),
        restored_tokens=restored,
        moved_tokens=restored.copy() if moved is None else np.array(moved, np.int64),
        loads=(restored > 0).astype(np.int64) if loads is None else np.array(loads, np.int64),
        forced_tokens=np.zeros(restored.size, np.int64),
    )
    deployment = make_deployment() if deployment is None else deployment
    costs = make_costs(beta=deployment.kv_bytes_per_token) if costs is None else costs
    workload = make_workload() if workload is None else workload
    means = Triple(*(costs.prefill.known_s_per_token * factor for factor in costs.prefill.band))
    savings = Savings(
        saved_s=tuple(mean * restored for mean in means),
        without_s=Triple(*(mean * computed for mean in means)),
        mean_s_per_token=means,
        ends=(linear_times(means.typical, np.array([chunk])),) * 3,
    )
    return Prediction(deployment, costs, tiers, savings, workload, prices)


def make_workload(**changes):
    """A workload of ten tasks for an hour."""
    return replace(Workload(2000.0, 4000, 10.0, 3600.0, 0.1), **changes)


def make_ttft(slots=0, **changes):
    """A change of the time to first token in round numbers."""
    percentiles = {1: -2.0, 10: -1.0, 50: -0.25, 90: 0.0, 99: 0.125}
    return replace(TtftChange(slots, 0.042, 1.5, -0.5, percentiles, 0.75, 0.05), **changes)


def make_plan(*predictions, host_gib=(0.0, 1.0), options=None, assumptions=("assumed for a test",), card=None):
    """A plan around given predictions."""
    options = Options() if options is None else options
    trace = agent_trace(2, 2)
    answers = tuple(make_answer(prediction, host_gib, options, card) for prediction in predictions)
    order = Order("pool", np.arange(len(trace)), None, None, 16)
    return Plan(trace, order, options, 0, answers, assumptions)


def make_answer(prediction, host_gib=(0.0, 1.0), options=None, card=None):
    """An answer around a given prediction."""
    verdict = judge(prediction, None if options is None else options.node_ram_gib)
    ttft = make_ttft(verdict.recommended_slots or verdict.transitions[0.99])
    return Answer(prediction, verdict, tuple(map(prediction.row_at, host_gib)), ttft, card)


@st.composite
def tier_tables(draw):
    """Restored and moved tokens and loading requests at 0, 1, .. slots: all rise from 0."""
    steps = draw(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2000), st.integers(1, 3)), max_size=8))
    table = np.array([(0, 0, 0), *((r, r + m, n if r else 0) for r, m, n in steps)], np.int64).cumsum(axis=0)
    return table[:, 0], table[:, 1], table[:, 2]


def token_rows():
    """Rows of two tasks whose prompts grow."""
    return [
        {"token_ids": [*range(32), *range(1000 * task, 1000 * task + 48 * (call + 1))], "task_id": f"task-{task}"}
        for call in range(3)
        for task in (1, 2)
    ]


def hash_rows():
    """Rows of two tasks with chained block hashes."""
    return [
        {"hash_ids": [1, 2, 3], "task_id": "a"},
        {"hash_ids": [1, 2, 4], "task_id": "b"},
        {"hash_ids": [1, 2, 3, 5], "task_id": "a"},
    ]
