"""A surface as one matplotlib figure: smiles, contours, densities and term structure."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arbiter.conventions import DAYS_PER_YEAR, INDEX_POINTS, Array

if TYPE_CHECKING:
    from arbiter.surface import Surface


_COLOUR_MAP = "viridis"
_MAX_SMILES = 12


def plot_surface(surface: Surface, path: str | PathLike[str] | None = None) -> Figure:
    """Six panels: smiles, 3D view, contours, densities, total variance, variance term structure.

    Args:
        surface: The surface to draw.
        path: Where to save the picture; the figure is then closed. Without it the figure
            stays open for ``matplotlib.pyplot.show()``.
    """
    figure = plt.figure(figsize=(15.0, 9.0), layout="constrained")
    grid = figure.add_gridspec(2, 3)
    listed = _pick_maturities(surface.maturities)
    colours = plt.get_cmap(_COLOUR_MAP)(np.linspace(0.0, 0.9, listed.size))
    _draw_smiles(figure.add_subplot(grid[0, 0]), surface, listed, colours)
    _draw_three_d(figure.add_subplot(grid[0, 1], projection="3d"), surface)
    _draw_contours(figure, figure.add_subplot(grid[0, 2]), surface)
    _draw_densities(figure.add_subplot(grid[1, 0]), surface, listed, colours)
    _draw_total_variance(figure.add_subplot(grid[1, 1]), surface, listed, colours)
    _draw_term_structure(figure.add_subplot(grid[1, 2]), surface)
    moment = "" if surface.as_of is None else f", as of {surface.as_of}".replace("T", " ")
    first, last = format_maturity(surface.maturities[0]), format_maturity(surface.maturities[-1])
    count = surface.maturities.size
    span = f"{count} maturities, {first} to {last}" if count > 1 else f"one maturity, {first}"
    figure.suptitle(span + moment)
    if path is not None:
        try:
            figure.savefig(path, dpi=130)
        finally:
            plt.close(figure)
    return figure


def format_maturity(T: float) -> str:
    """A maturity in years as text: days below three months, then months, then years."""
    days = T * DAYS_PER_YEAR
    if days < 90:
        return f"{days:.3g}d"
    return f"{days / 30.4:.0f}m" if days < 700 else f"{T:.3g}y"


def _pick_maturities(maturities: Array) -> Array:
    """At most a dozen of the listed maturities, evenly spaced in the list."""
    pick = np.linspace(0, maturities.size - 1, min(maturities.size, _MAX_SMILES))
    picked: Array = maturities[np.unique(pick.round().astype(int))]
    return picked


def _space_maturities(surface: Surface, count: int) -> Array:
    """``(count,)`` maturities, even in √T over the listed range or around a single one."""
    first, last = surface.maturities[[0, -1]]
    if first == last:
        first, last = 0.5 * first, 1.5 * last
    return np.asarray(np.linspace(first**0.5, last**0.5, count) ** 2)


def _draw_smiles(ax: Axes, surface: Surface, listed: Array, colours: Array) -> None:
    for T, colour in zip(listed, colours, strict=True):
        k = surface.log_strike(np.linspace(-3.5, 2.5, 121), T)
        ax.plot(k, 100.0 * surface.iv(k, T), color=colour, label=format_maturity(T), linewidth=1.4)
    low, high = ax.get_ylim()
    if high - low < 1.0:  # a flat smile is a line, not its rounding
        middle = 0.5 * (low + high)
        ax.set_ylim(middle - 0.5, middle + 0.5)
    ax.set(title="Smiles", xlabel="log-moneyness k", ylabel="implied volatility, %")
    ax.legend(fontsize=7, ncols=2, frameon=False)
    ax.grid(alpha=0.25)


def _sample_volatilities(surface: Surface) -> tuple[Array, Array, Array]:
    """Gaussian coordinates, maturities and volatilities on a mesh with one row per maturity."""
    T = _space_maturities(surface, 60)[:, None]
    coordinates = np.linspace(-3.0, 2.0, 61)
    return (
        np.broadcast_to(coordinates, (60, 61)),
        T,
        surface.iv(surface.log_strike(coordinates, T), T),
    )


def _draw_three_d(ax: Any, surface: Surface) -> None:  # matplotlib has no types for 3D axes
    coordinates, T, iv = _sample_volatilities(surface)
    root = np.broadcast_to(np.sqrt(T), coordinates.shape)
    ax.plot_surface(
        coordinates, root, 100.0 * iv, cmap=_COLOUR_MAP, linewidth=0, rcount=60, ccount=61
    )
    ax.set(title="Implied volatility, %", xlabel="Gaussian percentile z", ylabel="√T, years")
    ax.view_init(elev=24, azim=-55)


def _draw_contours(figure: Figure, ax: Axes, surface: Surface) -> None:
    coordinates, T, iv = _sample_volatilities(surface)
    root = np.broadcast_to(np.sqrt(T), coordinates.shape)
    filled = ax.contourf(coordinates, root, 100.0 * iv, levels=24, cmap=_COLOUR_MAP)
    ax.contour(coordinates, root, 100.0 * iv, levels=12, colors="white", linewidths=0.4)
    figure.colorbar(filled, ax=ax, label="implied volatility, %")
    ax.set(title="Contours", xlabel="Gaussian percentile z", ylabel="√T, years")


def _draw_densities(ax: Axes, surface: Surface, listed: Array, colours: Array) -> None:
    for T, colour in zip(listed, colours, strict=True):
        k = surface.log_strike(np.linspace(-4.0, 3.5, 301), T)
        ax.plot(np.exp(k), surface.density(k, T), color=colour, linewidth=1.2)
    ax.set(title="Risk-neutral densities", xlabel="moneyness K/F", ylabel="density")
    ax.set_yscale("log")
    ax.set_ylim(bottom=1e-3)
    ax.grid(alpha=0.25)


def _draw_total_variance(ax: Axes, surface: Surface, listed: Array, colours: Array) -> None:
    low, high = surface.log_strike(np.array([-2.5, 2.0]), listed[-1])
    k = np.linspace(low, high, 201)
    for T, colour in zip(listed, colours, strict=True):
        inside = np.abs(surface.z(k, T)) < 6.0  # further out a short smile is extrapolation
        ax.plot(k[inside], surface.total_variance(k[inside], T), color=colour, linewidth=1.2)
    ax.set(title="Total variance σ²T", xlabel="log-moneyness k", ylabel="σ²T")
    ax.grid(alpha=0.25)


def _draw_term_structure(ax: Axes, surface: Surface) -> None:
    T = _space_maturities(surface, 200)
    ax.plot(T, INDEX_POINTS * np.sqrt(surface.variance_swap(T)), label="variance swap √(W/T)")
    ax.plot(T, INDEX_POINTS * np.sqrt(surface.forward_variance(T)), label="30-day forward")
    ax.plot(T, 100.0 * surface.iv(0.0, T), label="at the money", linestyle="--")
    listed = INDEX_POINTS * np.sqrt(surface.variance_swap(surface.maturities))
    ax.plot(surface.maturities, listed, ".", color="C0")
    ax.set(title="Term structure", xlabel="T, years", ylabel="volatility, %")
    ax.legend(fontsize=8, frameon=False)
    ax.grid(alpha=0.25)
