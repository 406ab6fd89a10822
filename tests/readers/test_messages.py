"""Messages of any log made uniform."""

import pytest

from capplan.errors import TraceError
from capplan.readers.sample import Account
from capplan.readers.text.messages import clean_messages, write_plainly


def clean(message):
    account = Account()
    (cleaned,) = clean_messages([message], "here", account)
    return cleaned, account


@pytest.mark.parametrize(
    ("content", "text"),
    [("hi", "hi"), (None, ""), ([], ""), (["a", {"type": "text", "text": "b"}], "a\nb"), ([{"text": "a"}], "a")],
)
def test_content_is_text(content, text):
    cleaned, account = clean({"role": "user", "content": content, "name": "x"})
    assert cleaned == {"role": "user", "content": text, "name": "x"}
    assert not account.found


def test_content_may_be_missing():
    assert clean({"role": "assistant"})[0]["content"] == ""


def test_parts_without_text_are_counted():
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "a"}, {"kind": 1}]
    cleaned, account = clean({"role": "user", "content": parts})
    assert cleaned["content"] == "a"
    assert dict(account.found) == {
        "part of a message without text, left out: image_url": 1,
        "part of a message without text, left out: None": 1,
    }


def test_tool_calls_are_written_without_their_ids():
    calls = [
        {"id": "r1", "type": "function", "function": {"name": "f", "arguments": '{"a":"ä"}'}},
        {"id": "r2", "function": {"name": "g", "arguments": "no json"}},
        {"id": "r3", "function": {"name": "h", "arguments": "[1]"}},
        {"id": "r4"},
    ]
    cleaned, _ = clean({"role": "assistant", "content": "so", "tool_calls": calls})
    assert cleaned["tool_calls"][0]["function"]["arguments"] == {"a": "ä"}
    assert write_plainly(cleaned).split("\n") == [
        "so",
        '{"name":"f","arguments":{"a":"ä"}}',
        '{"name":"g","arguments":"no json"}',
        '{"name":"h","arguments":"[1]"}',
        "{}",
    ]


@pytest.mark.parametrize("calls", [None, []])
def test_no_tool_calls(calls):
    cleaned, _ = clean({"role": "assistant", "content": None, "tool_calls": calls})
    assert write_plainly(cleaned) == ""


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (5, "int '5'; an object with role and content is accepted"),
        (None, "null; an object with role and content is accepted"),
        ({"content": "a"}, "role is null; a text is accepted"),
        ({"role": ["user"]}, "role is list \"['user']\"; a text is accepted"),
        ({"role": "user", "content": 5}, "content is int '5'; a text, a list of parts, or null is accepted"),
        ({"role": "user", "content": [5]}, "a part of content is int '5'; an object or a text is accepted"),
        ({"role": "a", "tool_calls": {}}, "tool_calls is dict '{}'; a list of objects, or null, is accepted"),
        ({"role": "a", "tool_calls": [1]}, "tool_calls is list '[1]'; a list of objects, or null, is accepted"),
    ],
)
def test_refused_messages(message, text):
    with pytest.raises(TraceError) as caught:
        clean_messages([{"role": "user", "content": ""}, message], "here", Account())
    assert str(caught.value) == f"here, message 1: {text}"
