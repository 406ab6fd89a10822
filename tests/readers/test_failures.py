"""Every format against every way a file can be wrong: the exact line, or why the format cannot fail so.

`BROKEN` is a table: by format, by failure, what is changed in the format's miniature (place and value),
and the line it is refused with. `CANNOT` has the cells that stay empty.
"""

import copy

import pytest
from damage import refusal
from miniatures import MINIATURES

from capplan.readers import FORMATS, detect_format, read_trace

FAILURES = (
    "truncated",
    "wrong type",
    "negative number",
    "null ids",
    "contradicting count",
    "duplicate names",
    "unknown version",
)
CUT_BYTES = 9
KEPT = {("kv-cache-tester", "contradicting count"), ("token-ids", "contradicting count")}  # read, and told of

CUT = "not JSON (Input data was truncated); a complete object is needed"
COUNT = "2 block hashes for 500 tokens; accepted: 31 to 32 of 16 tokens each"
TWICE = "stands twice; names must be unique"

BROKEN = {
    "kv-cache-tester": {
        "truncated": ([], f": {CUT}"),
        "wrong type": ([((0, "requests", 1, "in"), "x")], ": Expected `int | null`, got `str` - at `$.requests[1].in`"),
        "negative number": ([((0, "requests", 1, "in"), -1)], ", request 1: in is -1; 0 to 2147483647 is accepted"),
        "null ids": (
            [((0, "requests", 1, "hash_ids"), None)],
            ", request 1: hash_ids is missing; a model call needs in, out and hash_ids",
        ),
        "contradicting count": (
            [((0, "requests", 1, "in"), 500)],
            "1 x request with fewer ids than full blocks: the rest counts as never seen before",
        ),
        "unknown version": (
            [((0, "hash_id_scope"), "planet")],
            ": hash_id_scope is 'planet'; accepted: 'local', 'global', or no such field",
        ),
    },
    "qwen-bailian": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "input_length"), "x")], ", line 2: Expected `int`, got `str` - at `$.input_length`"),
        "negative number": ([((1, "input_length"), -1)], ", line 2: Expected `int` >= 0 - at `$.input_length`"),
        "null ids": ([((1, "hash_ids"), None)], ", line 2: Expected `array`, got `null` - at `$.hash_ids`"),
        "contradicting count": ([((1, "input_length"), 500)], f", line 2: {COUNT}"),
        "duplicate names": ([((1, "chat_id"), 1)], f", line 2: chat_id 1 {TWICE}"),
    },
    "mooncake-delta": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "input_length"), "x")], ", line 2: Expected `int`, got `str` - at `$.input_length`"),
        "negative number": ([((1, "output_length"), -1)], ", line 2: Expected `int` >= 0 - at `$.output_length`"),
        "null ids": ([((1, "hash_ids"), None)], ", line 2: Expected `array`, got `null` - at `$.hash_ids`"),
        "contradicting count": ([((1, "input_length"), 500)], f", line 2: {COUNT}"),
    },
    "mooncake-extended": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": (
            [((1, "session_id"), [])],
            ", line 2: Expected `int | str | null`, got `array` - at `$.session_id`",
        ),
        "negative number": ([((1, "input_length"), -1)], ", line 2: Expected `int` >= 0 - at `$.input_length`"),
        "null ids": (
            [((1, "hash_ids"), None)],
            ", line 2: hash_ids is missing; a list of block ids on every row is accepted",
        ),
        "contradicting count": ([((1, "input_length"), 500)], f", line 2: {COUNT}"),
        "duplicate names": ([((1, "request_id"), "a")], f", line 2: request_id 'a' {TWICE}"),
        "unknown version": (
            [((0, "schema"), "dynamo.agentic_mooncake"), ((0, "version"), 9)],
            ", line 1: schema 'dynamo.agentic_mooncake', version 9 is not known; agentic Mooncake rows "
            "without a header are accepted",
        ),
    },
    "mooncake": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "timestamp"), "x")], ", line 2: Expected `int | float`, got `str` - at `$.timestamp`"),
        "negative number": ([((1, "input_length"), -1)], ", line 2: Expected `int` >= 0 - at `$.input_length`"),
        "null ids": ([((1, "hash_ids"), None)], ", line 2: Expected `array`, got `null` - at `$.hash_ids`"),
        "contradicting count": ([((1, "input_length"), 500)], f", line 2: {COUNT}"),
        "unknown version": (
            [((1, "session_id"), "s")],
            ", line 2: field session_id belongs to another dialect (--from mooncake-extended); accepted: "
            "timestamp, input_length, output_length, hash_ids",
        ),
    },
    "dynamo": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "request"), [])], ", line 2: Expected `object | null`, got `array` - at `$.request`"),
        "negative number": (
            [((1, "request", "replay", "input_length"), -1)],
            ", line 2: Expected `int` >= 0 - at `$.request.replay.input_length`",
        ),
        "null ids": (
            [((1, "request", "replay", "input_sequence_hashes"), None)],
            ", line 2: Expected `array`, got `null` - at `$.input_sequence_hashes`",
        ),
        "contradicting count": ([((1, "request", "replay", "input_length"), 500)], f", line 2: {COUNT}"),
        "duplicate names": ([((1, "request", "request_id"), "a")], f"m.jsonl, row 1: request_id 'a' {TWICE}"),
        "unknown version": (
            [((1, "schema"), "dynamo.request.trace.v2")],
            ", line 2: schema is 'dynamo.request.trace.v2'; accepted: dynamo.request.trace.v1, dynamo.agent.trace.v1",
        ),
    },
    "lmcache-hashes": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "seq_len"), "x")], ", line 2: Expected `int`, got `str` - at `$.seq_len`"),
        "negative number": ([((1, "seq_len"), -1)], ", line 2: Expected `int` >= 0 - at `$.seq_len`"),
        "null ids": ([((1, "chunk_hashes"), None)], ", line 2: Expected `array`, got `null` - at `$.chunk_hashes`"),
        "contradicting count": ([((1, "seq_len"), 500)], f", line 2: {COUNT}"),
        "duplicate names": (
            [((1, "request_id"), "a"), ((1, "chunk_hashes"), ["0x0a", "0x0c"])],
            ", line 2: request_id 'a' stands twice with other chunks; names must be unique",
        ),
    },
    "baseten": {
        "truncated": ([], ": not readable as Parquet ("),
        "wrong type": (
            [((0, "input_tokens"), "x"), ((1, "input_tokens"), "x")],
            ", row 0: input_tokens is 'x'; a whole number from 0 to 2147483647 is accepted",
        ),
        "negative number": (
            [((1, "input_tokens"), -1)],
            ", row 1: input_tokens is -1; a whole number from 0 to 2147483647 is accepted",
        ),
        "null ids": (
            [((1, "total_hashes"), None)],
            ", row 1: total_hashes is null; a list of block hashes on every row is accepted",
        ),
        "contradicting count": ([((1, "input_tokens"), 500)], f", row 1: {COUNT}"),
    },
    "tracelab": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "round_index"), "x")], ", line 2: Expected `int`, got `str` - at `$.round_index`"),
        "negative number": (
            [((1, "input_tokens_total"), -1)],
            ", line 2: Expected `int` >= 0 - at `$.input_tokens_total`",
        ),
        "contradicting count": (
            [((1, "prefix_tokens"), 60)],
            ", line 2: prefix_tokens is 60 of 50 prompt tokens; a prefix no longer than the prompt is accepted",
        ),
    },
    "applied-compute": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "num_turns"), "x")], ", line 1: Expected `int`, got `str` - at `$.num_turns`"),
        "negative number": (
            [((1, "input_prompt_length"), -1)],
            ", line 1: Expected `int` >= 0 - at `$.input_prompt_length`",
        ),
        "null ids": (
            [((1, "assistant_response_length"), None)],
            ", line 1: Expected `array`, got `null` - at `$.assistant_response_length`",
        ),
        "contradicting count": (
            [((1, "num_turns"), 2)],
            ", line 1: assistant_response_length has 1 entries for 2 turns; one per turn is accepted",
        ),
    },
    "burstgpt": {
        "truncated": ([], ", line 3: Object missing required field `Request tokens`"),
        "wrong type": ([((1, "Request tokens"), "x")], ", line 3: Expected `int`, got `str` - at `$.Request tokens`"),
        "negative number": ([((1, "Request tokens"), -1)], ", line 3: Expected `int` >= 0 - at `$.Request tokens`"),
    },
    "replay-trace": {
        "truncated": ([], f"/m.jsonl, line 3: {CUT}"),
        "wrong type": ([((2, "seq"), "x")], "/m.jsonl, line 3: Expected `int`, got `str` - at `$.seq`"),
        "negative number": ([((2, "prompt_len"), -1)], "/m.jsonl, line 3: Expected `int` >= 0 - at `$.prompt_len`"),
        "null ids": (
            [((2, "prompt_suffix"), None)],
            "/m.jsonl, line 3: Expected `array`, got `null` - at `$.prompt_suffix`",
        ),
        "contradicting count": (
            [((2, "prompt_len"), 3)],
            "/m.jsonl, line 3: prompt_len is 3, but there are 2 tokens; the same number is accepted",
        ),
        "duplicate names": (
            [((2, "seq"), 1)],
            "/m.jsonl, line 3: seq 1 stands twice in the task; one line per call is accepted",
        ),
        "unknown version": (
            [("trace_manifest.json", {"schema": "efficientagent.replay_trace.v9"})],
            "/trace_manifest.json: schema is 'efficientagent.replay_trace.v9'; accepted: "
            "efficientagent.replay_trace.v1",
        ),
    },
    "agent-run": {
        "truncated": ([], f"/attempts/t/attempt_00/telemetry/llm_requests.jsonl, line 2: {CUT}"),
        "wrong type": (
            [((1, "request_sequence"), "x")],
            "/attempts/t/attempt_00/telemetry/llm_requests.jsonl, line 2: Expected `int`, got `str` - at "
            "`$.request_sequence`",
        ),
        "negative number": (
            [((1, "start_wall_ns"), -1)],
            "/attempts/t/attempt_00/telemetry/llm_requests.jsonl, line 2: Expected `int` >= 0 - at `$.start_wall_ns`",
        ),
        "null ids": (
            [((1, "prompt_token_ids"), None)],
            "/attempts/t/attempt_00/telemetry/llm_requests.jsonl, line 2: prompt_token_ids or "
            "generated_token_ids is missing; both are needed for a call that succeeded",
        ),
        "duplicate names": (
            [((1, "request_sequence"), 1)],
            "/attempts/t/attempt_00/telemetry/llm_requests.jsonl, line 2: request_sequence 1 stands twice; "
            "each call once is accepted",
        ),
    },
    "llmservingsim": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "input_toks"), "x")], ", line 2: Expected `int | null`, got `str` - at `$.input_toks`"),
        "negative number": ([((1, "input_toks"), -1)], ", line 2: Expected `int` >= 0 - at `$.input_toks`"),
        "null ids": (
            [((1, "input_tok_ids"), None)],
            ", line 2: input_tok_ids is missing, and lengths do not say what prompts share; accepted: token "
            "ids on every call, or --assume-prefix session to take a session's calls to repeat one another",
        ),
        "contradicting count": (
            [((1, "input_toks"), 4)],
            ", line 2: 3 input_tok_ids, but input_toks is 4; the same number is accepted",
        ),
        "duplicate names": (
            [
                (
                    (0,),
                    {
                        "session_id": "s",
                        "arrival_time_ns": 0,
                        "sub_requests": [
                            {"input_toks": 1, "output_toks": 0, "input_tok_ids": [1], "output_tok_ids": []}
                        ],
                    },
                ),
                (
                    (1,),
                    {
                        "session_id": "s",
                        "arrival_time_ns": 0,
                        "sub_requests": [
                            {"input_toks": 1, "output_toks": 0, "input_tok_ids": [1], "output_tok_ids": []}
                        ],
                    },
                ),
            ],
            f"m.jsonl, row 1: request_id 's:0' {TWICE}",
        ),
    },
    "mini-swe-agent": {
        "truncated": ([], f": {CUT}"),
        "wrong type": ([((0, "messages"), {})], ": Expected `array`, got `object` - at `$.messages`"),
        "negative number": (
            [((0, "messages", 1, "extra", "response", "usage", "prompt_tokens"), -1)],
            ": Expected `int` >= 0 - at `$.messages[1].extra.response.usage.prompt_tokens`",
        ),
        "null ids": ([((0, "messages"), None)], ": Expected `array`, got `null` - at `$.messages`"),
        "unknown version": (
            [((0, "trajectory_format"), "mini-swe-agent-9")],
            ": trajectory_format is 'mini-swe-agent-9'; accepted: mini-swe-agent-1, mini-swe-agent-1.1",
        ),
    },
    "swe-agent": {
        "truncated": ([], f": {CUT}"),
        "wrong type": ([((0, "trajectory"), {})], ": Expected `array`, got `object` - at `$.trajectory`"),
        "negative number": (
            [((0, "trajectory", 0, "execution_time"), -1)],
            ": Expected `float` >= 0.0 - at `$.trajectory[0].execution_time`",
        ),
        "null ids": (
            [((0, "history"), None)],
            ": neither history nor a query on every step; one of them is needed for the prompts",
        ),
    },
    "tau-bench": {
        "truncated": ([], f": {CUT}"),
        "wrong type": ([((0, 1, "traj"), {})], ": Expected `array`, got `object` - at `$[1].traj`"),
        "null ids": ([((0, 1, "traj"), None)], ": Expected `array`, got `null` - at `$[1].traj`"),
        "duplicate names": (
            [((0, 1, "task_id"), 0)],
            ", item 1: task 0, trial 0 stands twice; one item for each is accepted",
        ),
    },
    "openhands": {
        "truncated": (
            [],
            "/x/m.json, line 1: neither Parquet nor JSON (Input data was truncated); a known trace format is needed",
        ),
        "wrong type": ([((0, "messages"), {})], "/x/m.json: Expected `array`, got `object` - at `$.messages`"),
        "negative number": (
            [((0, "response", "usage", "prompt_tokens"), -1)],
            "/x/m.json: Expected `int` >= 0 - at `$.response.usage.prompt_tokens`",
        ),
        "null ids": ([((0, "messages"), None)], "/x/m.json: Expected `array`, got `null` - at `$.messages`"),
    },
    "lmcache-agent": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "input"), 5)], ", line 2: Expected `str | array`, got `int` - at `$.input`"),
        "negative number": ([((1, "timestamp"), -1)], ", line 2: Expected `int` >= 0 - at `$.timestamp`"),
        "null ids": ([((1, "input"), None)], ", line 2: Expected `str | array`, got `null` - at `$.input`"),
    },
    "aiperf-inputs": {
        "truncated": ([], f": {CUT}"),
        "wrong type": (
            [((0, "data", 0, "payloads"), {})],
            ": Expected `array`, got `object` - at `$.data[0].payloads`",
        ),
        "negative number": (
            [((0, "data", 0, "payloads", 0, "max_tokens"), -1)],
            ": Expected `int` >= 0 - at `$.data[0].payloads[0].max_tokens`",
        ),
        "null ids": (
            [((0, "data", 0, "payloads", 0, "messages"), None)],
            ", session 's', payload 0: neither messages nor prompt; one of them is needed",
        ),
    },
    "aibrix": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "requests"), {})], ", line 1: Expected `array`, got `object` - at `$.requests`"),
        "negative number": (
            [((1, "requests", 0, "Output Length"), -1)],
            ", line 1: Expected `int` >= 0 - at `$.requests[0].Output Length`",
        ),
        "null ids": (
            [((1, "requests", 0, "prompt"), None)],
            ", line 1, request 0: prompt is missing; its text is needed",
        ),
    },
    "sagemaker-capture": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "captureData"), [])], ", line 2: Expected `object`, got `array` - at `$.captureData`"),
        "null ids": (
            [((1, "captureData", "endpointInput", "data"), "{}")],
            ", line 2: no prompt in the captured request; messages, or a text in inputs or prompt, is needed",
        ),
        "duplicate names": ([((1, "eventMetadata", "eventId"), "a")], f"m.jsonl, row 1: request_id 'a' {TWICE}"),
    },
    "openai-chat": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "messages"), {})], ", line 2: Expected `array | null`, got `object` - at `$.messages`"),
        "negative number": (
            [((1, "usage", "completion_tokens"), -1)],
            ", line 2: Expected `int` >= 0 - at `$.usage.completion_tokens`",
        ),
        "null ids": ([((1, "messages"), None)], ", line 2: no messages; a list of them is needed"),
        "duplicate names": ([((1, "request_id"), "a")], f"m.jsonl, row 1: request_id 'a' {TWICE}"),
    },
    "token-ids": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": ([((1, "token_ids"), [1.5])], ", line 2: Expected `int`, got `float` - at `$.token_ids[0]`"),
        "negative number": (
            [((1, "output_tokens"), -1)],
            ", line 2: output_tokens is -1; a whole number from 0 to 2147483647 is accepted",
        ),
        "null ids": ([((1, "token_ids"), None)], ", line 2: Expected `array`, got `null` - at `$.token_ids`"),
        "contradicting count": (
            [((1, "input_tokens"), 99)],
            "1 x request whose input_tokens differ from the number of its ids, which is taken",
        ),
        "duplicate names": ([((1, "request_id"), "a")], f"m.jsonl, row 1: request_id 'a' {TWICE}"),
    },
    "block-hashes": {
        "truncated": ([], f", line 2: {CUT}"),
        "wrong type": (
            [((1, "block_ids"), [1.5])],
            ", line 2: Expected `int | str`, got `float` - at `$.block_ids[0]`",
        ),
        "negative number": (
            [((1, "input_tokens"), -1)],
            ", line 2: input_tokens is -1; a whole number from 0 to 2147483647 is accepted",
        ),
        "null ids": (
            [((1, "block_ids"), None)],
            ", line 2: block_ids is null; a list of block hashes on every row is accepted",
        ),
        "contradicting count": ([((1, "input_tokens"), 500)], f", line 2: {COUNT}"),
        "duplicate names": ([((1, "request_id"), "a")], f"m.jsonl, row 1: request_id 'a' {TWICE}"),
    },
}
NO_VERSION = "rows say of no version"
NO_NAMES = "calls have no names of their own: they are numbered"
NO_LENGTHS = "lengths are those of the ids or of the text"
NO_IDS = "there are no ids"
CANNOT = {
    "kv-cache-tester": {"duplicate names": NO_NAMES},
    "qwen-bailian": {"unknown version": NO_VERSION},
    "mooncake-delta": {"duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "mooncake": {"duplicate names": NO_NAMES},
    "lmcache-hashes": {"unknown version": NO_VERSION},
    "baseten": {"duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "tracelab": {"null ids": NO_IDS, "duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "applied-compute": {"duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "burstgpt": {
        "null ids": NO_IDS,
        "contradicting count": NO_IDS,
        "duplicate names": NO_NAMES,
        "unknown version": NO_VERSION,
    },
    "agent-run": {"contradicting count": NO_LENGTHS, "unknown version": NO_VERSION},
    "llmservingsim": {"unknown version": NO_VERSION},
    "mini-swe-agent": {"contradicting count": NO_LENGTHS, "duplicate names": NO_NAMES},
    "swe-agent": {"contradicting count": NO_LENGTHS, "duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "tau-bench": {
        "negative number": "there are no numbers",
        "contradicting count": NO_LENGTHS,
        "unknown version": NO_VERSION,
    },
    "openhands": {"contradicting count": NO_LENGTHS, "duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "lmcache-agent": {"contradicting count": NO_LENGTHS, "duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "aiperf-inputs": {"contradicting count": NO_LENGTHS, "duplicate names": NO_NAMES, "unknown version": NO_VERSION},
    "aibrix": {
        "contradicting count": "the source's count is kept for comparison",
        "duplicate names": NO_NAMES,
        "unknown version": NO_VERSION,
    },
    "sagemaker-capture": {
        "negative number": "there are no numbers",
        "contradicting count": NO_LENGTHS,
        "unknown version": NO_VERSION,
    },
    "openai-chat": {"contradicting count": NO_LENGTHS, "unknown version": NO_VERSION},
    "token-ids": {"unknown version": NO_VERSION},
    "block-hashes": {"unknown version": NO_VERSION},
}
REFUSED = {"azure", "kv-events", "lmcache-calls", "lmcache-log", "otel-spans"}
ELSEWHERE = {"capplan"}  # tests/readers/test_canonical.py


def test_every_format_stands_in_the_table():
    assert set(BROKEN) == set(MINIATURES) == set(FORMATS) - REFUSED - ELSEWHERE
    for name, failures in BROKEN.items():
        assert set(failures) | set(CANNOT.get(name, {})) == set(FAILURES), name
        assert not set(failures) & set(CANNOT.get(name, {})), name


@pytest.mark.parametrize("name", MINIATURES)
def test_whole_miniatures_are_recognised_and_read(tmp_path, name):
    made = MINIATURES[name]
    path = made.write(tmp_path)
    assert detect_format(path) is FORMATS[name]
    trace = read_trace(path, **made.options)
    assert f"requests read as {name}" in trace.notes[0]


def put(rows, place, value):
    """The rows with another value at a place."""
    changed = copy.deepcopy(rows)
    inside = changed
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return changed


def write_broken(folder, name, failure):
    made, rows = copy.deepcopy(MINIATURES[name]), MINIATURES[name].rows
    for place, value in BROKEN[name][failure][0]:
        if isinstance(place, str):
            made.beside[place] = value
        else:
            rows = put(rows, place, value)
    return made.write(folder, rows, cut=CUT_BYTES if failure == "truncated" else 0), made.options


@pytest.mark.parametrize(("name", "failure"), [(name, failure) for name, row in BROKEN.items() for failure in row])
def test_broken_miniatures(tmp_path, name, failure):
    path, options = write_broken(tmp_path, name, failure)
    expected = BROKEN[name][failure][1]
    if (name, failure) in KEPT:
        assert expected in read_trace(path, name, **options).notes
        return
    found = refusal(path, format=name, **options)
    assert found == expected or (expected.endswith("(") and found.startswith(expected))  # "(": another library's words


@pytest.mark.parametrize("name", [name for name, made in MINIATURES.items() if made.kind != "parquet"])
@pytest.mark.parametrize("change", ["\r\n", "mark", "blank lines", "last newline"])
def test_line_ends_and_what_stands_around_lines_do_not_matter(tmp_path, name, change):
    made = MINIATURES[name]
    path = made.write(tmp_path)
    whole = read_trace(path, **made.options)
    file = tmp_path / made.name
    text = file.read_bytes()
    changed = {
        "\r\n": text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
        "mark": b"\xef\xbb\xbf" + text,
        "blank lines": b"\n\n" + text + b"\n\n",
        "last newline": text + b"\n",
    }
    file.write_bytes(changed[change])
    trace = read_trace(path, **made.options)
    assert (trace.fingerprint, trace.notes) == (whole.fingerprint, whole.notes)
