"""Footprints of one model as a table or as JSON, format 1."""

import json
from collections.abc import Sequence

from capplan.footprint import BLOCK_TOKENS, LAST_WINDOWS, Footprint
from capplan.models.layer_groups import LayerGroup
from capplan.models.model_spec import ModelSpec
from capplan.report.layout import Table, fold, make_table, print_tables
from capplan.units import MIB, bytes_to_gib, format_number

FORMAT_VERSION = 1
FORMATS = ("table", "json")
_KINDS = {
    "full": "full-attention",
    "sliding": "sliding-window",
    "chunked": "chunked-attention",
    "linear": "linear-attention",
    "mamba": "Mamba2",
}


def render(
    footprints: Sequence[Footprint], chunk_tokens: int, context_tokens: int, format: str = "table", width: int = 80
) -> str:
    """The footprints of one model as text, ending in a newline; `width` is for tables."""
    if format == "json":
        return render_json(footprints, chunk_tokens, context_tokens)
    if format == "table":
        return render_table(footprints, chunk_tokens, context_tokens, width)
    raise ValueError(f"format is {format!r}; accepted: {', '.join(FORMATS)}")


def render_table(footprints: Sequence[Footprint], chunk_tokens: int, context_tokens: int, width: int) -> str:
    """One table per layout, and what the numbers mean; types that weigh the same are shown once."""
    model = footprints[0].model
    blocks = [fold(f"{model.title}: {describe_attention(model)}", width)]
    for layout in dict.fromkeys(footprint.layout for footprint in footprints):
        if layout == LAST_WINDOWS:
            blocks.append(fold("The same where the engine drops what lies before a window (vLLM from 0.26 on)", width))
        shown = [footprint for footprint in footprints if footprint.layout == layout]
        blocks += print_tables([_tabulate(shown)])
    blocks.append("\n".join(fold(note, width) for note in explain(footprints, chunk_tokens, context_tokens)))
    return "\n\n".join(blocks) + "\n"


def _tabulate(footprints: Sequence[Footprint]) -> Table:
    headings = ("\nKV", "\nTP", "B per\ntoken", "block\nKiB", "chunk\nMiB", "context\nGiB", "on GPUs\nGiB")
    table = make_table("", (*headings, "host\ncopies", "on host\nGiB"), 1)
    names: dict[tuple[str, ...], list[str]] = {}
    for shown in footprints:
        names.setdefault(_describe_sizes(shown), []).append(shown.kv_dtype)
    for sizes, kv_dtypes in names.items():
        table.add_row(", ".join(kv_dtypes), *sizes)
    return table


def _describe_sizes(shown: Footprint) -> tuple[str, ...]:
    return (
        str(shown.tp),
        f"{shown.token_bytes:,}",
        format_number(shown.block_bytes / 1024),
        format_number(shown.chunk_bytes / MIB),
        format_number(bytes_to_gib(shown.context_bytes)),
        format_number(bytes_to_gib(shown.gpu_context_bytes)),
        str(shown.host_copies),
        format_number(bytes_to_gib(shown.host_context_bytes)),
    )


def describe_attention(model: ModelSpec) -> str:
    """What the layers keep, in words."""
    if model.attention == "mla":
        latent = f"{model.layers} layers of a {model.kv_lora_rank + model.qk_rope_head_dim}-number latent (MLA)"
        return f"{latent}, {model.index_layers} of them with an index" if model.index_layers else latent
    return ", ".join(_describe_group(model, group) for group in model.layer_groups)


def _describe_group(model: ModelSpec, group: LayerGroup) -> str:
    layers = f"{group.layers} {_KINDS[group.kind]} layers"
    if group.has_state:
        return layers
    kv_heads, key_dim, value_dim = model.heads_of(group)
    numbers = str(key_dim) if key_dim == value_dim else f"{key_dim} + {value_dim}"
    limit = f", {group.window_tokens:,} tokens" if group.is_windowed else ""
    return f"{layers} ({kv_heads} KV heads of {numbers}{limit})"


def explain(footprints: Sequence[Footprint], chunk_tokens: int, context_tokens: int) -> list[str]:
    """What the columns mean, and what the numbers leave out."""
    model = footprints[0].model
    notes = [
        f"- bytes on one rank: of a token, a block of {BLOCK_TOKENS}, a chunk of {chunk_tokens:,} and a context of "
        f"{context_tokens:,} tokens",
        "- of a node: on GPUs, the context in the memory of all ranks; on host, one copy per rank, or one where ranks "
        "hold the same bytes",
    ]
    if model.has_state:
        states = {footprint.tp: footprint.state_bytes for footprint in footprints}
        sizes = ", ".join(f"{n_bytes:,} B at TP{tp}" for tp, n_bytes in states.items())
        notes.append(f"- states per rank and stored boundary: {sizes}; a chunk and a context end with one each")
    if model.index_layers:
        notes.append("- beside an index, engines keep fp8 latents as fp8_ds_mla")
    if model.approximation:
        notes.append(f"- approximate: {model.approximation}")
    if model.unconfirmed:
        notes.append("- unconfirmed: the dimensions were not seen in the published config")
    return notes


def render_json(footprints: Sequence[Footprint], chunk_tokens: int, context_tokens: int) -> str:
    """The footprints of one model as one JSON object; all sizes in bytes."""
    model = footprints[0].model
    record = {
        "format": FORMAT_VERSION,
        "model": model.name,
        "title": model.title,
        "approximation": model.approximation,
        "unconfirmed": model.unconfirmed,
        "block_tokens": BLOCK_TOKENS,
        "chunk_tokens": chunk_tokens,
        "context_tokens": context_tokens,
        "footprints": [
            {
                "layout": shown.layout,
                "kv_dtype": shown.kv_dtype,
                "tp": shown.tp,
                "token_bytes_per_rank": shown.token_bytes,
                "block_bytes_per_rank": shown.block_bytes,
                "chunk_bytes_per_rank": shown.chunk_bytes,
                "context_bytes_per_rank": shown.context_bytes,
                "state_bytes_per_rank": shown.state_bytes,
                "context_bytes_all_ranks": shown.gpu_context_bytes,
                "host_copies_per_node": shown.host_copies,
                "chunk_bytes_per_node_host": shown.host_chunk_bytes,
                "context_bytes_per_node_host": shown.host_context_bytes,
            }
            for shown in footprints
        ],
    }
    return json.dumps(record, indent=1) + "\n"
