"""The shipped tier presets: a table of all, one in full."""

from capplan.report.layout import fold, make_table, print_tables
from capplan.simulation.presets import TierPreset, list_presets, load_preset

# What happens to a store that does not fit, in a column.
NO_ROOM = {"keep-prefix": "keep head", "refuse": "refuse", "skip": "skip"}


def render_tiers(width: int = 80) -> str:
    """Presets by name, with what they store and how they make room."""
    headings = ("\nname", "unit\ntokens", "\nstores", "\nno room", "\nadmission", "other\npolicies")
    table = make_table("", headings, 1)
    for preset in list_presets():
        table.add_row(
            preset.name,
            f"{preset.unit_tokens:,}",
            "prompts" if preset.stores == "prompts" else "all",
            name_overflow(preset),
            preset.admission,
            " ".join(policy for policy in preset.policies if policy != preset.policy),
        )
    note = (
        "stores: prompts, or all that has KV, outputs too. no room: the head of a store is kept, the whole store is "
        "refused, what does not fit is skipped, or dropped by the GPU too. capplan tiers NAME says what a simulation "
        "holds to and what it leaves out; of tiers that store prompts --policy belady is the yardstick."
    )
    return "\n\n".join([*print_tables([table]), fold(note, width)]) + "\n"


def name_overflow(preset: TierPreset) -> str:
    """What happens to a store that does not fit; "-" where no store is offered as one."""
    if preset.kind == "radix":
        return "drop" if preset.write_back else "skip"
    return NO_ROOM[preset.overflow] if preset.kind == "inclusive" else "-"


def render_tier(name: str, width: int = 80) -> str:
    """One preset: rules, omissions, source."""
    preset = load_preset(name)
    lines = [f"{preset.name}: {preset.title} ({preset.version})", f"  {preset.description}"]
    lines += [f"  {label}  {text}" for label, text in list_rules(preset)]
    lines += [f"  not modelled: {text}" for text in preset.missing]
    lines += [f"  not confirmed: {text}" for text in preset.unsure]
    lines.append(f"  source: {preset.source}")
    return "\n".join(fold(line, width) for line in lines) + "\n"


def list_rules(preset: TierPreset) -> list[tuple[str, str]]:
    """Its rules in words, label and text."""
    moved = "every chunk of the prompt" if preset.kind == "prefix" else preset.touch
    rules = [
        ("unit        ", f"{preset.unit_tokens:,} tokens"),
        ("lookup      ", f"from {preset.lookup_from}; moves {moved}; {preset.touch_order} is older"),
        ("store       ", f"{preset.stores}, from {preset.store_from}; {preset.insert_order} is older"),
        ("resident    ", "left out of a store" if preset.dedup else "stored again, dropped afterwards"),
        ("no room     ", name_overflow(preset)),
        ("end         ", f"moves {preset.settles}"),
        ("policies    ", ", ".join(preset.policies)),
        (
            "admission   ",
            preset.admission if preset.admission == "none" else f"{preset.admission}, kappa {preset.kappa}",
        ),
    ]
    if preset.watermark < 1:
        when = f"every {preset.evict_period_s:g} s" if preset.evict_period_s else "after a store"
        rules.append(
            ("sweep       ", f"{100 * preset.evict_fraction:g} % where {100 * preset.watermark:g} % is filled, {when}")
        )
    if preset.min_load_tokens:
        rules.append(("loads       ", f"of {preset.min_load_tokens} tokens and more"))
    return rules
