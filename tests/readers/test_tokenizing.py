"""Text becomes token ids: byte by byte, or by a tokenizer.json, piece by piece."""

import sys
from itertools import pairwise

import numpy as np
import pytest
import small_tokenizer as small
from builders import dump, links, write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import common_prefix, link_by_search
from tokenizers import pre_tokenizers

from capplan.errors import TraceError
from capplan.readers import read_trace
from capplan.readers.sample import Account, Options
from capplan.readers.text import tokenizing
from capplan.readers.text.conversations import encode_log, encode_prompt, find_calls, note_rendering
from capplan.readers.text.tokenizing import find_tokenizer, make_byte_tokenizer

APPROXIMATE = (
    "APPROXIMATE: one token per byte of text (--tokenizer bytes); lengths, capacities and shared prefixes are bytes, "
    "several times the model's tokens"
)
PLAIN = "messages are rendered plainly: a line with the role, then the text and tool calls"
ROWS = [
    {"messages": [{"role": "user", "content": "the agent edits"}], "response": "file"},
    {"messages": [{"role": "user", "content": "the agent edits"}, {"role": "assistant", "content": "file"},
                  {"role": "user", "content": "again"}], "response": "tests"},
]  # fmt: skip


@pytest.fixture
def chat(tmp_path):
    return write_jsonl(tmp_path / "chat.jsonl", ROWS)


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory):
    return small.write_tokenizer(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def chatml_folder(tmp_path_factory):
    return small.write_tokenizer(tmp_path_factory.mktemp("chatml"), template=small.CHATML)


def load(given):
    return find_tokenizer(Options(tokenizer=str(given)), "trace", "openai-chat")


def refusal(path, **options):
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- bytes


def test_one_token_a_byte():
    tokenizer = make_byte_tokenizer()
    assert tokenizer.encode_prompt("aä").tolist() == [97, 0xC3, 0xA4]
    assert tokenizer.encode_prompt("aä").dtype == np.uint32
    assert tokenizer.encode_prompt("").size == 0


def test_byte_level_traces_say_that_they_are_approximate(chat):
    trace = read_trace(chat, tokenizer="bytes")
    first = b"<|user|>\nthe agent edits\n<|assistant|>\n"
    second = first + b"file\n<|user|>\nagain\n<|assistant|>\n"
    assert trace.requests.input_tokens.tolist() == [len(first), len(second)]
    assert trace.requests.output_tokens.tolist() == [4, 5]
    assert links(trace) == link_by_search([list(first), list(second)], 16)
    assert trace.notes == ("2 requests read as openai-chat", APPROXIMATE, PLAIN)


# --- a tokenizer.json


@pytest.mark.parametrize("inside", ["", "tokenizer.json"])
def test_the_folder_or_the_file_may_be_named(chat, plain_folder, inside):
    library = small.Tokenizer.from_file(str(plain_folder / "tokenizer.json"))
    trace = read_trace(chat, tokenizer=str(plain_folder / inside))

    def count(*texts):
        return sum(len(library.encode(text).ids) for text in texts)

    first = count("<|user|>\n", "the agent edits\n", "<|assistant|>\n")
    second = first + count("file\n", "<|user|>\n", "again\n", "<|assistant|>\n")
    assert trace.requests.input_tokens.tolist() == [first, second]
    assert trace.requests.output_tokens.tolist() == [count("file"), count("tests")]
    named = f"tokenised with {plain_folder / 'tokenizer.json'} ({library.get_vocab_size():,} ids), "
    assert trace.notes[1:] == (named + "no chat template: messages in a plain rendering", PLAIN)


def test_truncation_and_padding_of_the_file_do_not_count(tmp_path):
    library = small.train()
    library.enable_truncation(4)
    library.enable_padding(length=64)
    tokenizer = load(small.write_tokenizer(tmp_path / "t", library))
    library.no_truncation()
    library.no_padding()
    text = "the agent edits file 7.py" * 3
    assert tokenizer.encode_whole(text).tolist() == library.encode(text).ids


def test_plain_prompts_begin_as_the_tokenizer_begins_a_text(tmp_path):
    library = small.with_opening(small.train())
    tokenizer = load(small.write_tokenizer(tmp_path / "t", library))
    assert tokenizer.encode_prompt("the agent").tolist() == library.encode("the agent").ids
    assert tokenizer.encode_whole("the agent").tolist() == library.encode("the agent").ids[1:]


words = st.text(st.sampled_from("the agnts\n .<|>ä"), max_size=30)
pieces = st.lists(st.sampled_from([small.START, small.END, small.BEGIN]) | words, max_size=8)


@settings(max_examples=200)
@given(pieces)
def test_text_cut_at_special_tokens_has_the_ids_of_the_whole(plain_folder, made):
    tokenizer = load(plain_folder)
    text = "".join(made)
    assert tokenizer.encode_pieces(text).tolist() == tokenizer.encode_whole(text).tolist()


def test_every_distinct_piece_is_tokenised_once(chatml_folder, monkeypatch):
    monkeypatch.setattr(tokenizing, "N_CHECKED", 0)
    tokenizer = load(chatml_folder)
    tokenizer._known.clear()
    whole, texts = tokenizer.encode_whole, []
    monkeypatch.setattr(tokenizer, "encode_whole", lambda text: texts.append(text) or whole(text))
    messages = [{"role": "user" if k % 2 else "assistant", "content": f"turn {k}"} for k in range(1, 40)]
    assert len(list(encode_log(tokenizer, messages, find_calls(messages), "here"))) == 19
    assert len(texts) == len(set(texts))
    assert sum(map(len, texts)) < 2 * sum(len(message["role"] + message["content"]) for message in messages)


def test_a_full_store_of_pieces_starts_anew(monkeypatch):
    tokenizer = make_byte_tokenizer()
    monkeypatch.setattr(tokenizing, "LARGEST_STORE", 20)
    assert [tokenizer.encode_piece(text).size for text in ("abcdef", "abcdef", "ghijkl", "abcdef")] == [6] * 4
    assert list(tokenizer._known) == ["abcdef"]


def test_pieces_that_differ_from_the_whole_are_told(tmp_path, chat):
    """A tokenizer that marks the beginning of a text marks that of every piece."""
    library = small.train(pre_tokenizers.Metaspace(prepend_scheme="first"))
    folder = small.write_tokenizer(tmp_path / "t", library, template=small.CHATML)
    tokenizer = load(folder)
    text = "<|im_start|>user\nthe agent<|im_end|>\n"
    cut, whole = tokenizer.encode_pieces(text), tokenizer.encode_whole(text)
    assert cut.size == whole.size + 2
    trace = read_trace(chat, tokenizer=str(folder))
    assert trace.notes[2] == (
        "conversations are tokenised piece by piece between special tokens: 2 of the first 2 have other ids than when "
        "tokenised whole, so lengths and shared prefixes are approximate"
    )
    assert len(read_trace(chat, tokenizer=str(folder)).notes) == 3


def test_text_is_not_cut_at_tokens_that_swallow_spaces(tmp_path):
    tokenizer = load(small.write_tokenizer(tmp_path / "t", small.with_stripping(small.train())))
    assert tokenizer.markers is None
    text = "<|im_start|>the <mask> agent"
    assert tokenizer.encode_pieces(text).tolist() == tokenizer.encode_whole(text).tolist()


# --- conversations


@given(st.lists(st.text(st.sampled_from("the agnts.ä"), min_size=1, max_size=30), min_size=3, max_size=9))
def test_a_prompt_and_its_answer_begin_the_next_prompt(plain_folder, chatml_folder, said):
    messages = [{"role": "assistant" if k % 2 else "user", "content": text} for k, text in enumerate(said)]
    for folder in (plain_folder, chatml_folder):
        calls = list(encode_log(load(folder), messages, find_calls(messages), "here"))
        for before, after in pairwise(calls):
            path = before.prompt.tolist() + before.answer.tolist()
            assert common_prefix(path, after.prompt.tolist()) == len(path)


def test_tools_are_part_of_a_plain_prompt():
    tokenizer, tools = make_byte_tokenizer(), [{"name": "ä"}]
    prompt = encode_prompt(tokenizer, [{"role": "user", "content": "hi"}], "here", tools)
    assert bytes(prompt.tolist()).decode() == '<|tools|>\n[{"name":"ä"}]\n<|user|>\nhi\n<|assistant|>\n'


def test_a_plain_rendering_is_noted_only_where_there_are_messages():
    tokenizer, account = make_byte_tokenizer(), Account()
    note_rendering(tokenizer, account)
    assert account.assumed == [APPROXIMATE]


# --- refusals


def test_text_without_a_tokenizer(chat):
    assert refusal(chat) == (
        f"{chat}: openai-chat holds text, and reuse is counted in tokens; accepted: --tokenizer PATH (a tokenizer.json "
        "or the folder that holds it), or --tokenizer bytes (approximate: one token per byte)"
    )


@pytest.mark.parametrize("inside", ["", "other.json"])
def test_no_tokenizer_there(chat, tmp_path, inside):
    wanted = tmp_path / (inside or "tokenizer.json")
    assert refusal(chat, tokenizer=str(tmp_path / inside)) == (
        f"{wanted}: No such file or directory; a tokenizer.json, the folder that holds it, or 'bytes' is accepted"
    )


def test_broken_tokenizer(chat, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("{")
    found = refusal(chat, tokenizer=str(path))
    assert found.startswith(f"{path}: not a tokenizer (EOF while parsing an object")
    assert found.endswith("); a tokenizer.json is accepted")


@pytest.mark.parametrize(
    ("content", "reason"), [("{", "Input data was truncated"), ("[]", "Expected `object`, got `array`")]
)
def test_broken_configuration(chat, tmp_path, content, reason):
    folder = small.write_tokenizer(tmp_path / "t")
    (folder / "tokenizer_config.json").write_text(content)
    assert refusal(chat, tokenizer=str(folder)) == (
        f"{folder / 'tokenizer_config.json'}: not a tokenizer configuration ({reason}); a JSON object is accepted"
    )


def test_configuration_that_is_a_folder(chat, tmp_path):
    folder = small.write_tokenizer(tmp_path / "t")
    (folder / "tokenizer_config.json").mkdir()
    assert refusal(chat, tokenizer=str(folder)) == (
        f"{folder / 'tokenizer_config.json'}: Is a directory; a readable file is needed"
    )


def test_without_the_tokenizers_library(chat, tmp_path, monkeypatch):
    folder = small.write_tokenizer(tmp_path / "t")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert refusal(chat, tokenizer=str(folder)) == (
        f"{folder / 'tokenizer.json'}: the tokenizers library is missing; accepted: pip install 'capplan[text]', or "
        "--tokenizer bytes"
    )
    assert len(read_trace(chat, tokenizer="bytes")) == 2


def test_without_jinja2(chat, tmp_path, monkeypatch):
    folder = small.write_tokenizer(tmp_path / "t", template=small.CHATML)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert refusal(chat, tokenizer=str(folder)) == (
        f"{folder / 'tokenizer_config.json'}: jinja2 is missing; accepted: pip install 'capplan[text]'"
    )


def test_block_size_is_not_for_text(chat):
    assert refusal(chat, tokenizer="bytes", block_size=32) == (
        f"{chat}: --block-size is for block hashes; token ids are linked at 16 tokens"
    )


def test_a_changed_file_is_read_anew(tmp_path):
    folder = small.write_tokenizer(tmp_path / "t")
    assert load(folder) is load(folder)
    before = load(folder)
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text + "\n")
    assert load(folder) is not before


def test_configuration_without_a_template(chat, tmp_path):
    folder = small.write_tokenizer(tmp_path / "t", model_max_length=8)
    assert "no chat template" in read_trace(chat, tokenizer=str(folder)).notes[1]
    assert dump({}) == b"{}"
