"""Simulations side by side on all cores: kernels release the interpreter's lock."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_watcher: ContextVar[Callable[[int, int], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Callable[[int, int], None]) -> Iterator[None]:
    """Call `watcher` with how many simulations are done, and of how many, after each one."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def map_parallel(function: Callable[[T], R], values: Iterable[T]) -> list[R]:
    """Apply a function to every value on all cores; results in the order of the values."""
    listed, watcher = list(values), _watcher.get()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        futures = [pool.submit(function, value) for value in listed]
        try:
            for n_done, future in enumerate(as_completed(futures), start=1):
                future.result()
                if watcher is not None:
                    watcher(n_done, len(futures))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
