"""From a CSV of measurements to a calibration; composes and computes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from capplan import hardware, models
from capplan.calibration.baseline import Baseline
from capplan.calibration.cells import MeasurementError
from capplan.calibration.fits import Fit, Parameter
from capplan.calibration.measurements import Measurements, choose_rows, read_measurements
from capplan.calibration.runs import choose_held, fit_runs
from capplan.calibration.ttft import FULL_HIT_TOKENS, fit_points
from capplan.errors import SpecError

HOLDABLE = ("prefill", "restore", "load", "write")


@dataclass(frozen=True, slots=True)
class Settings:
    """How measurements are to be read.

    Attributes
    ----------
    tp : int
        Tensor-parallel size they were taken at.
    weight_dtype : str or None
        None: as the checkpoint is published.
    position : float or None
        Mean attended position of the runs' computed tokens, where known.
    fit_rows : sequence of str
        Labels of the rows to fit, all others to check; none: as the column ``use`` says.
    hold : sequence of str
        Parameters of `HOLDABLE` to hold at the profile's value.
    """

    tp: int
    kv_dtype: str = "bf16"
    weight_dtype: str | None = None
    position: float | None = None
    fit_rows: Sequence[str] = ()
    hold: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements, the deployment they were taken on, and what they determine."""

    base: Baseline
    measured: Measurements
    runs: Fit | None
    points: Fit | None

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The fits there are."""
        return tuple(fit for fit in (self.runs, self.points) if fit is not None)

    @property
    def restore(self) -> Parameter | None:
        """The fitted restore time: that of the runs where they determine it, else of TTFT points, else None."""
        found = (fit.parameters["restore"] for fit in self.fits)
        return next((parameter for parameter in found if parameter.is_fitted), None)

    @property
    def restore_rate(self) -> float | None:
        """Fitted restore rate of one rank, bytes/s; None if not fitted or faster than the link can be."""
        if self.restore is None:
            return None
        rate = self.base.restore_rate(self.restore.value)
        return rate if rate is not None and rate <= self.base.gpu.link_bytes_per_s else None

    @property
    def is_net(self) -> bool:
        """Whether the runs' prefill time is net of the restores that replaced it."""
        return self.runs is not None and self.runs.parameters["restore"].status == "left out"

    @property
    def prefill_scale(self) -> float | None:
        """The runs' prefill time over the profile's, where both are known."""
        known = self.base.prefill_s
        return self.runs.value("prefill") / known if self.runs is not None and known is not None else None


def calibrate(path: str, gpu: str, model: str, settings: Settings) -> Calibration:
    """Fit prefill, restores and overhead to measured runs and TTFT points.

    Parameters
    ----------
    path : CSV, columns as in `capplan.calibration.measurements`
    gpu : name of a shipped profile, the base of the calibrated one
    model : name, ``config.json`` or profile file

    Raises
    ------
    MeasurementError
        The file is wrong, says too little, or contradicts itself.
    SpecError
        The GPU, the model or the tensor-parallel size cannot be used.
    """
    base = _deploy(gpu, model, settings)
    measured = read_measurements(path)
    if settings.fit_rows:
        measured = choose_rows(measured, settings.fit_rows)
    points = fit_points(measured.points, path, base, settings.hold)
    runs = None
    if any(run.is_fit for run in measured.runs) or points is None:
        runs = fit_runs(measured.runs, path, choose_held(base, points), settings.hold)
    calibration = Calibration(base, measured, runs, points)
    _require_something(calibration)
    return calibration


def _deploy(gpu: str, model: str, settings: Settings) -> Baseline:
    if gpu.lower().endswith(".toml"):
        raise SpecError(f"{gpu}: a shipped profile is needed as the base; accepted: a name of capplan gpus")
    chosen, spec = hardware.load_gpu(gpu), models.load_model(model)
    if not models.tp_divides(spec, settings.tp):
        heads = f"{spec.attention_heads} attention heads{f' and {spec.kv_heads} KV heads' if spec.kv_heads else ''}"
        raise SpecError(f"--tp {settings.tp}: {spec.name} has {heads}; a divisor is accepted")
    weights = settings.weight_dtype or spec.weight_dtype
    return Baseline(chosen, spec, settings.tp, settings.kv_dtype, weights, settings.position)


def _require_something(calibration: Calibration) -> None:
    useful = ("prefill", "scale", "restore")
    found = [fit.parameters[name] for fit in calibration.fits for name in useful if name in fit.parameters]
    if not any(parameter.is_fitted for parameter in found):
        raise MeasurementError(
            f"{calibration.measured.source}: the rows to fit determine neither prefill nor restore time; accepted: "
            f"runs that differ in computed tokens, or TTFT points that compute more than {FULL_HIT_TOKENS} tokens"
        )
