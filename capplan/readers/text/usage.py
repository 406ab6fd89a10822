"""Token counts a provider reports beside its answers: kept for comparison, never an input."""

from typing import Annotated

import msgspec

from capplan.readers.sample import Account
from capplan.schema import LARGEST_TOKENS

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOKENS)]

PROMPT = "prompt tokens by the provider's count (comparison only)"
CACHED = "prompt tokens the provider had cached (comparison only)"


class Details(msgspec.Struct):
    """Part of a prompt that the provider found in its cache."""

    cached_tokens: Count | None = None


class Usage(msgspec.Struct):
    """Tokens by the provider's count."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: Details | None = None


def note_usage(usage: Usage | None, account: Account) -> None:
    """Add what a provider reports of one call to the account."""
    if usage is None:
        return
    details = usage.prompt_tokens_details
    for what, count in ((PROMPT, usage.prompt_tokens), (CACHED, details.cached_tokens if details else None)):
        if count is not None:
            account.found[what] += count
