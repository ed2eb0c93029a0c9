"""Style of the figures: colours, fonts, axes and ticks.

Maturities are coloured along viridis from dark (short) to green (long). The model is blue, and
quotes outside bid-ask are vermilion. Colour-blind readers can tell all of them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike
from plotly.colors import sample_colorscale

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.report.number_format import format_days, round_for_json

BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#00795c", "#8a4f9e"
INK, GREY, LINE = "#1c2126", "#66707a", "#e3e6e9"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
VIRIDIS_END = 0.88  # yellow on white cannot be read
DIVERGING_COLOURS = ["#2166ac", "#92c5de", "#f4f4f2", "#f4a55f", "#b35806"]

_TICK_DAYS = {
    "1 d": 1, "2 d": 2, "4 d": 4, "1 w": 7, "2 w": 14, "1 m": 30.4, "2 m": 60.9, "3 m": 91.3,
    "6 m": 182.6, "1 y": 365, "2 y": 730, "3 y": 1095, "5 y": 1825, "10 y": 3650,
}  # fmt: skip

_TICK_VOLATILITIES_PERCENT = [
    1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 30, 35, 40, 50, 60, 70, 80,
    100, 120, 150, 200, 300,
]  # fmt: skip

Figure = dict[str, Any]

LEGEND_ABOVE: Figure = {
    "orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0.0, "font": {"size": 12},
}  # fmt: skip


def maturity_colours(place: Array) -> list[str]:
    """CSS colours of maturities at places from 0 (short) to 1 (long)."""
    return [str(colour) for colour in sample_colorscale("Viridis", list(VIRIDIS_END * place))]


def time_ticks(
    first: float, last: float, scale: Callable[[float], float], most: int
) -> tuple[list[float], list[str]]:
    """Familiar maturities between two (years), thinned to those that have room.

    Args:
        first: Shortest maturity.
        last: Longest maturity.
        scale: Where a maturity lies on the axis.
        most: How many ticks have room.

    Returns:
        Days and texts.
    """
    low, high = float(scale(first)), float(scale(last))
    kept: dict[str, float] = {}
    for text, days in reversed(_TICK_DAYS.items()):
        place = float(scale(days / DAYS_PER_YEAR))
        inside = 0.99 * first <= days / DAYS_PER_YEAR <= 1.01 * last
        if inside and (
            not kept
            or float(scale(min(kept.values()) / DAYS_PER_YEAR)) - place >= (high - low) / most
        ):
            kept[text] = days
    if not kept:
        return [first * DAYS_PER_YEAR], [format_days(first * DAYS_PER_YEAR)]
    return list(kept.values()), list(kept)


def volatility_ticks(low: float, high: float) -> list[float]:
    """Round volatilities in percent between two, as many as a logarithmic scale has room for."""
    marks: list[float] = []
    for mark in _TICK_VOLATILITIES_PERCENT:
        room = not marks or math.log(mark / marks[-1]) > math.log(high / low) / 16.0
        if low <= mark <= high and room:
            marks.append(mark)
    return marks


def _named_trace(
    mode: str, name: str, x: Sequence[float | str], y: ArrayLike, **parts: object
) -> Figure:
    """A scatter trace with its name; ``parts`` are added at the end."""
    return {
        "type": "scatter", "mode": mode, "name": name, "x": x, "y": round_for_json(y, 3), **parts,
    }  # fmt: skip


def line_trace(
    name: str,
    x: Sequence[float | str],
    y: ArrayLike,
    colour: str,
    dash: str = "solid",
    width: float = 2.0,
) -> Figure:
    """A named line; ``x`` in days, ``y`` in percent."""
    line = {"color": colour, "width": width, "dash": dash}
    hover = "%{y:.2f} % at %{x:.0f} days<extra>%{fullData.name}</extra>"
    return _named_trace("lines", name, x, y, line=line, hovertemplate=hover)


def marker_trace(
    name: str,
    x: Sequence[float | str],
    y: ArrayLike,
    colour: str,
    symbol: str = "circle",
    size: float = 7.0,
) -> Figure:
    """Named points; ``x`` in days, ``y`` in percent."""
    marker = {"color": colour, "symbol": symbol, "size": size}
    hover = "%{y:.2f} at %{x:.1f} days<extra>%{fullData.name}</extra>"
    return _named_trace("markers", name, x, y, marker=marker, hovertemplate=hover)


def figure_layout(height: int, **parts: Any) -> Figure:
    """The plotly layout of a figure; ``parts`` are added to it or replace its fields."""
    hover = {"family": FONT, "size": 12, "color": INK}
    whole: Figure = {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "margin": {"l": 64, "r": 12, "t": 30, "b": 48},
        "showlegend": False,
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": "#b8bfc6", "font": hover},
        "hovermode": "closest",
    }  # fmt: skip
    return whole | parts


def axis_layout(title: str | None, **parts: Any) -> Figure:
    """The layout of an axis; ``parts`` are added to it or replace its fields."""
    whole: Figure = {
        "gridcolor": LINE, "linecolor": "#b8bfc6", "zeroline": False, "zerolinecolor": "#b8bfc6",
        "ticks": "outside", "ticklen": 4, "tickcolor": "#b8bfc6", "automargin": True,
    }  # fmt: skip
    if title is not None:
        whole["title"] = {"text": title, "standoff": 8, "font": {"size": 12, "color": GREY}}
    return whole | parts


def scene_axis_layout(title: str) -> Figure:
    """The layout of an axis of a three-dimensional figure."""
    return {
        "title": {"text": title, "font": {"size": 12, "color": GREY}},
        "backgroundcolor": "#ffffff", "gridcolor": LINE, "zerolinecolor": LINE,
        "tickfont": {"size": 11}, "showspikes": False,
    }  # fmt: skip


def wire_contours(values: Array) -> Figure:
    """Thin lines on a surface, a dozen along one axis."""
    step = float((values[-1] - values[0]) / 12.0)
    return {
        "show": True, "start": float(values[0]), "end": float(values[-1]), "size": step,
        "color": "#8fa0b0", "width": 1, "highlight": False,
    }  # fmt: skip


def colour_bar_layout(title: str, **parts: Any) -> Figure:
    """The layout of a colour bar; ``parts`` are added to it or replace its fields."""
    bar: Figure = {
        "title": {"text": title, "side": "top", "font": {"size": 12, "color": GREY}},
        "thickness": 10, "outlinewidth": 0, "tickfont": {"size": 11}, "ticks": "outside",
        "ticklen": 3, "len": 0.94,
    }  # fmt: skip
    return bar | parts
