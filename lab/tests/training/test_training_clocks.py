"""Uneven clocks: increasing, of mean one, some weekends and events among them."""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter_lab.training.training_clocks import UNEVEN_CLOCK_SHARE, draw_clock


def clocks(days: Tensor, surfaces: int = 400, seed: int = 0) -> Tensor:
    T = (days / 365.0).expand(surfaces, -1)
    exchange = torch.arange(surfaces) % 2 == 0
    return draw_clock(T, exchange, torch.Generator().manual_seed(seed)) * 365.0


def test_clocks_increase_and_come_back_to_the_calendar() -> None:
    days = torch.linspace(0.1, 2290.0, 3000)
    found = clocks(days)
    assert bool((found.diff(dim=1) > 0.0).all())
    assert float((found[:, -1] / days[-1] - 1.0).abs().max()) < 0.03
    even = ((found - days).abs() < 1e-3).all(1)
    assert bool(even[1::2].all())  # no exchange, no weekends
    assert abs(float(even[::2].float().mean()) - (1.0 - UNEVEN_CLOCK_SHARE)) < 0.1


def test_weekends_count_less_and_events_more() -> None:
    days = torch.arange(0.0, 141.0)
    rates = clocks(days).diff(dim=1)  # (B, 140) days by the clock of each day
    uneven = rates[(rates - 1.0).abs().amax(1) > 1e-3]
    by_weekday = uneven.unflatten(1, (20, 7)).median(1).values.sort(1).values
    assert float((by_weekday[:, 1] < 0.8 * by_weekday[:, 4]).float().mean()) > 0.5
    assert (
        float((by_weekday[:, 2] < 0.8 * by_weekday[:, 4]).float().mean()) < 0.2
    )  # two days, not three
    largest = uneven.amax(1)
    assert 0.2 < float((largest > 2.0).float().mean()) < 0.95


def test_the_same_generator_gives_the_same_clocks() -> None:
    days = torch.tensor([1.0, 7.0, 30.0])
    assert torch.equal(clocks(days), clocks(days))
    assert not torch.equal(clocks(days), clocks(days, seed=1))
