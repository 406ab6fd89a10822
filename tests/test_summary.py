"""Who shares with whom, against a search through all earlier prompts."""

import dataclasses

from builders import token_prompts
from hypothesis import given
from hypothesis import strategies as st
from strategies import split_paths

from capplan.linking import link_prompts
from capplan.prompts import Labels
from capplan.summary import find_sharing, summarise
from capplan.tree import build_tree


def common(left, right):
    return next((k for k, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@given(split_paths(max_requests=10), st.integers(1, 3), st.data(), st.booleans())
def test_sharing_is_what_a_search_finds(made, block, data, outputs_known):
    n = len(made)
    session = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=n, max_size=n))
    task = [None if name is None else {"a": "t", "b": "t", "c": "u"}[name] for name in session]
    lengths = [cut for _, cut in made]
    prompts = [path[:cut] for path, cut in made]
    # The last token of an output is sampled and has no KV.
    held = [path[: max(cut, len(path) - 1)] for path, cut in made] if outputs_known else prompts
    whole = [path for path, _ in made] if outputs_known else prompts
    batch = token_prompts(whole, block, lengths if outputs_known else None, session=session)
    batch = dataclasses.replace(batch, requests=dataclasses.replace(batch.requests, task=Labels.encode(task)))
    trace = link_prompts([batch])

    def whole_blocks(path):
        return path[: len(path) // block * block]

    def longest(k, names):
        earlier = range(k) if names is None else [j for j in range(k) if names[k] is not None and names[j] == names[k]]
        return (
            max((common(whole_blocks(prompts[k]), whole_blocks(held[j])) for j in earlier), default=0) // block * block
        )

    in_session = sum(longest(k, session) for k in range(n))
    in_task = sum(max(longest(k, task), longest(k, session)) for k in range(n))
    anywhere = sum(longest(k, None) for k in range(n))
    sharing = find_sharing(trace, build_tree(trace))
    assert (sharing.session_tokens, sharing.task_tokens, sharing.other_tokens) == (
        in_session, in_task - in_session, anywhere - in_task,
    )  # fmt: skip
    assert sharing.new_tokens == sum(lengths if outputs_known else map(len, prompts)) - anywhere
    if not outputs_known:
        assert sharing.shared_tokens == trace.shared_tokens.sum()
    assert summarise(trace).n_sessions == len({name for name in session if name is not None})
