"""Presets: what the host tier of an engine does, as numbers and names, read from files with their sources.

A preset says what it leaves out (`missing`) and which of its values could not be confirmed (`unsure`); both
are printed with every answer that uses it.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from capplan import spec_files

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Kind = Literal["prefix", "inclusive", "radix", "exclusive", "gpu"]
Policy = Literal["lru", "fifo", "lfu", "mru", "arc", "belady"]
End = Literal["tail-first", "head-first"]
Rule = Literal["none", "fixed", "conditioned"]
Scope = Literal["prompts", "prompts and outputs"]
LONG_PROMPTS = {
    "keep-prefix": "of which only the head is kept",
    "refuse": "which is refused whole",
    "skip": "of which what finds no room is skipped",
}


class TierPreset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine's host tier.

    Attributes
    ----------
    kind
        What simulates it: whole prefixes under LRU (`prefix`), a tier beside the GPU's (`inclusive`), a
        radix tree shared with the GPU's (`radix`), a tier that swaps with the GPU's (`exclusive`), or no
        host tier (`gpu`).
    engine
        Whose layout of the KV and way of copying it has (capplan card).
    unit_tokens
        What it stores, finds and evicts.
    lookup_from
        Where a lookup starts: token `zero`, or where the GPU's hit ends.
    touch, settles
        What a lookup moves to most recent: nothing, the `hits`, or every resident unit of the prompt (`path`);
        and what is moved later: nothing, units when they are loaded or offered (`used`), or the whole path so
        far whenever any of it is stored (`path`).
    touch_order, insert_order
        Which end becomes older.
    stores
        What is written: prompts, or prompts and outputs.
    store_from
        First unit offered: after the host's hit, the GPU's hit, or from token `zero`.
    dedup
        Whether units already resident are left out of a store before room is made.
    overflow
        What happens to a store that does not fit: its head is kept (`keep-prefix`), it is refused whole, or
        what does not fit is skipped.
    retries
        Whether a refused store is offered again, longer, with the next step.
    protects_offer
        Whether resident units of a store cannot be evicted for it.
    policy, policies
        The one it has by default, and those it can be set to.
    watermark, evict_fraction, evict_period_s
        A sweep takes a share of what is held where the tier is so full: by a thread with this period, or
        after a store (0).
    counts_offers, min_offers
        Whether it can store a unit from a later offer on, and which offer that is by default.
    min_load_tokens
        Hits shorter than this are not loaded.
    full_hit
        What is computed of a prompt it holds whole: its last `token`, or its last `unit`.
    admission, kappa
        Its rule of write admission and the chunks it allows.
    align_bytes
        What a unit is rounded up to.
    returns_tails_first
        Of a GPU tier's own blocks: whether those that hold nothing a lookup finds are the next to be taken.
    """

    name: Text
    title: Text
    version: Text
    kind: Kind
    engine: Literal["lmcache", "vllm", "sglang", "trtllm", "dynamo", "mooncake"]
    description: Text
    source: Text
    unit_tokens: Count
    lookup_from: Literal["zero", "gpu-end"] = "zero"
    touch: Literal["none", "hits", "path"] = "none"
    settles: Literal["none", "path", "used"] = "none"
    touch_order: End = "tail-first"
    insert_order: End = "tail-first"
    stores: Scope = "prompts"
    store_from: Literal["zero", "gpu-hit", "host-hit"] = "zero"
    dedup: bool = True
    overflow: Literal["keep-prefix", "refuse", "skip"] = "refuse"
    retries: bool = False
    protects_offer: bool = False
    policy: Policy = "lru"
    policies: tuple[Policy, ...] = ("lru",)
    watermark: Share = 1.0
    evict_fraction: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    evict_period_s: Annotated[float, Meta(ge=0)] = 0.0
    counts_offers: bool = False
    min_offers: CountOrZero = 0
    tracked_offers: Count = 64_000
    min_load_tokens: CountOrZero = 0
    full_hit: Literal["token", "unit"] = "token"
    write_back: bool = False
    counts_own_finish: bool = True
    admission: Rule = "none"
    kappa: CountOrZero = 8
    align_bytes: Count = 1
    returns_tails_first: bool = False
    aliases: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()

    def slots(self, capacity_bytes: int, unit_tokens: int, kv_bytes_per_token: int) -> int:
        """Units a capacity of so many bytes per rank holds."""
        unit = unit_tokens * kv_bytes_per_token
        return capacity_bytes // (-(-unit // self.align_bytes) * self.align_bytes)

    @property
    def lot_of_long_prompts(self) -> str:
        """What becomes of a prompt longer than the tier, in words."""
        return LONG_PROMPTS[self.overflow if self.kind == "inclusive" else "keep-prefix"]

    @property
    def has_yardstick(self) -> bool:
        """Whether Belady's policy can be compared: prompts alone, looked up from token 0, unit by unit."""
        return self.stores == "prompts" and self.lookup_from == "zero" and self.kind in ("prefix", "inclusive")


def list_presets() -> list[TierPreset]:
    """Every preset that ships with capplan, by name."""
    return [_built(name) for name in spec_files.shipped("tiers")]


def load_preset(name: str) -> TierPreset:
    """The preset of a name or alias.

    Raises
    ------
    SpecError
        The name is unknown, or begins several; the message says what is close.
    """
    return _built(spec_files.resolve(name, "tier", spec_files.read_shipped("tiers")))


def _built(name: str) -> TierPreset:
    fields = spec_files.read_shipped("tiers")[name]
    accepted = dict.fromkeys((*TierPreset.__struct_fields__, *fields), "what capplan.simulation.presets documents")
    return spec_files.checked({"name": name, **fields}, TierPreset, f"tier '{name}'", accepted)
