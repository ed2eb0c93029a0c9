"""Figures of an evaluation: errors by maturity and moneyness, and their histogram over surfaces."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.files import open_whole
from arbiter.report.surface_picture import format_maturity
from arbiter_lab.evaluation.scores import MONEYNESS_EDGES

_COLOURS = ("#0072b2", "#00795c", "#d55e00", "#8a4f9e")  # told apart by colour-blind readers
_TICKS = (0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0, 200.0, 500.0)


def draw_errors(
    facts: dict[str, Any], families: list[str], path: str | PathLike[str] | None = None
) -> Figure:
    """Draw for each method a heat map by maturity and moneyness, and a histogram by family.

    Args:
        facts: The value of :meth:`Evaluation.to_dict`.
        families: The family of each surface, in the order of the evaluation.
        path: PNG file to write; none if left out.
    """
    methods = facts["methods"]
    figure = Figure(figsize=(14.0, 0.9 + 4.2 * len(methods)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(methods), 2, squeeze=False, width_ratios=[1.35, 1.0])
    heats = {
        name: np.array(found["rmse_bp_by_maturity_and_moneyness"], dtype=np.float64)
        for name, found in methods.items()
    }
    seen = np.concatenate([heat[np.isfinite(heat)] for heat in heats.values()] or [np.ones(1)])
    scale = _log_range(seen)
    every = [_surface_errors(found) for found in methods.values()]
    some = np.concatenate([sizes[np.isfinite(sizes)] for sizes in every])
    low, high = _log_range(some)
    edges = np.geomspace(low, high, 41)
    for row, (name, found) in zip(grid, methods.items(), strict=True):
        days = [entry["days"] for entry in found["by_maturity"]]
        _draw_heat_map(figure, row[0], heats[name], days, scale)
        row[0].set_title(
            f"{name}: RMSE in basis points, {_format_number(found['rmse_bp'])} over all points"
        )
        _histogram(row[1], _surface_errors(found), np.array(families), edges)
        nas = f"NAS 1 on {found['nas_one']:,} of {found['surfaces']:,}"
        row[1].set_title(f"{name}: surfaces by their RMSE; {nas}")
    figure.suptitle(
        f"{facts.get('bench', 'evaluation')}: {facts['surfaces']:,} surfaces, "
        f"{facts['quotes']:,} quotes with {facts['noise_bp']:.1f} bp of noise"
    )
    if path is not None:
        with open_whole(path) as file:
            figure.savefig(file, format="png", dpi=110)
    return figure


def _draw_heat_map(
    figure: Figure, ax: Axes, heat: Array, days: list[float], scale: tuple[float, float]
) -> None:
    norm = LogNorm(*scale)
    shown = ax.pcolormesh(np.ma.masked_invalid(heat), cmap="viridis", norm=norm)
    for (i, j), value in np.ndenumerate(heat):
        text = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
        dark = np.isfinite(value) and norm(value) < 0.6
        ink = "white" if dark else "black"
        text = text if np.isfinite(value) else "–"
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7, color=ink)
    ax.set_xticks(np.arange(1, MONEYNESS_EDGES.size + 1), [f"{edge:g}" for edge in MONEYNESS_EDGES])
    ax.set_yticks(
        np.arange(len(days)) + 0.5, [format_maturity(day / DAYS_PER_YEAR) for day in days]
    )
    ax.invert_yaxis()
    ax.set(xlabel="moneyness in standard deviations (puts on the left)", ylabel="maturity")
    bar = figure.colorbar(shown, ax=ax, label="bp")
    bar.ax.yaxis.set_major_locator(FixedLocator([t for t in _TICKS if scale[0] <= t <= scale[1]]))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())


def _histogram(ax: Axes, sizes: Array, families: NDArray[np.str_], edges: Array) -> None:
    names = sorted(set(families.tolist()))
    for name, colour in zip(names, _COLOURS * len(names), strict=False):
        own = sizes[families == name]
        found = own[np.isfinite(own)]
        middle = f"median {np.median(found):.1f}" if found.size else "none"
        ax.hist(
            found, bins=edges.tolist(), histtype="stepfilled", alpha=0.35, color=colour,
            edgecolor=colour, linewidth=1.2, label=f"{name}: {middle} bp",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator([t for t in _TICKS if edges[0] <= t <= edges[-1]]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="RMSE of a surface, basis points", ylabel="surfaces", xlim=(edges[0], edges[-1]))
    ax.legend(fontsize=8, frameon=False)
    ax.grid(alpha=0.25)


def _surface_errors(found: dict[str, Any]) -> Array:
    return np.array(found["surface_rmse_bp"], dtype=np.float64)


def _log_range(values: Array) -> tuple[float, float]:
    """Return the limits of a logarithmic axis that contains the values with a margin."""
    if values.size == 0:
        return 1.0, 10.0
    low, high = max(float(values.min()), 1e-3), max(float(values.max()), 2e-3)
    return 0.9 * low, max(1.1 * high, 2.0 * low)


def _format_number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
