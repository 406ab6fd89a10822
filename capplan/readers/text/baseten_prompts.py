"""Baseten traces without hashes: the prompt's text is tokenised; what the model wrote is only counted."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import baseten_rows as rows
from capplan.readers.calls import Call, pack, refuse_block_size
from capplan.readers.clock import Clock, Responses
from capplan.readers.lines import MS
from capplan.readers.sample import Account, Options
from capplan.readers.tables import Batch
from capplan.readers.text.tokenizing import Tokenizer, find_tokenizer

COUNTED = "prompt tokens by the source's count (comparison only)"


def read_prompts(
    source: ModuleType,
    path: Path,
    types: Mapping[str, Any],
    session_name: str | None,
    options: Options,
    account: Account,
) -> Iterator[Prompts]:
    """Batches in file order; `source` is the module that reads the file's columns, `types` are their types."""
    refuse_block_size(path, options)
    tokenizer = find_tokenizer(options, path, "a Baseten trace without total_hashes")
    if str(types[rows.PROMPT]) != "String":
        raise TraceError(f"{path}: {rows.PROMPT} is {types[rows.PROMPT]}; a column of texts is accepted")
    clock, responses = Clock(MS, account, is_epoch=True), Responses()
    cached = rows.Cached()

    def list_calls() -> Iterator[Call]:
        for batch in rows.read_rows(source, path, types, rows.PROMPT, options, account):
            arrival_s = clock.read(rows.read_numbers(batch, rows.SENT))
            yield from _encode(batch, session_name, arrival_s, responses, tokenizer)
            account.found[COUNTED] += int(rows.count_tokens(batch, "input_tokens").sum())
            rows.note_canceled(batch, account)
            cached.add(batch)

    yield from pack(list_calls(), account, outputs_known=False)
    cached.tell(account)
    account.assume("prompts are the text logged, without a chat template; output tokens are the source's count")
    tokenizer.annotate(account)


def _encode(
    batch: Batch,
    session_name: str | None,
    arrival_s: NDArray[np.float64],
    responses: Responses,
    tokenizer: Tokenizer,
) -> Iterator[Call]:
    """The calls of a batch."""
    sessions = rows.name_sessions(batch, session_name)
    service_s = np.array(rows.read_numbers(batch, rows.SERVICE), np.float64) / MS
    gap_s = responses.find_gaps(sessions, arrival_s, service_s)
    n_output = rows.count_tokens(batch, "output_tokens").tolist()
    for k, text in enumerate(batch.columns[rows.PROMPT].to_list()):
        if text is None:
            raise TraceError(f"{batch.where(k)}: {rows.PROMPT} is null; a text on every row is accepted")
        yield Call(
            tokenizer.encode_prompt(text),
            n_output=n_output[k],
            session=sessions[k],
            task=sessions[k],
            arrival_s=float(arrival_s[k]),
            gap_s=float(gap_s[k]),
            service_s=float(service_s[k]),
        )
