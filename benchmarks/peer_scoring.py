"""Hit tokens of a leaf-first LRU by the scoring rule of kvcache-simulator 0.1.3, from capplan's run table.

The rule, which differs from capplan's own definition of coverage in its first two points:

1. Every block id counts, also the last one of a prompt, which may stand for a partial block: a path has
   as many blocks as ids, and a covered path is worth at most the prompt's tokens.
2. Only requests from index ``n // 2`` on are scored; the earlier ones fill the tier.
3. Requests follow the file. A request is looked up before it touches anything; its covered blocks are
   those before the first one that is not resident. It then touches its whole path, deepest block first.
4. Hit tokens of a request are ``min(covered blocks x block tokens, input tokens)``.

Where one prompt has more blocks than the tier has slots, the two can differ by a block of that prompt.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capplan.curve import cover_requests
from capplan.linking import link_prompts
from capplan.order import Order
from capplan.prompts import Prompts, Requests
from capplan.runs import Runs, find_runs
from capplan.tree import build_tree

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Scored:
    """Run table of a trace with its partial blocks counted, and the prompt tokens of every request, (n,)."""

    runs: Runs
    input_tokens: NDArray[np.int64]

    @property
    def first_scored(self) -> int:
        """Requests from here on count."""
        return self.input_tokens.size // 2

    @property
    def scored_tokens(self) -> int:
        """Prompt tokens of the requests that count."""
        return int(self.input_tokens[self.first_scored :].sum())

    def hit_tokens(self, n_slots: int) -> int:
        """Hit tokens in a tier of `n_slots` blocks."""
        covered = np.minimum(cover_requests(self.runs, n_slots), self.input_tokens)
        return int(covered[self.first_scored :].sum())


def read_scored(path: Path) -> Scored:
    """Read a Mooncake JSONL with every id as a block."""
    with path.open("rb") as file:
        rows = [json.loads(line) for line in file]
    return score([row["hash_ids"] for row in rows], [row["input_length"] for row in rows], path.name)


def score(ids: Sequence[Sequence[int]], input_tokens: Sequence[int], where: str = "prompts") -> Scored:
    """Run table of prompts given as chained block ids, the last one of each possibly partial."""
    lengths = np.array([len(path) for path in ids], np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.fromiter((block for path in ids for block in path), np.uint64, int(offsets[-1]))
    prompts = Prompts(Requests.of(lengths * BLOCK_TOKENS), flat, offsets, "hashes", BLOCK_TOKENS)
    trace = link_prompts([prompts], where)
    order = Order("recorded", np.arange(len(trace)), None, None)
    runs = find_runs(trace, build_tree(trace), order, BLOCK_TOKENS)
    return Scored(runs, np.array(input_tokens, np.int64))
