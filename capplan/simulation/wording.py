"""What a tier's settings are in words: printed by several commands."""

from capplan.simulation.presets import LONG_PROMPTS
from capplan.simulation.settings import TierSettings

BEST_POLICY = (
    "no policy covers more prompt tokens in these units; it knows the future, keeps what is used soonest, and leaves "
    "out what is used later than all it holds"
)


def is_best_policy(settings: TierSettings) -> bool:
    """Whether it is the yardstick, which has nothing of the engine but its units."""
    return settings.policy == "belady"


def describe_settings(settings: TierSettings, unit_tokens: int) -> str:
    """A tier and what was set of it, in one phrase."""
    preset = settings.preset
    if is_best_policy(settings):
        return f"the best policy there is (Belady's) for prompts in the {unit_tokens:,}-token units of {preset.title}"
    text = (
        f"{preset.title} ({preset.version}), {unit_tokens:,}-token units, {settings.policy}, admission "
        f"{settings.rule.label}"
    )
    if preset.kind == "inclusive" and settings.min_offers > 1:
        text += f", stored from the {format_ordinal(settings.min_offers)} offer on"
    return text


def describe_rules(settings: TierSettings) -> str:
    """How it stores, finds and evicts."""
    return BEST_POLICY if is_best_policy(settings) else settings.preset.description


def list_gaps(settings: TierSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What of the engine is not modelled, and what of it is not confirmed; nothing of the yardstick."""
    return ((), ()) if is_best_policy(settings) else (settings.preset.missing, settings.preset.unsure)


def describe_long_prompts(settings: TierSettings) -> str:
    """What becomes of a prompt longer than the tier."""
    return LONG_PROMPTS["keep-prefix"] if is_best_policy(settings) else settings.preset.lot_of_long_prompts


def format_ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th ... 11th, 12th, 13th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
