"""The whole flow from a trace to a plan, and the public names of the package."""

import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from oracles import cut, simulate
from plans import OUTPUT, SMALL, SYSTEM, agent_trace

import capplan
from capplan import Options, TraceError, choose_order, measure_coverage, predict, write_trace
from capplan.costs import Overrides
from capplan.costs.prefill import seconds
from capplan.costs.restore import estimate_rate
from capplan.deployment import GpuRoom
from capplan.errors import SpecError
from capplan.hardware import load_gpu
from capplan.linking import link_prompts
from capplan.models import load_model
from capplan.prediction import Prices
from capplan.prompts import Prompts, Requests
from capplan.report import render


def predict_one(trace, **changes):
    return predict(trace, options=Options(**{**SMALL, **changes})).answers[0].prediction


def prompts_of(n_tasks=4, n_calls=6, step=96):
    """The prompts of `agent_trace`, in its row order."""
    return [
        [*range(SYSTEM), *(10_000 * (task + 1) + k for k in range((call + 1) * step))]
        for call in range(n_calls)
        for task in range(n_tasks)
    ]


def test_path_and_trace_give_the_same_answer(tmp_path):
    trace = agent_trace()
    path = tmp_path / "agents"
    write_trace(trace, path)
    from_path = predict(path, options=Options(**SMALL))
    from_name = predict(str(path), options=Options(**SMALL))
    assert (
        from_path.answers[0].rows
        == from_name.answers[0].rows
        == predict(trace, options=Options(**SMALL)).answers[0].rows
    )
    assert render(from_path, "json") == render(from_name, "json")


def test_without_a_gpu_tier_restores_are_what_a_real_lru_covers():
    trace, prompts = agent_trace(), prompts_of()
    prediction = predict_one(trace, room=GpuRoom(is_used=False))
    assert prediction.tiers.n_distinct == len({chunk for prompt in prompts for chunk in cut(prompt, 64)})
    for slots in range(prediction.tiers.n_distinct + 1):
        covered, written = simulate([cut(prompt, 64) for prompt in prompts], slots)
        restored = [min(64 * n, len(prompt) - 1) for n, prompt in zip(covered, prompts, strict=True)]
        row = prediction.row_at(prediction.gib_at(slots))
        assert row.restored_tokens == sum(restored)
        assert row.host_covered_tokens == 64 * sum(covered)
        assert row.loading_requests == sum(tokens > 0 for tokens in restored)
        assert row.written_tokens == 64 * written


def test_coverage_without_any_gpu_is_what_a_real_lru_covers():
    trace, prompts = agent_trace(), prompts_of()
    curve = measure_coverage(trace, 32)
    for slots in range(0, curve.n_distinct + 2, 5):
        covered, written = simulate([cut(prompt, 32) for prompt in prompts], slots)
        assert curve.covered_tokens(slots) == 32 * sum(covered)
        assert curve.written(slots) == written


def test_coverage_of_a_given_order():
    trace, prompts = agent_trace(), prompts_of()
    order = choose_order(trace, "pool", 1)
    curve = measure_coverage(trace, 64, order)
    stream = [cut(prompts[row], 64) for row in order.rows]
    assert [int(curve.covered_tokens(slots)) for slots in (3, 9, 40)] == [
        64 * sum(simulate(stream, slots)[0]) for slots in (3, 9, 40)
    ]
    assert order.rows.tolist() == [call * 4 + task for task in range(4) for call in range(6)]


def test_several_gpus_share_capacities():
    plan = predict(agent_trace(), ["h20", load_gpu("h100")], options=Options(**SMALL))
    assert [answer.prediction.deployment.gpu.name for answer in plan.answers] == ["h20", "h100"]
    first, second = ([row.host_gib_per_rank for row in answer.rows] for answer in plan.answers)
    assert first == second
    for answer in plan.answers:
        assert answer.rows[0].restored_tokens == 0
        assert answer.rows[-1].restored_tokens == answer.prediction.tiers.restored_tokens[-1] > 0


def test_gpus_and_models_by_name_or_spec():
    trace, options = agent_trace(), Options(**SMALL)
    named = predict(trace, "h20, h100", "llama-3.1-8b", options)
    given = predict(trace, [load_gpu("h20"), load_gpu("h100")], load_model("llama-3.1-8b"), options)
    assert [answer.rows for answer in named.answers] == [answer.rows for answer in given.answers]
    assert named.answers[0].prediction.deployment.model.name == "llama-3.1-8b"


def test_capacities_that_are_asked_for():
    plan = predict(agent_trace(), options=Options(**SMALL, host_gib=(0.001, 0.25)))
    assert [row.host_gib_per_rank for row in plan.answers[0].rows] == [0.001, 0.25]
    assert plan.answers[0].verdict.warnings[0].startswith("0.00100 GiB per rank: no larger than the GPU tier")


@pytest.mark.parametrize("warmup", [0.0, 0.2, 0.5, 0.99])
def test_warmup_leaves_requests_out_of_totals_not_out_of_state(warmup):
    trace = agent_trace()
    first = int(warmup * len(trace))
    whole, warm = predict_one(trace), predict_one(trace, warmup=warmup)
    head = None if first == 0 else predict_one(head_of(trace, first))
    for slots in range(0, whole.tiers.n_distinct + 2, 3):
        gib = whole.gib_at(slots)
        for name in ("gpu_tokens", "restored_tokens", "moved_tokens", "loading_requests", "computed_tokens",
                     "host_covered_tokens", "written_tokens", "forced_recompute_tokens"):  # fmt: skip
            earlier = 0 if head is None else getattr(head.row_at(gib), name)
            assert getattr(warm.row_at(gib), name) == getattr(whole.row_at(gib), name) - earlier
    counted = trace.requests.input_tokens[first:]
    assert warm.tiers.prompt_tokens == counted.sum()
    assert warm.workload.mean_prompt_tokens == counted.mean()
    assert warm.workload.longest_prompt_tokens == counted.max()


def head_of(trace, n_rows):
    """The first rows of a trace, on which no later row has any influence."""
    return replace(
        trace,
        requests=trace.requests.take(np.arange(n_rows)),
        parent=trace.parent[:n_rows],
        shared_tokens=trace.shared_tokens[:n_rows],
    )


def test_gain_of_a_small_chunk_is_what_the_small_chunk_restores_more():
    trace = agent_trace(step=400)
    room = GpuRoom(kv_tokens=3200)
    large, small = (predict_one(trace, chunk_tokens=size, room=room) for size in (1024, 256))
    gain = int(small.tiers.restored_tokens[-1] - large.tiers.restored_tokens[-1])
    assert large.workload.small_chunk_tokens == 256
    assert large.workload.small_chunk_gain_tokens == gain > 0
    assert small.workload.small_chunk_tokens is None


def test_prefill_saved_is_the_difference_of_two_prefills():
    """T(0) - T(c) of every prompt, without a GPU tier, at the ends of the formula."""
    prediction = predict_one(agent_trace(), room=GpuRoom(is_used=False), tp=4)
    models = prediction.costs.prefill.models
    prompts = prompts_of()
    n = np.array([len(prompt) for prompt in prompts])
    for slots in range(0, prediction.tiers.n_distinct + 1, 4):
        covered, _ = simulate([cut(prompt, 64) for prompt in prompts], slots)
        c = np.minimum(64 * np.array(covered), n - 1)
        expected = [(seconds(model, 0, n) - seconds(model, c, n)).sum() for model in models]
        row = prediction.row_at(prediction.gib_at(slots))
        found = (row.prefill_saved_s_low, row.prefill_saved_s, row.prefill_saved_s_high)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert prediction.savings.without_s.typical == pytest.approx(seconds(models[1], 0, n).sum())


def test_measured_points_are_looked_up_at_the_mean_position_of_what_is_restored(tmp_path):
    covered, _ = simulate([cut(prompt, 64) for prompt in prompts_of()], 10**6)
    positions = [
        k + 0.5 for n, prompt in zip(covered, prompts_of(), strict=True) for k in range(min(64 * n, len(prompt) - 1))
    ]
    point = 'model = "qwen3-coder-30b-a3b"\ntp = 1\nus_per_token = 55.5\nsource = "here"\n'
    origins = {}
    for factor in (0.79, 0.81, 1.19, 1.21):  # used where the mean position is within 20 % of the point's
        own = tmp_path / f"own-{factor}.toml"
        own.write_text(f'base = "h20"\n[[measured]]\n{point}position = {factor * np.mean(positions)}\n')
        options = Options(**{**SMALL, "room": GpuRoom(is_used=False)})
        prediction = predict(agent_trace(), [load_gpu(str(own))], options=options).answers[0].prediction
        origins[factor] = prediction.costs.prefill.origin
    assert origins == {0.79: "formula", 0.81: "measured", 1.19: "measured", 1.21: "formula"}


def test_scale_of_the_stream():
    recorded = predict_one(agent_trace())
    # tasks begin at 0, 10, 20, 30 s, each 505 s long; the last response ends at 535 s
    assert recorded.workload.concurrent_tasks == pytest.approx(4 * 505 / 535)
    assert recorded.workload.span_s == 535
    pool = predict_one(agent_trace(), pool_size=2)
    assert pool.workload.concurrent_tasks == 2
    assert pool.workload.span_s == 2 * 505
    unknown = predict_one(agent_trace(has_tasks=False))
    assert (unknown.workload.concurrent_tasks, unknown.reuse_bytes) == (None, None)


def test_first_use_share_is_what_no_host_tier_could_hold():
    workload = predict_one(agent_trace()).workload
    prompts = prompts_of()
    covered = 64 * sum(simulate([cut(prompt, 64) for prompt in prompts], 10**6)[0])
    assert workload.first_use_share == pytest.approx(1 - covered / sum(map(len, prompts)))


def test_room_must_hold_the_longest_prompt_with_its_output():
    longest = SYSTEM + 6 * 96 + OUTPUT
    predict_one(agent_trace(), room=GpuRoom(kv_tokens=longest))
    with pytest.raises(SpecError, match=f"the longest request needs {longest} tokens"):
        predict_one(agent_trace(), room=GpuRoom(kv_tokens=longest - 1))


def test_assumptions_of_a_pool():
    plan = predict(agent_trace(has_clock=False), options=Options(**SMALL))
    assert plan.order.pool_size == 16
    assert plan.assumptions == (
        "pool of 16 tasks (the default; --pool sets it): a task starts when a slot frees, its calls keep their "
        "recorded times however long serving takes",
        "GPU tier: LRU of 16-token blocks, leaf-first touch, prompts and outputs",
        "host tier: LRU of 64-token chunks, leaf-first touch, prompts only",
    )
    given = predict(agent_trace(), options=Options(**SMALL, pool_size=2))
    assert given.assumptions[0].startswith("pool of 2 tasks: a task starts")


def test_assumptions_of_a_trace_that_says_little():
    options = Options(order="recorded", distance="sequential", warmup=0.5, room=GpuRoom(is_used=False))
    assert predict(hashed_trace(), options=options).assumptions == (
        "no arrival times: requests follow row order",
        "host tier: LRU of 1024-token chunks, leaf-first touch, prompts only",
        "output ids are unknown: no reuse of generated tokens until a prompt repeats them",
        "sequential distance: the published convention, which under-predicts coverage",
        "warm-up: the first 1 requests fill the tiers and are not counted",
    )


def hashed_trace():
    """Two prompts of four 512-token blocks, without outputs, tasks or times."""
    ids = np.array([1, 2, 3, 4, 1, 2, 3, 5], np.uint64)
    requests = Requests.of(np.array([2048, 2048]))
    return link_prompts([Prompts(requests, ids, np.array([0, 4, 8]), "hashes", 512)], "hashed")


def test_gpu_tier_of_a_coarse_trace_has_its_blocks():
    options = Options(room=GpuRoom(kv_tokens=2048), order="recorded")
    plan = predict(hashed_trace(), options=options)
    assert plan.answers[0].prediction.deployment.gpu_block_tokens == 512
    assert plan.answers[0].prediction.tiers.gpu_tokens == 1536
    assert plan.assumptions[1] == "GPU tier: LRU of 512-token blocks, leaf-first touch, prompts only"
    assert plan.answers[0].prediction.workload.small_chunk_tokens is None


def test_overrides_reach_the_costs():
    prediction = predict_one(agent_trace(), overrides=Overrides(10_000, 12.5, 0.0))
    costs = prediction.costs
    assert (costs.h2d_bytes_per_s, costs.load_s) == ((12.5e9,) * 3, (0.0,) * 3)
    assert prediction.savings.mean_s_per_token == pytest.approx((1e-4,) * 3)
    for saved in prediction.savings.saved_s:
        assert saved == pytest.approx(1e-4 * prediction.tiers.restored_tokens)


def test_engine_and_way_of_copying_reach_the_rate():
    trace = agent_trace()
    rates = {
        (engine, method): predict_one(trace, tp=8, engine=engine, overrides=Overrides(restore_method=method)).costs
        for engine in ("lmcache", "sglang", "vllm")
        for method in (None, "per-fragment", "contiguous")
    }
    for (engine, method), costs in rates.items():
        deployed = (load_gpu("h20"), load_model("qwen3-coder-30b-a3b"), 8, "bf16", method)
        assert costs.h2d_bytes_per_s == estimate_rate(*deployed, engine=engine).ends
    assert len({costs.h2d_bytes_per_s.typical for costs in rates.values()}) > 3


def test_prices_reach_the_rows():
    plan = predict(agent_trace(), options=Options(**SMALL, prices=Prices(3.0, 2.0), host_gib=(0.5,)))
    (row,) = plan.answers[0].rows
    assert row.dram_usd == 1.5
    assert row.gpu_usd_saved_per_month == 2 * row.gpu_hours_saved_per_month


def test_first_tokens_are_measured_at_the_recommended_capacity():
    """Or where 99 % of the saving is reached."""
    paying = Overrides(prefill_tokens_per_s=100.0)
    for overrides in (paying, Overrides(prefill_tokens_per_s=1e9)):
        answer = predict(agent_trace(), options=Options(**SMALL, overrides=overrides)).answers[0]
        assert (answer.verdict.answer == "pays") == (overrides is paying)
        assert answer.ttft.slots == (answer.verdict.recommended_slots or answer.verdict.transitions[0.99]) > 0
    assert answer.ttft.faster_share == 0


def test_change_of_first_tokens_is_the_net_time_without_a_floor():
    """At a rate of prefill at which every prompt takes longer than the floor."""
    overrides = Overrides(prefill_tokens_per_s=0.5)
    answer = predict(agent_trace(), options=Options(**SMALL, overrides=overrides)).answers[0]
    slots, n = answer.ttft.slots, answer.prediction.tiers.n_requests
    assert answer.ttft.change_mean_s * n == pytest.approx(-answer.prediction.net_seconds()[slots])


def test_trace_without_any_full_chunk_still_has_an_answer():
    plan = predict(agent_trace(1, 1), options=Options())
    assert plan.answers[0].verdict.answer == "fits in GPU memory"
    assert [row.host_gib_per_rank for row in plan.answers[0].rows] == [0.0]


def test_chunks_the_trace_cannot_be_cut_into():
    with pytest.raises(TraceError, match="chunks of 100 tokens cannot be cut from blocks of 16"):
        predict_one(agent_trace(), chunk_tokens=100)


def test_every_public_name_is_there():
    for name in capplan.__all__:
        assert getattr(capplan, name) is not None
    assert set(capplan.__all__) <= set(dir(capplan))
    with pytest.raises(AttributeError, match="module 'capplan' has no attribute 'plan_it'"):
        _ = capplan.plan_it


def test_example_of_the_package_runs(tmp_path):
    """The code of the docstring, on a small trace in place of the bundled one."""
    (example,) = [block for block in capplan.__doc__.split("::\n") if "import capplan" in block]
    folder = tmp_path / "data" / "synthetic"
    folder.mkdir(parents=True)
    write_trace(agent_trace(has_clock=False), folder / "coding_agents.parquet")
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "fits in GPU memory\n0\n"
