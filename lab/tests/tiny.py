"""A training small enough for a test: a few laws that are transports, known exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.training.display import Display
from arbiter_lab.training.law_pool import MIN_RESOLVED_PRICE, Laws, make_pool_grid
from arbiter_lab.training.loop import TrainingOutcome, train
from arbiter_lab.training.pool_files import save_pool
from arbiter_lab.training.settings import Settings

CONFIG = Config(
    heads=8, width=8, state=4, rank=2, context=8, looks=2, budget=4.0, spans=(), kriging=False
)
SETTINGS = Settings(
    config=CONFIG,
    pool=24,
    held_out=12,
    layouts=((4, 10, 6, 6), (6, 12, 6, 3)),
    mix=(0.6, 0.4),
    chunk=3,
    steps=8,
    warm=3,
    decay=3,
    ramp=5,
    measure_every=3,
    save_every=5,
    look_ahead=1,
    plateau=0.0,
)


def slopes(count: int, seed: int) -> Tensor:
    """``(N, M, n)`` slopes in the star order, on the pool's maturities."""
    T = make_pool_grid()[0]
    u = torch.rand(5, count, 1, 1, generator=torch.Generator().manual_seed(seed)).double()
    x = torch.tensor(KNOTS, dtype=torch.float64)
    atm = 0.1 + 0.3 * u[0]
    tilt = torch.exp(-0.5 * u[1] * torch.tanh(x / 2.0) + 0.06 * u[2] * x**2 / (1.0 + 0.1 * x**2))
    term = 1.0 + 0.5 * u[3] * torch.exp(-T / (0.1 + u[4][..., 0]))[..., None]
    return torch.cummax(atm * tilt * term * torch.sqrt(T)[:, None], 1).values


def laws_of(b: Tensor) -> Laws:
    """The pool of given slopes ``(N, M, n)``."""
    T, z = make_pool_grid()
    transport = Transport(torch.tensor(KNOTS, dtype=torch.float64), b)
    total = torch.sqrt(transport.log_variance())  # (N, M)
    k = z * total[..., None]
    price = transport.otm(k)
    v = torch.where(
        price > MIN_RESOLVED_PRICE, black.implied_total_volatility(price, k).volatility, torch.nan
    )
    root = torch.sqrt(T)
    iv = (v / root[:, None]).float()
    return Laws(T.float(), z.float(), (total / root).float(), iv)


@lru_cache(maxsize=4)
def laws(count: int = 24, seed: int = 0) -> Laws:
    return laws_of(slopes(count, seed))


def kept(folder: Path, settings: Settings = SETTINGS) -> Path:
    """A folder with the pools that the settings ask for."""
    for size, seed in (
        (settings.pool, settings.pool_seed),
        (settings.held_out, settings.held_out_seed),
    ):
        save_pool(laws(size, seed), seed, folder)
    return folder


def run(settings: Settings, out: Path, pools: Path, **options: Any) -> TrainingOutcome:
    """Train without output."""
    silent = Display(settings.steps, every=math.inf)
    return train(settings, out, pool=pools, display=silent, **options)


def settings(**changes: Any) -> Settings:
    return replace(SETTINGS, **changes)
