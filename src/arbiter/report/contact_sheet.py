"""The contact sheet of the report: one small SVG drawing per smile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.report.number_format import choose_ticks, format_days, format_number, format_percent
from arbiter.report.smile_curves import SmileReadings

# Units of a drawing: a quarter of a pixel, so that whole numbers are fine enough.
WIDTH, HEIGHT = 1000, 640
LEFT, RIGHT, TOP, BOTTOM = 120, 20, 20, 90
DIGIT_WIDTH = 23  # width of a digit


@dataclass(frozen=True)
class Drawing:
    """One smile of the sheet: texts, and paths in the drawing's own units.

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
    return [_draw_smile(readings, i) for i in range(readings.T.size)]


def _draw_smile(readings: SmileReadings, i: int) -> Drawing:
    quotes = readings.quotes
    part = slice(readings.quote_offsets[i], readings.quote_offsets[i + 1])
    k, iv = readings.smile_k[i], readings.smile_iv[i]
    low, high = readings.smile_range[i]
    ends = readings.strike_axis(i, k[[0, -1]])
    width = max(float(ends[1] - ends[0]), 1e-9)

    def across(at: Array) -> Array:
        share = (readings.strike_axis(i, at) - ends[0]) / width
        return np.asarray(np.round(LEFT + (WIDTH - LEFT - RIGHT) * share))

    def up(at: Array) -> Array:
        share = np.clip((at - low) / (high - low), -0.2, 1.2)  # clipped to the frame by the page
        return np.asarray(np.round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share))

    x, y = across(k), up(iv)
    inside = readings.inside[part]
    bars = across(quotes.k[part]), up(quotes.iv_bid[part]), up(quotes.iv_ask[part])
    error = None if readings.smile_error is None else readings.smile_error[i]
    between = readings.quoted_points
    days = float(DAYS_PER_YEAR * readings.T[i])
    return Drawing(
        label=quotes.labels[i],
        note=(
            f"{format_days(days)} · {format_percent(readings.share_inside[i], 1)} of "
            f"{part.stop - part.start:,}"
        ),
        across=_strike_ticks(readings, i, across),
        up=[
            (int(up(np.array(t / 100.0))), f"{t:g}") for t in choose_ticks(100 * low, 100 * high, 5)
        ],
        forward=int(across(np.zeros(()))),
        bars=_bars_path(*(values[inside] for values in bars)),
        outside=_bars_path(*(values[~inside] for values in bars)),
        band="" if error is None else _band_path(x, up(iv - 2.0 * error), up(iv + 2.0 * error)),
        curve=_line_path(x[between], y[between]),
        beyond=_line_path(x[: between.start + 1], y[: between.start + 1])
        + _line_path(x[between.stop - 1 :], y[between.stop - 1 :]),
    )


def _strike_ticks(
    readings: SmileReadings, i: int, across: Callable[[Array], Array]
) -> list[tuple[int, str]]:
    """Ticks of the strike axis at round numbers: place and text, as many as have room."""
    ends = readings.strike_axis(i, readings.smile_k[i][[0, -1]])
    at = choose_ticks(float(ends[0]), float(ends[1]), 5)
    digits = 0 if all(t == round(t) for t in at) else 2
    k = np.log(np.array(at) / readings.quotes.forwards[i]) if readings.in_currency else np.array(at)
    found: list[tuple[int, str]] = []
    for place, value in zip(across(k).tolist(), at, strict=True):
        text = format_number(value, digits)
        # a label is centred on its tick: the next one needs room for two halves
        if not found or place - found[-1][0] >= DIGIT_WIDTH * (
            0.5 * len(text + found[-1][1]) + 1.0
        ):
            found.append((int(place), text))
    return found


def _bars_path(x: Array, bid: Array, ask: Array) -> str:
    columns = (values.astype(np.int64).tolist() for values in (x, bid, ask))
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
