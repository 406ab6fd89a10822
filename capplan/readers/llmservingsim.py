"""LLMServingSim workloads: JSONL of token ids, single requests or agents' sessions of several, nanoseconds.

Single requests carry no session, and none is inferred, even where one prompt extends another. A
session's later requests are sent when the one before has ended and its tool has run. Rows of lengths
alone are refused, unless it may be assumed that a session's requests repeat one another.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from capplan.errors import TraceError
from capplan.prompts import Prompts
from capplan.readers import jsonl
from capplan.readers.calls import NO_TOKENS, Call, Tokens, pack, refuse_block_size, to_tokens
from capplan.readers.clock import Clock
from capplan.readers.growth import check_length, in_one_file
from capplan.readers.lines import Count
from capplan.readers.sample import Account, Options, Sample

NAME = "llmservingsim"
CARRIES = "JSONL with arrival_time_ns, input_toks and input_tok_ids, or sub_requests of them"
NS = 10**9

Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Request(msgspec.Struct):
    """One model call."""

    input_toks: Count
    output_toks: Count
    input_tok_ids: list[int] | None = None
    output_tok_ids: list[int] | None = None
    tool_duration_ns: Nanoseconds = 0


class Row(msgspec.Struct):
    """A model call, or a session with several."""

    arrival_time_ns: Nanoseconds
    input_toks: Count | None = None
    output_toks: Count | None = None
    input_tok_ids: list[int] | None = None
    output_tok_ids: list[int] | None = None
    session_id: str | int | None = None
    sub_requests: list[Request] | None = None


def matches(sample: Sample) -> bool:
    """Whether the row is a request or session with an arrival in nanoseconds."""
    return (
        sample.kind == "json"
        and "arrival_time_ns" in sample.fields
        and bool(sample.fields & {"input_toks", "sub_requests"})
    )


def read(path: Path, options: Options, account: Account) -> Iterator[Prompts]:
    """Batches in file order; paths hold prompt and output where every call has the output's ids."""
    refuse_block_size(path, options)
    lines = jsonl.read_lines(path, Row)
    first = next(lines, None)
    if first is None:
        return
    assumed = options.assume_prefix == "session" and not _has_ids(first[1], "input_tok_ids")
    outputs_known = assumed or _has_ids(first[1], "output_tok_ids")
    clock = Clock(per_second=NS, account=account)

    def list_calls() -> Iterator[Call]:
        for row_number, (number, row) in enumerate(chain([first], lines)):
            where = f"{path}, line {number}"
            arrival = float(clock.read([row.arrival_time_ns])[0])
            for k, (request, call) in enumerate(_list_requests(row, arrival, where, account)):
                place = where if row.sub_requests is None else f"{where}, sub-request {k}"
                if assumed:
                    call.prompt, call.answer = make_ids(request, row_number, place)
                else:
                    call.prompt, call.answer = read_ids(request, place, outputs_known)
                yield call

    yield from pack(list_calls(), account, outputs_known=outputs_known, namespaces=in_one_file if assumed else None)
    account.assume("times are nanoseconds; no sessions are inferred from prompts that extend one another")
    if assumed:
        account.assume(
            "every request is taken to repeat its session's previous prompt and response as far as its length allows "
            "(--assume-prefix session); the source has sizes only"
        )


def _list_requests(row: Row, arrival: float, where: str, account: Account) -> Iterator[tuple[Request, Call]]:
    """The requests of a row, and their calls without ids."""
    session = None if row.session_id is None else str(row.session_id)
    calls = row.sub_requests
    if calls is None:
        if row.input_toks is None or row.output_toks is None:
            raise TraceError(f"{where}: input_toks or output_toks is missing; both, or sub_requests, are needed")
        request = Request(row.input_toks, row.output_toks, row.input_tok_ids, row.output_tok_ids)
        yield request, Call(NO_TOKENS, NO_TOKENS, row.output_toks, None, session, session, arrival)
        return
    if session is None:
        raise TraceError(f"{where}: session_id is missing; a row with sub_requests needs one")
    if not calls:
        account.skipped["session without requests"] += 1
    account.assume("only the first call of a session has an arrival: later ones follow the response and the tool")
    for k, request in enumerate(calls):
        call = Call(NO_TOKENS, NO_TOKENS, request.output_toks, f"{session}:{k}", session, session)
        if k == 0:
            call.arrival_s, call.start_s = arrival, 0.0
        else:
            call.gap_s = calls[k - 1].tool_duration_ns / NS
        if k == len(calls) - 1:
            call.tail_gap_s = request.tool_duration_ns / NS
        yield request, call


def read_ids(request: Request, where: str, outputs_known: bool) -> tuple[Tokens, Tokens]:
    """Token ids of prompt and output.

    Raises
    ------
    TraceError
        No prompt ids, their number contradicts the length, or output ids on some calls only.
    """
    if request.input_tok_ids is None:
        raise TraceError(
            f"{where}: input_tok_ids is missing, and lengths do not say what prompts share; accepted: token ids on "
            "every call, or --assume-prefix session to take a session's calls to repeat one another"
        )
    if outputs_known != (request.output_tok_ids is not None):
        raise TraceError(f"{where}: output_tok_ids is on some calls only; on every call, or on none, is accepted")
    for name, ids, length_name, n in (
        ("input_tok_ids", request.input_tok_ids, "input_toks", request.input_toks),
        ("output_tok_ids", request.output_tok_ids, "output_toks", request.output_toks),
    ):
        if ids is not None and len(ids) != n:
            raise TraceError(f"{where}: {len(ids)} {name}, but {length_name} is {n}; the same number is accepted")
    prompt = to_tokens(request.input_tok_ids, "input_tok_ids", where)
    return prompt, to_tokens(request.output_tok_ids or [], "output_tok_ids", where)


def make_ids(request: Request, session: int, where: str) -> tuple[Tokens, Tokens]:
    """Ids for lengths: one and the same id all through a session, so that its paths are prefixes of each other."""
    check_length(request.input_toks + request.output_toks, where)
    return np.full(request.input_toks, session, np.uint32), np.full(request.output_toks, session, np.uint32)


def _has_ids(row: Row, name: str) -> bool:
    """Whether a row, or its first call, has ids of this name."""
    return getattr(row.sub_requests[0] if row.sub_requests else row, name) is not None
