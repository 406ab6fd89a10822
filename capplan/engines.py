"""Engines that keep KV in host memory: what their size settings count, and what they hold of them.

What is modelled: the rule by which a setting becomes units (chunks, blocks or pages) of KV, with the engine's own
rounding, what a watermark leaves of it, copies for MLA, and the memory this takes.
What is not: draft layers, pipeline parallelism, and states that hybrids store at boundaries. Every rule was read
from a named release or document, which the engine's file names; other releases may differ.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import Meta, Struct

from capplan import spec_files
from capplan.errors import SpecError

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Kind = Literal["gqa", "mla", "full", "sliding", "chunked", "linear", "mamba", "index"]


class EngineSetting(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One setting: a number of bytes (`scale` each), of units, or of times the device pool.

    `type` is what to type, with `{value}` for the number; `counts` says what the number counts.
    """

    name: Text
    type: Text
    counts: Text
    measure: Literal["bytes", "units", "device"]
    source: Text
    scale: Count = 1
    whole: bool = False


class Hybrid(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of an engine with models that have layers of these kinds."""

    kinds: tuple[Kind, ...]
    works: Literal["no", "unknown", "approximate"]
    says: Text
    source: Text


class Engine(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine's host tier.

    Attributes
    ----------
    unit, unit_tokens, mla_unit_tokens
        What it stores and evicts, in tokens; without a number the unit is the chunk of the plan.
    basis
        What the number of a setting covers: one `rank`, all ranks together (`world`), all ranks of a node
        (`server`), or the `segment` each rank adds to a pool.
    ram
        What memory it takes: the `value` of the setting, its `units`, or a tensor per layer rounded up to a
        `power-of-two`.
    align_bytes
        What a unit is rounded up to: a rank's, or with basis `world` the row of all ranks.
    extra_units
        Units it adds on its own.
    watermark, evict_fraction
        Where eviction starts, and the share of what is held that a pass takes.
    mla, heads
        Copies: MLA `once`, `once-on-a-node` (else per rank) or `per-rank`; KV heads that ranks copy `per-rank`
        or once (`distinct`).
    device_pool
        Whether the host tier has to (`required`) or should (`advised`) be larger than the device pool.
    reserve_gib
        Host memory it leaves free.
    older
        Left out unless it is named.
    """

    name: Text
    title: Text
    version: Text
    unit: Literal["chunk", "block", "page"]
    basis: Literal["rank", "world", "server", "segment"]
    ram: Literal["value", "units", "power-of-two"]
    mla: Literal["once", "once-on-a-node", "per-rank"]
    source: Text
    settings: Annotated[tuple[EngineSetting, ...], Meta(min_length=1)]
    heads: Literal["per-rank", "distinct"] = "per-rank"
    unit_tokens: Count | None = None
    mla_unit_tokens: Count | None = None
    align_bytes: Count = 1
    extra_units: CountOrZero = 0
    watermark: Share = 1.0
    evict_fraction: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    device_pool: Literal["required", "advised"] | None = None
    reserve_gib: Annotated[float, Meta(ge=0)] = 0.0
    older: bool = False
    aliases: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    mla_notes: tuple[str, ...] = ()
    hybrids: tuple[Hybrid, ...] = ()

    @property
    def label(self) -> str:
        """Title and release."""
        return f"{self.title} {self.version}"

    @property
    def kept_share(self) -> Fraction:
        """Share of its units that are held at every moment: what a pass of eviction leaves."""
        return Fraction(str(self.watermark)) * (1 - Fraction(str(self.evict_fraction)))

    def kept(self, units: int) -> int:
        """Units of so many that are held at every moment."""
        return int(units * self.kept_share)

    def filled(self, units: int) -> int:
        """Units of so many at which eviction starts."""
        return int(units * Fraction(str(self.watermark)))

    def units_for(self, kept: int) -> int:
        """Fewest units of which so many are held at every moment."""
        return -(-kept * self.kept_share.denominator // self.kept_share.numerator)

    def find_hybrid(self, kinds: Iterable[str]) -> Hybrid | None:
        """What is known of models with such layers, the worst first; None where nothing has to be said."""
        present = set(kinds)
        known = [hybrid for hybrid in self.hybrids if present.intersection(hybrid.kinds)]
        return min(known, key=lambda hybrid: ("no", "unknown", "approximate").index(hybrid.works), default=None)


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV an engine is to hold, in its own terms.

    Attributes
    ----------
    unit_bytes : int
        Bytes of a unit on one rank, not aligned.
    ranks, node_ranks : int
        Ranks of the deployment, and those of them on a node.
    copies, node_copies : int
        Ranks' worth of KV that is stored in all, and on a node.
    layers : int
        Layers a unit's bytes are spread over.
    device_tokens : int
        Tokens of the device pool; 0 where unknown.
    """

    unit_tokens: int
    unit_bytes: int
    ranks: int
    node_ranks: int
    copies: int
    node_copies: int
    layers: int
    device_tokens: int


def count_units(engine: Engine, setting: EngineSetting, pool: Pool, value: float) -> int:
    """Units the engine makes of the number in a setting, as its own code rounds."""
    if setting.measure == "units":
        return int(value) + engine.extra_units
    if setting.measure == "device":
        return int(pool.device_tokens * value) // pool.unit_tokens + engine.extra_units
    n_bytes = int(value * setting.scale)
    if engine.basis == "segment":
        return pool.ranks * (n_bytes // _align(pool.unit_bytes, engine)) // pool.copies
    return n_bytes // covered_bytes(engine, pool) + engine.extra_units


def covered_bytes(engine: Engine, pool: Pool) -> int:
    """Bytes of one unit in what a setting counts."""
    copies = covered_copies(engine, pool)
    return (
        _align(pool.unit_bytes * copies, engine)
        if engine.basis == "world"
        else _align(pool.unit_bytes, engine) * copies
    )


def covered_copies(engine: Engine, pool: Pool) -> int:
    """Ranks' worth of KV in what a setting counts; 1 for a segment, which holds any rank's."""
    return {"world": pool.copies, "server": pool.node_copies}.get(engine.basis, 1)


def least_value(engine: Engine, setting: EngineSetting, pool: Pool, units: int) -> Fraction:
    """Exact number that makes at least so many units."""
    units = max(1, units - engine.extra_units)
    if setting.measure == "units":
        return Fraction(units)
    if setting.measure == "device":
        return Fraction(units * pool.unit_tokens, pool.device_tokens)
    if engine.basis == "segment":
        objects = -(-units * pool.copies // pool.ranks)
        return Fraction(objects * _align(pool.unit_bytes, engine), setting.scale)
    return Fraction(units * covered_bytes(engine, pool), setting.scale)


def node_bytes(engine: Engine, setting: EngineSetting, pool: Pool, value: float, units: int) -> int:
    """Host memory of a node, allocator rounding included, reserve not."""
    if engine.ram == "value":
        times = {"rank": pool.node_copies, "segment": pool.node_ranks}.get(engine.basis, 1)
        return int(value * setting.scale) * times
    if engine.ram == "power-of-two":
        tensor = max(1, -(-units * pool.unit_bytes // pool.layers))
        return pool.layers * (1 << (tensor - 1).bit_length()) * pool.node_copies
    if engine.basis == "world":
        return math.ceil(Fraction(units * covered_bytes(engine, pool) * pool.node_copies, pool.copies))
    return units * covered_bytes(engine, pool) * pool.node_copies


def _align(n_bytes: int, engine: Engine) -> int:
    return -(-n_bytes // engine.align_bytes) * engine.align_bytes


def list_engines() -> list[Engine]:
    """Return every engine that ships with capplan, by name."""
    return [_built(name) for name in spec_files.shipped("engines")]


def load_engine(name: str) -> Engine:
    """Return an engine by name or alias.

    Raises
    ------
    SpecError
        The name is unknown; the message lists all.
    """
    raw = spec_files.read_shipped("engines")
    spellings = {spec_files.normalised(alias): known for known in raw for alias in raw[known].get("aliases", ())}
    spellings |= {spec_files.normalised(known): known for known in raw}
    found = spellings.get(spec_files.normalised(name))
    if found is None:
        raise SpecError(f"unknown engine '{name}'; accepted: {', '.join(raw)}")
    return _built(found)


def _built(name: str) -> Engine:
    fields = spec_files.read_shipped("engines")[name]
    accepted = dict.fromkeys((*Engine.__struct_fields__, *fields), "what capplan.engines.Engine documents")
    return spec_files.checked({"name": name, **fields}, Engine, f"engine '{name}'", accepted)
