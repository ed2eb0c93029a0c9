"""Figures of one day's surface: pricing curves, contours, slices and a 3D view."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter_lab.reproduction.figures import (
    COLOURS,
    FIGURE_HEIGHT_INCHES,
    FIGURE_WIDTH_INCHES,
    GREY,
    panel,
    style_axes,
)
from arbiter_lab.reproduction.stages import Facts

CONTOUR_IV_PERCENT = np.arange(8.0, 45.0, 2.0)  # volatility, per cent
_YEAR_LIMITS = (0.03, 1.7)
_LOG_STRIKE_LIMITS = (-0.30, 0.15)
_SLICE_DAYS = (30, 91, 182, 365)  # days
_IV_LIMITS_PERCENT = (0.0, 60.0)


def draw_pricing_curves(portrait: Facts) -> Figure:
    """Draw the calls of three strikes along maturities, with the exact prices."""
    figure, axes = panel(FIGURE_WIDTH_INCHES, FIGURE_HEIGHT_INCHES)
    T = np.array(portrait["T"])
    ours, exact = np.array(portrait["leg_calls"]), np.array(portrait["leg_calls_exact"])
    for place, leg in enumerate(portrait["legs"]):
        axes.plot(T, ours[:, place], color=COLOURS[place], lw=2, label=f"K/F = {leg:g}")
        axes.plot(T, exact[:, place], color=GREY, lw=1, ls=":")
    axes.set(
        xlim=_YEAR_LIMITS, ylim=(0.0, 0.2), xlabel="years to expiry", ylabel="call over forward"
    )
    axes.plot([], [], color=GREY, ls=":", label="exact")
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(f"Pricing curves across maturities, day {portrait['day']}")
    return figure


def draw_surface_contours(portrait: Facts) -> Figure:
    """Draw four panels: filled and labelled contours in strike, filled in log-strike, slices."""
    figure = Figure(figsize=(9.5, 7.2), layout="constrained")
    grid = figure.subplots(2, 2)
    T, k, iv = _read_surface(portrait)
    kappa = np.exp(k)
    filled = grid[0, 0].contourf(T, kappa, iv.T, CONTOUR_IV_PERCENT, cmap="viridis", extend="both")
    lines = grid[0, 1].contour(T, kappa, iv.T, CONTOUR_IV_PERCENT, cmap="viridis")
    grid[0, 1].clabel(lines, CONTOUR_IV_PERCENT[::2], fontsize=7, fmt="%g")
    grid[1, 0].contourf(T, k, iv.T, CONTOUR_IV_PERCENT, cmap="viridis", extend="both")
    for axes in (grid[0, 0], grid[0, 1]):
        axes.set(
            xlim=_YEAR_LIMITS, ylim=(np.exp(_LOG_STRIKE_LIMITS[0]), np.exp(_LOG_STRIKE_LIMITS[1]))
        )
        axes.set(xlabel="years", ylabel="K/F")
    grid[1, 0].set(xlim=_YEAR_LIMITS, ylim=_LOG_STRIKE_LIMITS, xlabel="years", ylabel="log K/F")
    _draw_slices(grid[1, 1], portrait)
    for axes in grid.ravel():
        style_axes(axes)
    bar = figure.colorbar(filled, ax=[grid[0, 0], grid[1, 0]], shrink=0.7, location="left")
    bar.set_label("implied volatility, %")
    figure.suptitle(f"Implied volatility of the operator, day {portrait['day']}", fontsize=11)
    return figure


def draw_surface_3d(portrait: Facts) -> Figure:
    """Draw the volatility surface in three dimensions."""
    figure = Figure(figsize=(7.5, 5.6))
    axes: Any = figure.add_subplot(projection="3d")
    T, k, iv = _read_surface(portrait)
    x, y = np.meshgrid(np.sqrt(T), k, indexing="ij")
    axes.plot_surface(
        x, y, iv, cmap="viridis", vmin=CONTOUR_IV_PERCENT[0], vmax=45.0, lw=0, alpha=0.95
    )
    years = np.array([0.04, 0.25, 0.5, 1.0, 1.5])
    axes.set_xticks(np.sqrt(years), [f"{t:g}" for t in years], fontsize=8)
    axes.set(xlim=tuple(np.sqrt(_YEAR_LIMITS)), ylim=_LOG_STRIKE_LIMITS, zlim=_IV_LIMITS_PERCENT)
    axes.set(xlabel="years", ylabel="log K/F", zlabel="implied volatility, %")
    axes.tick_params(labelsize=8)
    axes.view_init(elev=24.0, azim=-52.0)
    axes.set_title(f"Volatility surface of the operator, day {portrait['day']}", fontsize=11)
    return figure


def _draw_slices(axes: Axes, portrait: Facts) -> None:
    T, k, iv = _read_surface(portrait)
    exact = 100.0 * np.array(
        [[np.nan if v is None else v for v in row] for row in portrait["exact_iv"]], dtype=float
    )
    for place, days in enumerate(_SLICE_DAYS):
        row = int(np.abs(T - days / DAYS_PER_YEAR).argmin())
        colour = COLOURS[place]
        axes.plot(np.exp(k), iv[row], color=colour, lw=1.8, label=f"{days} days")
        axes.plot(np.exp(k), exact[row], color=GREY, lw=1, ls=":")
    axes.plot([], [], color=GREY, ls=":", label="exact")
    axes.set(xlim=np.exp(_LOG_STRIKE_LIMITS), ylim=_IV_LIMITS_PERCENT, xlabel="K/F", ylabel="IV, %")
    axes.legend(fontsize=8, frameon=False)


def _read_surface(portrait: Facts) -> tuple[Array, Array, Array]:
    iv = np.array(
        [[np.nan if v is None else v for v in row] for row in portrait["iv"]], dtype=float
    )
    return np.array(portrait["T"]), np.array(portrait["k"]), 100.0 * iv
