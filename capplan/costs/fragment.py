"""Fragments: the contiguous pieces in which a token's KV lies in an engine's cache, and their number.

A restore copies fragment by fragment. An engine that keeps a block's K and V apart and layer by layer (``paged``)
has the smallest; ``paged-kv`` keeps the K and V of one layer's block together, ``joined`` all layers of a block.
A latent (MLA) is one fragment per layer in place of K and V; the small index beside it counts with it.
"""

from capplan.costs.restore_spec import LAYOUTS
from capplan.errors import SpecError
from capplan.models.model_record import ModelSpec
from capplan.models.model_spec import kv_bytes_per_token


def fragment_bytes(
    model: ModelSpec, tp: int, kv_dtype: str = "bf16", block_tokens: int = 16, layout: str = "paged"
) -> float:
    """Return the bytes of one fragment on one rank, in the mean where layers differ.

    Paged: block tokens * KV heads per rank * head size * bytes (docs/model.md section 5).

    Parameters
    ----------
    block_tokens : tokens in a block of the engine's GPU cache
    layout : one of `LAYOUTS`

    Raises
    ------
    SpecError
        `layout` is none of these, or as `kv_bytes_per_token`.
    """
    return block_tokens * kv_bytes_per_token(model, tp, kv_dtype) / fragments_per_block(model, layout)


def fragments_per_block(model: ModelSpec, layout: str = "paged") -> int:
    """Return the fragments that make up one block of tokens on one rank.

    Raises
    ------
    SpecError
        `layout` is none of `LAYOUTS`, or no layer keeps KV.
    """
    if layout not in LAYOUTS:
        raise SpecError(f"layout '{layout}': accepted: {', '.join(LAYOUTS)}")
    keeping = sum(group.layers - group.shared_layers for group in model.layer_groups if not group.has_state)
    if not keeping:
        raise SpecError(f"{model.title}: no layer keeps KV")
    per_layer = 1 if model.attention == "mla" or layout == "paged-kv" else 2
    return 1 if layout == "joined" else keeping * per_layer


def fragments_per_token(model: ModelSpec, block_tokens: int = 16, layout: str = "paged") -> float:
    """Return the fragments one token costs on one rank where blocks are restored whole.

    Raises
    ------
    SpecError
        As `fragments_per_block`.
    """
    return fragments_per_block(model, layout) / block_tokens
