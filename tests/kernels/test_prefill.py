"""The prefill kernel against the numpy function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.costs.prefill import build_prefill, seconds
from capplan.hardware import load_gpu
from capplan.kernels import prefill as kernels
from capplan.models import load_model

MODELS = {
    (gpu, model, tp, windows): build_prefill(load_gpu(gpu), load_model(model), tp, windows=windows, launch_s=0.003)
    for gpu, model, tp in (("h20", "qwen3-30b-a3b", 1), ("h100", "deepseek-v3", 4), ("mi300x", "llama-3.1-8b", 2))
    for windows in (None, ((0.5, 128),), ((0.25, 4096), (0.75, 512)))
}


@pytest.mark.parametrize("case", MODELS)
@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 200_000)), min_size=1, max_size=20))
def test_kernel_and_numpy_agree(case, stretches):
    begin = np.array([first for first, _ in stretches], np.float64)
    end = begin + np.array([n for _, n in stretches], np.float64)
    for model in MODELS[case]:
        found = kernels.compute_each(*model.kernel_arguments(), begin, end)
        np.testing.assert_allclose(found, seconds(model, begin, end), rtol=1e-12)


def test_one_value():
    model = next(iter(MODELS.values())).typical
    assert kernels.compute_seconds(*model.kernel_arguments(), 5.0, 5.0) == 0
    assert kernels.compute_seconds(*model.kernel_arguments(), 9.0, 5.0) == 0
    assert kernels.compute_seconds(*model.kernel_arguments(), 5.0, 77.0) == pytest.approx(float(seconds(model, 5, 77)))
