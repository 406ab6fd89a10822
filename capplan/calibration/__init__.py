"""Calibration: what measured runs say about prefill, restores and overhead on one's own machine.

`measurements` reads the CSV, `contradictions` refuses what cannot be, `runs` and `ttft` fit, `profile` writes the
GPU profile; `pipeline` joins them.
"""

from capplan.calibration.cells import MeasurementError
from capplan.calibration.fits import Fit, Parameter, Row
from capplan.calibration.measurements import Measurements, Run, TtftPoint, read_measurements
from capplan.calibration.pipeline import Calibration, Settings, calibrate
from capplan.calibration.profile import write_profile

__all__ = [
    "Calibration",
    "Fit",
    "MeasurementError",
    "Measurements",
    "Parameter",
    "Row",
    "Run",
    "Settings",
    "TtftPoint",
    "calibrate",
    "read_measurements",
    "write_profile",
]
