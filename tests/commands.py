"""Running the command line in tests: in this process, or as a process of its own."""

import os
import subprocess
import sys

from click.testing import CliRunner

from capplan.cli import main

COMPILING = "capplan: compiling kernels; later runs find them in the cache"


def invoke(*arguments):
    """Run the command here; only the exit a user would see is swallowed."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="capplan")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def notes_of(result):
    """Lines on stderr, without the notice of a first compilation."""
    return [line for line in result.stderr.splitlines() if line != COMPILING]


def refusal_of(*arguments):
    """The one line a command that cannot use its input leaves, and nothing else."""
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = notes_of(result)
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


def misuse_of(*arguments):
    """Last line of what wrong usage says, after a line of usage and one that names --help."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    usage, hint, blank, line = result.stderr.splitlines()
    assert usage.startswith("Usage: capplan ")
    assert "--help" in hint
    assert blank == ""
    return line.removeprefix("Error: ")


def start(*arguments, code=None, env=None, **options):
    """A process: `python -m capplan ARGUMENTS`, or `code` with the arguments."""
    command = [sys.executable, *(["-c", code] if code else ["-m", "capplan"]), *map(str, arguments)]
    settings = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(command, env=settings, **pipes)


def finish(process, timeout=120):
    """Exit code, stdout and stderr of a process."""
    with process:
        out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err
