"""Hit tokens that kvcache-simulator 0.1.3 prints for the Mooncake traces, reproduced to the token.

Its rule counts what capplan's own coverage does not: the last block of a prompt also where it is
partial, worth the prompt's tokens in it; and it scores only requests from index n // 2 on. So a path is
all its ids, a request's hit is the smaller of its covered blocks and its prompt, and the rest is the
leaf-first LRU of docs/model.md section 2.
"""

import json

import numpy as np
import pytest
from builders import hash_prompts

from capplan.curve import cover_requests
from capplan.linking import link_prompts
from capplan.order import choose_order
from capplan.runs import find_runs
from capplan.tree import build_tree

BLOCK_TOKENS = 512

# Hit tokens by cache blocks, and the prompt tokens they are counted among.
PUBLISHED = {
    "conversation": (
        67_915_607,
        {
            119: 3_080_581,
            238: 3_082_824,
            954: 3_169_222,
            1_909: 3_731_697,
            3_819: 5_591_198,
            7_639: 11_963_589,
            15_279: 18_337_393,
            30_559: 23_461_960,
            61_119: 26_043_252,
        },
    ),
    "synthetic": (
        36_552_394,
        {119: 441_344, 477: 2_359_895, 1_909: 7_783_352, 7_639: 19_431_004, 15_279: 26_223_679},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_hit_tokens_are_the_published_ones(real_traces, name):
    n_scored, published = PUBLISHED[name]
    with (real_traces / "mooncake" / f"{name}_trace.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    n_input = np.array([row["input_length"] for row in rows])
    trace = link_prompts([hash_prompts([row["hash_ids"] for row in rows], BLOCK_TOKENS)])
    runs = find_runs(trace, build_tree(trace), choose_order(trace, "recorded"), BLOCK_TOKENS)
    scored = slice(n_input.size // 2, None)
    hits = {slots: np.minimum(cover_requests(runs, slots), n_input)[scored].sum() for slots in published}
    assert n_input[scored].sum() == n_scored
    assert hits == published
