"""Block ids that mean the same only in parts of a trace, made into keys that differ between the parts."""

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

NAMESPACE_BITS = 24
ID_BITS = 64 - NAMESPACE_BITS


def separate(ids: UInt64s, lengths: Int64s, namespaces: UInt64s) -> UInt64s:
    """Keys that differ between namespaces.

    Small namespaces go into the upper bits of small ids, which is exact. Where either is large, both are
    mixed into 64 bits: different within a namespace, and by chance equal between two of them as seldom
    as keys of token ids.

    Parameters
    ----------
    ids : (total,) uint64
        Block ids of all paths, one after the other.
    lengths : (n,) int64
        Ids of every path.
    namespaces : (n,) uint64
        Of every path; 0 where its ids mean the same everywhere.
    """
    if not namespaces.any():
        return ids
    spaces = np.repeat(namespaces, lengths)
    keys = (spaces << np.uint64(ID_BITS)) | ids
    is_large = (spaces > 0) & ((spaces >> np.uint64(NAMESPACE_BITS) > 0) | (ids >> np.uint64(ID_BITS) > 0))
    if is_large.any():
        keys[is_large] = _mix(ids[is_large] ^ _mix(spaces[is_large]))
    return keys


def _mix(words: UInt64s) -> UInt64s:
    """The finaliser of SplitMix64, a one-to-one map of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
