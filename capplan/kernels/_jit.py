"""The one compile policy: serial, lazily typed, cached on disk, no fastmath, without the interpreter's lock.

Where neither the package directory nor the user's cache directory can be written, numba refuses to
cache at decoration; the kernel is then compiled anew in every process.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` in nopython mode at its first call."""
    try:
        compiled: Callable[P, R] = numba.njit(cache=True, fastmath=False, nogil=True)(function)
    except RuntimeError:
        compiled = numba.njit(fastmath=False, nogil=True)(function)
    return compiled


def on_first_compilation(notify: Callable[[], None]) -> None:
    """Call `notify` once when a kernel is compiled rather than loaded from the cache."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: object) -> None:
            nonlocal notify
            notify()
            notify = _ignore

        def on_end(self, event: object) -> None:
            pass

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]  # numba ships no types


def _ignore() -> None:
    """Nothing more to say."""
