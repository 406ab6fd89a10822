"""The one compile policy: serial, lazily typed, cached on disk, no fastmath.

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
        compiled: Callable[P, R] = numba.njit(cache=True, fastmath=False)(function)
    except RuntimeError:
        compiled = numba.njit(fastmath=False)(function)
    return compiled
