"""`capplan ingest`: any source becomes the canonical prefix-linked file."""

from pathlib import Path
from typing import Any

import click

from capplan.cli import console
from capplan.cli import options as opt


@click.command("ingest")
@opt.trace_options
@click.option("-o", "--output", "out", required=True, type=click.Path(dir_okay=False), help="Parquet file to write.")
@click.option(
    "--keep-keys", is_flag=True, help="Write the keys of its blocks beside it, FILE.keys, so that it can grow."
)
@click.option("--append", "appends", is_flag=True, help="Add to FILE where it exists; it needs its keys. Keeps them.")
def command(**given: Any) -> None:
    """Link SOURCE once and keep the result: no text, no token ids, no hashes, some bytes a call.

    Predictions from the file equal those from the source, at every chunk size and order. Several SOURCEs
    become one trace, in the order given: files, folders, quoted patterns such as 'day-*.jsonl.gz', or - for
    standard input, plain or compressed with gzip or zstd.
    """
    console.check_folder(given["out"])
    console.check_overwrites([given["out"]], given["source"])
    run(given)


def run(given: dict[str, Any]) -> None:
    """Read, link, write; the imports that take time happen here."""
    from capplan.cli import reading
    from capplan.errors import TraceError
    from capplan.readers.canonical import write_trace
    from capplan.readers.key_file import writing_keys

    console.announce_compilation()
    out = given["out"]
    grows = given["appends"] and Path(out).exists()
    trace, keys = reading.extend(out, given) if grows else reading.read_with_keys(given)
    console.warn(trace.notes)
    command_line = describe_command(given, trace.provenance.get("command", ""))
    if not (given["appends"] or given["keep_keys"]):
        del keys  # they may take more memory than all the rest
        write_trace(trace, out, command_line)
        return
    if keys is None:
        raise TraceError(f"{given['source'][0]}: linked already, so its keys are not known; link its sources again")
    with writing_keys(keys, trace, out):
        write_trace(trace, out, command_line)


def describe_command(given: dict[str, Any], earlier: str) -> str:
    """What made the file: this command, after those that made what it goes on from."""
    names = " ".join(click.format_filename(source, shorten=True) for source in given["source"])
    line = f"capplan ingest {names}"
    return f"{earlier}; {line}" if earlier else line
