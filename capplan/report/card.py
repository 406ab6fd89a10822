"""A size card as lines for a terminal, and as a record for JSON."""

import json
from dataclasses import asdict
from typing import Any

from capplan.card import Card, EngineCard, Setting
from capplan.report.layout import fold, make_table, print_tables
from capplan.units import MIB, bytes_to_gib, format_number

FORMAT_VERSION = 1
INDENT = "  "
GIB_DIGITS = 4
WORKS = {"yes": "", "approximate": " (approximate)", "unknown": " (unproven)", "no": ": does not work"}


def render_card(card: Card | None, format: str = "table", basis: str = "", width: int = 80) -> str:
    """The card as text, ending in a newline.

    Parameters
    ----------
    card : Card, or None where no host tier is worth one
    basis : str
        Where the capacity comes from, or why there is no card.
    width : int
        Of the table.
    """
    if format == "json":
        record = {"format": FORMAT_VERSION, "basis": basis, "card": None if card is None else describe_card(card)}
        return json.dumps(record, indent=1, allow_nan=False) + "\n"
    if format == "table":
        return "\n".join(_say_none(basis, width) if card is None else list_card_lines(card, width, basis)) + "\n"
    raise ValueError(f"format is {format!r}; accepted: table, json")


def _say_none(basis: str, width: int) -> list[str]:
    lines = ["No size card", f"  {basis}", "  --host-gib N with --tp prints the card of a capacity all the same"]
    return "\n".join(fold(line, width) for line in lines).split("\n")


def describe_card(card: Card) -> dict[str, Any]:
    """Everything on the card, ready for JSON: keys carry their units."""
    return asdict(card)


def list_card_lines(card: Card, width: int = 80, basis: str = "") -> list[str]:
    """What was sized, what to type, what it takes, what to know of it."""
    lines = [
        f"Size card: {card.model}, {card.gpu}, TP{card.tp}, {card.kv_dtype} KV",
        f"  {card.slots:,} chunks of {card.chunk_tokens:,} tokens, {card.chunk_bytes / MIB:.4g} MiB each per rank: "
        f"{_gib(card.slots * card.chunk_bytes)} GiB",
        *([f"  {basis}"] if basis else []),
        *(f"  warning: {warning}" for warning in card.warnings),
    ]
    folded = "\n".join(fold(line, width) for line in lines).split("\n")
    table = "\n".join(tabulate_card(card, width)).split("\n")
    notes = "\n".join(fold(line, width) for engine in card.engines for line in _explain(engine)).split("\n")
    return [*folded, "", *table, "", *notes]


def tabulate_card(card: Card, width: int = 80) -> list[str]:
    """One row per setting: what to type, chunks held, GiB per rank and node."""
    table = make_table("", ("\ntype", "chunks\nheld", "GiB per\nrank", "GiB per\nnode"), 1)
    for engine in card.engines:
        table.add_row(f"{engine.title}{WORKS[engine.works]}", "", "", "")
        for setting in engine.settings:
            table.add_row(
                INDENT + setting.text, f"{setting.slots:,}", _gib(setting.rank_bytes), _gib(setting.node_bytes)
            )
    return print_tables([table])


def _gib(n_bytes: int) -> str:
    return format_number(bytes_to_gib(n_bytes), GIB_DIGITS)


def _span(setting: Setting) -> str:
    if setting.slots == setting.slots_at_most:
        return ""
    return f"; {setting.slots:,} to {setting.slots_at_most:,} chunks as it evicts"


def _explain(engine: EngineCard) -> list[str]:
    lines = [engine.title]
    if engine.works == "no":
        return [*lines, f"- does not work with this model: {engine.says}"]
    lines += [f"- {setting.name}: {setting.counts}{_span(setting)}" for setting in engine.settings]
    if engine.companions:
        lines.append(f"- beside it: {', '.join(engine.companions)}")
    if engine.works != "yes":
        known = "unproven" if engine.works == "unknown" else engine.works
        lines.append(f"- {known} with this model: {engine.says}")
    reserve = max((setting.reserve_bytes for setting in engine.settings), default=0)
    if reserve:
        lines.append(f"- {_gib(reserve)} GiB of host memory on top stay free")
    return [*lines, *(f"- {note}" for note in engine.notes)]
