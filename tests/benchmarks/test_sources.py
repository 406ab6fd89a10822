"""Generated sources: what is written is read back with the links it was made from."""

import io
from dataclasses import replace
from itertools import pairwise

import bench_memory
import hash_sources
import msgspec
import numpy as np
import pytest
from harness import Settings

from capplan.readers import read_trace
from capplan.synthetic import generate

BLOCKS = {"Qwen-Bailian": 16, "Dynamo": 64, "LMCache lookups, hexadecimal": 256}


@pytest.fixture(scope="module")
def trace():
    return generate(replace(hash_sources.CONVERSATIONS, n_tasks=4, n_calls=40))


@pytest.mark.parametrize("form", hash_sources.FORMATS, ids=lambda form: form.name)
def test_every_format_is_read_with_the_links_of_its_trace(form, trace, tmp_path):
    path = hash_sources.write_lines(tmp_path / "rows.jsonl", form.list_rows(trace))
    linked = read_trace(path, **dict(form.options))
    block = BLOCKS.get(form.name, 512)
    assert linked.resolution_tokens == block
    limit = linked.requests.input_tokens // block * block
    assert linked.requests.input_tokens.tolist() == trace.requests.input_tokens.tolist()
    assert linked.shared_tokens.tolist() == find_shared(trace, block).tolist()
    assert (linked.shared_tokens <= limit).all()


def find_shared(trace, block):
    """Tokens of every prompt that an earlier prompt, without its output, has too, in whole blocks."""
    paths, shared = [], []
    requests = trace.requests
    for row, (parent, n) in enumerate(zip(trace.parent.tolist(), trace.shared_tokens.tolist(), strict=True)):
        own = [(row, k) for k in range(n, int(requests.input_tokens[row] + requests.output_tokens[row]))]
        paths.append((paths[parent][:n] if parent >= 0 else []) + own)
    seen = set()
    for path, n_input in zip(paths, requests.input_tokens.tolist(), strict=True):
        ends = [path[end - 1] for end in range(block, n_input + 1, block)]
        shared.append(block * sum(end in seen for end in ends))
        seen.update(ends)
    return np.array(shared)


@pytest.mark.parametrize("form", hash_sources.FORMATS, ids=lambda form: form.name)
def test_the_parsers_shape_fits_the_rows(form, trace):
    for row in form.list_rows(trace):
        assert msgspec.json.decode(msgspec.json.encode(row), type=form.shape)


def write(writer, n_bytes):
    file = io.BytesIO()
    writer(file, n_bytes)
    return [msgspec.json.decode(line) for line in file.getvalue().splitlines()]


def test_agents_that_run_three_times_have_no_more_blocks():
    once, thrice = write(bench_memory.write_agents, 100_000), write(bench_memory.write_agents_thrice, 300_000)
    assert len(thrice) == 3 * len(once)
    assert {i for row in thrice for i in row["hash_ids"]} == {i for row in once for i in row["hash_ids"]}


@pytest.mark.parametrize("writer", [bench_memory.write_agents, bench_memory.write_conversations])
def test_generated_ids_are_chained(writer):
    before = {}
    for row in write(writer, 200_000):
        assert row["input_length"] == 512 * len(row["hash_ids"])
        for pair in pairwise([None, *row["hash_ids"]]):
            assert before.setdefault(pair[1], pair) == pair


def test_a_footprint_counts_what_was_written():
    source = bench_memory.Source("agents", bench_memory.write_agents, 100_000)
    found = bench_memory.take_in(source, Settings())
    rows = write(source.write, source.n_bytes)
    assert found.n_requests == len(rows)
    assert found.n_references == sum(len(row["hash_ids"]) for row in rows)
    assert found.n_distinct == len({i for row in rows for i in row["hash_ids"]})
    assert found.n_bytes >= source.n_bytes
    assert 20 < found.peak_mb < 1000


def test_large_sources_are_measured_on_request_only(monkeypatch):
    monkeypatch.setattr(bench_memory, "take_in", lambda source, settings: source)
    assert len(bench_memory.measure(Settings(is_large=True))) == len(bench_memory.SOURCES)
    small = bench_memory.measure(Settings())
    assert small
    assert not any(source.is_large for source in small)
