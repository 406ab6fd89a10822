"""A byte-level tokenizer of a few hundred ids, trained on the spot, with a chat template beside it if wanted."""

from builders import dump
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

START, END, BEGIN = "<|im_start|>", "<|im_end|>", "<s>"
CHATML = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
TEXTS = [f"the agent edits file {k}.py and runs the tests again\nuser assistant system" for k in range(50)]


def train(pre_tokenizer=None):
    """A trained tokenizer with special tokens."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[START, END, BEGIN], initial_alphabet=alphabet)
    library.train_from_iterator(TEXTS, trainer)
    return library


def write_tokenizer(folder, library=None, template=None, **config):
    """Write tokenizer.json, and a configuration with the template; the folder is to be named."""
    folder.mkdir(parents=True, exist_ok=True)
    (library or train()).save(str(folder / "tokenizer.json"))
    if template is not None:
        config["chat_template"] = template
    if config:
        (folder / "tokenizer_config.json").write_bytes(dump(config))
    return folder


def with_opening(library):
    """The same tokenizer, which begins every text with <s>."""
    library.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, library.token_to_id(BEGIN))]
    )
    return library


def with_stripping(library):
    """The same tokenizer, with a special token that swallows the space before it."""
    library.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return library
