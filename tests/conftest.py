"""Shared fixtures."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=100)
settings.register_profile("nojit", deadline=None, max_examples=15)
settings.load_profile("nojit" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "default")
