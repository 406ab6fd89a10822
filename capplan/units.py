"""The only unit conversions and the only number formatting."""

import math
from decimal import ROUND_CEILING, Decimal

GIB = 1 << 30
GB = 1e9
MIB = 1 << 20


def gib_to_bytes(gib: float) -> int:
    """Whole bytes of a capacity in GiB."""
    return math.floor(gib * GIB)


def bytes_to_gib(n_bytes: float) -> float:
    """GiB of so many bytes."""
    return n_bytes / GIB


def round_up(value: float, digits: int = 3) -> float:
    """Smallest number with so many significant digits that is not below `value`."""
    if value <= 0:
        return 0.0
    number = Decimal(repr(float(value)))
    return float(number.quantize(Decimal(1).scaleb(number.adjusted() + 1 - digits), ROUND_CEILING))


def format_number(value: float, digits: int = 3) -> str:
    """Number with so many significant digits and no exponent, thousands separated."""
    if math.isnan(value):
        return "n/a"
    if math.isinf(value):
        return "inf"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def format_capacity(gib: float, digits: int = 3) -> str:
    """Capacity rounded up to so many significant digits: entered as printed, it holds what it should."""
    return format_number(round_up(gib, digits), digits)


def format_tokens(n_tokens: float) -> str:
    """Tokens in billions (G), millions, thousands or one by one."""
    if abs(n_tokens) >= 1e9:
        return f"{format_number(n_tokens / 1e9, 4)} G"
    if abs(n_tokens) >= 1e6:
        return f"{format_number(n_tokens / 1e6, 4)} M"
    if abs(n_tokens) >= 1e4:
        return f"{format_number(n_tokens / 1e3)} k"
    return f"{n_tokens:,.0f}"


def format_share(share: float) -> str:
    """Percent with one decimal."""
    return "n/a" if math.isnan(share) else f"{100 * share:.1f} %"


def format_seconds(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best."""
    if math.isnan(seconds) or abs(seconds) < 120:
        return f"{format_number(seconds)} s"
    if abs(seconds) < 7200:
        return f"{format_number(seconds / 60)} min"
    return f"{format_number(seconds / 3600)} h"
