"""The shipped GPU and model profiles as tables."""

from capplan.hardware import list_gpus
from capplan.hardware.gpu_spec import IncompleteGpu
from capplan.models import list_models, list_refused
from capplan.models.model_spec import ModelSpec, kv_bytes_per_token
from capplan.report.layout import Table, fold, make_table, print_tables
from capplan.units import format_number

TP_SIZES = (1, 2, 4, 8)


def render_gpus(width: int = 80) -> str:
    """GPUs by name; those that lack numbers say which."""
    headings = (
        "\nname",
        "memory\nGiB",
        "BF16\nTFLOP/s",
        "FP8\nTFLOP/s",
        "link\nGB/s",
        "restore\nGB/s",
        "prefill\nshare",
    )
    table = make_table("", headings, 1)
    notes = ["~ estimated; prefill share: of the dense peak, by default; rates are GB/s (1e9 bytes), one direction"]
    for gpu in list_gpus():
        if isinstance(gpu, IncompleteGpu):
            notes.append(f"{gpu.name}: no usable {'; no usable '.join(gpu.missing)}")
            continue
        rate, share = gpu.h2d_gb_per_s, gpu.efficiency
        table.add_row(
            gpu.name,
            format_number(gpu.hbm_gib),
            format_number(gpu.bf16_dense_tflops),
            "none" if gpu.fp8_dense_tflops is None else format_number(gpu.fp8_dense_tflops),
            format_number(gpu.link_gb_per_s),
            f"{'~' if rate.estimated else ''}{format_number(rate.low)}-{format_number(rate.high)}",
            f"{'~' if share.estimated else ''}{share.low:.2f}-{share.high:.2f}",
        )
    return _render(table, notes, width)


def render_models(width: int = 80) -> str:
    """Models by name, with BF16 KV bytes per token and rank at TP 1, 2, 4 and 8, and what is known to be missing."""
    headings = ("\nname", "total\nB", "active\nB", "\ntype", *(f"KV B\nTP{tp}" for tp in TP_SIZES), "")
    table = make_table("", headings, 1)
    table.gap = 1
    for model in list_models():
        table.add_row(
            model.name,
            format_number(model.total_params / 1e9),
            format_number(model.active_params / 1e9),
            model.weight_dtype.removesuffix("-g32"),
            *(f"{kv_bytes_per_token(model, tp):,}" for tp in TP_SIZES),
            flag_model(model),
        )
    notes = [
        "type: of the published weights; KV B: bytes of BF16 KV per token and tensor-parallel rank",
        "~ approximate: windowed layers counted for every token; * also keeps states, so that prefixes are reused at "
        "stored boundaries only; ? unconfirmed dimensions (`capplan footprint` says more)",
        *(f"{refused.name}: refused, {refused.reason}" for refused in list_refused()),
    ]
    return _render(table, notes, width)


def flag_model(model: ModelSpec) -> str:
    """One character: states, windows, or unconfirmed dimensions, in this order; else nothing."""
    if model.has_state:
        return "*"
    if model.has_windows:
        return "~"
    return "?" if model.unconfirmed else ""


def _render(table: Table, notes: list[str], width: int) -> str:
    return "\n".join([*print_tables([table]), *(fold(note, width) for note in notes)]) + "\n"
