"""Chat templates: where they come from, what they may do, and what happens where they fail."""

import pytest
import small_tokenizer as small
from builders import write_jsonl

from capplan.errors import TraceError
from capplan.readers import read_trace
from capplan.readers.sample import Account
from capplan.readers.text.chat_template import ChatTemplate, compile_template
from capplan.readers.text.messages import clean_messages

HELLO = [{"role": "user", "content": "hällo"}]


def find(folder, config, template=None):
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    return ChatTemplate.find(folder, config)


def render(template, messages=HELLO, tools=None, ask=True):
    return template.render(messages, tools, ask=ask, where="here")


def test_a_template_of_its_own_comes_before_that_of_the_configuration(tmp_path):
    config = {"chat_template": "old"}
    assert find(tmp_path, config).source == str(tmp_path / "tokenizer_config.json")
    found = find(tmp_path, config, "new")
    assert (found.source, render(found)) == (str(tmp_path / "chat_template.jinja"), "new")
    assert find(tmp_path / "elsewhere", {}) is None


def test_the_rendering_named_in_the_notes(tmp_path):
    chat = write_jsonl(tmp_path / "chat.jsonl", [{"messages": HELLO}])
    folder = small.write_tokenizer(tmp_path / "t", template=small.CHATML)
    trace = read_trace(chat, tokenizer=str(folder))
    assert trace.notes[2].endswith(f", chat template of {folder / 'tokenizer_config.json'}")
    library = small.train()
    text = "<|im_start|>user\nhällo<|im_end|>\n<|im_start|>assistant\n"
    assert trace.requests.input_tokens.tolist() == [len(library.encode(text).ids)]


def test_one_template_of_several_is_for_tools(tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | tojson }}"}]
    found = find(tmp_path, {"chat_template": named})
    assert render(found) == "plain"
    assert render(found, tools=[{"name": "ü"}]) == '[{"name": "ü"}]'
    assert render(find(tmp_path, {"chat_template": [{"name": "other", "template": "only"}]})) == "only"


def test_templates_know_what_their_publishers_expect(tmp_path):
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    source = (
        "{{ bos_token }}{{ eos_token }}{{ pad_token }}"
        "{% for message in messages %}{% generation %}{{ message.content }}{% endgeneration %}{% break %}{% endfor %}"
        "{{ strftime_now('%Y-%m-%d') }}{{ '!' if add_generation_prompt }}"
    )
    found = find(tmp_path, config | {"chat_template": source})
    assert render(found) == "<s></s>hällo2000-01-01!"
    assert render(found, ask=False) == "<s></s>hällo2000-01-01"


def test_blocks_leave_no_lines_behind():
    template = compile_template("{% if true %}\n  {% set x = 1 %}\nyes\n{% endif %}\n", "here")
    assert template.render() == "yes\n"


def test_tool_calls_come_with_parsed_arguments(tmp_path):
    said = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    (message,) = clean_messages([said], "here", Account())
    found = find(tmp_path, {"chat_template": "{{ messages[0].tool_calls[0].function.arguments.a + 1 }}"})
    assert render(found, [message]) == "2"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", 'can only concatenate str (not "int") to str'),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
    ],
)
def test_a_template_that_fails(tmp_path, template, reason):
    chat = write_jsonl(tmp_path / "chat.jsonl", [{"messages": HELLO}])
    folder = small.write_tokenizer(tmp_path / "t", template=template)
    with pytest.raises(TraceError) as caught:
        read_trace(chat, tokenizer=str(folder))
    assert str(caught.value) == (
        f"{chat}, line 1: the chat template of {folder / 'tokenizer_config.json'} fails ({reason}); accepted: messages "
        "it can render, or a tokenizer.json without a template beside it"
    )


@pytest.mark.parametrize("shape", [5, [], [{"name": "default"}], ["text"], {"default": "text"}])
def test_templates_of_another_shape(tmp_path, shape):
    with pytest.raises(TraceError) as caught:
        find(tmp_path, {"chat_template": shape})
    assert str(caught.value) == (
        f"{tmp_path / 'tokenizer_config.json'}: chat_template is of another shape; a text, or a list of name and "
        "template, is accepted"
    )


def test_a_template_that_is_no_text(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(TraceError, match=r"chat_template\.jinja: not readable \('utf-8' codec can't decode byte 0xff"):
        ChatTemplate.find(tmp_path, {})


def test_no_template():
    with pytest.raises(TraceError) as caught:
        compile_template("{% if %}", "here")
    assert str(caught.value) == (
        "here: not a chat template (Expected an expression, got 'end of statement block'); a jinja2 "
        "template is accepted"
    )


def test_an_answer_the_template_rewrites_is_taken_as_its_text(tmp_path):
    """Some templates tell a past answer otherwise than they ask for the next one."""
    from capplan.readers.text.conversations import encode_answered
    from capplan.readers.text.tokenizing import Options, find_tokenizer

    source = "{{ 'ask:' if add_generation_prompt else 'told:' }}{{ messages[-1].content }}"
    folder = small.write_tokenizer(tmp_path / "t", template=source)
    tokenizer = find_tokenizer(Options(tokenizer=str(folder)), tmp_path, "x")
    prompt, answer = encode_answered(tokenizer, HELLO, {"role": "assistant", "content": "tests"}, "here")
    assert prompt.tolist() == tokenizer.encode_whole("ask:hällo").tolist()
    assert answer.tolist() == tokenizer.encode_whole("tests").tolist()
