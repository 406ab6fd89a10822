"""`capplan predict`: from a trace to a verdict."""

from typing import Any

import click

from capplan.cli import console
from capplan.cli import options as opt


@click.command("predict")
@opt.trace_options
@click.option("--gpu", "gpus", type=opt.NameList(), required=True, help="GPU names or profile files (capplan gpus).")
@click.option(
    "--model",
    default="qwen3-coder-30b-a3b",
    show_default=True,
    help="Model name (capplan models), Hugging Face config.json, or profile file.",
)
@click.option(
    "--tp",
    type=opt.COUNT,
    help="Tensor-parallel size; it divides weights and KV heads "
    "(copied where there are more ranks than heads). Default: the smallest of 1, 2, 4, 8 that divides the "
    "heads and leaves room for the longest request.",
)
@click.option(
    "--pool",
    "pool_size",
    type=opt.COUNT,
    help="Concurrent tasks; implies --order pool. Default 16 in pool order.",
)
@click.option(
    "--order",
    type=click.Choice(["recorded", "pool"]),
    help="Default: recorded where every request has an arrival time, else pool.",
)
@click.option(
    "--host-gib",
    type=opt.NumberList(),
    default=(),
    help="Host capacities in GiB per rank; a node holds "
    "one copy per rank (--host-copies). Default: about 20 where this trace's curve moves.",
)
@click.option("--chunk-tokens", type=opt.TOKENS, default=1024, show_default=True, help="Tokens per host chunk.")
@click.option(
    "--touch",
    type=click.Choice(["leaf-first", "head-first"]),
    default="leaf-first",
    show_default=True,
    help="Which end of a prompt the host tier touches first.",
)
@click.option(
    "--distance",
    type=click.Choice(["lookup", "sequential"]),
    default="lookup",
    show_default=True,
    help="Position that decides coverage; sequential is the published convention.",
)
@click.option(
    "--warmup",
    type=opt.Number(0, 1, max_open=True),
    default=0.0,
    metavar="F",
    help="Leave the first F of requests out of totals, not out of state.",
)
@click.option(
    "--kv-dtype",
    type=click.Choice(["bf16", "fp16", "fp8", "nvfp4", "fp8_ds_mla"]),
    default="bf16",
    show_default=True,
    help="Type the KV cache is kept in; fp8_ds_mla for MLA models.",
)
@click.option(
    "--weight-dtype",
    type=click.Choice(["bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]),
    help="Default: as the checkpoint is published.",
)
@click.option(
    "--gpu-mem-util",
    type=opt.Number(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="Share of GPU memory the engine uses.",
)
@click.option("--gpu-kv-tokens", type=opt.TOKENS, help="KV room of one rank in tokens, instead of computing it.")
@click.option("--gpu-kv-gib", type=opt.POSITIVE, help="KV room of one rank in GiB, instead of computing it.")
@click.option("--no-gpu-tier", is_flag=True, help="Serve nothing from GPU memory.")
@click.option(
    "--host-copies",
    type=opt.COUNT,
    help="Host copies of the cache in a node. Default: TP, or 1 for MLA models.",
)
@click.option(
    "--node-ram", "node_ram_gib", type=opt.POSITIVE, metavar="GIB", help="Warn where the recommendation exceeds it."
)
@click.option("--prefill-tok-s", type=opt.POSITIVE, help="Prefill rate of the whole TP group, tokens/s.")
@click.option("--h2d-gbps", type=opt.POSITIVE, help="Restore rate per GPU, GB/s (1e9 bytes).")
@click.option(
    "--engine",
    type=click.Choice(["lmcache", "vllm", "sglang", "trtllm", "dynamo", "mooncake"]),
    default="lmcache",
    show_default=True,
    help="Engine whose KV layout and way of copying set the restore rate.",
)
@click.option(
    "--restore",
    "restore_method",
    type=click.Choice(["per-fragment", "batched", "kernel", "contiguous"]),
    help="Way of copying. Default: the engine's.",
)
@click.option("--load-latency-ms", type=opt.Number(min=0), help="Fixed cost of a request that loads.")
@click.option("--dram-usd-per-gib", type=opt.Number(min=0), help="What host memory costs you; with --gpu-usd-per-hour.")
@click.option("--gpu-usd-per-hour", type=opt.Number(min=0), help="What a GPU costs you; with --dram-usd-per-gib.")
@click.option(
    "--format", "output_format", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False, allow_dash=True), help="Default: stdout.")
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Also draw the curve: .png, .svg or .pdf."
)
def command(**given: Any) -> None:
    """Predict computed prefill, restored and written tokens, and whether a host KV tier pays.

    SOURCE is a trace in any format capplan reads: the canonical Parquet, Parquet or JSONL with token ids or block
    hashes, Mooncake JSONL, a kv-cache-tester folder or file.
    """
    check_usage(given)
    console.check_folder(given["out"], given["plot"])
    console.check_overwrites((given["out"], given["plot"]), given["source"])
    run(given)


def check_usage(given: dict[str, Any]) -> None:
    """Refuse options that contradict each other; exit code 2."""
    if given["pool_size"] is not None and given["order"] == "recorded":
        raise click.UsageError("--pool sets the pool order; it cannot go with --order recorded")
    if (given["dram_usd_per_gib"] is None) != (given["gpu_usd_per_hour"] is None):
        raise click.UsageError("--dram-usd-per-gib and --gpu-usd-per-hour go together")
    if given["restore_method"] is not None and given["h2d_gbps"] is not None:
        raise click.UsageError("--restore and --h2d-gbps exclude each other: that rate has the copies inside")
    room = [name for name in ("gpu_kv_tokens", "gpu_kv_gib") if given[name] is not None]
    room += ["no_gpu_tier"] if given["no_gpu_tier"] else []
    if len(room) > 1:
        raise click.UsageError(" and ".join(f"--{name.replace('_', '-')}" for name in room) + " exclude each other")
    if given["plot"] is not None and not given["plot"].lower().endswith((".png", ".svg", ".pdf")):
        raise click.UsageError(f"--plot {given['plot']}: a name ending in .png, .svg or .pdf is accepted")


def run(given: dict[str, Any]) -> None:
    """Read, predict, write; the imports that take time happen here."""
    from capplan.cli import reading
    from capplan.costs import Overrides
    from capplan.deployment import GpuRoom
    from capplan.pipeline import predict
    from capplan.plan import Options
    from capplan.prediction import Prices
    from capplan.report import render

    console.announce_compilation()
    latency = given["load_latency_ms"]
    options = Options(
        order=given["order"],
        pool_size=given["pool_size"],
        chunk_tokens=given["chunk_tokens"],
        touch=given["touch"],
        distance=given["distance"],
        warmup=given["warmup"],
        host_gib=given["host_gib"],
        tp=given["tp"],
        kv_dtype=given["kv_dtype"],
        weight_dtype=given["weight_dtype"],
        room=GpuRoom(given["gpu_mem_util"], given["gpu_kv_tokens"], given["gpu_kv_gib"], not given["no_gpu_tier"]),
        host_copies=given["host_copies"],
        overrides=Overrides(
            given["prefill_tok_s"],
            given["h2d_gbps"],
            None if latency is None else latency / 1e3,
            given["restore_method"],
        ),
        node_ram_gib=given["node_ram_gib"],
        engine=given["engine"],
        prices=None
        if given["gpu_usd_per_hour"] is None
        else Prices(given["dram_usd_per_gib"], given["gpu_usd_per_hour"]),
    )
    trace = reading.read(given)
    plan = predict(trace, given["gpus"], given["model"], options)
    console.warn(plan.trace.notes)
    text = render(plan, given["output_format"])
    if given["plot"] is not None:
        from capplan.plot import draw_plan, save_figure

        save_figure(draw_plan(plan), given["plot"])
    console.write_out(text, given["out"])
