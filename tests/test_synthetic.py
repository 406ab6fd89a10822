"""Synthetic traces: links equal those of real tokens, laws hold, same seed same bytes."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import common_prefix

from capplan.linking import link_prompts
from capplan.order import choose_order
from capplan.prompts import Prompts
from capplan.readers.canonical import read, write_trace
from capplan.synthetic import Story, draw_story, generate, link_story, tabulate
from capplan.workloads import PRESETS, Workload

DATA = Path(__file__).parents[1] / "data" / "synthetic"
FILES = {"coding_agents": ("coding", 5), "chat": ("chat", 0), "rewriting_agents": ("rewriting", 0)}
SMALL = Workload(
    n_tasks=3,
    n_calls=12,
    shared_prompt_tokens=40,
    instruction_tokens=30,
    observation_tokens=25,
    observation_sigma=1.0,
    output_tokens=20,
    gap_s=2.0,
    gap_sigma=1.0,
)
probabilities = st.sampled_from([0.0, 0.3, 0.8])


@st.composite
def workloads(draw):
    """Small workloads with edits, sub-agents, and windows that are often full."""
    n_tasks = draw(st.integers(1, 4))
    return Workload(
        n_tasks=n_tasks,
        n_calls=n_tasks + draw(st.integers(0, 25)),
        calls_sigma=draw(probabilities),
        shared_prompt_tokens=draw(st.integers(0, 70)),
        instruction_tokens=draw(st.integers(1, 60)),
        instruction_sigma=draw(probabilities),
        observation_tokens=draw(st.integers(1, 60)),
        observation_sigma=draw(st.sampled_from([0.0, 1.5])),
        output_tokens=draw(st.integers(1, 40)),
        output_sigma=draw(st.sampled_from([0.0, 1.0])),
        window_tokens=draw(st.sampled_from([80, 200, 2_000])),
        edit_probability=draw(probabilities),
        compact_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        kept_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        summary_tokens=draw(st.integers(1, 30)),
        sub_agent_probability=draw(probabilities),
        sub_agents_at_once=draw(st.integers(1, 3)),
        sub_agent_calls=draw(st.integers(1, 4)),
        sub_agent_prompt_tokens=draw(st.sampled_from([0, 33])),
        gap_s=draw(st.sampled_from([0.0, 3.0])),
        gap_sigma=draw(probabilities),
        tail_gap_s=draw(st.sampled_from([0.0, 5.0])),
        first_token_s=draw(st.sampled_from([0.0, 0.5])),
        arrivals_per_s=draw(st.sampled_from([None, 0.5])),
    )


def spell(story: Story) -> list[np.ndarray]:
    """The token ids of every path: every segment gets random tokens of its own."""
    tokens = [
        np.random.default_rng([7, number]).integers(0, 1 << 32, n, dtype=np.uint32)
        for number, n in enumerate(story.segments)
    ]
    paths, last = [], {}
    for call in (call for task in story.tasks for call in task):
        pieces = last[call.session] = [*last.get(call.session, [])[: call.n_kept], *call.added]
        paths.append(np.concatenate([tokens[piece] for piece in pieces]))
        assert paths[-1].size == call.input_tokens + call.output_tokens
        assert tokens[pieces[-1]].size == call.output_tokens
    return paths


@given(workloads(), st.integers(0, 1_000))
def test_links_equal_those_of_real_tokens(workload, seed):
    story = draw_story(workload, seed)
    paths = spell(story)
    offsets = np.concatenate([[0], np.cumsum([path.size for path in paths])])
    prompts = Prompts(tabulate(story), np.concatenate(paths), offsets, "tokens", 16, outputs_known=True)
    linked = link_prompts([prompts])
    made = generate(workload, seed)
    assert made.parent.tolist() == linked.parent.tolist()
    assert made.shared_tokens.tolist() == linked.shared_tokens.tolist()
    assert made.fingerprint == linked.fingerprint


@given(workloads(), st.integers(0, 1_000))
def test_laws(workload, seed):
    trace = generate(workload, seed)
    r = trace.requests
    sessions, tasks = r.session.decode(), r.task.decode()
    assert sum(session == task for session, task in zip(sessions, tasks, strict=True)) == workload.n_calls
    assert len(set(tasks)) == len(r.task.names) == workload.n_tasks
    assert all(session.split("/")[0] == task for session, task in zip(sessions, tasks, strict=True))
    assert r.input_tokens.min() >= 1
    assert r.input_tokens.max() <= workload.window_tokens
    assert r.output_tokens.min() >= 1
    assert (np.diff(r.task.codes) >= 0).all()
    same_task = np.diff(r.task.codes) == 0
    assert (np.diff(r.start_s)[same_task] >= 0).all()
    assert np.isnan(r.tail_gap_s).tolist() == [*same_task.tolist(), False]
    assert np.isnan(r.arrival_s).all() == (workload.arrivals_per_s is None)
    end: dict[str, float] = {}
    for row, session in enumerate(sessions):
        assert (session in end) != np.isnan(r.gap_s[row])
        if session in end:
            assert r.gap_s[row] >= 0
            assert r.start_s[row] == pytest.approx(end[session] + r.gap_s[row])
        end[session] = r.start_s[row] + r.service_s[row]


def test_root_waits_for_its_sub_agents():
    workload = replace(SMALL, sub_agent_probability=1.0, sub_agents_at_once=2, sub_agent_calls=3)
    r = generate(workload, 1).requests
    sessions = np.array(r.session.decode())
    end = r.start_s + r.service_s
    for task in r.task.names:
        inner = np.array([session.startswith(f"{task}/") for session in sessions])
        assert inner.any()
        roots = np.flatnonzero(sessions == task)
        for before, after in pairwise(roots.tolist()):
            started = inner & (r.start_s >= end[before]) & (r.start_s < r.start_s[after])
            assert len(set(sessions[started])) == 2
            assert end[started].max() <= r.start_s[after]


def test_contexts_only_grow_without_edits():
    trace = generate(SMALL, 0)
    r = trace.requests
    follows = np.flatnonzero(np.diff(r.task.codes) == 0) + 1
    assert (trace.parent[follows] == follows - 1).all()
    path = (r.input_tokens + r.output_tokens)[follows - 1]
    assert (trace.shared_tokens[follows] == path // 16 * 16).all()


@pytest.mark.parametrize(
    ("change", "keeps"), [({"compact_share": 0.0}, "history"), ({"compact_share": 1.0, "kept_share": 0.0}, "newest")]
)
def test_edits_do_what_they_say(change, keeps):
    workload = replace(SMALL, n_tasks=1, edit_probability=1.0, summary_tokens=5, **change)
    story = draw_story(workload, 3)
    paths = [path.tolist() for path in spell(story)]
    for (before, after), new in zip(pairwise(paths), story.tasks[0][1:], strict=True):
        observation = story.segments[new.added[-2]]
        assert common_prefix(before, after) < len(before)
        if keeps == "history":
            assert len(after) <= len(before) + observation + new.output_tokens
        else:
            assert new.n_kept == 2
            assert len(new.added) == 3  # summary, newest observation, output
            assert story.segments[new.added[0]] == 5


def test_full_window_is_compacted():
    story = draw_story(replace(SMALL, n_tasks=1, n_calls=40, window_tokens=400), 0)
    prompts = [call.input_tokens for call in story.tasks[0]]
    assert 200 < max(prompts) <= 400
    assert any(later < earlier for earlier, later in pairwise(prompts))


def test_sub_agents_share_a_prompt_of_their_own_or_the_tasks():
    workload = replace(SMALL, sub_agent_probability=0.5, shared_prompt_tokens=64)
    for own, expected in ((0, 64), (48, 48)):
        trace = generate(replace(workload, sub_agent_prompt_tokens=own), 2)
        sessions = trace.requests.session.decode()
        first = np.array([np.isnan(gap) for gap in trace.requests.gap_s])
        inner = np.array(["/" in session for session in sessions]) & first
        assert inner.sum() > 1
        assert trace.shared_tokens[inner].tolist()[1:] == [expected] * (int(inner.sum()) - 1)


def test_every_task_draws_from_a_stream_of_its_own():
    few, many = (generate(replace(SMALL, n_tasks=n, n_calls=4 * n), 5) for n in (2, 6))
    assert many.requests.input_tokens[:8].tolist() == few.requests.input_tokens.tolist()


def test_means_are_those_asked_for():
    workload = replace(
        SMALL, n_tasks=20, n_calls=20_000, observation_tokens=300, output_tokens=200, output_sigma=0.7, gap_s=8.0
    )
    workload = replace(workload, window_tokens=1_000_000)
    r = generate(workload, 0).requests
    grown = np.diff(r.input_tokens)[np.diff(r.task.codes) == 0]
    assert r.output_tokens.mean() == pytest.approx(200, rel=0.03)
    assert grown.mean() == pytest.approx(500, rel=0.05)
    assert np.nanmean(r.gap_s) == pytest.approx(8.0, rel=0.05)


def test_same_seed_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_trace(generate(PRESETS["rewriting"], 3), tmp_path / name, "capplan synth")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert generate(SMALL, 0).fingerprint != generate(SMALL, 1).fingerprint


def test_recorded_order_of_arrivals_interleaves_tasks():
    trace = generate(PRESETS["chat"], 0)
    order = choose_order(trace)
    assert order.kind == "recorded"
    assert not order.is_identity
    assert (np.diff(order.time_s) >= 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_tasks": 0}, "n_tasks is 0; 1 or more is accepted"),
        ({"n_calls": 2}, "n_calls is 2; at least one per task (3) is accepted"),
        ({"observation_tokens": 0}, "observation_tokens is 0; 1 or more is accepted"),
        ({"output_sigma": -0.5}, "output_sigma is -0.5; 0 or more is accepted"),
        ({"gap_s": float("nan")}, "gap_s is nan; 0 or more is accepted"),
        ({"edit_probability": 1.5}, "edit_probability is 1.5; 0 to 1 is accepted"),
        ({"arrivals_per_s": 0.0}, "arrivals_per_s is 0.0; a rate above 0, or None is accepted"),
        ({"window_tokens": 40}, "shared_prompt_tokens is 40; at most window_tokens - 4 (36) is accepted"),
        (
            {"sub_agent_prompt_tokens": 131_070},
            "sub_agent_prompt_tokens is 131070; at most window_tokens - 4 (131068) is accepted",
        ),
    ],
)
def test_bad_parameters_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replace(SMALL, **change)


def test_negative_seed_is_refused():
    with pytest.raises(ValueError, match=r"^seed is -1; 0 or more is accepted$"):
        generate(SMALL, -1)


@pytest.mark.parametrize("name", FILES)
def test_bundled_file_is_what_its_command_makes(name):
    preset, seed = FILES[name]
    path = DATA / f"{name}.parquet"
    made, stored = generate(PRESETS[preset], seed), read(path)
    assert made.fingerprint == stored.fingerprint
    assert made.requests.request_ids == stored.requests.request_ids
    command = pl.read_parquet_metadata(path)["capplan.command"]
    assert command == f"capplan synth --preset {preset} --seed {seed} -o data/synthetic/{name}.parquet"
    assert path.stat().st_size < 1_000_000


def test_coding_preset_has_the_published_totals():
    trace = generate(PRESETS["coding"], 5)
    n = trace.requests.input_tokens
    assert len(trace) == 4_427
    assert n.sum() / 1e6 == pytest.approx(147.1, rel=0.003)
    assert n.max() < 131_072
    path = n + trace.requests.output_tokens
    follows = np.flatnonzero(np.diff(trace.requests.task.codes) == 0) + 1
    repeated = np.minimum(trace.shared_tokens[follows], n[follows - 1])
    assert (trace.shared_tokens[follows] <= path[follows - 1]).all()
    assert repeated.sum() / n.sum() == pytest.approx(0.981, abs=0.003)


def test_links_of_one_story_do_not_depend_on_its_times():
    story = draw_story(replace(PRESETS["chat"], n_tasks=20, n_calls=80), 0)
    slower = draw_story(replace(PRESETS["chat"], n_tasks=20, n_calls=80, gap_s=500.0), 0)
    for fast, slow in zip(link_story(story), link_story(slower), strict=True):
        assert fast.tolist() == slow.tolist()
