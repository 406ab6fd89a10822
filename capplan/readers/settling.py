"""What can be said only once all sources are read: the first arrival, tasks of sub-agents, sessions met twice."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from capplan.prompts import Labels, Requests
from capplan.readers.gathering import NS_DIGITS
from capplan.readers.ledger import Ledger

ROOTED_FORMATS = frozenset(("dynamo", "mooncake-extended"))  # a task is called as the session at its root

CHAT_FORMATS = frozenset(("qwen-bailian",))  # a session is called as the call at its root
RECORDED_FORMATS = frozenset(("kv-cache-tester",))  # sessions of people, which releases hold under several names


def settle(requests: Requests, ledger: Ledger) -> Requests:
    """Requests of all sources, the earliest at 0, and each with the session and task of its outermost parent.

    Parameters
    ----------
    requests : Requests
        `arrival_s` counts from the first source's first request.
    ledger : Ledger
        Gets by how much arrivals were moved.
    """
    requests = replace(requests, arrival_s=_count_from_earliest(requests.arrival_s, ledger))
    if CHAT_FORMATS.issuperset(ledger.formats):
        return join_chats(requests)
    return join_tasks(requests) if ROOTED_FORMATS.issuperset(ledger.formats) else requests


def unsettle(requests: Requests, ledger: Ledger) -> Requests:
    """Requests with `arrival_s` as before `settle`, so that more can be put beside them."""
    if ledger.shift_s == 0:
        return requests
    arrival_s = np.round(requests.arrival_s - ledger.shift_s, NS_DIGITS)
    ledger.shift_s = 0.0
    return replace(requests, arrival_s=arrival_s)


def _count_from_earliest(arrival_s: NDArray[np.float64], ledger: Ledger) -> NDArray[np.float64]:
    known = arrival_s[~np.isnan(arrival_s)]
    earliest = float(known.min()) if known.size else 0.0
    if earliest >= 0:
        return arrival_s
    ledger.shift_s = -earliest
    return np.round(arrival_s + ledger.shift_s, NS_DIGITS)


def join_tasks(requests: Requests) -> Requests:
    """Requests whose task is a session of another task get that one, as where their parents are in other files."""
    session, task = requests.session, requests.task
    first_task = np.full(len(session.names), -1, np.int64)
    known = (session.codes >= 0) & (task.codes >= 0)
    first_task[session.codes[known][::-1]] = task.codes[known][::-1]
    parents = {
        name: task.names[code]
        for name, code in zip(session.names, first_task.tolist(), strict=True)
        if code >= 0 and task.names[code] != name
    }
    return replace(requests, task=_rename(task, parents)) if parents else requests


def join_chats(requests: Requests) -> Requests:
    """Requests whose session is a call of another session get that one, as where their parents come later."""
    session = requests.session
    names = set(session.names)
    owners = zip(requests.request_ids, session.codes.tolist(), strict=True)
    parents = {name: session.names[code] for name, code in owners if code >= 0 and name in names}
    parents = {name: parent for name, parent in parents.items() if name != parent}
    if not parents:
        return requests
    session = _rename(session, parents)
    return replace(requests, session=session, task=session)


def _rename(labels: Labels, parents: dict[str, str]) -> Labels:
    """Labels with every name replaced by the root of its parents."""
    roots = Labels.encode(_find_root(name, parents) for name in labels.names)
    return Labels(np.where(labels.codes < 0, -1, roots.codes[labels.codes]), roots.names)


def _find_root(name: str, parents: dict[str, str]) -> str:
    """The last of a chain of parents; the name itself where they run in a circle."""
    root, seen = name, {name}
    while root in parents:
        root = parents[root]
        if root in seen:
            return name
        seen.add(root)
    return root


def find_twins(requests: Requests, ledger: Ledger) -> tuple[str, ...]:
    """Tell of tasks of several calls whose lengths are, call by call, those of an earlier task."""
    if RECORDED_FORMATS.isdisjoint(ledger.formats):
        return ()
    first: dict[bytes, str] = {}
    twins = []
    for name, digest in _digest_tasks(requests):
        if first.setdefault(digest, name) != name:
            twins.append(f"{name} has the same sizes as {first[digest]}: maybe the same session twice; both are kept")
    return tuple(twins)


def _digest_tasks(requests: Requests) -> Iterator[tuple[str, bytes]]:
    """Names of tasks of several calls, and a digest of all their lengths, prompt and output, in row order."""
    task = requests.task
    rows = np.argsort(task.codes, kind="stable")
    sizes = np.stack([requests.input_tokens, requests.output_tokens], axis=1)[rows]
    bounds = np.searchsorted(task.codes[rows], np.arange(len(task.names) + 1))
    for name, begin, end in zip(task.names, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if end - begin > 1:
            yield name, blake2b(sizes[begin:end].tobytes(), digest_size=16).digest()
