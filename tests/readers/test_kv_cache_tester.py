"""kv-cache-tester sessions: scopes, sub-agents, doubled log lines and odd clocks."""

import json

import numpy as np
import pytest
from builders import dump, links

from capplan.errors import TraceError
from capplan.order import choose_order
from capplan.readers import read_trace
from capplan.readers.ledger import EARLIEST_LATER

BLOCK = 64


def call(ids, t=0.0, kind="s", out=5, n_input=None, **more):
    n = BLOCK * len(ids) if n_input is None else n_input
    return {"t": t, "type": kind, "model": "m", "in": n, "out": out, "hash_ids": list(ids)} | more


def subagent(calls, t=0.0, **more):
    return {"t": t, "type": "subagent", "agent_id": "a1", "subagent_type": "Explore", "requests": calls} | more


def session(calls, scope="local", **more):
    scoped = {} if scope is None else {"hash_id_scope": scope}
    return {"id": "x", "models": ["m"], "block_size": BLOCK, "requests": calls} | scoped | more


@pytest.fixture
def write(tmp_path):
    """Write sessions as files a.json, b.json, ... of one folder; a single one is given as its file."""

    def write_sessions(*sessions):
        for name, content in zip("abcdefgh", sessions, strict=False):
            (tmp_path / f"{name}.json").write_bytes(content if isinstance(content, bytes) else dump(content))
        return tmp_path if len(sessions) > 1 else tmp_path / "a.json"

    return write_sessions


def refusal(path, **options):
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- one session


def test_calls_become_requests_of_one_session_and_task(write):
    calls = [call([1, 2], 0.0, api_time=1.5), call([1, 2, 3], 4.0, n_input=200, out=0, think_time=2.0, api_time=None)]
    trace = read_trace(write(session(calls)))
    r = trace.requests
    assert links(trace) == ([-1, 0], [0, 128])
    assert trace.resolution_tokens == 64
    assert r.request_ids == ["a:0", "a:1"]
    assert r.session.decode() == r.task.decode() == ["a", "a"]
    assert (r.input_tokens.tolist(), r.output_tokens.tolist()) == ([128, 200], [5, 0])
    assert r.start_s.tolist() == [0, 4]
    np.testing.assert_array_equal(r.service_s, [1.5, np.nan])
    np.testing.assert_array_equal(r.gap_s, [np.nan, 2])
    assert np.isnan(r.arrival_s).all()
    assert trace.notes == (
        "2 requests read as kv-cache-tester",
        "session starts are not recorded: they come from the pool",
    )


def test_gap_is_the_think_time_else_the_time_since_the_response(write):
    calls = [
        call([1], 0.0, api_time=1.5),
        call([1], 4.0, api_time=1.0),
        call([1], 4.75, think_time=0.5),
        call([1], 9.0),
    ]
    gaps = read_trace(write(session(calls))).requests.gap_s
    np.testing.assert_array_equal(gaps, [np.nan, 2.5, 0.5, np.nan])


def test_optional_keys_may_be_missing(write):
    bare = {"block_size": 64, "requests": [{"t": 0, "type": "?", "in": 70, "out": 1, "hash_ids": [1]}]}
    trace = read_trace(write(bare))
    assert trace.requests.input_tokens.tolist() == [70]
    assert np.isnan(trace.requests.service_s).all()


@pytest.mark.parametrize(("n_input", "n_ids"), [(0, 0), (63, 0), (63, 1), (64, 1), (127, 1), (127, 2)])
def test_ids_cover_full_blocks_with_or_without_the_partial_one(write, n_input, n_ids):
    trace = read_trace(write(session([call(range(n_ids), n_input=n_input)] * 2)))
    assert trace.shared_tokens.tolist() == [0, n_input // 64 * 64]
    assert not any("ids" in note for note in trace.notes)


def test_ids_that_do_not_fit_the_length_are_reported(write):
    calls = [call([1, 2, 3], n_input=64), call([1], n_input=256), call([1], n_input=256)]
    trace = read_trace(write(session(calls)))
    assert links(trace) == ([-1, 0, 0], [0, 64, 64])
    assert trace.requests.input_tokens.tolist() == [64, 256, 256]
    assert trace.notes[1:3] == (
        "2 x request with fewer ids than full blocks: the rest counts as never seen before",
        "1 x request with more ids than blocks: the surplus is left out",
    )


def test_times_before_the_start_are_shifted_not_clipped(write):
    calls = [call([1], 5.0), call([1], -279058.5), call([1], 929407.0)]
    trace = read_trace(write(session(calls)))
    assert trace.requests.start_s.tolist() == [279063.5, 0, 1208465.5]
    assert "1 x session with times before its start, shifted to begin at 0" in trace.notes


def test_mark_line_ends_and_spread_out_json(write):
    text = json.dumps(session([call([1]), call([1])]), indent=1).replace("\n", "\r\n").encode()
    trace = read_trace(write(b"\xef\xbb\xbf" + text))
    assert links(trace) == ([-1, 0], [0, 64])


def test_length_0_with_ids_is_told_apart_from_a_surplus(write):
    trace = read_trace(write(session([call([1, 2], n_input=0), call([1, 2])])))
    assert links(trace) == ([-1, -1], [0, 0])
    assert trace.requests.input_tokens.tolist() == [0, 128]
    assert "1 x request of length 0 with ids: they are left out" in trace.notes
    assert not any("more ids than blocks" in note for note in trace.notes)


# --- starts


def test_starts_of_all_sessions_give_arrivals_on_one_clock(write):
    first = session([call([1], 5.0), call([1], 8.5)], None, _start_ts="2026-02-03T04:05:06.2500000Z")
    second = session([call([1], -4.0), call([1], 1.0, out=6)], None, _start_ts="2026-02-03T05:05:06+01:00")
    trace = read_trace(write(first, second))
    assert trace.requests.arrival_s.tolist() == [9.25, 12.75, 0, 5]
    assert trace.requests.start_s.tolist() == [5, 8.5, 0, 5]
    assert trace.notes[1:] == ("1 x session with times before its start, shifted to begin at 0", EARLIEST_LATER)
    assert choose_order(trace).kind == "recorded"


def test_a_start_that_is_missing_leaves_the_sessions_to_the_pool(write):
    trace = read_trace(write(session([call([1])], _start_ts="2026-02-03T04:05:06"), session([call([1])])))
    np.testing.assert_array_equal(trace.requests.arrival_s, [0, np.nan])
    assert trace.notes[1:] == (
        "1 x session without a start among sessions with one: arrivals are incomplete",
        "session starts are not recorded: they come from the pool",
    )
    assert choose_order(trace).kind == "pool"


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01T00:00:00"])
def test_refused_start(write, text):
    path = write(session([call([1])], _start_ts=text))
    assert refusal(path) == f"{path}: _start_ts is {text!r}; an ISO 8601 date and time is accepted"


# --- models


def test_calls_of_other_models_are_left_out_and_counted(write):
    calls = [call([1]), call([1], model="big-2"), subagent([call([2], model="big-1"), call([2], model=None)])]
    path = write(session(calls), session([call([1])]))
    trace = read_trace(path, model_filter="big-*")
    assert trace.requests.request_ids == ["a:0", "a:1"]
    assert trace.requests.session.decode() == ["a", "a#a1"]
    assert trace.notes[:2] == (
        "2 requests read as kv-cache-tester",
        "3 left out: of another model than big-* (--model-filter)",
    )


# --- sub-agents


def test_subagents_are_sessions_of_the_same_task_at_the_wrappers_place(write):
    inner = [call([7], 0.25, "n"), call([7, 8], 2.0, api_time=1.0)]
    calls = [call([1], 0.0), subagent(inner, 10.5), call([1, 2], 11.0), subagent([call([9])], 3.0, agent_id="b2")]
    r = read_trace(write(session(calls))).requests
    assert r.session.decode() == ["a", "a#a1", "a#a1", "a", "a#b2"]
    assert r.task.decode() == ["a"] * 5
    assert r.start_s.tolist() == [0, 10.75, 12.5, 11, 3]


def test_wrappers_without_a_name_are_kept_apart_by_their_place(write):
    calls = [subagent([call([1])], agent_id=None), subagent([call([2])], agent_id=None), subagent([])]
    assert read_trace(write(session(calls))).requests.session.decode() == ["a#0", "a#1"]


def test_wrapper_without_calls_is_counted(write):
    bare = {"t": 1.0, "type": "subagent", "agent_id": "a1", "status": None}
    trace = read_trace(write(session([call([1]), bare, bare | {"requests": None}])))
    assert len(trace) == 1
    assert "2 left out: sub-agent without recorded calls" in trace.notes


def test_subagents_of_the_same_sizes_are_reported(write):
    calls = [call([1])] + [subagent([call([k]), call([k, 9 + k])], agent_id=f"x{k}") for k in (2, 3, 4)]
    trace = read_trace(write(session(calls)))
    assert len(trace) == 7
    assert "2 x sub-agent with the same sizes as another of its session: both are kept" in trace.notes


def test_gaps_of_a_subagent_are_its_own(write):
    calls = [
        call([1], 0.0, api_time=1.0),
        subagent([call([7], 0.0, api_time=1.0), call([7], 5.0)], 2.0),
        call([1], 3.0),
    ]
    gaps = read_trace(write(session(calls))).requests.gap_s
    np.testing.assert_array_equal(gaps, [np.nan, np.nan, 4, 2])


def test_subagents_of_subagents_are_refused(write):
    path = write(session([call([1]), subagent([call([1]), subagent([])])]))
    assert refusal(path) == f"{path}, request 1.1: a sub-agent inside a sub-agent; one level is accepted"


# --- scopes


def test_local_ids_are_shared_within_a_file_only(write):
    one = session([call([1, 2]), subagent([call([1, 2, 3])])], "local")
    assert links(read_trace(write(one, one))) == ([-1, 0, -1, 2], [0, 128, 0, 128])


def test_global_ids_are_shared_between_files(write):
    one = session([call([1, 2]), subagent([call([1, 2, 3])])], "global")
    assert links(read_trace(write(one, one))) == ([-1, 0, 0, 1], [0, 128, 128, 192])


def test_ids_without_a_scope_are_those_of_one_agent(write):
    one = session([call([1, 2]), subagent([call([1, 2]), call([1, 2])]), call([1, 2])], None)
    assert links(read_trace(write(one, one))) == ([-1, -1, 1, 0, -1, -1, 5, 4], [0, 0, 128, 128, 0, 0, 128, 128])


def test_scopes_may_differ_between_files(write):
    files = [session([call([1])] * 2, scope) for scope in ("global", "local", None, "global")]
    assert links(read_trace(write(*files))) == ([-1, 0, -1, 2, -1, 4, 0, 0], [0, 64] * 3 + [64, 64])


@pytest.mark.parametrize("scope", ["local", None])
def test_large_local_ids_keep_apart(write, scope):
    ids = [2**64 - 1, -2, 2**53, 2**53 + 1]
    one = session([call(ids[:2]), call(ids), call([2**53 + 1])], scope)
    path = write(one, one)
    assert "a second predecessor or position" in refusal(path)
    one = session([call(ids[:2]), call(ids)], scope)
    assert links(read_trace(write(one, one))) == ([-1, 0, -1, 2], [0, 128, 0, 128])


def test_large_global_ids_beside_local_ones_are_refused(write):
    path = write(session([call([2**40])], "global"), session([call([1])], "local"))
    assert refusal(path) == (
        f"{path.name}: block ids of more than 40 bits that mean the same everywhere, and others that do not; "
        "--ids content keeps them apart"
    )
    assert links(read_trace(path, ids="content")) == ([-1, -1], [0, 0])


def test_unknown_scope_is_refused(write):
    path = write(session([call([1])], "planet"))
    assert refusal(path) == f"{path}: hash_id_scope is 'planet'; accepted: 'local', 'global', or no such field"


def test_unchained_ids_name_the_call(write):
    path = write(session([call([1, 2])]), session([call([1, 2]), call([3, 2])]))
    assert refusal(path) == (
        f"{path.name}, row 2 (request 'b:1'): block id 2 (block 1 of the prompt) has a second predecessor or position, "
        "so ids are not prefix-chained; --ids content chains them anew"
    )


# --- calls logged twice


def count_calls(path):
    """The trace and how many second log lines its notes say were dropped."""
    trace = read_trace(path)
    reason = " left out: second log line of a call that is logged twice (s, then n)"
    counts = [int(note.removesuffix(reason)) for note in trace.notes if note.endswith(reason)]
    return trace, sum(counts)


def test_n_row_equal_to_an_s_row_up_to_a_minute_before_is_dropped(write):
    trace, n_dropped = count_calls(write(session([call([1], 3.0, "s", out=5), call([1], 63.0, "n", out=9)])))
    assert (len(trace), n_dropped) == (1, 1)
    assert trace.requests.output_tokens.tolist() == [9]
    assert trace.requests.start_s.tolist() == [3]
    assert trace.notes[0] == "1 requests read as kv-cache-tester"


KEPT = {
    "too late": [call([1], 0.0, "s"), call([1], 60.5, "n")],
    "before": [call([1], 5.0, "s"), call([1], 4.0, "n")],
    "n first": [call([1], 0.0, "n"), call([1], 1.0, "s")],
    "other ids": [call([1], 0.0, "s"), call([2], 1.0, "n")],
    "other length": [call([1], 0.0, "s"), call([1], 1.0, "n", n_input=65)],
    "twice s": [call([1], 0.0, "s"), call([1], 1.0, "s")],
    "unknown kind": [call([1], 0.0, "s"), call([1], 1.0, "?")],
    "another stream": [call([1], 0.0, "s"), subagent([call([1], 1.0, "n")])],
}


@pytest.mark.parametrize("calls", KEPT.values(), ids=KEPT)
def test_other_rows_are_kept(write, calls):
    trace, n_dropped = count_calls(write(session(calls)))
    assert (len(trace), n_dropped) == (2, 0)


def test_each_s_row_takes_one_n_row(write):
    calls = [
        call([1], 0.0, "s", out=1),
        call([1], 1.0, "s", out=2),
        call([1], 2.0, "n", out=8),
        call([1], 3.0, "n", out=9),
    ]
    trace, n_dropped = count_calls(write(session([*calls, call([1], 4.0, "n", out=10)])))
    assert (len(trace), n_dropped) == (3, 2)
    assert trace.requests.output_tokens.tolist() == [8, 9, 10]


def test_pairs_collapse_inside_subagents(write):
    pair = [call([1], 0.0, "s", out=3), call([1], 1.0, "n", out=2)]
    trace, n_dropped = count_calls(write(session([subagent(pair, 9.0), *pair])))
    assert (len(trace), n_dropped) == (2, 2)


# --- folders


def test_files_follow_in_name_order_and_others_are_left_alone(write, tmp_path):
    path = write(session([call([1])]), session([call([2]), call([2, 3])]))
    (tmp_path / "readme.txt").write_text("no trace")
    (tmp_path / "folder.json").mkdir()
    assert read_trace(path).requests.request_ids == ["a:0", "b:0", "b:1"]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("place", [0, 1])
def test_empty_file_is_counted_and_left_out(write, content, place):
    files = [session([call([1])])]
    files.insert(place, content)
    if place == 0 and content:
        files[0] = b""  # detection looks at the first file that is not of zero bytes
    trace = read_trace(write(*files))
    assert len(trace) == 1
    assert "1 left out: empty files" in trace.notes


def test_session_without_calls_adds_nothing(write):
    assert read_trace(write(session([]), session([call([1])]))).requests.request_ids == ["b:0"]


def test_sessions_of_the_same_sizes_are_reported(write):
    first = session([call([1]), call([1, 2])])
    second = session([call([8]), call([8, 9])])
    trace = read_trace(write(first, second, session([call([1]), call([1, 3], out=6)])))
    assert [note for note in trace.notes if "same" in note] == [
        "b has the same sizes as a: maybe the same session twice; both are kept"
    ]
    assert len(trace) == 6


def test_sessions_of_the_same_sizes_are_found_in_files_named_one_by_one(write):
    folder = write(session([call([1]), call([1, 2])]), session([call([8]), call([8, 9])]))
    trace = read_trace([folder / "b.json", folder / "a.json"])
    assert "a has the same sizes as b: maybe the same session twice; both are kept" in trace.notes


def test_single_calls_of_one_size_are_no_twins(write):
    trace = read_trace(write(session([call([1])]), session([call([1])])))
    assert not any("same sizes" in note for note in trace.notes)


def test_block_size_that_changes_between_files(write):
    path = write(session([call([1])]), session([call([1])], block_size=32))
    assert refusal(path) == f"{path / 'b.json'}: block_size is 32 after 64; one size per trace is accepted"


# --- refusals


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"in": None}, "in is missing; a model call needs in, out and hash_ids"),
        ({"out": None}, "out is missing; a model call needs in, out and hash_ids"),
        ({"hash_ids": None}, "hash_ids is missing; a model call needs in, out and hash_ids"),
        ({"in": -1}, "in is -1; 0 to 2147483647 is accepted"),
        ({"out": 2**31}, "out is 2147483648; 0 to 2147483647 is accepted"),
        ({"in": 10**30}, f"in is {10**30}; 0 to 2147483647 is accepted"),
        ({"t": 1e300}, "t is 1e+300; seconds from -1e+12 to 1e+12 are accepted"),
        ({"api_time": -0.5}, "api_time is -0.5; seconds from 0 to 1e+12 are accepted"),
        ({"think_time": 1e300}, "think_time is 1e+300; seconds from -1e+12 to 1e+12 are accepted"),
        ({"hash_ids": [1.5]}, "Expected `int | str`, got `float` - at `$.hash_ids[0]`"),
        ({"hash_ids": 5}, "Expected `array`, got `int` - at `$.hash_ids`"),
        ({"hash_ids": [2**64]}, "block hash 0 is 18446744073709551616; 64-bit integers are accepted"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_refused_calls(write, columns, text, nested):
    bad = call([1]) | columns
    path = write(session([call([1]), subagent([call([1]), call([1]), bad]) if nested else bad]))
    assert refusal(path) == f"{path}, request {'1.2' if nested else '1'}: {text}"


@pytest.mark.parametrize("size", [0, -64, 2**31])
def test_refused_block_sizes(write, size):
    path = write(session([call([1])], block_size=size))
    assert refusal(path) == f"{path}: block_size is {size}; 1 to 2147483647 is accepted"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (session([call([1]) | {"t": "soon"}]), "Expected `float`, got `str` - at `$.requests[0].t`"),
        (session([{"t": 1.0}]), "Object missing required field `type` - at `$.requests[0]`"),
        (session(None), "Expected `array`, got `null` - at `$.requests`"),
        (
            dump(session([call([1])]))[:-9],
            "not JSON (Input data was truncated); a complete object is needed",
        ),
    ],
)
def test_refused_files_are_named(write, content, text):
    path = write(session([call([1])]), content)
    assert refusal(path) == f"{path / 'b.json'}: {text}"


def test_nesting_without_end(write):
    path = write(session([call([1])]), b'{"block_size":64,"requests":' + b'[{"t":0,"type":"s","requests":' * 100_000)
    assert refusal(path).startswith(f"{path / 'b.json'}: not JSON (maximum recursion depth exceeded")


@pytest.mark.parametrize("files", [[session([])], [b"", session([])]])
def test_no_calls_at_all(write, files):
    path = write(*files)
    assert refusal(path) == f"{path.name}: no requests; at least one is needed"


def test_block_size_is_not_the_callers(write):
    path = write(session([call([1])]))
    assert refusal(path, block_size=64) == f"{path}: --block-size is given, but kv-cache-tester files state their own"


def test_missing_file(tmp_path):
    path = tmp_path / "x.json"
    assert refusal(path, format="kv-cache-tester") == f"{path}: No such file or directory; a readable file is needed"
