"""BurstGPT: sizes only, refused unless reuse within sessions may be assumed."""

import numpy as np
import pytest
from builders import links
from damage import refusal
from writers_hashes import BURST_COLUMNS, write_burstgpt

from capplan.readers import FORMATS, detect_format, read_trace

HEADER = ",".join(BURST_COLUMNS)


def read(path, **options):
    return read_trace(path, assume_prefix="session", **options)


def test_sizes_alone_are_refused(tmp_path):
    path = write_burstgpt(tmp_path / "b.csv", [(5, 12, 1.9, "GPT-4", 300, 20)])
    assert detect_format(path) is FORMATS["burstgpt"]
    assert refusal(path) == (
        ": BurstGPT holds sizes only, so what prompts share is unknown; accepted: a trace with token ids, block hashes "
        "or text, or --assume-prefix session: every request then repeats its session's previous one"
    )


def test_sessions_repeat_their_previous_prompt_and_response(tmp_path):
    rows = [
        (5, 12, 1.5, "GPT-4", 64, 16),
        (6, 13, 1.0, "ChatGPT", 64, 16),
        (10, 12, 2.0, "GPT-4", 96, 0),
        (11.5, "", "", "GPT-4", 64, 5),
        (20, 12, "", "GPT-4", 40, 8),
    ]
    trace = read(write_burstgpt(tmp_path / "b.csv", rows))
    assert links(trace) == ([-1, -1, 0, -1, 0], [0, 0, 80, 0, 32])
    r = trace.requests
    assert r.session.decode() == r.task.decode() == ["12", "13", "12", None, "12"]
    assert r.arrival_s.tolist() == [0, 1, 5, 6.5, 15]
    np.testing.assert_array_equal(r.service_s, [1.5, 1, 2, np.nan, np.nan])
    np.testing.assert_array_equal(r.gap_s, [np.nan, np.nan, 3.5, np.nan, 8])
    assert trace.notes == (
        "5 requests read as burstgpt",
        "1 x request without a response: kept, its prompt was sent",
        "1 x request without a session: it shares nothing",
        "every request is taken to repeat its session's previous prompt and response as far as its length allows "
        "(--assume-prefix session); the source has sizes only",
    )


def test_models_can_be_chosen(tmp_path):
    rows = [(5, 12, 1.5, "GPT-4", 64, 16), (6, 12, 1.0, "ChatGPT", 64, 16)]
    trace = read(write_burstgpt(tmp_path / "b.csv", rows), model_filter="Chat*")
    assert trace.requests.session.decode() == ["12"]


def test_line_ends_a_mark_and_a_missing_last_newline(tmp_path):
    path = tmp_path / "b.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n5, s, 1, m, 32, 4, x\r\n6,s,1,m,48,4,x".encode())
    assert links(read(path)) == ([-1, 0], [0, 32])


def test_blank_lines_before_the_header_count_as_lines(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text(f"\n \n{HEADER}\n5,s,1,m,32,4,x\n\n6,s,1,m,48,4,x\n")
    assert links(read(path)) == ([-1, 0], [0, 32])
    path.write_text(f"\n \n{HEADER}\n5,s,1,m,many,4,x\n")
    assert refusal(path, assume_prefix="session").startswith(", line 4: Expected `int`, got `str`")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("5,s,1,m,-1,4,x", "Expected `int` >= 0 - at `$.Request tokens`"),
        ("5,s,1,m,many,4,x", "Expected `int`, got `str` - at `$.Request tokens`"),
        ("5,s,1,m,,4,x", "Object missing required field `Request tokens`"),
        ("5,s", "Object missing required field `Request tokens`"),
        ("later,s,1,m,5,4,x", "Expected `float`, got `str` - at `$.Timestamp`"),
        ("nan,s,1,m,5,4,x", "Expected `float` >= -1000000000000.0 - at `$.Timestamp`"),
        ("5,s,-1,m,5,4,x", "Expected `float` >= 0.0 - at `$.Elapsed time`"),
        ("5,s,1,m,16777216,4,x", "prompt and output come to 16777220 tokens; up to 16777216 are accepted"),
    ],
)
def test_refused_rows(tmp_path, line, text):
    path = tmp_path / "b.csv"
    path.write_text(f"{HEADER}\n1,s,1,m,5,4,x\n{line}\n")
    assert refusal(path, assume_prefix="session") == f", line 3: {text}"


def test_release_without_sessions(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,5,5,10,x\n")
    assert refusal(path, assume_prefix="session") == (
        ": column 'Session ID' is missing; accepted: CSV with Timestamp in s, Session ID, Request tokens, Response "
        "tokens; only with --assume-prefix session"
    )


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "b.csv"
    path.write_bytes(HEADER.encode() + b"\n1,s,1,m,5,4,x\n" + b"2,s,1,m,5,4,\xff\n")
    found = refusal(path, format="burstgpt", assume_prefix="session")
    assert found.endswith("; a complete row is needed")
    assert ": not CSV (" in found
