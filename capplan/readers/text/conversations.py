"""Conversations become prompts and answers in token ids.

With a chat template the text is the one its server would tokenise. Without one a plain rendering stands
in: a line with the role, then the text; roles and texts are tokenised apart, so that a prompt
followed by its answer is the beginning of the next prompt.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capplan.readers.sample import Account
from capplan.readers.text.messages import Message, write_plainly
from capplan.readers.text.tokenizing import Tokenizer, Tokens

ANSWERING = "assistant"
APPEND_ONLY = "a call's prompt is all messages before its answer: a history that was cut shows too much reuse"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One model call of a conversation: which message answers it, its prompt and its answer."""

    message: int
    prompt: Tokens
    answer: Tokens


def find_calls(messages: Sequence[Message]) -> list[int]:
    """Positions of the messages a model wrote."""
    return [k for k, message in enumerate(messages) if message["role"] == ANSWERING]


def encode_log(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    calls: Sequence[int],
    where: str,
    tools: Sequence[Any] | None = None,
) -> Iterator[Exchange]:
    """Every call of an append-only log: its prompt is all messages before the one that answers it.

    Parameters
    ----------
    calls : sequence of int
        Positions of the answers, ascending.
    """
    if tokenizer.template is None:
        pieces = _encode_plainly(tokenizer, messages, tools)
        ends = np.cumsum([0] + [piece.size for piece in pieces])
        n_before = len(pieces) - 2 * len(messages)
        path = np.concatenate([*pieces, np.zeros(0, np.uint32)])
        asking = _ask(tokenizer)
        for k in calls:
            head = n_before + 2 * k
            yield Exchange(k, np.concatenate([path[: ends[head]], asking]), pieces[head + 1])
        return
    for k in calls:
        prompt, answer = encode_answered(tokenizer, messages[:k], messages[k], where, tools)
        yield Exchange(k, prompt, answer)


def encode_prompt(
    tokenizer: Tokenizer, messages: Sequence[Message], where: str, tools: Sequence[Any] | None = None
) -> Tokens:
    """Ids of a conversation up to where the model is to answer."""
    if tokenizer.template is None:
        return np.concatenate([*_encode_plainly(tokenizer, messages, tools), _ask(tokenizer)])
    return tokenizer.encode_rendered(tokenizer.template.render(messages, tools, ask=True, where=where))


def encode_answered(
    tokenizer: Tokenizer, messages: Sequence[Message], answer: Message, where: str, tools: Sequence[Any] | None = None
) -> tuple[Tokens, Tokens]:
    """Prompt and answer; the answer ends with what the template puts behind it, but for white space."""
    if tokenizer.template is None:
        return encode_prompt(tokenizer, messages, where, tools), tokenizer.encode_piece(_body(answer))
    asked = tokenizer.template.render(messages, tools, ask=True, where=where)
    told = tokenizer.template.render([*messages, answer], tools, ask=False, where=where)
    text = told.removeprefix(asked).rstrip() if told.startswith(asked) else write_plainly(answer)
    return tokenizer.encode_rendered(asked), tokenizer.encode_pieces(text)


def note_rendering(tokenizer: Tokenizer, account: Account) -> None:
    """Note how messages became ids."""
    tokenizer.annotate(account)
    if tokenizer.has_rendered and tokenizer.template is None:
        account.assume("messages are rendered plainly: a line with the role, then the text and tool calls")


def _encode_plainly(tokenizer: Tokenizer, messages: Sequence[Message], tools: Sequence[Any] | None) -> list[Tokens]:
    """Two pieces a message, role and text; before them two for the tools, if any."""
    tokenizer.has_rendered = True
    texts = []
    if tools:
        texts += [_head("tools"), json.dumps(tools, ensure_ascii=False, separators=(",", ":")) + "\n"]
    for message in messages:
        texts += [_head(message["role"]), _body(message)]
    return [tokenizer.encode_piece(text) for text in texts]


def _ask(tokenizer: Tokenizer) -> Tokens:
    return tokenizer.encode_piece(_head(ANSWERING))


def _head(role: str) -> str:
    return f"<|{role}|>\n"


def _body(message: Message) -> str:
    return write_plainly(message) + "\n"
