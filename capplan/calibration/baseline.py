"""What a profile says before it is calibrated: the values that undetermined parameters are held at."""

from dataclasses import dataclass

from capplan.economics import TAU_LOAD_PER_TOKEN_S, TAU_LOAD_S, prefill_seconds_per_token
from capplan.hardware.gpu_spec import Dtype, GpuSpec
from capplan.models.model_spec import ModelSpec, kv_bytes_per_token
from capplan.units import GB


@dataclass(frozen=True, slots=True)
class Baseline:
    """A deployment and its uncalibrated times, docs/model.md section 5.

    `position` is the mean attended position of the computed tokens, None where it is not known.
    """

    gpu: GpuSpec
    model: ModelSpec
    tp: int
    kv_dtype: str
    weight_dtype: str
    position: float | None

    @property
    def beta(self) -> int:
        """KV bytes of a token on one rank."""
        return kv_bytes_per_token(self.model, self.tp, self.kv_dtype)

    @property
    def compute_dtype(self) -> Dtype:
        """Type matrix products run in."""
        return self.gpu.compute_dtype(self.weight_dtype)

    @property
    def load_s(self) -> float:
        """Fixed seconds of a loading request."""
        return TAU_LOAD_S

    @property
    def restore_s(self) -> float:
        """Seconds per moved token: bytes over the typical rate, and scheduling."""
        return self.beta / (self.gpu.h2d_gb_per_s.typical * GB) + TAU_LOAD_PER_TOKEN_S

    def restore_rate(self, restore_s: float) -> float | None:
        """Bytes/s of one rank at so many seconds per moved token; None where scheduling alone takes longer."""
        spare = restore_s - TAU_LOAD_PER_TOKEN_S
        return self.beta / spare if spare > 0 else None

    @property
    def prefill_s(self) -> float | None:
        """Seconds per computed token: the profile's point whose position is not reported, else the formula at one."""
        points = self.gpu.measured_for(self.model.name, self.tp)
        for point in points:
            is_unplaced = point.position is None or point.position_estimated
            if is_unplaced and point.weight_dtype == self.compute_dtype:
                return point.us_per_token * 1e-6
        return None if self.position is None else self.formula_s(self.position)

    def formula_s(self, position: float, efficiency: float | None = None) -> float:
        """Seconds per token at a mean attended position, by default at the profile's typical efficiency."""
        share = self.gpu.efficiency_for(self.model.kind, self.tp, self.weight_dtype).typical
        return prefill_seconds_per_token(
            self.model.linear_params,
            self.model.attention_flops,
            position,
            self.tp,
            self.gpu.peak_flops(self.weight_dtype),
            share if efficiency is None else efficiency,
        )

    def suffix_s(self, cached: float, prompt: float) -> float:
        """Seconds of the formula for the tokens of a prompt behind its first `cached`."""
        return (prompt - cached) * self.formula_s((cached + prompt) / 2)
