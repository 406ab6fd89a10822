"""Published text and token traces: everything in them is read, and counts are those of their sources."""

from itertools import pairwise

import numpy as np
import pytest

from capplan.curve import build_curve
from capplan.order import choose_order, follow_record
from capplan.readers import read_trace
from capplan.readers.sample import Account, Options
from capplan.readers.text import lmcache_agent
from capplan.runs import find_runs
from capplan.tree import build_tree

UNLIMITED = 10**9


def read(path):
    return read_trace(path, tokenizer="bytes")


@pytest.mark.parametrize(
    ("name", "format", "n_calls", "n_sessions"),
    [
        ("mini-swe-agent", "mini-swe-agent", 279, 9),
        ("swe-agent", "swe-agent", 11 + 21, 2),
        ("tau-bench", "tau-bench", 285, 20),
        ("lmcache-agent-trace/magagent", "lmcache-agent", 47, 4),
        ("lmcache-agent-trace/miniswe", "lmcache-agent", 29, 4),
        ("lmcache-agent-trace/taubench", "lmcache-agent", 471, 24),
        ("lmcache-agent-trace", "lmcache-agent", 47 + 29 + 471, 32),
        ("aibrix", "aibrix", 10, 0),
        ("llmservingsim", "llmservingsim", 10 + 300, 0),
    ],
)
def test_every_file_is_read(real_traces, name, format, n_calls, n_sessions):
    trace = read(real_traces / name)
    assert len(trace) == n_calls
    assert len(trace.requests.session.names) == n_sessions
    assert trace.notes[0].startswith(f"{n_calls} requests read as {format}")
    assert choose_order(trace).rows.size == n_calls


def test_mini_swe_agent(real_traces):
    trace = read(real_traces / "mini-swe-agent")
    r = trace.requests
    assert "3870901 x prompt tokens by the provider's count (comparison only)" in trace.notes
    assert "3098620 x prompt tokens the provider had cached (comparison only)" in trace.notes
    assert np.ptp(r.arrival_s) == 5_089
    assert (np.diff(np.sort(r.arrival_s)) == 0).sum() == 5
    in_order = follow_record(trace).rows
    assert (np.diff(r.arrival_s[in_order]) >= 0).all()
    first = np.unique(r.session.codes, return_index=True)[1]
    appended = np.setdiff1d(np.arange(len(trace)), first)
    path = (r.input_tokens + r.output_tokens)[appended - 1] // 16 * 16
    assert (trace.shared_tokens[appended] >= path).all()  # every prompt begins with the one before and its answer


def consecutive(real_traces, name):
    """Pairs of consecutive prompts of every session, and the account of all files."""
    account, pairs = Account(), []
    for file in sorted((real_traces / "lmcache-agent-trace" / name).iterdir()):
        prompts = []
        for batch in lmcache_agent.read(file, Options(tokenizer="bytes"), account):
            n_input = batch.requests.input_tokens.tolist()
            prompts += [batch.ids[at : at + n].tolist() for at, n in zip(batch.offsets.tolist(), n_input, strict=False)]
        pairs += list(pairwise(prompts))
    return pairs, account


def extends(before, after):
    return len(after) > len(before) and after[: len(before)] == before


def test_sorted_prompts_of_miniswe_extend_each_other(real_traces):
    pairs, account = consecutive(real_traces, "miniswe")
    assert (len(pairs), sum(extends(*pair) for pair in pairs)) == (25, 25)
    assert account.found[lmcache_agent.SORTED] == 7


def test_quirks_of_magagent(real_traces):
    pairs, account = consecutive(real_traces, "magagent")
    equal, extended = sum(a == b for a, b in pairs), sum(extends(*pair) for pair in pairs)
    assert (equal, extended, len(pairs) - equal - extended) == (19, 5, 19)
    assert (account.found[lmcache_agent.SORTED], account.found["empty prompt"]) == (3, 1)


def test_quirks_of_taubench(real_traces):
    notes = read(real_traces / "lmcache-agent-trace/taubench").notes
    assert "1 left out: empty files" in notes
    assert "283 x empty output" in notes
    assert f"134 x {lmcache_agent.SORTED}" in notes


def test_llmservingsim_at_16_tokens(real_traces):
    trace = read(real_traces / "llmservingsim/sharegpt-qwen3-30b-a3b-300-sps10.jsonl")
    r = trace.requests
    assert (int(r.input_tokens.sum()), int(r.output_tokens.sum())) == (258_691, 199_486)
    assert r.arrival_s[0] == 0
    assert r.arrival_s[-1] == pytest.approx((29_183_763_203 - 46_926_808) / 1e9, abs=1e-9)
    runs = find_runs(trace, build_tree(trace), follow_record(trace), 16)
    assert (int(runs.n_chunks.sum()), runs.n_distinct) == (16_034, 14_756)
    assert build_curve(runs).covered_tokens(UNLIMITED) == 20_448
    small = read(real_traces / "llmservingsim/example_trace.jsonl").requests
    assert (int(small.input_tokens.sum()), int(small.output_tokens.sum())) == (120, 591)
    assert (int(small.input_tokens.min()), int(small.input_tokens.max())) == (2, 22)


def test_aibrix_lengths_are_kept_for_comparison(real_traces):
    trace = read(real_traces / "aibrix")
    assert "9169 x prompt tokens by the source's count (comparison only)" in trace.notes
    assert not np.isnan(trace.requests.arrival_s).any()
