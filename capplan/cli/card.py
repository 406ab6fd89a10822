"""`capplan card`: a host capacity as the settings engines take."""

from typing import TYPE_CHECKING, Any

import click

from capplan.cli import options as opt

if TYPE_CHECKING:
    from capplan.card import Card


@click.command("card")
@opt.trace_options
@click.option("--host-gib", type=opt.POSITIVE, metavar="N", help="Host capacity in GiB per rank, instead of a trace.")
@click.option("--gpu", required=True, help="GPU name or profile file (capplan gpus).")
@click.option(
    "--model",
    default="qwen3-coder-30b-a3b",
    show_default=True,
    help="Model name (capplan models), Hugging Face config.json, or profile file.",
)
@click.option("--tp", type=opt.COUNT, help="Tensor-parallel size; needed with --host-gib.")
@click.option(
    "--engine", "engines", type=opt.NameList(), help="Engine names. Default: every engine in its newest release known."
)
@click.option(
    "--kv-dtype",
    type=click.Choice(["bf16", "fp16", "fp8", "nvfp4", "fp8_ds_mla"]),
    default="bf16",
    show_default=True,
)
@click.option("--chunk-tokens", type=opt.TOKENS, default=1024, show_default=True, help="Tokens per host chunk.")
@click.option("--gpu-kv-tokens", type=opt.TOKENS, help="KV room of one rank in tokens, as the engine's log reports it.")
@click.option("--no-gpu-tier", is_flag=True, help="Serve nothing from GPU memory; sizes counted in it are left out.")
@click.option("--pool", "pool_size", type=opt.COUNT, help="Concurrent tasks of the trace; implies pool order.")
@click.option(
    "--node-ram", "node_ram_gib", type=opt.POSITIVE, metavar="GIB", help="Warn where an engine takes more of a node."
)
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False, allow_dash=True), help="Default: stdout.")
def command(**given: Any) -> None:
    """Print what to type into LMCache, vLLM, SGLang and others for a host KV tier.

    The tier is --host-gib, or what a prediction for the trace SOURCE recommends.
    """
    check_usage(given)
    run(given)


for parameter in command.params:
    if parameter.name == "source":  # elsewhere a trace is a must
        parameter.required = False


def check_usage(given: dict[str, Any]) -> None:
    """Refuse options that contradict each other or do not suffice; exit code 2."""
    if (given["source"] is None) == (given["host_gib"] is None):
        raise click.UsageError("one of SOURCE and --host-gib is needed")
    if given["source"] is None and given["tp"] is None:
        raise click.UsageError("--host-gib needs --tp: GiB per rank of how many ranks")
    if given["gpu_kv_tokens"] is not None and given["no_gpu_tier"]:
        raise click.UsageError("--gpu-kv-tokens and --no-gpu-tier exclude each other")
    if given["source"] is None and given["pool_size"] is not None:
        raise click.UsageError("--pool goes with a trace, not with --host-gib")


def run(given: dict[str, Any]) -> None:
    """Size, write; the imports that take time happen here."""
    from capplan.cli import console
    from capplan.report.card import render_card

    card, basis = _from_capacity(given) if given["source"] is None else _from_trace(given)
    console.write_out(render_card(card, given["output_format"], basis), given["out"])


def _from_capacity(given: dict[str, Any]) -> tuple["Card", str]:
    from capplan.card import place_card
    from capplan.units import format_number

    card = place_card(
        given["host_gib"],
        given["gpu"],
        given["model"],
        given["tp"],
        kv_dtype=given["kv_dtype"],
        chunk_tokens=given["chunk_tokens"],
        gpu_kv_tokens=0 if given["no_gpu_tier"] else given["gpu_kv_tokens"],
        node_ram_gib=given["node_ram_gib"],
        engine=given["engines"],
    )
    return card, f"asked for: {format_number(given['host_gib'])} GiB per rank"


def _from_trace(given: dict[str, Any]) -> tuple["Card | None", str]:
    from capplan.card import make_card
    from capplan.cli import console, reading
    from capplan.deployment import GpuRoom
    from capplan.pipeline import predict
    from capplan.plan import Options

    console.announce_compilation()
    options = Options(
        pool_size=given["pool_size"],
        chunk_tokens=given["chunk_tokens"],
        tp=given["tp"],
        kv_dtype=given["kv_dtype"],
        room=GpuRoom(kv_tokens=given["gpu_kv_tokens"], is_used=not given["no_gpu_tier"]),
        node_ram_gib=given["node_ram_gib"],
    )
    plan = predict(reading.read(given), [given["gpu"]], given["model"], options)
    console.warn(plan.trace.notes)
    prediction, verdict = plan.answers[0].prediction, plan.answers[0].verdict
    deployment = prediction.deployment
    if not verdict.recommended_slots:
        where = f"{deployment.model.title}, {deployment.gpu.title}, TP{deployment.tp}"
        return None, f"{where}: no host tier is recommended: {verdict.answer}: {verdict.reason}"
    card = make_card(
        verdict.recommended_slots * prediction.chunk_bytes,
        deployment,
        prediction.tiers.chunk_tokens,
        deployment.gpu_kv_tokens,
        given["node_ram_gib"],
        given["engines"],
    )
    return card, f"recommended: {verdict.answer}: {verdict.reason}"
