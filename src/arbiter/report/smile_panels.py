"""Small multiples: every smile laid out in a panel of its own, for the page and for the pictures.

A panel has its own units. The page writes them as SVG, the pictures scale them to inches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import Array
from arbiter.report.number_format import choose_ticks, format_number
from arbiter.report.smile_curves import Mask, SmileReadings

# Units of a panel: a quarter of a pixel of the page, so that whole numbers are fine enough.
WIDTH, HEIGHT = 1000, 640
LEFT, RIGHT, TOP, BOTTOM = 120, 20, 20, 90
_DIGIT_WIDTH = 23  # of a tick's text
_MAX_TICKS = 5


@dataclass(frozen=True, eq=False)
class SmilePanel:
    """One smile in the units of its panel: x grows to the right, y downwards.

    Volatilities far outside the frame lie a little outside it; who draws them clips them.

    Attributes:
        across: Ticks of the strike axis, place and text.
        up: Ticks of the volatility axis, place and text.
        forward: Place of the forward on the strike axis.
        bars: ``(3, m)`` place, bid and ask of the quotes.
        inside: ``(m,)`` which quotes contain the model.
        curve: ``(2, p)`` the fitted smile.
        band: ``(2, p)`` two standard errors below and above it; None where unknown.
        between: The part of the curve that lies between the outermost quotes.
    """

    across: list[tuple[float, str]]
    up: list[tuple[float, str]]
    forward: float
    bars: Array
    inside: Mask
    curve: Array
    band: Array | None
    between: slice

    @property
    def beyond(self) -> tuple[Array, Array]:
        """The curve past the quotes, on either side; each begins or ends at a quote."""
        return self.curve[:, : self.between.start + 1], self.curve[:, self.between.stop - 1 :]


def lay_out_smiles(readings: SmileReadings) -> list[SmilePanel]:
    """One panel per expiry, in the order of the expiries."""
    return [_lay_out_smile(readings, i) for i in range(readings.T.size)]


def _lay_out_smile(readings: SmileReadings, i: int) -> SmilePanel:
    quotes = readings.quotes
    part = slice(readings.quote_offsets[i], readings.quote_offsets[i + 1])
    k, iv = readings.smile_k[i], readings.smile_iv[i]
    low, high = readings.smile_range[i]
    ends = readings.strike_axis(i, k[[0, -1]])
    width = max(float(ends[1] - ends[0]), 1e-9)

    def across(at: Array) -> Array:
        share = (readings.strike_axis(i, at) - ends[0]) / width
        return np.asarray(LEFT + (WIDTH - LEFT - RIGHT) * share)

    def up(at: Array) -> Array:
        share = np.clip((at - low) / (high - low), -0.2, 1.2)
        return np.asarray(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share)

    error = None if readings.smile_error is None else 2.0 * readings.smile_error[i]
    return SmilePanel(
        across=_place_strikes(readings, i, across),
        up=[
            (float(up(np.array(tick / 100.0))), f"{tick:g}")
            for tick in choose_ticks(100 * low, 100 * high, _MAX_TICKS)
        ],
        forward=float(across(np.zeros(()))),
        bars=np.stack([across(quotes.k[part]), up(quotes.iv_bid[part]), up(quotes.iv_ask[part])]),
        inside=readings.inside[part],
        curve=np.stack([across(k), up(iv)]),
        band=None if error is None else np.stack([up(iv - error), up(iv + error)]),
        between=readings.quoted_points,
    )


def _place_strikes(
    readings: SmileReadings, i: int, across: Callable[[Array], Array]
) -> list[tuple[float, str]]:
    """Ticks of the strike axis at round numbers: place and text, as many as have room."""
    ends = readings.strike_axis(i, readings.smile_k[i][[0, -1]])
    at = choose_ticks(float(ends[0]), float(ends[1]), _MAX_TICKS)
    digits = 0 if all(t == round(t) for t in at) else 2
    k = np.log(np.array(at) / readings.quotes.forwards[i]) if readings.in_currency else np.array(at)
    found: list[tuple[float, str]] = []
    for place, value in zip(across(k).tolist(), at, strict=True):
        text = format_number(value, digits)
        # a label is centred on its tick: the next one needs room for two halves
        if not found or place - found[-1][0] >= _DIGIT_WIDTH * (
            0.5 * len(text + found[-1][1]) + 1.0
        ):
            found.append((place, text))
    return found
