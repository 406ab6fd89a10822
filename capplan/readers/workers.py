"""Files decoded in threads, in order: the same batches as without them.

What a reader yields for a file depends on that file alone, so small files are decoded ahead of their
turn; linking stays one after the other. Threads help as far as decompression, Parquet, tokenizers and
kernels run outside the interpreter's lock. Processes would run all of it side by side, but to start
them and to take ids over costs more than decoding does; and reading one file ahead gains nothing.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Event

from capplan.prompts import Prompts
from capplan.readers import files
from capplan.readers.sample import Account, Options
from capplan.readers.sources import Part

SMALL_BYTES = 16 << 20
LEAST_BYTES = 8 << 20

Decoded = tuple[list[Prompts], Account]


@dataclass(slots=True)
class Decoder:
    """Reads parts in order; threads take the small ones ahead of their turn."""

    options: Options
    pool: ThreadPoolExecutor | None = None
    n_ahead: int = 0
    stop: Event = field(default_factory=Event)
    waiting: deque[Part] = field(default_factory=deque)
    running: "deque[tuple[Part, Future[Decoded]]]" = field(default_factory=deque)

    def read(self, part: Part, account: Account) -> Iterator[Prompts]:
        """Batches of a part; its account is whole once they are taken."""
        while self.pool is not None and self.waiting and len(self.running) < self.n_ahead:
            later = self.waiting.popleft()
            self.running.append((later, self.pool.submit(copy_context().run, self._decode, later)))
        if not self.running or self.running[0][0] is not part:
            yield from part.reader.read(part.path, self.options, account)
            return
        batches, found = self.running.popleft()[1].result()
        for name in Account.__dataclass_fields__:
            setattr(account, name, getattr(found, name))
        yield from batches

    def _decode(self, part: Part) -> Decoded:
        account = Account()
        batches = []
        for batch in part.reader.read(part.path, self.options, account):
            if self.stop.is_set():
                break
            batches.append(batch)
        return batches, account


@contextmanager
def decoding(parts: Sequence[Part], options: Options, n_workers: int) -> Iterator[Decoder]:
    """A decoder for these parts, with threads where they pay; they end with the block."""
    small = [part for part in parts if _is_small(part)] if n_workers > 1 else []
    if len(small) < 2 or sum(files.find_size(part.path) for part in small) < LEAST_BYTES:
        yield Decoder(options)
        return
    pool = ThreadPoolExecutor(n_workers)
    decoder = Decoder(options, pool, n_workers + 1, waiting=deque(small))
    try:
        yield decoder
    finally:
        decoder.stop.set()
        pool.shutdown(cancel_futures=True)


def _is_small(part: Part) -> bool:
    """Whether a part is a file of its own that can be held decoded."""
    return part.path != files.STDIN and not part.path.is_dir() and files.find_size(part.path) <= SMALL_BYTES
