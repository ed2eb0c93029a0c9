"""What every test shares: determinism, one thread, and the way to the market data."""

import os
import random
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from counts import FULL, count

SEED = 20240229

# Derandomised: the same examples on every machine, so nothing is remembered between runs. Speed
# is not judged here, neither by deadline nor by health check: it is measured in benchmarks/.
settings.register_profile(
    "arbiter",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=count(full=400, reduced=60),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("arbiter")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.fixture
def rng() -> np.random.Generator:
    """A NumPy generator that starts from the same state in every test."""
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real market data; the test is reported as not run where there is none."""
    folder = os.environ.get("ARBITER_DATA")
    if not folder:
        if FULL:
            pytest.fail("ARBITER_DATA is unset, and a full verification needs the market data")
        pytest.skip("ARBITER_DATA is unset: real-data test not run")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"ARBITER_DATA is {folder!r}, which is not a folder")
    return path
