"""Chained block keys of token ids, and linking of prompts given as token ids.

Hashing: 16-token blocks of 32-bit ids, each seeded with the key before it, against a plain copy of the
buffer and against XXH3 of the xxhash package called once per block. Linking: whole prompts are
compared with an earlier one first, and only what is new is hashed, so it is told in bytes of prompt.
"""

from collections.abc import Callable

import numpy as np
from harness import MIB, Measure, Result, Settings, SkippedError, interleave, run_alone
from numpy.typing import NDArray
from streams import TOKENS, make_prompts, shrink

from capplan.kernels.chain import chain_blocks
from capplan.linking import link_prompts
from capplan.prompts import Prompts
from capplan.synthetic import generate
from capplan.trace import Trace

try:
    import xxhash
except ImportError:
    xxhash = None

BLOCK_IDS = 16
BUFFER_BYTES = 128 * MIB

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]


def measure(settings: Settings) -> list[Result]:
    if xxhash is None:
        raise SkippedError("xxhash is not installed; `pip install xxhash`")
    n_bytes = MIB if settings.is_small else BUFFER_BYTES
    ids = np.random.default_rng(0).integers(0, 150_000, n_bytes // 4, np.uint32)
    trace = generate(shrink(TOKENS, 0.1) if settings.is_small else TOKENS)
    return compare_hashes(ids, settings.rounds) + compare_linking(trace, settings.rounds)


def compare_hashes(ids: UInt32s, rounds: int) -> list[Result]:
    """Chained keys of one buffer; the xxhash package, called twice per block, must give the same ones."""
    head = ids[: 1_000 * BLOCK_IDS]
    assert np.array_equal(hash_blocks(head), chain_with_package(head))
    keys = np.empty(ids.size // BLOCK_IDS, np.uint64)
    copy = np.empty_like(ids)
    sides = {
        "kernel": lambda: chain_blocks(ids, 0, BLOCK_IDS, np.uint64(0), keys, keys.size),
        "copy": lambda: np.copyto(copy, ids),
        "package": lambda: hash_with_package(ids, xxhash.xxh3_64_intdigest),
    }
    seconds = interleave(sides, rounds)
    measures = {name: Measure(samples, "s", ids.nbytes / 1e9, "GB") for name, samples in seconds.items()}
    what = f"chained keys of 16-token blocks, {ids.nbytes // MIB} MiB of token ids"
    return [
        Result(what, measures["kernel"], "XXH3 of the xxhash package, per block", measures["package"], "faster",
               at_least=8),
        Result(what, measures["kernel"], "plain memory copy", measures["copy"], "the time"),
    ]  # fmt: skip


def hash_blocks(ids: UInt32s) -> UInt64s:
    keys = np.empty(ids.size // BLOCK_IDS, np.uint64)
    chain_blocks(ids, 0, BLOCK_IDS, np.uint64(0), keys, keys.size)
    return keys


def chain_with_package(ids: UInt32s) -> UInt64s:
    """A block's own hash, then its 8 bytes hashed with the key before as seed."""
    key, keys = 0, []
    for block in ids.reshape(-1, BLOCK_IDS):
        key = xxhash.xxh64_intdigest(xxhash.xxh64_intdigest(block.tobytes()).to_bytes(8, "little"), key)
        keys.append(key)
    return np.array(keys, np.uint64)


def hash_with_package(ids: UInt32s, digest: Callable[..., int]) -> UInt64s:
    """One call per block, seeded with the key before it."""
    data, key, keys = memoryview(ids).cast("B"), 0, []
    for at in range(0, len(data) - 4 * BLOCK_IDS + 1, 4 * BLOCK_IDS):
        key = digest(data[at : at + 4 * BLOCK_IDS], key)
        keys.append(key)
    return np.array(keys, np.uint64)


def compare_linking(trace: Trace, rounds: int) -> list[Result]:
    """Linking of an agent trace's prompts; its links must be the ones the trace was made with."""
    prompts = make_prompts(trace)
    linked = link_prompts([prompts])
    assert np.array_equal(linked.parent, trace.parent)
    assert np.array_equal(linked.shared_tokens, trace.shared_tokens)
    keys = np.empty(int(np.diff(prompts.offsets).max()) // BLOCK_IDS, np.uint64)
    sides = {"link": lambda: link_prompts([prompts]), "hash": lambda: hash_whole_prompts(prompts, keys)}
    seconds = interleave(sides, rounds)
    measures = {name: Measure(samples, "s", prompts.ids.nbytes / 1e9, "GB") for name, samples in seconds.items()}
    new = 1 - trace.shared_tokens.sum() / prompts.ids.size
    what = f"linking {len(trace):,} agent prompts of {prompts.ids.size / len(trace):,.0f} tokens, {100 * new:.1f} % new"
    return [Result(what, measures["link"], "hashing every block of every prompt", measures["hash"], "faster")]


def hash_whole_prompts(prompts: Prompts, keys: UInt64s) -> None:
    for begin, end in zip(prompts.offsets[:-1].tolist(), prompts.offsets[1:].tolist(), strict=True):
        chain_blocks(prompts.ids, begin, BLOCK_IDS, np.uint64(0), keys, (end - begin) // BLOCK_IDS)


if __name__ == "__main__":
    run_alone(measure, __doc__)
