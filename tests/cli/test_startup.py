"""How the commands start and end: what is imported when, the first compilation, pipes and interrupts."""

import os
import signal
import subprocess
import sys

import pytest
from commands import COMPILING, finish, invoke, start
from plans import agent_trace

from capplan import write_trace
from capplan.cli import COMMANDS

HEAVY = ("numba", "numpy", "polars", "matplotlib", "msgspec", "rich")
JIT_OFF = os.environ.get("NUMBA_DISABLE_JIT") == "1"
compiles = pytest.mark.skipif(JIT_OFF, reason="nothing is compiled with NUMBA_DISABLE_JIT=1")

RUN_AND_TELL = f"""
import sys
try:
    from capplan.__main__ import main
    main()
except SystemExit as end:
    code = end.code
print("imported:", *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
raise SystemExit(code)
"""


def run_and_tell(*arguments):
    """Exit code of a command and the heavy packages it imported."""
    code, _, err = finish(start(*arguments, code=RUN_AND_TELL))
    return code, err.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("arguments", ["--help", "-h", "--version", *(f"{name} --help" for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments):
    assert run_and_tell(*arguments.split()) == (0, [])


@pytest.mark.parametrize(
    "arguments",
    [
        "forecast",
        "predict",
        "predict x --gpu h20 --pool 4 --order recorded",
        "predict x --gpu h20 --from parquet",
        "predict x --gpu h20 --plot curve.gif",
        "predict x --gpu h20 --warmup nan",
        "predict x --gpu h20 --policy lfu",
        "simulate x --gpu h20",
        "admission x --gpu h20 --theta 2",
        "ingest x",
        "synth",
        "gpus x",
    ],
)
def test_wrong_usage_imports_nothing_heavy(arguments):
    assert run_and_tell(*arguments.split()) == (2, [])


def test_catalogues_need_no_engine():
    code, imported = run_and_tell("gpus")
    assert code == 0
    assert not {"numba", "polars", "matplotlib"} & set(imported)


def test_a_prediction_without_a_plot_needs_no_matplotlib(linked):
    code, imported = run_and_tell("predict", linked, "--gpu", "h20")
    assert code == 0
    assert "matplotlib" not in imported
    assert "numba" in imported


def test_import_of_the_package_imports_nothing_heavy():
    code = f"import sys, capplan; print([name for name in {(*HEAVY, 'click')!r} if name in sys.modules])"
    assert finish(start(code=code)) == (0, "[]\n", "")


def test_help_names_every_command():
    result = invoke("--help")
    assert result.exit_code == 0
    for name, line in COMMANDS.items():
        assert f"  {name}" in result.stdout
        assert line.split(".")[0][:40] in result.stdout


def test_no_command_shows_the_help():
    result = invoke()
    assert result.exit_code == 2
    assert "Usage: capplan" in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_opens_with_what_it_does(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    usage, blank, first = result.stdout.splitlines()[:3]
    assert usage.startswith(f"Usage: capplan {name}")
    assert blank == ""
    assert first.startswith("  ")


def test_help_says_what_numbers_count():
    text = " ".join(invoke("predict", "--help").stdout.split())
    for words in (
        "Host capacities in GiB per rank",
        "Prefill rate of the whole TP group",
        "Restore rate per GPU",
        "it divides weights and KV heads (copied where there are more ranks than heads)",
        "Default: TP, or 1 for MLA models",
        "Default 16 in pool order",
    ):
        assert words in text


def test_runs_as_a_module(linked):
    code, out, err = finish(start("predict", linked, "--gpu", "h20", "--format", "csv"))
    assert (code, out) == (0, invoke("predict", linked, "--gpu", "h20", "--format", "csv").stdout)
    assert [line for line in err.splitlines() if line != COMPILING] == []


def test_an_error_leaves_one_line(tmp_path):
    code, out, err = finish(start("predict", tmp_path / "absent", "--gpu", "h20"))
    assert (code, out) == (1, "")
    assert (
        err == f"Error: {tmp_path / 'absent'}: No such file or directory; a readable trace file or folder is needed\n"
    )


@pytest.mark.parametrize("arguments", ["predict TRACE --gpu h20 --format json", "gpus", "--help"])
def test_a_reader_that_stops_reading_leaves_no_traceback(linked, arguments):
    words = [linked if word == "TRACE" else word for word in arguments.split()]
    process = start(*words, env={"PYTHONUNBUFFERED": None})
    process.stdout.close()
    with process:
        err = process.stderr.read()
        code = process.wait(timeout=120)
    assert code == 1
    assert [line for line in err.splitlines() if line != COMPILING] == []


@compiles
def test_first_run_says_that_it_compiles_and_the_second_is_silent(linked, tmp_path):
    command = ("predict", linked, "--gpu", "h20", "--format", "csv")
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = finish(start(*command, env=environment))
    assert (first[0], first[2]) == (0, COMPILING + "\n")
    second = finish(start(*command, env=environment))
    assert second == (0, first[1], "")


@compiles
def test_ctrl_c_leaves_no_file_and_no_traceback(linked, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    files = ("-o", out / "answer", "--plot", out / "curve.png")
    process = start("predict", linked, "--gpu", "h20", *files, env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")})
    with process:
        assert process.stderr.readline() == COMPILING + "\n"
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        code = process.wait(timeout=120)
    assert code == 130
    assert err.strip() == "capplan: interrupted, nothing was written"
    assert list(out.iterdir()) == []


NO_CACHE = """
import numba
decorate = numba.njit
def refuse(*arguments, cache=False, **options):
    if cache:
        raise RuntimeError("cannot cache function: no locator available")
    return decorate(*arguments, **options)
numba.njit = refuse
from capplan.kernels._jit import kernel
@kernel
def add(a, b):
    return a + b
assert add(1, 2) == 3
from capplan.cli import main
main()
"""


@compiles
def test_works_where_no_cache_can_be_written(tmp_path):
    """As with a read-only package folder and home: numba then refuses to cache when a kernel is decorated."""
    trace = tmp_path / "small.parquet"
    write_trace(agent_trace(2, 2), trace)
    command = ("predict", trace, "--gpu", "h20", "--format", "csv", "--no-gpu-tier")
    code, out, err = finish(start(*command, code=NO_CACHE))
    assert (code, err) == (0, COMPILING + "\n")
    assert out == invoke(*command).stdout


def test_python_of_the_tests_is_that_of_the_commands():
    code, out, _ = finish(start("--version"))
    assert (code, out.split()[0]) == (0, "capplan,")
    assert sys.version_info >= (3, 11)


def test_the_simulator_is_imported_only_where_a_tier_is_named():
    code = (
        "import sys, capplan.pipeline, capplan.report.as_table, capplan.report.as_json, capplan.plot;"
        "print([name for name in sys.modules if 'simulat' in name or 'admission' in name])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
