"""Traces on disk for the commands."""

import pytest
from builders import write_jsonl
from plans import agent_trace, hash_rows, token_rows

from capplan import write_trace


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the traces of the session stand; tests write elsewhere."""
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="session")
def linked(folder):
    """A linked file with a clock and tasks, and without notes."""
    write_trace(agent_trace(), folder / "linked.parquet")
    return folder / "linked.parquet"


@pytest.fixture(scope="session")
def tokens(folder):
    """Token ids of two tasks."""
    return write_jsonl(folder / "tokens.jsonl", token_rows())


@pytest.fixture(scope="session")
def nameless(folder):
    """Token ids without sessions, tasks or times."""
    rows = [{"token_ids": row["token_ids"]} for row in token_rows()]
    return write_jsonl(folder / "nameless.jsonl", rows)


@pytest.fixture(scope="session")
def hashes(folder):
    """Chained block hashes that do not say how many tokens a block has."""
    return write_jsonl(folder / "hashes.jsonl", hash_rows())


@pytest.fixture(scope="session")
def unchained(folder):
    """Block hashes in which one id has two predecessors."""
    return write_jsonl(folder / "unchained.jsonl", [*hash_rows(), {"hash_ids": [9, 2, 3], "task_id": "c"}])


@pytest.fixture(scope="session")
def timeless(folder):
    """A linked file with tasks and without times."""
    write_trace(agent_trace(has_clock=False), folder / "timeless.parquet")
    return folder / "timeless.parquet"
