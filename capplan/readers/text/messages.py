"""Messages as logs write them, made uniform: a role, text, and tool calls with parsed arguments."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from capplan.errors import TraceError
from capplan.readers.sample import DECODE_ERRORS, Account

Message = dict[str, Any]


def clean_messages(raw: Sequence[Any], where: str, account: Account) -> list[Message]:
    """Messages with a text for content; the other fields stay.

    Raises
    ------
    TraceError
        A message without a role, or with content that is no text.
    """
    return [clean_message(message, f"{where}, message {k}", account) for k, message in enumerate(raw)]


def clean_message(message: Any, where: str, account: Account) -> Message:
    """One message."""
    if not isinstance(message, dict):
        raise TraceError(f"{where}: {describe(message)}; an object with role and content is accepted")
    role = message.get("role")
    if not isinstance(role, str):
        raise TraceError(f"{where}: role is {describe(role)}; a text is accepted")
    cleaned = {**message, "content": read_content(message.get("content"), where, account)}
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise TraceError(f"{where}: tool_calls is {describe(calls)}; a list of objects, or null, is accepted")
        cleaned["tool_calls"] = [_parse_arguments(call) for call in calls]
        if not calls:
            del cleaned["tool_calls"]
    return cleaned


def read_content(content: Any, where: str, account: Account) -> str:
    """Text of a message: itself, that of its parts line by line, or nothing for null."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TraceError(f"{where}: content is {describe(content)}; a text, a list of parts, or null is accepted")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(part, dict):
            account.found[f"part of a message without text, left out: {str(part.get('type'))[:40]}"] += 1
        else:
            raise TraceError(f"{where}: a part of content is {describe(part)}; an object or a text is accepted")
    return "\n".join(texts)


def _parse_arguments(call: Message) -> Message:
    """A tool call whose arguments are an object, as chat templates expect, not the text of one."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = msgspec.json.decode(function["arguments"])
    except DECODE_ERRORS:
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def write_plainly(message: Mapping[str, Any]) -> str:
    """What a message says, with its tool calls as one JSON line each, without their random ids."""
    lines = [message["content"]] if message["content"] else []
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        shown = function if isinstance(function, dict) else {k: v for k, v in call.items() if k != "id"}
        lines.append(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(lines)


def describe(value: Any) -> str:
    """A value in an error message: short."""
    return "null" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
