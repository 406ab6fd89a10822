"""BurstGPT: CSV of sizes, arrivals and, on chat rows, sessions. Refused unless reuse may be assumed.

With `--assume-prefix session` every request of a session is taken to repeat the session's previous
prompt and response as far as its own length allows. Nothing in the file says so.
"""

import csv
import io
from collections.abc import Iterator
from itertools import chain, dropwhile
from pathlib import Path

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import files, jsonl
from capplan.readers.clock import Clock, Responses, number_requests
from capplan.readers.growth import GrowingPaths, check_length, in_one_file
from capplan.readers.jsonl import RowBatch
from capplan.readers.lines import Count, Seconds, Wait, keep_rows
from capplan.readers.sample import Account, Options, Sample

NAME = "burstgpt"
CARRIES = "CSV with Timestamp in s, Session ID, Request tokens, Response tokens; only with --assume-prefix session"
RESOLUTION_TOKENS = 16
NEEDED = ("Timestamp", "Request tokens", "Response tokens")
SESSION = "Session ID"


class Row(msgspec.Struct, rename={"sent": "Timestamp", "n_input": "Request tokens", "n_output": "Response tokens"}):
    """One request."""

    sent: Seconds
    n_input: Count
    n_output: Count
    session: str | None = msgspec.field(default=None, name=SESSION)
    service: Wait | None = msgspec.field(default=None, name="Elapsed time")
    model: str | None = msgspec.field(default=None, name="Model")


def matches(sample: Sample) -> bool:
    """Whether the columns are those of the release."""
    return sample.kind == "csv" and set(NEEDED) <= sample.fields


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches of requests in file order; paths go on with the output."""
    if options.assume_prefix is None:
        raise TraceError(
            f"{path}: BurstGPT holds sizes only, so what prompts share is unknown; accepted: a trace with token ids, "
            "block hashes or text, or --assume-prefix session: every request then repeats its session's previous one"
        )
    block = options.block_tokens or RESOLUTION_TOKENS
    clock, responses = Clock(1, account), Responses()
    paths = GrowingPaths(block)
    last: dict[str, int] = {}
    for batch in jsonl.in_batches(read_rows(path)):
        numbers, rows = zip(*batch, strict=True)
        wanted = [options.keeps_model(row.model, account) for row in rows]
        kept = keep_rows(RowBatch(path, numbers, rows), wanted)
        if kept.rows:
            yield make_prompts(kept, block, paths, last, clock, responses, account)
    account.assume(
        "every request is taken to repeat its session's previous prompt and response as far as its length allows "
        "(--assume-prefix session); the source has sizes only"
    )


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Line numbers and rows; raises TraceError for a column that is missing or a field of another type."""
    with files.open_bytes(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        number = 1
        try:
            lines = dropwhile(lambda pair: not pair[1].strip(), enumerate(text, 1))
            number, header = next(lines, (1, ""))
            reader = csv.DictReader(chain([header], (line for _, line in lines)), skipinitialspace=True)
            names = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            for name in (*NEEDED, SESSION):
                if name not in names:
                    raise TraceError(f"{path}: column {name!r} is missing; accepted: {CARRIES}")
            n_blank = number - 1
            for fields in reader:
                number = n_blank + reader.line_num
                yield number, _to_row(fields, f"{path}, line {number}")
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path}, line {number}: not CSV ({error}); a complete row is needed") from error


def _to_row(fields: dict[str, str], where: str) -> Row:
    given = {name: value.strip() for name, value in fields.items() if name is not None and value and value.strip()}
    try:
        return msgspec.convert(given, Row, strict=False)
    except msgspec.ValidationError as error:
        raise TraceError(f"{where}: {error}") from error


def make_prompts(
    batch: RowBatch[Row],
    block: int,
    paths: GrowingPaths,
    last: dict[str, int],
    clock: Clock,
    responses: Responses,
    account: Account,
) -> Prompts:
    """The Prompts of one batch; `last` holds the length of every session's last path."""
    rows = batch.rows
    keys = []
    for k, row in enumerate(rows):
        name = f"row {account.n_read + k}" if row.session is None else row.session
        n_path = row.n_input + row.n_output
        check_length(n_path, batch.where(k))
        keys.append(paths.grow(name, min(last.get(name, 0), row.n_input), n_path))
        if row.session is None:
            paths.forget(name)
        else:
            last[name] = n_path
    n_alone = sum(row.session is None for row in rows)
    if n_alone:
        account.found["request without a session: it shares nothing"] += n_alone
    n_failed = sum(row.n_output == 0 for row in rows)
    if n_failed:
        account.found["request without a response: kept, its prompt was sent"] += n_failed
    ids, offsets = jsonl.flatten(keys)
    requests = number_requests(
        np.array([row.n_input for row in rows], np.int64),
        np.array([row.n_output for row in rows], np.int64),
        [row.session for row in rows],
        clock.read(row.sent for row in rows),
        np.array([np.nan if row.service is None else row.service for row in rows]),
        responses,
        account,
    )
    return Prompts(requests, ids, offsets, "hashes", block, outputs_known=True, namespaces=in_one_file(len(rows)))
