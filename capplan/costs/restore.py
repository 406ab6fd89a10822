"""Restore: the rate at which KV comes back from host memory to one rank.

What is modelled (docs/model.md section 5): the way an engine copies and the size of its fragments
(`capplan.costs.copy_rate`), stores that run the other way, the ceiling of the node's memory when all ranks of one
model load at once. A restore of n tokens then takes n beta / rate, and the fixed cost of a loading request
(`capplan.economics.load_overhead_seconds`); what a fragment costs is in the rate and nowhere else.
What is not: memory of the wrong socket, links behind a shared switch, other models on the node (`ranks` says
how many GPUs load at once), the time of sending a latent that one rank read to the others.
"""

from dataclasses import dataclass
from typing import Literal

from capplan.costs.copy_rate import Ends, effective_rates
from capplan.costs.fragment import fragment_bytes, fragments_per_token
from capplan.costs.restore_spec import CopyTable, EngineRestore, RestoreTables, load_restore_tables
from capplan.errors import SpecError
from capplan.hardware.gpu_spec import GpuSpec
from capplan.models.model_record import ModelSpec
from capplan.units import GB, format_number

DEFAULT_ENGINE = "lmcache"
Stores = Literal["none", "low", "all"]


@dataclass(frozen=True, slots=True)
class RestoreRate:
    """Rates of one rank's restores, bytes per second: worst plausible, to plan with, best.

    Attributes
    ----------
    fragment_bytes : float
        Contiguous bytes per copy, in the mean.
    fragments_per_token : float
        Copies a token costs.
    method, layout : str
        How fragments are copied and how the engine lays them out.
    contiguous : (low, typical, high)
        The link's rates with the same stores and node, bytes per second.
    notes : tuple of str
        What was assumed, in words.
    """

    low: float
    typical: float
    high: float
    fragment_bytes: float
    fragments_per_token: float
    method: str
    layout: str
    contiguous: Ends
    notes: tuple[str, ...]

    @property
    def ends(self) -> Ends:
        """Low, typical and high."""
        return self.low, self.typical, self.high


def estimate_rate(
    gpu: GpuSpec,
    model: ModelSpec,
    tp: int,
    kv_dtype: str = "bf16",
    method: str | None = None,
    *,
    engine: str = DEFAULT_ENGINE,
    block_tokens: int | None = None,
    layout: str | None = None,
    stores: Stores = "low",
    ranks: int | None = None,
    dram_gb_per_s: float | Ends | None = None,
    broadcasts: bool | None = None,
    tables: RestoreTables | None = None,
) -> RestoreRate:
    """Return the rate at which one rank's KV comes back from host memory.

    Parameters
    ----------
    method, block_tokens, layout : as the engine does by default if None
    engine : ``"lmcache"``, ``"vllm"``, ``"sglang"``, ``"trtllm"``, ``"dynamo"``, ``"mooncake"``
    stores : where stores running at the same time count: at the ``"low"`` end, at ``"all"`` ends, at ``"none"``
    ranks : GPUs of the node that load at once; `tp` if None, not more than the node has
    dram_gb_per_s : what all of them together can read from the node's memory, one number or (low, typical, high)
    broadcasts : whether one rank reads a latent for all; as the engine does if None
    tables : measurements and engines; those that ship with capplan if None

    Raises
    ------
    SpecError
        A name is unknown or a number is out of range.
    """
    tables = tables or load_restore_tables()
    habit = tables.engine(engine)
    block = habit.block_tokens if block_tokens is None else block_tokens
    _check_counts(block_tokens=block, ranks=tp if ranks is None else ranks)
    laid_out = habit.layout if layout is None else layout
    size = fragment_bytes(model, tp, kv_dtype, block, laid_out)
    chosen = habit.method_for(size) if method is None else method
    link, link_notes = _link_rates(gpu, stores, tables)
    readers = _readers(gpu, model, tp if ranks is None else ranks, habit, broadcasts)
    ceiling, ceiling_note = _ceiling(gpu, readers, dram_gb_per_s, tables)
    low, typical, high = _capped(effective_rates(chosen, size, link, tables, gpu.vendor), ceiling)
    latent = ("every rank restores the same latent",) if model.attention == "mla" else ()
    measured = () if chosen == "contiguous" else (_describe_table(tables.table_for(chosen, gpu.vendor), gpu),)
    why = f"{engine}: {habit.basis}" if method is None else "method given"
    way = f"restores by {chosen} copies of {format_number(size / 1024)} KiB ({laid_out}, {block} tokens a block); {why}"
    return RestoreRate(
        low=low,
        typical=typical,
        high=high,
        fragment_bytes=size,
        fragments_per_token=fragments_per_token(model, block, laid_out),
        method=chosen,
        layout=laid_out,
        contiguous=_capped(link, ceiling),
        notes=(way, *measured, *link_notes, *latent, ceiling_note),
    )


def _describe_table(table: CopyTable, gpu: GpuSpec) -> str:
    foreign = "" if table.vendor or gpu.vendor in ("", "NVIDIA") else f" (no figure for {gpu.vendor})"
    return f"rates by size{foreign}: {table.basis}"


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise SpecError(f"{name} {count}: accepted: a whole number from 1")


def _link_rates(gpu: GpuSpec, stores: str, tables: RestoreTables) -> tuple[Ends, tuple[str, ...]]:
    """Contiguous rates of the host link in bytes per second, and what was assumed of stores.

    The profile's low end is often measured with copies both ways, so the loss applies to the best one-way
    rate and the smaller of both counts.
    """
    rate = gpu.h2d_gb_per_s
    low, typical, high = rate.low * GB, rate.typical * GB, rate.high * GB
    said = ", estimated" if rate.estimated else ""
    origin = f"host link at {rate.low:g} / {rate.typical:g} / {rate.high:g} GB/s{said}: {rate.basis}"
    if stores not in ("none", "low", "all"):
        raise SpecError(f"stores '{stores}': accepted: none, low, all")
    loss = tables.loss_for(gpu.link)
    if stores == "none" or loss is None:
        return (low, typical, high), (origin, "stores at the same time are left out of the link's rate")
    worst = min(low, high * loss.low)
    if stores == "low":
        return (worst, typical, high), (origin, f"stores at the same time count at the low end, x {loss.low:g}")
    middle = (loss.low + loss.high) / 2
    rates = (worst, max(worst, typical * middle), max(worst, typical * middle, high * loss.high))
    return rates, (origin, f"stores at the same time count at every end, x {loss.low:g}-{loss.high:g}")


def _readers(gpu: GpuSpec, model: ModelSpec, ranks: int, habit: EngineRestore, broadcasts: bool | None) -> int:
    """How many GPUs of a node read its memory at once; every rank reads the same latent unless one sends it on."""
    sends = habit.broadcasts_latent if broadcasts is None else broadcasts
    return 1 if model.attention == "mla" and sends else min(ranks, gpu.gpus_per_node)


def _ceiling(gpu: GpuSpec, readers: int, given: float | Ends | None, tables: RestoreTables) -> tuple[Ends | None, str]:
    """One reader's share of the node's memory in bytes per second, None where the link's rate is the memory's."""
    if given is not None:
        ends = (given, given, given) if isinstance(given, int | float) else given
        if not 0 < ends[0] <= ends[1] <= ends[2]:
            raise SpecError(f"dram_gb_per_s {given}: accepted: GB/s above 0, low <= typical <= high")
        basis = "given"
    elif dram := tables.dram_for(gpu.link):
        ends, basis = (dram.low, dram.typical, dram.high), dram.basis
    else:
        return None, "no ceiling of host memory apart from the link's own rate"
    low, typical, high = (end * GB / readers for end in ends)
    said = f"{ends[0]:g} / {ends[1]:g} / {ends[2]:g} GB/s over {readers} {'readers' if readers > 1 else 'reader'}"
    return (low, typical, high), f"host memory {said}: {basis}"


def _capped(rates: Ends, ceiling: Ends | None) -> Ends:
    if ceiling is None:
        return rates
    low, typical, high = (min(rate, limit) for rate, limit in zip(rates, ceiling, strict=True))
    return low, typical, high
