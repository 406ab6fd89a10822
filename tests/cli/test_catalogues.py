"""`capplan gpus` and `capplan models`."""

import pytest
from commands import invoke, misuse_of

from capplan.report.catalogue import render_gpus, render_models


@pytest.mark.parametrize(("name", "render"), [("gpus", render_gpus), ("models", render_models)])
def test_catalogue(name, render):
    result = invoke(name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, render(), "")


@pytest.mark.parametrize("name", ["gpus", "models"])
def test_takes_no_argument(name):
    assert "unexpected extra argument" in misuse_of(name, "h20")


def test_every_gpu_that_is_listed_may_be_named(linked):
    rows = invoke("gpus").stdout.split("──\n")[1].splitlines()
    names = [
        line.split()[0] for line in rows[: rows.index(next(line for line in rows if line.startswith("~")))] if line
    ]
    assert len(names) > 25
    result = invoke("predict", linked, "--gpu", ",".join(names), "--model", "llama-3.1-8b", "--format", "csv")
    assert result.exit_code == 0
    assert list(dict.fromkeys(line.split(",")[0] for line in result.stdout.splitlines()[1:])) == names
