"""The contact sheet of the page: one small SVG drawing per smile."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.report.number_format import format_days, format_percent
from arbiter.report.smile_curves import SmileReadings
from arbiter.report.smile_panels import SmilePanel, lay_out_smiles


@dataclass(frozen=True)
class Drawing:
    """One smile of the sheet: texts, and SVG paths in the units of a panel.

    Attributes:
        label: Name of the expiry.
        note: Time to expiry, quotes and share inside.
        across: Ticks of the strike axis, place and text.
        up: Ticks of the volatility axis, place and text.
        forward: Place of the forward on the strike axis.
        bars: Bid-ask of the quotes that contain the model.
        outside: Bid-ask of the quotes that do not.
        band: Two standard errors on either side of the curve; empty where unknown.
        curve: The fitted smile between its quotes.
        beyond: The fitted smile past its quotes.
    """

    label: str
    note: str
    across: list[tuple[int, str]]
    up: list[tuple[int, str]]
    forward: int
    bars: str
    outside: str
    band: str
    curve: str
    beyond: str


def draw_smiles(readings: SmileReadings) -> list[Drawing]:
    """One drawing per expiry, in the order of the expiries."""
    return [_draw_smile(readings, i, panel) for i, panel in enumerate(lay_out_smiles(readings))]


def _draw_smile(readings: SmileReadings, i: int, panel: SmilePanel) -> Drawing:
    days = float(DAYS_PER_YEAR * readings.T[i])
    return Drawing(
        label=readings.quotes.labels[i],
        note=(
            f"{format_days(days)} · {format_percent(readings.share_inside[i], 1)} of "
            f"{panel.inside.size:,}"
        ),
        across=_round_places(panel.across),
        up=_round_places(panel.up),
        forward=round(panel.forward),
        bars=_bars_path(panel.bars[:, panel.inside]),
        outside=_bars_path(panel.bars[:, ~panel.inside]),
        band="" if panel.band is None else _band_path(panel.curve[0], *panel.band),
        curve=_line_path(*panel.curve[:, panel.between]),
        beyond="".join(_line_path(*side) for side in panel.beyond),
    )


def _round_places(ticks: list[tuple[float, str]]) -> list[tuple[int, str]]:
    return [(round(place), text) for place, text in ticks]


def _bars_path(bars: Array) -> str:
    columns = np.round(bars).astype(np.int64).tolist()
    return "".join(f"M{a} {b}V{c}" for a, b, c in zip(*columns, strict=True))


def _line_path(x: Array, y: Array) -> str:
    """An SVG path through the points; NaN breaks the line."""
    pieces, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isnan(b):
            pen = "M"
            continue
        pieces.append(f"{pen}{a:.0f} {b:.0f}")
        pen = "L"
    return "".join(pieces)


def _band_path(x: Array, low: Array, high: Array) -> str:
    good = np.isfinite(low) & np.isfinite(high)
    if not good.any():
        return ""
    line = _line_path(np.r_[x[good], x[good][::-1]], np.r_[low[good], high[good][::-1]])
    return f"{line}Z"
