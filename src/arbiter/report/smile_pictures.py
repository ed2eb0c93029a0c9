"""The smiles of all expiries as one static picture.

All panels are drawn in one axes, a few artists for all of them: axes of their own would cost
twenty times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.report import plot_style
from arbiter.report.number_format import escape_dollars, format_days, format_percent
from arbiter.report.picture_style import TITLE_INCHES, new_figure, place_axes
from arbiter.report.smile_curves import SmileReadings
from arbiter.report.smile_panels import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    SmilePanel,
    lay_out_smiles,
)

_MAX_SMILES_PER_ROW = 5
_PANEL_WIDTH, _PANEL_HEIGHT = 2.7, 2.0  # inches, with labels
_LABEL_HEIGHT = 0.32  # inches, above the frame
_MARGIN, _RIGHT_MARGIN = 0.2, 0.12  # inches, beside the panels
_TICK_LENGTH, _TICK_FONT, _LABEL_FONT = 14.0, 7.5, 8.0  # units of a panel; points
_FRAME_LOW, _FRAME_HIGH = float(TOP), float(HEIGHT - BOTTOM)


@dataclass(frozen=True)
class _Place:
    """Where a panel lies on the sheet, and the inches of its units."""

    left: float
    top: float
    across: float
    down: float

    def locate(self, x: ArrayLike, y: ArrayLike) -> Array:
        """``(…, 2)`` inches on the sheet of points in units of the panel."""
        return np.stack(
            [self.left + self.across * np.asarray(x), self.top + self.down * np.asarray(y)], axis=-1
        )


def draw_smiles(readings: SmileReadings, title: str = "Smiles") -> Figure:
    """Every smile with its bid-ask bars, one panel an expiry."""
    count = readings.T.size
    columns = min(_MAX_SMILES_PER_ROW, count)
    rows = -(-count // columns)
    width = max(_PANEL_WIDTH * columns, 5.0)
    height = 0.7 + _PANEL_HEIGHT * rows
    figure = new_figure(width, height, title)
    ax = place_axes(figure, 0.0, 0.0, width, height)
    ax.set(xlim=(0.0, width), ylim=(height, 0.0))
    ax.set_axis_off()
    wide = (width - _MARGIN - _RIGHT_MARGIN) / columns
    places = [
        _Place(
            _MARGIN + wide * (i % columns),
            TITLE_INCHES + _PANEL_HEIGHT * (i // columns) + _LABEL_HEIGHT,
            wide / WIDTH,
            (_PANEL_HEIGHT - _LABEL_HEIGHT) / HEIGHT,
        )
        for i in range(count)
    ]
    panels = list(zip(places, lay_out_smiles(readings), strict=True))
    _draw_frames(ax, panels)
    _draw_quotes_and_curves(ax, panels)
    _draw_labels(ax, readings, places)
    across = "strike" if readings.in_currency else "log-moneyness k"
    text: Any = {"fontsize": 9, "color": plot_style.GREY, "ha": "center", "va": "center"}
    ax.text(0.5 * width, height - 0.15, across, **text)
    ax.text(0.12, 0.5 * height, "implied volatility, %", rotation=90, **text)
    return figure


def _draw_frames(ax: Axes, panels: list[tuple[_Place, SmilePanel]]) -> None:
    """Grid, axes and ticks with their texts."""
    right = WIDTH - RIGHT
    grid, frame = [], []
    for place, panel in panels:
        corners = [LEFT, LEFT, right], [_FRAME_LOW, _FRAME_HIGH, _FRAME_HIGH]
        frame.append(place.locate(*corners))
        for x, text in panel.across:
            grid.append(place.locate([x, x], [_FRAME_LOW, _FRAME_HIGH]))
            frame.append(place.locate([x, x], [_FRAME_HIGH, _FRAME_HIGH + _TICK_LENGTH]))
            _write_tick(ax, frame[-1][1], text, ha="center", va="top")
        for y, text in panel.up:
            grid.append(place.locate([LEFT, right], [y, y]))
            frame.append(place.locate([LEFT - _TICK_LENGTH, LEFT], [y, y]))
            _write_tick(ax, frame[-1][0], text, ha="right", va="center_baseline")
    _draw_as_one(ax, grid, color=plot_style.LINE, linewidth=0.8)
    _draw_as_one(ax, frame, color="#b8bfc6", linewidth=0.8)


def _write_tick(ax: Axes, at: Array, text: str, *, ha: Any, va: Any) -> None:
    x, y = (at[0], at[1] + 0.03) if va == "top" else (at[0] - 0.03, at[1])
    ax.text(x, y, text, fontsize=_TICK_FONT, color=plot_style.GREY, ha=ha, va=va)


def _draw_quotes_and_curves(ax: Axes, panels: list[tuple[_Place, SmilePanel]]) -> None:
    for colour, inside in (("#8b96a1", True), (plot_style.VERMILION, False)):
        bars = []
        for place, panel in panels:
            x, *ends = panel.bars[:, panel.inside == inside]
            low, high = np.clip(ends, _FRAME_LOW, _FRAME_HIGH)
            gap = np.full(x.size, np.nan)
            bars.append(place.locate(np.stack([x, x, gap], 1), np.stack([low, high, gap], 1)))
        lines = np.concatenate(bars).reshape(-1, 2)
        ax.add_line(Line2D(*lines.T, color=colour, linewidth=0.8))
    bands = [
        place.locate(*_outline_band(panel.curve[0], panel.band))
        for place, panel in panels
        if panel.band is not None
    ]
    ax.add_collection(PolyCollection(bands, facecolors=plot_style.BLUE, alpha=0.16, linewidths=0))
    beyond = [
        place.locate(*cut_line(side, _FRAME_LOW, _FRAME_HIGH))
        for place, panel in panels
        for side in panel.beyond
    ]
    _draw_as_one(ax, beyond, color=plot_style.BLUE, linewidth=0.9, linestyle=":")
    between = [
        place.locate(*cut_line(panel.curve[:, panel.between], _FRAME_LOW, _FRAME_HIGH))
        for place, panel in panels
    ]
    _draw_as_one(ax, between, color=plot_style.BLUE, linewidth=1.3)


def _draw_as_one(ax: Axes, lines: list[Array], **style: Any) -> None:
    """Draw lines ``(p, 2)`` of one style as one artist, with a gap after each."""
    gap = np.full((1, 2), np.nan)
    points = np.concatenate([part for line in lines for part in (line, gap)])
    ax.add_line(Line2D(*points.T, **style))


def _draw_labels(ax: Axes, readings: SmileReadings, places: list[_Place]) -> None:
    """Name, time to expiry and share inside bid-ask above every panel."""
    for i, place in enumerate(places):
        note = (
            f"{format_days(DAYS_PER_YEAR * float(readings.T[i]))}, "
            f"{format_percent(readings.share_inside[i], 1)} inside"
        )
        label = f"{escape_dollars(readings.quotes.labels[i])}\n{note}"
        x = place.left + place.across * LEFT
        ax.text(x, place.top, label, fontsize=_LABEL_FONT, va="bottom")


def _outline_band(x: Array, band: Array) -> Array:
    """``(2, 2 p)`` the outline of a band inside the frame."""
    good = np.isfinite(band).all(axis=0)
    low, high = np.clip(band[:, good], _FRAME_LOW, _FRAME_HIGH)
    return np.array([np.r_[x[good], x[good][::-1]], np.r_[low, high[::-1]]])


def cut_line(line: Array, low: float, high: float) -> Array:
    """The parts of a line ``(2, p)`` between two heights, ended there; NaN outside."""
    for level in (low, high):
        x, y = line
        at = np.flatnonzero((y[:-1] - level) * (y[1:] - level) < 0.0)
        share = (level - y[at]) / (y[at + 1] - y[at])
        crossing = np.stack([x[at] + share * (x[at + 1] - x[at]), np.full(at.size, level)])
        line = np.insert(line, at + 1, crossing, axis=1)
    outside = (line[1] < low) | (line[1] > high)
    return np.where(outside, np.nan, line)
