"""Shared fixtures."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=100)
settings.register_profile("nojit", deadline=None, max_examples=15)
settings.load_profile("nojit" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "default")


@pytest.fixture(scope="session")
def real_traces():
    """Folder of published traces, beside the checkout where there is one."""
    folder = Path(__file__).parents[2] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("real traces are not here: ../shared/traces")
    return folder
