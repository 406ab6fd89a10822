"""Small inputs for tests: prompts, traces and files out of plain lists."""

import json

import numpy as np

from capplan.linking import link_prompts
from capplan.order import Order
from capplan.prompts import Labels, Prompts, Requests


def flatten(lists, dtype):
    """Flat ids and offsets of a list of lists."""
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64)
    return np.array([i for ids in lists for i in ids], dtype), offsets


def token_prompts(paths, block, n_input=None, session=None):
    """Token-id prompts; `n_input` says where each prompt ends and its output begins, if known."""
    ids, offsets = flatten(paths, np.uint32)
    lengths = np.array([len(path) for path in paths], np.int64)
    prompt = lengths if n_input is None else np.array(n_input, np.int64)
    requests = Requests.of(
        prompt, output_tokens=lengths - prompt, session=None if session is None else Labels.encode(session)
    )
    return Prompts(requests, ids, offsets, "tokens", block, outputs_known=n_input is not None)


def hash_prompts(id_lists, block, n_input=None, namespaces=None, session=None):
    """Block-hash prompts, full blocks only unless `n_input` says otherwise."""
    ids, offsets = flatten(id_lists, np.uint64)
    lengths = np.diff(offsets) * block if n_input is None else np.array(n_input, np.int64)
    spaces = None if namespaces is None else np.array(namespaces, np.uint64)
    requests = Requests.of(lengths, session=None if session is None else Labels.encode(session))
    return Prompts(requests, ids, offsets, "hashes", block, namespaces=spaces)


def chain(path, block, keys):
    """Block ids of a token path: equal whole prefixes, equal ids; `keys` remembers them across paths."""
    prefixes = [tuple(path[: (k + 1) * block]) for k in range(len(path) // block)]
    return [keys.setdefault(prefix, len(keys)) for prefix in prefixes]


def link_tokens(paths, block=1, n_input=None):
    """Linked trace of token paths."""
    return link_prompts([token_prompts(paths, block, n_input)])


def links(trace):
    """Parents and shared tokens as lists."""
    return trace.parent.tolist(), trace.shared_tokens.tolist()


def in_order(rows):
    """A stream of the given rows."""
    return Order("recorded", np.array(rows, np.int64), None, None)


def write_jsonl(path, rows):
    """Write one JSON object per line; a str or bytes row stands as it is."""
    lines = [row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else dump(row) for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def dump(value):
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
