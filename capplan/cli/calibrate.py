"""`capplan calibrate`: from measured runs to a GPU profile of one's own."""

from pathlib import Path
from typing import Any

import click

from capplan.cli import options as opt

HOLDABLE = ("prefill", "restore", "load", "write")


@click.command("calibrate")
@click.argument("measurements", type=click.Path())
@click.option("--gpu", required=True, help="GPU name (capplan gpus): the base of the calibrated profile.")
@click.option("--model", required=True, help="Model name (capplan models), config.json, or profile file.")
@click.option("--tp", type=opt.COUNT, required=True, help="Tensor-parallel size the runs were served at.")
@click.option("--kv-dtype", type=click.Choice(["bf16", "fp8"]), default="bf16", show_default=True)
@click.option(
    "--weight-dtype",
    type=click.Choice(["bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]),
    help="Default: as the checkpoint is published.",
)
@click.option(
    "--position",
    type=opt.POSITIVE,
    metavar="TOKENS",
    help="Mean attended position of the runs' computed tokens, where known; the profile's point then holds near it.",
)
@click.option(
    "--fit-rows",
    type=opt.NameList(),
    default=(),
    metavar="LABEL[,LABEL...]",
    help="Fit these rows and check all others, whatever the column `use` says.",
)
@click.option(
    "--hold",
    type=opt.NameList(),
    default=(),
    metavar="NAME[,NAME...]",
    help=f"Do not fit these, keep the profile's value: {', '.join(HOLDABLE)}.",
)
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(dir_okay=False),
    metavar="FILE.toml",
    help="Profile to write for --gpu FILE.toml; without it, it is shown.",
)
def command(**given: Any) -> None:
    """Fit prefill time, restore rate and overhead to measured runs, and write them as a GPU profile.

    MEASUREMENTS is a CSV with a header, one run or one TTFT point a row. Tokens are plain counts, a blank cell means
    not reported, lines that begin with # are comments. The report goes to stdout.

    \b
    Columns of a run (a workload served from start to end):
      computed_prefill_tokens  prompt tokens computed, all requests
      restored_tokens          brought back from host memory; may be blank
      moved_tokens             optional: copied for that; default restored
      written_tokens           copied to host memory; may be blank
      loading_requests         optional: requests that restored anything
      makespan_s               seconds, first request to last response
    Columns of a TTFT point (one request on an idle engine):
      prompt_tokens            length of the prompt
      cached_tokens            leading tokens of it that were cached
      cached_in                gpu, host; may be blank where none were
      ttft_s                   seconds to the first token
    Columns of both, optional:
      label                    the row's name
      use                      fit (default), or check: only predicted

    A parameter the rows do not determine is held at the profile's value and named. There are 95 % intervals from
    three rows on, where there are more rows than fitted parameters.
    """  # noqa: D301 - click keeps the lines behind \b, and a raw string would not hold it
    check_usage(given)
    run(given)


def check_usage(given: dict[str, Any]) -> None:
    """Refuse options that cannot work; exit code 2."""
    for name in given["hold"]:
        if name not in HOLDABLE:
            raise click.UsageError(f"--hold {name}: accepted: {', '.join(HOLDABLE)}")
    if given["out"] is None:
        return
    if not given["out"].lower().endswith(".toml"):
        raise click.UsageError(f"-o {given['out']}: a name ending in .toml is accepted, as --gpu reads it")
    if Path(given["out"]).resolve() == Path(given["measurements"]).resolve():
        raise click.UsageError(f"-o {given['out']}: that file holds the measurements; another name is accepted")


def run(given: dict[str, Any]) -> None:
    """Read, fit, write; the imports that take time happen here."""
    from capplan.calibration import Settings, calibrate, write_profile
    from capplan.cli import console
    from capplan.report.calibration import render

    settings = Settings(
        tp=given["tp"],
        kv_dtype=given["kv_dtype"],
        weight_dtype=given["weight_dtype"],
        position=given["position"],
        fit_rows=given["fit_rows"],
        hold=given["hold"],
    )
    found = calibrate(given["measurements"], given["gpu"], given["model"], settings)
    text = render(found, given["output_format"], shows_profile=given["out"] is None)
    if given["out"] is not None:
        console.write_out(write_profile(found), given["out"])
        console.warn([f"wrote {click.format_filename(given['out'])}; use it with --gpu"])
    console.write_out(text, None)
