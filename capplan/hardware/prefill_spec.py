"""What a GPU sustains in prefill: shares of its peak by kind of work and by size.

A table gives the share of the nominal peak one kind of kernel reaches at a few sizes (rows of the suffix for
matrix products, attended context for attention); between them it is linear in the logarithm of the size,
beyond them constant. Shares of products refer to the peak of their weight type, those of attention to the
BF16 peak. The scheduling factor is what a whole engine keeps of the product of these shares.
"""

from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct

Share = Annotated[float, Meta(gt=0, le=1.2)]
Size = Annotated[float, Meta(ge=1)]
Dtype = Literal["bf16", "fp8"]
Ends = tuple[float, float, float]


class ShareTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares of the peak at sizes `at` in tokens: the least, the likely and the most that is plausible.

    `basis` and `source` are those of the whole table of the GPU where they are left out.
    """

    at: tuple[Size, ...]
    low: tuple[Share, ...]
    typical: tuple[Share, ...]
    high: tuple[Share, ...]
    basis: str = ""
    source: str = ""
    estimated: bool = False

    def problem(self) -> str:
        """Say what contradicts itself, in words; empty if nothing does."""
        if not len(self.at) == len(self.low) == len(self.typical) == len(self.high) > 0:
            return f"{len(self.at)} sizes, {len(self.low)} low, {len(self.typical)} typical, {len(self.high)} high"
        if any(small >= large for small, large in pairwise(self.at)):
            return "sizes do not ascend"
        for size, low, typical, high in zip(self.at, self.low, self.typical, self.high, strict=True):
            if not low <= typical <= high:
                return f"at {size:g}: low {low:g}, typical {typical:g}, high {high:g} are out of order"
        return ""


class DenseTable(ShareTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares of plain matrix products by rows of the suffix."""

    weight_dtype: Dtype = "bf16"


class MoeTable(ShareTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares of grouped expert products by tokens of the suffix, at one tensor-parallel size."""

    tp: Annotated[int, Meta(ge=1)] = 1
    weight_dtype: Dtype = "bf16"


class Scheduling(Struct, frozen=True, forbid_unknown_fields=True):
    """Share of the kernels' rate that is left after scheduling, chunking and small operators."""

    low: Share
    typical: Share
    high: Share
    basis: str = ""

    @property
    def ends(self) -> Ends:
        """Low, typical and high."""
        return self.low, self.typical, self.high


class PrefillShares(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Operator tables of one GPU; a kind of work without a table takes the whole-model range instead.

    `estimated` is true where the tables are another card's or derived from estimates.
    """

    scheduling: Scheduling
    basis: Annotated[str, Meta(min_length=1)]
    source: Annotated[str, Meta(min_length=1)]
    estimated: bool = False
    dense: tuple[DenseTable, ...] = ()
    moe: tuple[MoeTable, ...] = ()
    attention: ShareTable | None = None

    def dense_for(self, weight_dtype: str) -> DenseTable | None:
        """Return the table of plain products for a compute type, None if there is none."""
        return next((table for table in self.dense if table.weight_dtype == weight_dtype), None)

    def moe_for(self, weight_dtype: str) -> tuple[MoeTable, ...]:
        """Return the tables of expert products for a compute type by ascending tensor-parallel size."""
        fitting = (table for table in self.moe if table.weight_dtype == weight_dtype)
        return tuple(sorted(fitting, key=lambda table: table.tp))

    def problem(self) -> str:
        """Say what contradicts itself, with the table's name in front; empty if nothing does."""
        named = [*(("dense", table) for table in self.dense), *(("moe", table) for table in self.moe)]
        tables: list[tuple[str, ShareTable]] = [*named, *([("attention", self.attention)] if self.attention else [])]
        found = ((name, table.problem()) for name, table in tables)
        if said := next((f"{name}: {what}" for name, what in found if what), ""):
            return said
        low, typical, high = self.scheduling.ends
        if not low <= typical <= high:
            return f"scheduling: low {low:g}, typical {typical:g}, high {high:g} are out of order"
        return ""
