"""Text becomes token ids: by a local `tokenizer.json`, or byte by byte where none is at hand.

Text with special tokens in it is cut at them before it is tokenised, as the tokenizer itself does, and
every distinct piece is tokenised once. So a growing conversation costs what is new in it, and equal
beginnings keep equal ids. The first texts are also tokenised whole: where that gives other ids, the
trace's notes say so.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from capplan.errors import TraceError
from capplan.readers.sample import DECODE_ERRORS, Account, Options
from capplan.readers.text.chat_template import ChatTemplate

Tokens = NDArray[np.uint32]

BYTES = "bytes"
N_CHECKED = 8
LARGEST_STORE = 1 << 26
NO_TOKENS = np.zeros(0, np.uint32)


@dataclass(slots=True)
class Tokenizer:
    """One way to turn text into ids.

    Attributes
    ----------
    notes : tuple of str
        What a trace tokenised with it has to say.
    encode_whole : text to (n,) uint32
        Without special tokens around it.
    markers : pattern, optional
        Special tokens, at which text may be cut; captured, so that splitting keeps them.
    opening : (n,) uint32
        What a server puts before a prompt that is plain text.
    template : ChatTemplate, optional
        How messages become text.
    has_rendered : bool
        Whether any did.
    n_checked, n_different : int
        Rendered texts tokenised whole too, and those that then have other ids.
    """

    notes: tuple[str, ...]
    encode_whole: Callable[[str], Tokens]
    markers: re.Pattern[str] | None = None
    opening: Tokens = field(default_factory=lambda: NO_TOKENS)
    template: ChatTemplate | None = None
    has_rendered: bool = False
    n_checked: int = 0
    n_different: int = 0
    _known: dict[str, Tokens] = field(default_factory=dict)
    _n_stored: int = 0

    def encode_piece(self, text: str) -> Tokens:
        """Ids of a piece of text that is likely to come again."""
        ids = self._known.get(text)
        if ids is None:
            ids = self.encode_whole(text)
            self._n_stored += len(text) + ids.size
            if self._n_stored > LARGEST_STORE:
                self._known.clear()
                self._n_stored = len(text) + ids.size
            self._known[text] = ids
        return ids

    def encode_prompt(self, text: str) -> Tokens:
        """Ids of a prompt that is plain text, tokenised whole."""
        return np.concatenate([self.opening, self.encode_whole(text)]) if text else NO_TOKENS

    def encode_pieces(self, text: str) -> Tokens:
        """Ids of a part of a rendered conversation, cut at its special tokens."""
        pieces = self.markers.split(text) if self.markers else [text]
        return np.concatenate([NO_TOKENS, *(self.encode_piece(piece) for piece in pieces if piece)])

    def encode_rendered(self, text: str) -> Tokens:
        """As `encode_pieces`, of a whole conversation; the first ones are tokenised whole too, to compare."""
        ids = self.encode_pieces(text)
        if self.n_checked < N_CHECKED:
            self.n_checked += 1
            self.n_different += not np.array_equal(ids, self.encode_whole(text))
        return ids

    def annotate(self, account: Account) -> None:
        """Note how text was tokenised."""
        for note in self.notes:
            account.assume(note)
        if self.n_different:
            account.assume(
                f"conversations are tokenised piece by piece between special tokens: {self.n_different} of the first "
                f"{self.n_checked} have other ids than when tokenised whole, so lengths and shared prefixes are "
                "approximate"
            )


def find_tokenizer(options: Options, path: Path, name: str) -> Tokenizer:
    """The tokenizer the caller names.

    Raises
    ------
    TraceError
        None is named, it cannot be read, or its library is not installed.
    """
    given = options.tokenizer
    if given is None:
        raise TraceError(
            f"{path}: {name} holds text, and reuse is counted in tokens; accepted: --tokenizer PATH (a tokenizer.json "
            "or the folder that holds it), or --tokenizer bytes (approximate: one token per byte)"
        )
    if str(given) == BYTES:
        return make_byte_tokenizer()
    file = Path(given)
    file = file / "tokenizer.json" if file.is_dir() else file
    try:
        stat = file.stat()
    except OSError as error:
        raise TraceError(
            f"{file}: {error.strerror or error}; a tokenizer.json, the folder that holds it, or 'bytes' is accepted"
        ) from error
    tokenizer = _load(file, stat.st_mtime_ns, stat.st_size)
    tokenizer.has_rendered = False
    tokenizer.n_checked = tokenizer.n_different = 0
    return tokenizer


def make_byte_tokenizer() -> Tokenizer:
    """One token per byte of UTF-8."""
    return Tokenizer(
        (
            "APPROXIMATE: one token per byte of text (--tokenizer bytes); lengths, capacities and shared prefixes are "
            "bytes, several times the model's tokens",
        ),
        lambda text: np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.uint32),
    )


@lru_cache(maxsize=1)
def _load(file: Path, modified_ns: int, size: int) -> Tokenizer:
    """The tokenizer of a file; what it learnt of a text stays known while the file is the same."""
    try:
        from tokenizers import Tokenizer as Library
    except ImportError as error:
        raise TraceError(
            f"{file}: the tokenizers library is missing; accepted: pip install 'capplan[text]', or --tokenizer bytes"
        ) from error
    try:
        library = Library.from_file(str(file))
    except Exception as error:  # the library raises bare Exceptions
        reason = str(error).strip().split("\n", 1)[0]
        raise TraceError(f"{file}: not a tokenizer ({reason}); a tokenizer.json is accepted") from error
    library.no_truncation()
    library.no_padding()

    def encode(text: str) -> Tokens:
        (encoding,) = library.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, np.uint32)

    config = _read_config(file.parent / "tokenizer_config.json")
    template = ChatTemplate.find(file.parent, config)
    rendering = f"chat template of {template.source}" if template else "no chat template: messages in a plain rendering"
    return Tokenizer(
        (f"tokenised with {file} ({library.get_vocab_size():,} ids), {rendering}",),
        encode,
        _find_markers(library),
        _find_opening(library),
        template,
    )


def _read_config(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror or error}; a readable file is needed") from error
    except DECODE_ERRORS as error:
        raise TraceError(f"{file}: not a tokenizer configuration ({error}); a JSON object is accepted") from error


def _find_markers(library: Any) -> re.Pattern[str] | None:
    """Special tokens that stand for themselves wherever they are met in a text."""
    added = library.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip or token.single_word for token in added):
        return None
    texts = sorted((token.content for token in added if token.special and not token.normalized), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, texts))})") if texts else None


def _find_opening(library: Any) -> Tokens:
    """Special ids the tokenizer puts before a text, such as the one that begins every sequence."""
    bare = library.encode("a", add_special_tokens=False).ids
    whole = library.encode("a", add_special_tokens=True).ids
    n_before = next((k for k in range(len(whole)) if whole[k : k + len(bare)] == bare), 0)
    return np.array(whole[:n_before], np.uint32)
