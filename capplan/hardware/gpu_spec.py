"""What is known of one GPU: peaks, memory, links, share of the peak a prefill reaches.

What is modelled: a peak per weight type, one host link per GPU, one rate of all-reduces, shares of the peak by
kind of work and size where public operator tables exist (`capplan.hardware.prefill_spec`), and the efficiency of a
whole model's prefill as a range that depends on the model kind, the tensor-parallel size and the weight type.
What is not: how the rate of the host link falls with small copies, and contention between GPUs
(`capplan.costs.restore`); the low end of `GpuSpec.h2d_gb_per_s` is the worst seen on a healthy link. Nothing here
was measured by the project: every number carries its source and can be overridden.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from capplan.hardware.prefill_spec import PrefillShares

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(gt=0, le=1.2)]
Text = Annotated[str, Meta(min_length=1)]
Kind = Literal["dense", "moe"]
Dtype = Literal["bf16", "fp8"]


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """Rate of a link in GB/s (1e9 bytes): worst on a healthy link, to plan with, best contiguous.

    `effective` says that the rate was seen on an engine's restores: what its copies lose is inside.
    """

    low: Positive
    typical: Positive
    high: Positive
    basis: Text
    source: Text
    estimated: bool = False
    effective: bool = False


class EfficiencyRange(Struct, frozen=True, forbid_unknown_fields=True):
    """Share of the peak reached by a whole model's prefill (MFU: useful FLOPs, causal half, no lm_head).

    Shares under FP8 refer to the FP8 peak. `estimated` is true unless `basis` is an end-to-end run;
    `confidence` is ``none`` for a bare assumption and ``given`` for the user's own number.
    """

    low: Share
    high: Share
    basis: Text
    confidence: Literal["high", "medium", "low", "none", "given"]
    source: Text
    estimated: bool = False

    @property
    def typical(self) -> float:
        """Middle of the range."""
        return (self.low + self.high) / 2


class EfficiencyCase(EfficiencyRange, frozen=True, forbid_unknown_fields=True):
    """A range that holds for some models only; a condition left out holds always."""

    kind: Kind | None = None
    tp_min: Count = 1
    tp_max: Count | None = None
    weight_dtype: Dtype = "bf16"

    def holds(self, kind: str, tp: int, weight_dtype: str) -> bool:
        """Say whether this range is meant for such a model."""
        in_tp = self.tp_min <= tp and (self.tp_max is None or tp <= self.tp_max)
        return in_tp and self.kind in (None, kind) and self.weight_dtype == weight_dtype


class Efficiency(EfficiencyRange, frozen=True, forbid_unknown_fields=True):
    """The range for models no case is meant for, and the cases, first match first."""

    cases: tuple[EfficiencyCase, ...] = ()


class MeasuredPrefill(Struct, frozen=True, forbid_unknown_fields=True):
    """Prefill time of one model on this GPU, microseconds per prompt token over all `tp` ranks.

    `position` is the mean attended position in tokens; None where the source does not report it, and
    estimated where `position_estimated` says so. `us_low` and `us_high` are the ends of its interval,
    where one is known.
    """

    model: Text
    tp: Count
    us_per_token: Positive
    source: Text
    position: Positive | None = None
    weight_dtype: Dtype = "bf16"
    position_estimated: bool = False
    us_low: Positive | None = None
    us_high: Positive | None = None


class GpuSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GPU: peaks in dense TFLOP/s with FP32 accumulation, memory, host link, prefill efficiency.

    `hbm_gib` is memory in GiB as the driver reports it where known, `hbm_gb_per_s` its rate in GB/s,
    `link_gb_per_s` the raw rate of one direction in GB/s, `h2d_gb_per_s` the contiguous pinned copy from
    host memory, `allreduce_gb_per_s` the rate one direction sustains in all-reduces between the GPUs of a
    node (bytes a rank sends in a ring over time), `prefill` the shares of the peak by kind of work.
    `sources` says for each plain number where it comes from.
    """

    name: Text
    title: Text
    bf16_dense_tflops: Positive
    hbm_gib: Positive
    hbm_gb_per_s: Positive
    link: Text
    link_gb_per_s: Positive
    h2d_gb_per_s: Rate
    gpus_per_node: Count
    efficiency: Efficiency
    vendor: str = ""
    fp8_dense_tflops: Positive | None = None
    allreduce_gb_per_s: Rate | None = None
    prefill: PrefillShares | None = None
    aliases: tuple[str, ...] = ()
    measured: tuple[MeasuredPrefill, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def link_bytes_per_s(self) -> float:
        """Raw rate of one direction of the host link, bytes per second."""
        return self.link_gb_per_s * 1e9

    def compute_dtype(self, weight_dtype: str) -> Dtype:
        """Return the type matrix products run in: FP8 for FP8 weights where the GPU has it, else BF16."""
        return "fp8" if weight_dtype == "fp8" and self.fp8_dense_tflops else "bf16"

    def peak_flops(self, weight_dtype: str = "bf16") -> float:
        """Return the dense peak in FLOP/s for a weight type (docs/model.md section 5)."""
        if self.fp8_dense_tflops and self.compute_dtype(weight_dtype) == "fp8":
            return self.fp8_dense_tflops * 1e12
        return self.bf16_dense_tflops * 1e12

    def efficiency_for(self, model_kind: str, tp: int, weight_dtype: str = "bf16") -> EfficiencyRange:
        """Return the range of prefill efficiency for such a model: the first case that holds, else the default.

        Parameters
        ----------
        model_kind : ``"dense"`` or ``"moe"``
        tp : tensor-parallel size
        weight_dtype : of the checkpoint; the range refers to `peak_flops` of the same type
        """
        dtype = self.compute_dtype(weight_dtype)
        return next((case for case in self.efficiency.cases if case.holds(model_kind, tp, dtype)), self.efficiency)

    def measured_for(self, model_name: str, tp: int) -> tuple[MeasuredPrefill, ...]:
        """Return the measured prefill points of a model (canonical name) at a tensor-parallel size."""
        return tuple(point for point in self.measured if point.model == model_name and point.tp == tp)


class IncompleteGpu(Struct, frozen=True):
    """A GPU known by name whose public numbers do not suffice; `missing` says which and why."""

    name: str
    title: str
    missing: tuple[str, ...]
    aliases: tuple[str, ...] = ()
