"""What commands write besides their answer, and how the answer gets out complete or not at all."""

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from capplan.errors import CapplanError


def warn(lines: Iterable[str]) -> None:
    """Write lines to stderr."""
    for line in lines:
        click.echo(f"capplan: {line}", err=True)


def announce_compilation() -> None:
    """Say once, on stderr, that kernels are being compiled, when they are."""
    from capplan.kernels import _jit

    _jit.on_first_compilation(lambda: warn(["compiling kernels; later runs find them in the cache"]))


def check_folder(*files: str | None) -> None:
    """Refuse files in folders that are not there, before any work is done for them.

    Raises
    ------
    CapplanError
        Naming the first such file.
    """
    for file in files:
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise CapplanError(f"{file}: its folder does not exist; a writable path is needed")


def write_out(text: str, out: str | None) -> None:
    """Write the answer to stdout, or to a file that appears in one step.

    Raises
    ------
    CapplanError
        The file cannot be written.
    """
    if out is None or out == "-":
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
        return
    target = Path(out)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise CapplanError(f"{target}: {error.strerror or error}; a writable path is needed") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
