"""A model's chat template: messages become the text its server tokenises, rendered in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capplan.errors import TraceError

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]

TODAY = "2000-01-01"


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """Compiled templates: one for conversations, maybe another for those with tools.

    Attributes
    ----------
    source : str
        Name of the file it comes from.
    plain, with_tools : jinja2.Template
    special : mapping of str
        The special tokens a template may write.
    """

    source: str
    plain: "Template"
    with_tools: "Template"
    special: Mapping[str, str]

    @classmethod
    def find(cls, folder: Path, config: Mapping[str, Any]) -> "ChatTemplate | None":
        """The template in a tokenizer's folder: a file of its own, else in its configuration."""
        file = folder / "chat_template.jinja"
        named: Any = config.get("chat_template")
        source = f"{folder / 'tokenizer_config.json'}"
        if file.is_file():
            source, named = str(file), _read(file)
        if named is None:
            return None
        if isinstance(named, str):
            named = [{"name": "default", "template": named}]
        try:
            texts = {str(entry["name"]): str(entry["template"]) for entry in named}
            plain = texts.get("default") or next(iter(texts.values()))
        except (TypeError, KeyError, StopIteration) as error:
            raise TraceError(
                f"{source}: chat_template is of another shape; a text, or a list of name and template, is accepted"
            ) from error
        return cls(source, compile_template(plain, source), compile_template(texts.get("tool_use", plain), source),
                   _find_special(config))  # fmt: skip

    def render(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, ask: bool, where: str) -> str:
        """The text of a conversation; with `ask`, up to where the model is to answer.

        Raises
        ------
        TraceError
            The template refuses the messages, or fails on them.
        """
        template = self.with_tools if tools else self.plain
        try:
            return template.render(messages=messages, tools=tools or None, add_generation_prompt=ask, **self.special)
        except Exception as error:  # a template is a program: anything may go wrong in it
            reason = str(error).strip().split("\n", 1)[0]
            raise TraceError(
                f"{where}: the chat template of {self.source} fails ({reason}); accepted: messages it can render, or a "
                "tokenizer.json without a template beside it"
            ) from error


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{file}: not readable ({error}); a text in UTF-8 is needed") from error


def compile_template(text: str, source: str) -> "Template":
    """A sandboxed template with what model publishers expect to find in one.

    Raises
    ------
    TraceError
        jinja2 is not installed, or the text is no template.
    """
    try:
        import jinja2
        from jinja2 import ext, nodes, parser, sandbox
    except ImportError as error:
        raise TraceError(f"{source}: jinja2 is missing; accepted: pip install 'capplan[text]'") from error

    class Generation(ext.Extension):
        """The tag that marks what the model generates; it prints its content."""

        tags = frozenset({"generation"})  # type: ignore[assignment]  # declared as a mutable set, only read

        def parse(self, parser: parser.Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols, Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _format_today
    try:
        return environment.from_string(text)
    except jinja2.TemplateError as error:
        raise TraceError(f"{source}: not a chat template ({error}); a jinja2 template is accepted") from error


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(reason: str) -> str:
    raise ValueError(reason)


def _format_today(pattern: str) -> str:
    """One day for all prompts, so that the same trace gives the same ids tomorrow."""
    from datetime import date

    return date.fromisoformat(TODAY).strftime(pattern)


def _find_special(config: Mapping[str, Any]) -> dict[str, str]:
    special = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        special[name] = text if isinstance(text, str) else ""
    return special
