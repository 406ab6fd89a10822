"""Random agents written in every format that can carry them come back with the same links."""

import numpy as np
import pytest
import writers_text as w
from builders import links
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import link_by_search

from capplan.readers import read_trace


@pytest.mark.parametrize("name", w.TEXT_WRITERS)
@settings(max_examples=30)
@given(made=w.conversations())
def test_conversations_come_back_with_the_same_links(tmp_path_factory, name, made):
    write, with_answers = w.TEXT_WRITERS[name]
    trace = read_trace(write(tmp_path_factory.mktemp("text"), made), tokenizer="bytes")
    paths, n_input = w.paths_of(made, with_answers)
    assert trace.outputs_known == with_answers
    assert trace.requests.input_tokens.tolist() == n_input
    assert links(trace) == link_by_search(paths, 16)
    if name != "sagemaker-capture":
        numbers = [number for number, one in enumerate(made) for _ in one.calls()]
        assert trace.requests.session.codes.tolist() == trace.requests.task.codes.tolist() == numbers


@settings(max_examples=30)
@given(made=w.conversations(), order=st.randoms(use_true_random=False))
def test_plain_prompts_come_back_in_the_order_of_their_times(tmp_path_factory, made, order):
    prompts, times = [], []
    for number, conversation in enumerate(made):
        calls = [
            (conversation.name, bytes(w.render(before)).decode(), answer) for before, answer in conversation.calls()
        ]
        prompts += calls
        times += [1_900_000_000_000_000 + 10**9 * number + k for k in range(len(calls))]
    shuffled = list(range(len(prompts)))
    order.shuffle(shuffled)
    folder = tmp_path_factory.mktemp("lmcache")
    trace = read_trace(
        w.write_lmcache(folder, [prompts[k] for k in shuffled], [times[k] for k in shuffled]), tokenizer="bytes"
    )
    assert links(trace) == link_by_search([list((text + answer).encode()) for _, text, answer in prompts], 16)
    assert trace.requests.arrival_s.tolist() == pytest.approx([(time - times[0]) / 1e6 for time in times], abs=1e-6)


@settings(max_examples=30)
@given(moments=st.lists(st.lists(w.texts, max_size=3), min_size=1, max_size=4))
def test_several_prompts_of_one_moment_come_back(tmp_path_factory, moments):
    prompts = [text for moment in moments for text in moment]
    path = tmp_path_factory.mktemp("aibrix") / "w.jsonl"
    w.write_aibrix(path, [(21 * k, [(text, 3) for text in moment]) for k, moment in enumerate(moments)])
    if prompts:
        trace = read_trace(path, tokenizer="bytes")
        assert links(trace) == link_by_search([list(text.encode()) for text in prompts], 16)
        assert trace.requests.output_tokens.tolist() == [3] * len(prompts)


def token_paths(tasks):
    return [prompt + output for task in tasks for prompt, output in task.calls]


def check_sizes(trace, tasks):
    calls = [call for task in tasks for call in task.calls]
    assert trace.outputs_known
    assert trace.requests.input_tokens.tolist() == [len(prompt) for prompt, _ in calls]
    assert trace.requests.output_tokens.tolist() == [len(output) for _, output in calls]
    assert links(trace) == link_by_search(token_paths(tasks), 16)


@settings(max_examples=30)
@given(tasks=w.token_tasks(), compress=st.booleans())
def test_replay_traces_come_back(tmp_path_factory, tasks, compress):
    trace = read_trace(w.write_replay(tmp_path_factory.mktemp("replay"), tasks, compress))
    check_sizes(trace, tasks)
    assert trace.requests.gap_s.tolist() == [gap / 1e9 for task in tasks for gap in task.gaps_ns]
    tails = [tail for task in tasks for tail in [np.nan] * (len(task.calls) - 1) + [task.tail_ns / 1e9]]
    np.testing.assert_array_equal(trace.requests.tail_gap_s, tails)


@settings(max_examples=30)
@given(tasks=w.token_tasks())
def test_agent_runs_come_back(tmp_path_factory, tasks):
    trace = read_trace(w.write_agent_run(tmp_path_factory.mktemp("run"), tasks))
    check_sizes(trace, tasks)
    assert trace.requests.gap_s.tolist() == [gap / 1e9 for task in tasks for gap in task.gaps_ns]
    assert trace.requests.service_s.tolist() == [ns / 1e9 for task in tasks for ns in task.service_ns]


@settings(max_examples=30)
@given(tasks=w.token_tasks(), agentic=st.booleans())
def test_llmservingsim_workloads_come_back(tmp_path_factory, tasks, agentic):
    trace = read_trace(w.write_llmservingsim(tmp_path_factory.mktemp("lss") / "w.jsonl", tasks, agentic))
    check_sizes(trace, tasks)
    if agentic:
        gaps = [gap for task in tasks for gap in [np.nan, *(ns / 1e9 for ns in task.gaps_ns[1:])]]
        np.testing.assert_array_equal(trace.requests.gap_s, gaps)
    else:
        assert not trace.requests.session.names
