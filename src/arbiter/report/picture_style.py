"""Frame of the static pictures: style, axes at fixed places in inches, lines, the maturity bar.

Fixed places cost half of what matplotlib's own search for a layout does, and draw everything once.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.report import plot_style
from arbiter.report.smile_curves import SmileReadings

STYLE: Any = {
    "axes.axisbelow": True,
    "font.size": 10.0,
    "axes.edgecolor": "#b8bfc6",
    "axes.grid": True,
    "axes.labelcolor": plot_style.GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "grid.color": plot_style.LINE,
    "legend.frameon": False,
    "text.color": plot_style.INK,
    "xtick.color": plot_style.GREY,
    "ytick.color": plot_style.GREY,
    "text.hinting": "no_hinting",  # a quarter of the time of a picture with many texts
}
TITLE_INCHES = 0.4  # room above the axes
_DPI = 130
_PNG_COMPRESSION = 3  # of 9: a tenth larger than the most, in a third of the time


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure of so many inches under its title."""
    figure = Figure(figsize=(width, height))
    figure.text(0.14 / width, 1.0 - 0.1 / height, title, fontsize=13.0, fontweight="bold", va="top")
    return figure


def place_axes(
    figure: Figure, left: float, bottom: float, width: float, height: float, **more: Any
) -> Axes:
    """Axes at a place given in inches from the lower left corner."""
    whole_width, whole_height = figure.get_size_inches()
    share = (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    axes: Axes = figure.add_axes(share, **more)
    return axes


def draw_lines(ax: Axes, x: Iterable[Array], y: Iterable[Array], **style: Any) -> None:
    """Many lines as one artist; the axes are scaled to show them."""
    lines = [np.column_stack(pair) for pair in zip(x, y, strict=True)]
    ax.add_collection(LineCollection(lines, **style))
    ax.autoscale_view()


def maturity_colormap() -> LinearSegmentedColormap:
    """Colours of maturities from the shortest to the longest."""
    return LinearSegmentedColormap.from_list(
        "maturity", mpl.colormaps["viridis"](np.linspace(0.0, plot_style.VIRIDIS_END, 64))
    )


def maturity_colours(readings: SmileReadings) -> Array:
    """``(L, 4)`` the colour of each expiry."""
    return mpl.colormaps["viridis"](plot_style.VIRIDIS_END * readings.maturity_shade)


def draw_maturity_bar(figure: Figure, ax: Axes, readings: SmileReadings) -> None:
    """Draw which colour is which maturity, in an axes of its own."""
    if readings.T.size < 2:
        ax.remove()
        return
    points = mpl.cm.ScalarMappable(Normalize(0.0, 1.0), maturity_colormap())
    days, texts = plot_style.time_ticks(readings.T[0], readings.T[-1], np.log, 9)
    low, high = np.log(readings.T[[0, -1]])
    bar = figure.colorbar(points, cax=ax)
    places = np.clip((np.log(np.array(days) / DAYS_PER_YEAR) - low) / (high - low), 0.0, 1.0)
    bar.set_ticks(list(places), labels=texts)


def encode_png(figure: Figure) -> bytes:
    """The figure as a PNG file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=_DPI,
        metadata={"Software": None},
        pil_kwargs={"compress_level": _PNG_COMPRESSION},
    )
    return buffer.getvalue()
