"""Baseten traces: Parquet or Arrow with the block hashes of production prompts, or with their text.

Hashes are taken where there are any; whether they are prefix-chained is checked while linking. Without
them the text is tokenised. Of the two session ids the provider's is taken, unless it never repeats
and the one guessed from prompts does.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import baseten_rows as rows
from capplan.readers import block_hashes, hashes, parquet, tables
from capplan.readers.clock import Clock, Responses, number_requests
from capplan.readers.lengths import fit_lengths
from capplan.readers.lines import MS
from capplan.readers.sample import Account, Options, Sample
from capplan.readers.tables import Batch
from capplan.readers.text import baseten_prompts

NAME = "baseten"
CARRIES = (
    "Parquet or Arrow with timestamp_start_unix_ms, input_tokens, output_tokens, and total_hashes and block_size, or "
    "prompt; the latter needs --tokenizer"
)


def matches(sample: Sample) -> bool:
    """Whether the columns are those of the format."""
    return sample.kind in ("parquet", "arrow") and set(rows.NEEDED) <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order."""
    source = tables.find_columnar(path) or parquet
    types, _ = source.read_header(path)
    for name in rows.NEEDED:
        if name not in types:
            raise TraceError(f"{path}: column {name} is missing; accepted: {CARRIES}")
    if rows.HASHES not in types and rows.PROMPT not in types:
        raise TraceError(f"{path}: neither {rows.HASHES} nor {rows.PROMPT}; one of these columns is needed")
    session_name = rows.choose_session(source, path, types, account)
    if rows.HASHES not in types:
        yield from baseten_prompts.read_prompts(source, path, types, session_name, options, account)
        return
    clock, responses = Clock(MS, account, is_epoch=True), Responses()
    cached = rows.Cached()
    block: int | None = None
    for batch in rows.read_rows(source, path, types, rows.HASHES, options, account):
        block = block_hashes.find_block_size(batch, replace(options, block_tokens=block or options.block_tokens))
        yield make_prompts(batch, block, session_name, clock, responses, options, account)
        cached.add(batch)
    cached.tell(account)


def make_prompts(
    batch: Batch,
    block: int,
    session_name: str | None,
    clock: Clock,
    responses: Responses,
    options: Options,
    account: Account,
) -> Prompts:
    """The Prompts of one batch."""
    n_input, n_output = (rows.count_tokens(batch, name) for name in ("input_tokens", "output_tokens"))
    ids, offsets = block_hashes.read_series(batch.columns[rows.HASHES], rows.HASHES, batch)
    n_input = fit_lengths(n_input, offsets, block, options, account)
    ids, offsets = hashes.keep_full_blocks(ids, offsets, n_input, block, batch.where)
    requests = number_requests(
        n_input,
        n_output,
        rows.name_sessions(batch, session_name),
        clock.read(rows.read_numbers(batch, rows.SENT)),
        np.array(rows.read_numbers(batch, rows.SERVICE), np.float64) / MS,
        responses,
        account,
    )
    rows.note_canceled(batch, account)
    return Prompts(requests, ids, offsets, "hashes", block)
