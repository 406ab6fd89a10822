"""Prompt lengths that contradict the number of their block ids, as where two tokenisers counted."""

import numpy as np
from numpy.typing import NDArray

from capplan.readers.sample import Account, Options

Int64s = NDArray[np.int64]

FITTED = "request whose length contradicts its block ids: block size times ids is taken (--lengths ids)"
NOTHING_TO_FIT = "--lengths ids has no effect: no prompt's length contradicts its block ids"


def contradict(n_tokens: Int64s, n_ids: Int64s, block_tokens: int) -> NDArray[np.bool_]:
    """Whether a prompt has fewer ids than full blocks, or more than blocks in all."""
    full = n_tokens // block_tokens
    return (n_ids < full) | (n_ids > full + (n_tokens % block_tokens > 0))


def fit_lengths(n_tokens: Int64s, offsets: Int64s, block_tokens: int, options: Options, account: Account) -> Int64s:
    """The lengths as stated; where the caller believes the ids, those that contradict them are theirs.

    Parameters
    ----------
    n_tokens : (n,) int64
        Prompt lengths in tokens.
    offsets : (n + 1,) int64
        Where every prompt's ids begin in the flat list of all; the last entry ends it.
    block_tokens : int
        Tokens per id.
    options : Options
        `lengths` says what is believed.
    account : Account
        Gets the number of lengths that were replaced.

    Returns
    -------
    (n,) int64
    """
    if options.lengths == "stated":
        return n_tokens
    n_ids = np.diff(offsets)
    wrong = contradict(n_tokens, n_ids, block_tokens)
    if not wrong.any():
        return n_tokens
    account.found[FITTED] += int(wrong.sum())
    return np.where(wrong, n_ids * block_tokens, n_tokens)
