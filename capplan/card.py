"""The size card: a host tier of so many bytes per rank as the settings each engine takes.

What is modelled: every setting is the smallest readable number with which the engine, by its own rounding, holds at
least the chunks of the plan at every moment; what it then takes of the node's memory is stated, overshoot and
reserve included. What is not: see `capplan.engines`. Engines evict in units and orders of their own, so equal
capacity is not equal coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from capplan.deployment import Deployment, GpuRoom, deploy
from capplan.engines import (
    Engine,
    EngineSetting,
    Pool,
    count_units,
    covered_copies,
    least_value,
    list_engines,
    load_engine,
    node_bytes,
)
from capplan.errors import SpecError
from capplan.hardware import load_gpu
from capplan.models import load_model
from capplan.models.model_spec import ModelSpec, host_copies, keeps_windows, kv_bytes_per_token
from capplan.units import GIB, bytes_to_gib, format_number, gib_to_bytes, round_up

BLOCK_TOKENS = 16
SHORT_DIGITS = 6
GIB_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one engine, and what it amounts to.

    Attributes
    ----------
    engine, name : str
        Names of the engine and of its setting.
    value : float or int
        The number; `text` is what to type, `counts` what the number counts.
    unit_tokens, units : int
        Tokens of the engine's unit, and units it makes of the number.
    slots, slots_at_most : int
        Chunks of the plan held at every moment, and at most where the engine evicts at a watermark.
    tokens : int
        Tokens held at every moment.
    rank_bytes, node_bytes : int
        Host memory of a rank that keeps KV, and of the node; allocator rounding included.
    reserve_bytes : int
        Host memory the engine leaves free beside it.
    """

    engine: str
    name: str
    value: float | int
    text: str
    counts: str
    unit_tokens: int
    units: int
    slots: int
    slots_at_most: int
    tokens: int
    rank_bytes: int
    node_bytes: int
    reserve_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class EngineCard:
    """One engine's part of a card: its settings, or none and the reason.

    Attributes
    ----------
    works : str
        "yes"; for the model's layers "approximate" or "unknown", as `says` explains, or "no": then no settings.
    companions : tuple of str
        What has to be set beside.
    """

    name: str
    title: str
    works: str
    says: str
    settings: tuple[Setting, ...]
    companions: tuple[str, ...]
    notes: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Card:
    """What to type into each engine for a host tier; sizes are per tensor-parallel rank.

    `slots` chunks of `chunk_tokens` tokens is what `asked_bytes` hold by the plan's own count.
    """

    model: str
    gpu: str
    tp: int
    kv_dtype: str
    kv_bytes_per_token: int
    chunk_tokens: int
    chunk_bytes: int
    asked_bytes: int
    slots: int
    gpu_kv_tokens: int
    node_ram_gib: float | None
    engines: tuple[EngineCard, ...]
    warnings: tuple[str, ...]


def make_card(
    capacity_bytes_per_rank: int,
    deployment: Deployment,
    chunk_tokens: int,
    gpu_kv_tokens: int,
    node_ram_gib: float | None = None,
    engine: str | Sequence[str] | None = None,
) -> Card:
    """Turn a host capacity into settings.

    Parameters
    ----------
    capacity_bytes_per_rank : int
        At least one chunk.
    chunk_tokens : int
        Tokens per chunk of the plan.
    gpu_kv_tokens : int
        Tokens of the device pool; 0 leaves out what is counted in it.
    node_ram_gib : float, optional
        Memory of the node, for the warning that a tier exceeds it.
    engine : name or names, optional
        Default: every engine in its newest release known.

    Raises
    ------
    SpecError
        The capacity holds no chunk, or an engine is unknown.
    """
    chunk_bytes = chunk_tokens * deployment.kv_bytes_per_token
    slots = capacity_bytes_per_rank // chunk_bytes
    if slots < 1:
        raise SpecError(
            f"{format_number(bytes_to_gib(capacity_bytes_per_rank))} GiB per rank: no room for a chunk of "
            f"{chunk_tokens:,} tokens; accepted: at least {format_number(round_up(bytes_to_gib(chunk_bytes)))} GiB"
        )
    plan = _Plan(capacity_bytes_per_rank, slots, chunk_tokens, gpu_kv_tokens, deployment)
    cards = tuple(_fill(spec, plan) for spec in _choose(engine))
    return Card(
        model=deployment.model.title,
        gpu=deployment.gpu.title,
        tp=deployment.tp,
        kv_dtype=deployment.kv_dtype,
        kv_bytes_per_token=deployment.kv_bytes_per_token,
        chunk_tokens=chunk_tokens,
        chunk_bytes=chunk_bytes,
        asked_bytes=capacity_bytes_per_rank,
        slots=slots,
        gpu_kv_tokens=gpu_kv_tokens,
        node_ram_gib=node_ram_gib,
        engines=cards,
        warnings=_warn(cards, plan, node_ram_gib),
    )


def place_card(
    host_gib: float,
    gpu: str,
    model: str,
    tp: int,
    *,
    kv_dtype: str = "bf16",
    chunk_tokens: int = 1024,
    gpu_kv_tokens: int | None = None,
    node_ram_gib: float | None = None,
    engine: str | Sequence[str] | None = None,
) -> Card:
    """The card of `host_gib` GiB per rank, for a GPU and a model by name and without any trace.

    Parameters
    ----------
    gpu_kv_tokens : int, optional
        Tokens of the device pool, 0 to leave it out; default: what the GPU's memory leaves.

    Raises
    ------
    SpecError
        As `make_card`, or the model does not fit the GPU.
    """
    deployment = deploy(
        load_gpu(gpu),
        load_model(model),
        longest_tokens=1,
        block_tokens=BLOCK_TOKENS,
        tp=tp,
        kv_dtype=kv_dtype,
        room=GpuRoom(kv_tokens=gpu_kv_tokens, is_used=gpu_kv_tokens != 0),
    )
    tokens = deployment.gpu_kv_tokens if gpu_kv_tokens is None else gpu_kv_tokens
    return make_card(gib_to_bytes(host_gib), deployment, chunk_tokens, tokens, node_ram_gib, engine)


@dataclass(frozen=True, slots=True)
class _Plan:
    capacity_bytes: int
    slots: int
    chunk_tokens: int
    device_tokens: int
    deployment: Deployment

    @property
    def tokens(self) -> int:
        return self.slots * self.chunk_tokens


def _choose(engine: str | Sequence[str] | None) -> list[Engine]:
    if engine is None:
        return [spec for spec in list_engines() if not spec.older]
    names = [engine] if isinstance(engine, str) else engine
    return list({spec.name: spec for spec in map(load_engine, names)}.values())


def kinds_of(model: ModelSpec) -> frozenset[str]:
    """What a model's layers keep: ``gqa`` or ``mla``, the kinds of a hybrid's layers, ``index``."""
    groups = frozenset(group.kind for group in getattr(model, "groups", ()))
    index = frozenset(["index"]) if getattr(model, "index_layers", 0) else frozenset[str]()
    return groups | index | {model.attention}


def _fill(engine: Engine, plan: _Plan) -> EngineCard:
    model = plan.deployment.model
    hybrid = engine.find_hybrid(kinds_of(model))
    if hybrid is not None and hybrid.works == "no":
        return EngineCard(engine.name, engine.label, "no", hybrid.says, (), (), (), hybrid.source)
    pool = make_pool(engine, plan.deployment, plan.chunk_tokens, plan.device_tokens)
    usable = [s for s in engine.settings if s.measure != "device" or plan.device_tokens > 0]
    settings = tuple(_set(engine, setting, pool, plan) for setting in usable)
    numbers = _numbers(settings[0].value, settings[0].units, pool, plan)
    notes = (*engine.notes, *(engine.mla_notes if model.attention == "mla" and plan.deployment.tp > 1 else ()))
    return EngineCard(
        name=engine.name,
        title=engine.label,
        works=hybrid.works if hybrid else "yes",
        says=hybrid.says if hybrid else "",
        settings=settings,
        companions=tuple(text.format(**numbers) for text in engine.companions),
        notes=tuple(note.format(**numbers) for note in (*_warn_device(engine, plan), *notes)),
        source=engine.source,
    )


def make_pool(engine: Engine, deployment: Deployment, chunk_tokens: int, device_tokens: int) -> Pool:
    """A deployment's KV as an engine stores it."""
    model, tp = deployment.model, deployment.tp
    node_ranks = tp if deployment.host_copies == host_copies(model, tp) else deployment.host_copies
    copies, node_copies = tp, node_ranks
    if model.attention == "mla":
        unit_tokens = engine.mla_unit_tokens or engine.unit_tokens or chunk_tokens
        one_node = tp <= deployment.gpu.gpus_per_node and node_ranks == tp
        if engine.mla == "once" or (engine.mla == "once-on-a-node" and one_node):
            copies = node_copies = 1
    else:
        unit_tokens = engine.unit_tokens or chunk_tokens
        if engine.heads == "distinct":
            shared = max(1, tp // model.kv_heads)
            copies, node_copies = tp // shared, max(1, node_ranks // shared)
    beta = deployment.kv_bytes_per_token
    if not keeps_windows(engine.name):
        beta = kv_bytes_per_token(model, tp, deployment.kv_dtype)
    return Pool(
        unit_tokens=unit_tokens,
        unit_bytes=unit_tokens * beta,
        ranks=tp,
        node_ranks=node_ranks,
        copies=copies,
        node_copies=node_copies,
        layers=model.layers,
        device_tokens=device_tokens,
    )


def _set(engine: Engine, setting: EngineSetting, pool: Pool, plan: _Plan) -> Setting:
    needed = plan.tokens
    if engine.device_pool == "required":
        needed = max(needed, plan.device_tokens + 1)
    value = choose_value(engine, setting, pool, needed, plan.capacity_bytes)
    units = count_units(engine, setting, pool, value)
    tokens = engine.kept(units) * pool.unit_tokens
    node = node_bytes(engine, setting, pool, value, units)
    numbers = _numbers(value, units, pool, plan)
    return Setting(
        engine=engine.name,
        name=setting.name,
        value=value,
        text=setting.type.format(**numbers),
        counts=setting.counts.format(**numbers),
        unit_tokens=pool.unit_tokens,
        units=units,
        slots=tokens // plan.chunk_tokens,
        slots_at_most=engine.filled(units) * pool.unit_tokens // plan.chunk_tokens,
        tokens=tokens,
        rank_bytes=-(-node // (pool.node_ranks if engine.basis == "segment" else pool.node_copies)),
        node_bytes=node,
        reserve_bytes=int(engine.reserve_gib * GIB),
        source=setting.source,
    )


def _numbers(value: float, units: int, pool: Pool, plan: _Plan) -> dict[str, float]:
    """What the texts of an engine's file may name in braces."""
    return {
        "value": value,
        "units": units,
        "unit_tokens": pool.unit_tokens,
        "chunk_tokens": plan.chunk_tokens,
        "gpu_kv_tokens": plan.device_tokens,
    }


def choose_value(engine: Engine, setting: EngineSetting, pool: Pool, tokens: int, capacity_bytes: int) -> float | int:
    """Smallest readable number with which the engine holds so many tokens at every moment.

    Readable: whole where the engine wants it; else three digits, or the asked capacity where that is short.
    """
    units = engine.units_for(-(-tokens // pool.unit_tokens))
    exact = least_value(engine, setting, pool, units)
    if setting.whole:
        whole = max(1, -(-exact.numerator // exact.denominator))
        while count_units(engine, setting, pool, whole) < units:
            whole += 1
        return whole
    value = round_up(float(exact))
    while count_units(engine, setting, pool, value) < units:
        value = _next(value)
    copies = covered_copies(engine, pool)
    asked = float(f"{capacity_bytes * copies / setting.scale:.{SHORT_DIGITS}g}")
    is_short = setting.measure == "bytes" and abs(asked * setting.scale - capacity_bytes * copies) <= copies
    return asked if is_short and asked < value and count_units(engine, setting, pool, asked) >= units else value


def _next(value: float) -> float:
    """The next number of three digits."""
    number = Decimal(repr(value))
    return float(number + Decimal(1).scaleb(number.adjusted() - 2))


def _warn(cards: Sequence[EngineCard], plan: _Plan, node_ram_gib: float | None) -> tuple[str, ...]:
    approximation = getattr(plan.deployment.model, "approximation", None)
    warnings = [str(approximation)] if approximation else []
    if node_ram_gib is not None:
        warnings += [
            said for card in cards for setting in card.settings if (said := _warn_memory(card, setting, node_ram_gib))
        ]
    return tuple(warnings)


def _warn_memory(card: EngineCard, setting: Setting, node_ram_gib: float) -> str:
    over = setting.node_bytes + setting.reserve_bytes - node_ram_gib * GIB
    if over <= 0:
        return ""
    reserve = f" and {_gib(setting.reserve_bytes)} GiB it leaves free" if setting.reserve_bytes else ""
    return (
        f"{card.title}, {setting.name}: {_gib(setting.node_bytes)} GiB per node{reserve}: over --node-ram "
        f"{format_number(node_ram_gib, GIB_DIGITS)} GiB by {format_number(bytes_to_gib(over))} GiB"
    )


def _gib(n_bytes: float) -> str:
    return format_number(bytes_to_gib(n_bytes), GIB_DIGITS)


def _warn_device(engine: Engine, plan: _Plan) -> tuple[str, ...]:
    if engine.device_pool is None or plan.tokens > plan.device_tokens:
        return ()
    device = f"the device pool of {plan.device_tokens:,} tokens"
    if engine.device_pool == "required":
        return (f"raised above {device}, which the host pool has to exceed: {plan.slots:,} chunks would not do",)
    return (f"no larger than {device}, whose copies may fill it: little is gained",)
