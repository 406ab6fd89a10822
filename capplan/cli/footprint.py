"""`capplan footprint`: what a model's KV weighs."""

import click

from capplan.cli import options as opt


@click.command("footprint")
@click.option("--model", required=True, help="Model name (capplan models), Hugging Face config.json, or profile file.")
@click.option("--tp", type=opt.COUNT, help="Tensor-parallel size. Default: each of 1, 2, 4, 8 that divides the heads.")
@click.option(
    "--kv-dtype",
    type=click.Choice(["bf16", "fp16", "fp8", "nvfp4", "fp8_ds_mla"]),
    help="Default: each the model's KV can be kept in.",
)
@click.option("--chunk-tokens", type=opt.TOKENS, default=1024, show_default=True, help="Tokens per host chunk.")
@click.option("--context-tokens", type=opt.TOKENS, default=100_000, show_default=True, help="Tokens of a context.")
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False, allow_dash=True), help="Default: stdout.")
def command(
    model: str,
    tp: int | None,
    kv_dtype: str | None,
    chunk_tokens: int,
    context_tokens: int,
    output_format: str,
    out: str | None,
) -> None:
    """Show KV bytes per token, block, chunk and context, on a rank and in a node."""
    from capplan.cli import console
    from capplan.footprint import choose_tps, measure_footprints
    from capplan.models import load_model
    from capplan.report.footprint import render

    spec = load_model(model)
    dtypes = (kv_dtype,) if kv_dtype else ()
    footprints = measure_footprints(spec, choose_tps(spec, tp), dtypes, chunk_tokens, context_tokens)
    console.write_out(render(footprints, chunk_tokens, context_tokens, output_format), out)
