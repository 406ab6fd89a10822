"""Chained block keys against the reference implementation of XXH64."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from oracles import common_prefix

from capplan.kernels import chain

token_ids = st.integers(0, 2**32 - 1)
seeds = st.integers(0, 2**64 - 1)


@pytest.fixture(autouse=True)
def _wrapping_arithmetic():
    """Without JIT, numpy warns where 64-bit words wrap, which here they must."""
    with np.errstate(over="ignore"):
        yield


def reference(ids, seed):
    return xxhash.xxh64(np.array(ids, "<u4").tobytes(), seed=seed).intdigest()


@pytest.mark.parametrize("n_ids", range(70))
def test_key_is_xxh64_at_every_length(n_ids):
    ids = np.random.default_rng(n_ids).integers(0, 2**32, n_ids, dtype=np.uint32)
    for seed in (0, 1, 2**63, 2**64 - 1):
        assert int(chain.hash_block(ids, 0, n_ids, np.uint64(seed))) == reference(ids, seed)


@given(st.lists(token_ids, max_size=40), seeds, st.integers(0, 5))
def test_key_is_xxh64_anywhere_in_an_array(ids, seed, before):
    padded = np.array([7] * before + ids + [9], np.uint32)
    assert int(chain.hash_block(padded, before, len(ids), np.uint64(seed))) == reference(ids, seed)


def chain_all(ids, block, seed=0):
    keys = np.zeros(len(ids) // block + 1, np.uint64)
    chain.chain_blocks(np.array(ids, np.uint32), 0, block, np.uint64(seed), keys, len(ids) // block)
    return keys[:-1].tolist()


@given(st.lists(token_ids, max_size=60), st.integers(1, 17))
def test_every_key_is_the_blocks_hash_seeded_with_the_key_before(ids, block):
    expected, key = [], 0
    for k in range(len(ids) // block):
        own = reference(ids[k * block : (k + 1) * block], 0)
        key = xxhash.xxh64(own.to_bytes(8, "little"), seed=key).intdigest()
        expected.append(key)
    assert chain_all(ids, block) == expected


@given(st.data(), st.integers(1, 6), st.integers(2, 6))
def test_one_changed_token_changes_its_key_and_every_later_one(data, block, n_blocks):
    ids = data.draw(st.lists(token_ids, min_size=block * n_blocks, max_size=block * n_blocks))
    at = data.draw(st.integers(0, len(ids) - 1))
    changed = [*ids[:at], ids[at] ^ 1, *ids[at + 1 :]]
    same = [a == b for a, b in zip(chain_all(ids, block), chain_all(changed, block), strict=True)]
    assert same == [k < at // block for k in range(n_blocks)]


@given(st.integers(0, 200), st.integers(0, 3), st.integers(0, 3), st.data())
def test_common_ids_are_counted_like_one_by_one(n_common, n_left, n_right, data):
    common = data.draw(st.lists(st.integers(0, 1), min_size=n_common, max_size=n_common))
    left = common + data.draw(st.lists(st.integers(0, 1), min_size=n_left, max_size=n_left))
    right = common + data.draw(st.lists(st.integers(0, 1), min_size=n_right, max_size=n_right))
    ids = np.array([*left, *right], np.uint32)
    for limit in {0, min(len(left), len(right)) // 2, min(len(left), len(right))}:
        found = chain.count_common(ids, 0, len(left), limit)
        assert found == common_prefix(left[:limit], right[:limit])
