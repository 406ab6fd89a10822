"""Options of commands that plan: the stream, the deployment, costs and the output."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from capplan.cli import options as opt

if TYPE_CHECKING:
    from capplan.plan import Options
    from capplan.simulation.settings import TierSettings

PLAN = (
    click.option(
        "--gpu", "gpus", type=opt.NameList(), required=True, help="GPU names or profile files (capplan gpus)."
    ),
    click.option(
        "--model",
        default="qwen3-coder-30b-a3b",
        show_default=True,
        help="Model name (capplan models), Hugging Face config.json, or profile file.",
    ),
    click.option(
        "--tp",
        type=opt.COUNT,
        help="Tensor-parallel size; it divides weights and KV heads "
        "(copied where there are more ranks than heads). Default: the smallest of 1, 2, 4, 8 that divides the "
        "heads and leaves room for the longest request.",
    ),
    click.option(
        "--pool",
        "pool_size",
        type=opt.COUNT,
        help="Concurrent tasks; implies --order pool. Default 16 in pool order.",
    ),
    click.option(
        "--order",
        type=click.Choice(["recorded", "pool"]),
        help="Default: recorded where every request has an arrival time, else pool.",
    ),
    click.option(
        "--host-gib",
        type=opt.NumberList(),
        default=(),
        help="Host capacities in GiB per rank; a node holds "
        "one copy per rank (--host-copies). Default: about 20 where this trace's curve moves.",
    ),
    click.option(
        "--warmup",
        type=opt.Number(0, 1, max_open=True),
        default=0.0,
        metavar="F",
        help="Leave the first F of requests out of totals, not out of state.",
    ),
    click.option(
        "--kv-dtype",
        type=click.Choice(["bf16", "fp16", "fp8", "nvfp4", "fp8_ds_mla"]),
        default="bf16",
        show_default=True,
        help="Type the KV cache is kept in; fp8_ds_mla for MLA models.",
    ),
    click.option(
        "--weight-dtype",
        type=click.Choice(["bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]),
        help="Default: as the checkpoint is published.",
    ),
    click.option(
        "--gpu-mem-util",
        type=opt.Number(0, 1, min_open=True),
        default=0.9,
        show_default=True,
        help="Share of GPU memory the engine uses.",
    ),
    click.option("--gpu-kv-tokens", type=opt.TOKENS, help="KV room of one rank in tokens, instead of computing it."),
    click.option("--gpu-kv-gib", type=opt.POSITIVE, help="KV room of one rank in GiB, instead of computing it."),
    click.option("--no-gpu-tier", is_flag=True, help="Serve nothing from GPU memory."),
    click.option(
        "--host-copies",
        type=opt.COUNT,
        help="Host copies of the cache in a node. Default: TP, or 1 for MLA models.",
    ),
    click.option("--prefill-tok-s", type=opt.POSITIVE, help="Prefill rate of the whole TP group, tokens/s."),
    click.option("--h2d-gbps", type=opt.POSITIVE, help="Restore rate per GPU, GB/s (1e9 bytes)."),
    click.option(
        "--engine",
        type=click.Choice(["lmcache", "vllm", "sglang", "trtllm", "dynamo", "mooncake"]),
        help="Engine whose KV layout and way of copying set the restore rate. Default: the tier's, or lmcache.",
    ),
    click.option(
        "--restore",
        "restore_method",
        type=click.Choice(["per-fragment", "batched", "kernel", "contiguous"]),
        help="Way of copying. Default: the engine's.",
    ),
    click.option("--load-latency-ms", type=opt.Number(min=0), help="Fixed cost of a request that loads."),
)
OUTPUT = (
    click.option(
        "--format", "output_format", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
    ),
    click.option("-o", "--output", "out", type=click.Path(dir_okay=False, allow_dash=True), help="Default: stdout."),
    click.option(
        "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Also draw the curve: .png, .svg or .pdf."
    ),
)


def decorate(*groups: tuple[Callable[..., Any], ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command groups of options, listed in order."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return apply


def check_plan(given: dict[str, Any]) -> None:
    """Refuse options that contradict each other; exit code 2."""
    if given["pool_size"] is not None and given["order"] == "recorded":
        raise click.UsageError("--pool sets the pool order; it cannot go with --order recorded")
    if given["restore_method"] is not None and given["h2d_gbps"] is not None:
        raise click.UsageError("--restore and --h2d-gbps exclude each other: that rate has the copies inside")
    room = [name for name in ("gpu_kv_tokens", "gpu_kv_gib") if given[name] is not None]
    room += ["no_gpu_tier"] if given["no_gpu_tier"] else []
    if len(room) > 1:
        raise click.UsageError(" and ".join(f"--{name.replace('_', '-')}" for name in room) + " exclude each other")


def check_plot(plot: str | None) -> None:
    """Refuse a picture of another kind; exit code 2."""
    if plot is not None and not plot.lower().endswith((".png", ".svg", ".pdf")):
        raise click.UsageError(f"--plot {plot}: a name ending in .png, .svg or .pdf is accepted")


def read_options(given: dict[str, Any], tier: "TierSettings | None" = None) -> "Options":
    """Options of a plan out of a command's; what a command lacks keeps its default."""
    from capplan.costs import Overrides
    from capplan.deployment import GpuRoom
    from capplan.plan import Options
    from capplan.prediction import Prices

    latency = given["load_latency_ms"]
    engine = given["engine"] or ("lmcache" if tier is None else tier.preset.engine)
    prices = None
    if given.get("gpu_usd_per_hour") is not None:
        prices = Prices(given["dram_usd_per_gib"], given["gpu_usd_per_hour"])
    return Options(
        order=given["order"],
        pool_size=given["pool_size"],
        chunk_tokens=given.get("chunk_tokens") or 1024,
        touch=given.get("touch", "leaf-first"),
        distance=given.get("distance", "lookup"),
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
        node_ram_gib=given.get("node_ram_gib"),
        engine=engine,
        prices=prices,
        tier=tier,
    )
