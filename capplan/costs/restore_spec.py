"""Public measurements of copies from host memory, and engines' ways of copying (`specs/restore.toml`)."""

from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from capplan import spec_files
from capplan.errors import SpecError

Method = Literal["per-fragment", "batched", "kernel"]
Layout = Literal["paged", "paged-kv", "joined"]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]

METHODS = ("per-fragment", "batched", "kernel", "contiguous")
LAYOUTS = ("paged", "paged-kv", "joined")


class Beyond(Struct, frozen=True, forbid_unknown_fields=True):
    """Microseconds a large fragment costs on top of the wire, at the low, typical and high rate."""

    low: NotNegative
    typical: NotNegative
    high: NotNegative


class CopyTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """GB/s of one way of copying by fragment size, on the machine it was measured on.

    From `beyond_bytes` on a fragment costs `beyond_us` on top of the wire, below the first size as much as
    there; `limit_gb_per_s` is the wire's rate on that machine, `contiguous_share` what large fragments reach
    of the contiguous rate. `vendor` restricts the table to GPUs of one.
    """

    method: Method
    bytes: tuple[Positive, ...]
    low: tuple[Positive, ...]
    typical: tuple[Positive, ...]
    high: tuple[Positive, ...]
    limit_gb_per_s: Positive
    beyond_bytes: Positive
    beyond_us: Beyond
    basis: Text
    source: Text
    contiguous_share: Share = 1.0
    vendor: str = ""


class StoreLoss(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Share of the one-way rate left while copies run the other way, by the beginning of the link's name."""

    link: Text
    low: Share
    high: Share
    basis: Text
    source: Text


class HostDram(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """GB/s all GPUs of a node together can read from its memory, by the beginning of the link's name."""

    link: Text
    low: Positive
    typical: Positive
    high: Positive
    basis: Text
    source: Text
    estimated: bool = False


class EngineRestore(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an engine restores by default: `small_method` for fragments under `small_below_bytes`.

    `broadcasts_latent` is true where one rank reads an MLA cache and sends it to the others.
    """

    method: Literal["per-fragment", "batched", "kernel", "contiguous"]
    layout: Layout
    block_tokens: Count
    broadcasts_latent: bool
    basis: Text
    source: Text
    small_method: Method | None = None
    small_below_bytes: NotNegative = 0

    def method_for(self, fragment_bytes: float) -> str:
        """Return the way fragments of this size are copied."""
        return self.small_method if self.small_method and fragment_bytes < self.small_below_bytes else self.method


class RestoreTables(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All tables of one file."""

    copies: tuple[CopyTable, ...] = ()
    store_loss: tuple[StoreLoss, ...] = ()
    host_dram: tuple[HostDram, ...] = ()
    engines: dict[str, EngineRestore] = field(default_factory=dict)

    def table_for(self, method: str, vendor: str) -> CopyTable:
        """Return the table of a way of copying, the vendor's own first.

        Raises
        ------
        SpecError
            There is none.
        """
        known = [table for table in self.copies if table.method == method and table.vendor in (vendor, "")]
        if not known:
            raise SpecError(f"restore method '{method}': no table; accepted: {', '.join(METHODS)}")
        return max(known, key=lambda table: len(table.vendor))

    def loss_for(self, link: str) -> StoreLoss | None:
        """Return the loss while stores run, None where none is known for the link."""
        return next((loss for loss in self.store_loss if link.startswith(loss.link)), None)

    def dram_for(self, link: str) -> HostDram | None:
        """Return a node's memory rate, None where the link's own rate is that of the memory."""
        return next((dram for dram in self.host_dram if link.startswith(dram.link)), None)

    def engine(self, name: str) -> EngineRestore:
        """Return how an engine restores.

        Raises
        ------
        SpecError
            It is unknown.
        """
        if name not in self.engines:
            raise SpecError(f"engine '{name}': accepted: {', '.join(sorted(self.engines))}")
        return self.engines[name]


_ACCEPTED = {
    "copies": "tables of method, bytes, low, typical, high (GB/s), limit_gb_per_s, beyond_bytes, beyond_us, basis, "
    "source, contiguous_share, vendor",
    "store_loss": "tables of link, low, high, basis, source",
    "host_dram": "tables of link, low, typical, high, basis, source, estimated",
    "engines": "tables of method, small_method, small_below_bytes, layout, block_tokens, broadcasts_latent, basis, "
    "source",
}


@cache
def load_restore_tables(file: str | Path | None = None) -> RestoreTables:
    """Return the shipped tables, or those of a user's file in front of them.

    Raises
    ------
    SpecError
        The file cannot be read, or a table contradicts itself.
    """
    text = (files("capplan") / "specs" / "restore.toml").read_text(encoding="utf-8")
    shipped = _checked(spec_files.parse_toml(text, "restore.toml"), "restore.toml")
    if file is None:
        return shipped
    fields, base = spec_files.read_own(file, _ACCEPTED)
    if base is not None:
        raise SpecError(f"{file}: base: unknown field; accepted: {', '.join(sorted(_ACCEPTED))}")
    own = _checked(fields, str(file))
    return RestoreTables(
        copies=(*own.copies, *shipped.copies),
        store_loss=(*own.store_loss, *shipped.store_loss),
        host_dram=(*own.host_dram, *shipped.host_dram),
        engines={**shipped.engines, **own.engines},
    )


def _checked(fields: dict[str, object], where: str) -> RestoreTables:
    tables = spec_files.checked(fields, RestoreTables, where, _ACCEPTED)
    for k, table in enumerate(tables.copies):
        if said := _problem(table):
            raise SpecError(f"{where}: copies[{k}]: {said}; accepted: {_ACCEPTED['copies']}")
    return tables


def _problem(table: CopyTable) -> str:
    rates = (table.low, table.typical, table.high)
    if not len(table.bytes) == len(table.low) == len(table.typical) == len(table.high) > 0:
        return f"{len(table.bytes)} sizes, {', '.join(str(len(rate)) for rate in rates)} rates"
    if any(small >= large for small, large in pairwise((*table.bytes, table.beyond_bytes))):
        return "sizes do not ascend"
    if any(small > large for rate in rates for small, large in pairwise(rate)):
        return "a rate falls with the size"
    if not all(low <= typical <= high <= table.limit_gb_per_s for low, typical, high in zip(*rates, strict=True)):
        return "low, typical, high and limit_gb_per_s are out of order"
    return ""
