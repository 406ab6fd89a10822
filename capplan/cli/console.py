"""What commands write besides their answer, and how the answer gets out complete or not at all."""

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from capplan.errors import CapplanError
from capplan.output import written_whole


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


def check_overwrites(outputs: Iterable[str | None], sources: Iterable[str] = ()) -> None:
    """Refuse, as wrong usage, an output that names a source or another output.

    Raises
    ------
    click.UsageError
        Naming both.
    """
    taken = {Path(source).resolve(): f"the source {source}" for source in sources if source != "-"}
    for output in outputs:
        if output is None or output == "-" or Path(output).is_char_device():
            continue
        place = Path(output).resolve()
        if place in taken:
            raise click.UsageError(f"{output} would overwrite {taken[place]}; another name is needed")
        taken[place] = f"the output {output}"


def write_out(text: str, out: str | None) -> None:
    """Write the answer to stdout, or to a file that appears in one step.

    Raises
    ------
    CapplanError
        The file cannot be written.
    """
    if out is None or out == "-":
        encoding = sys.stdout.encoding or "utf-8"
        try:
            sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
            sys.stdout.flush()
        except BrokenPipeError:
            raise  # a reader that has seen enough, as `| head` has
        except OSError as error:
            raise CapplanError(f"stdout: {error.strerror or error}; a writable output is needed") from error
        return
    with written_whole(out) as path:
        path.write_text(text, encoding="utf-8")
