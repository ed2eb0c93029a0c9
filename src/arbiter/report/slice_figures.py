"""Figures with one line per expiry: total variance and densities, coloured by maturity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR
from arbiter.report import plot_style
from arbiter.report.curves import Readings
from arbiter.report.number_format import escape_label, round_for_json
from arbiter.report.plot_style import Figure


def draw_total_variance(readings: Readings) -> Figure:
    """Total variance of every expiry; free of calendar arbitrage, the lines never cross."""
    variance = readings.smile_iv**2 * readings.T[:, None]
    quoted = np.zeros(variance.shape, dtype=bool)
    quoted[:, readings.quoted_points] = True
    lines = _maturity_traces(
        readings, round_for_json(readings.smile_k, 4), round_for_json(variance, 7), quoted,
        "k %{x:.3f}<br>σ²T %{y:.5f}",
    )  # fmt: skip
    shown = variance[:, readings.quoted_points]
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    ends = np.log10([0.85 * low, 1.2 * high])
    log = {
        "yaxis": {
            "type": "log",
            "range": round_for_json(ends, 4),
            "tickformat": "~g",
            "dtick": "D2",
        }
    }
    straight = {"yaxis": {"type": "linear", "range": [0.0, round(1.05 * high, 6)]}}
    frame = plot_style.figure_layout(
        500,
        xaxis=plot_style.axis_layout(
            "log-moneyness k", zeroline=True, range=_initial_range(readings)
        ),
        yaxis=plot_style.axis_layout("total variance σ²T"),
    )
    return {
        "data": [*lines, _maturity_bar(readings)],
        "layout": frame,
        "views": [{"label": "Logarithmic", "layout": log}, {"label": "Linear", "layout": straight}],
    }


def draw_densities(readings: Readings) -> Figure:
    """Risk-neutral densities, in standard deviations or over moneyness."""
    d = readings.densities
    x, y = d.standardised_density
    standard = _maturity_traces(
        readings, round_for_json(x, 3), round_for_json(y, 5), d.quoted,
        "log-return %{x:.2f} standard deviations<br>density %{y:.4f}",
    )  # fmt: skip
    plain_scale = _maturity_traces(
        readings, round_for_json(np.exp(d.k), 4), round_for_json(d.density, 5), d.quoted,
        "K/F %{x:.3f}<br>density %{y:.4f}",
    )  # fmt: skip
    over = np.exp(d.k)
    bar = _maturity_bar(readings)
    frame = plot_style.figure_layout(
        500,
        xaxis=plot_style.axis_layout("", zeroline=True),
        yaxis=plot_style.axis_layout("density", rangemode="tozero"),
    )
    standardised = "log-return in at-the-money standard deviations"
    in_deviations = {"xaxis": {"title": {"text": standardised}, "range": [-5, 3]}}
    span = [float(np.quantile(over, 0.02)), float(np.quantile(over, 0.98))]
    peak = round(float(np.log10(1.3 * d.density.max())), 3)
    in_moneyness = {
        "xaxis": {"title": {"text": "moneyness K/F"}, "range": round_for_json(span, 3)},
        "yaxis": {"type": "log", "range": [-2, peak], "tickformat": "~g", "dtick": "D2"},
    }  # fmt: skip
    return {
        "data": [],
        "layout": frame,
        "views": [
            {"label": "Standard deviations", "data": [*standard, bar], "layout": in_deviations},
            {"label": "Moneyness", "data": [*plain_scale, bar], "layout": in_moneyness},
        ],
    }


def _initial_range(readings: Readings) -> list[float]:
    """Log-moneyness to show first: the deepest puts of a few expiries are a zoom away."""
    low, high = readings.quoted_range
    ends = float(np.quantile(low, 0.2)), float(np.quantile(high, 0.95))
    margin = 0.05 * (ends[1] - ends[0])
    return [round(ends[0] - margin, 3), round(ends[1] + margin, 3)]


def _maturity_traces(
    readings: Readings,
    x: list[list[float]],
    y: list[list[float]],
    quoted: NDArray[np.bool_],
    hover: str,
) -> list[Figure]:
    """Two traces per expiry: solid between its quotes, dotted and lighter beyond."""
    traces: list[Figure] = []
    colours = plot_style.maturity_colours(readings.maturity_shade)
    for label, colour, row_x, row_y, known in zip(
        readings.quotes.labels, colours, x, y, quoted, strict=True
    ):
        first, last = _known_ends(known)
        # the outermost quoted points belong to both lines, so that they meet
        outer = [[*row[: first + 1], None, *row[last:]] for row in (row_x, row_y)]
        inner = [row[first : last + 1] for row in (row_x, row_y)]
        common = {"type": "scatter", "mode": "lines", "name": escape_label(label)}
        traces += [
            common
            | {
                "x": outer[0],
                "y": outer[1],
                "line": {"color": colour, "width": 1, "dash": "dot"},
                "opacity": 0.55,
                "hoverinfo": "skip",
            },
            common
            | {
                "x": inner[0],
                "y": inner[1],
                "line": {"color": colour, "width": 1.4},
                "hovertemplate": f"<b>%{{fullData.name}}</b><br>{hover}<extra></extra>",
            },
        ]
    return traces


def _known_ends(known: NDArray[np.bool_]) -> tuple[int, int]:
    """First and last point that is known; the middle where a lone quote lies between points."""
    where = np.flatnonzero(known)
    return (int(where[0]), int(where[-1])) if where.size else (known.size // 2, known.size // 2)


def _maturity_bar(readings: Readings) -> Figure:
    """An invisible trace that carries the scale of the maturities' colours."""
    low, high = np.log(readings.T[[0, -1]])
    width = high - low if high > low else 1.0
    days, texts = plot_style.time_ticks(readings.T[0], readings.T[-1], np.log, 9)
    values = round_for_json(
        np.clip((np.log(np.array(days) / DAYS_PER_YEAR) - low) / width, 0.0, 1.0), 4
    )
    scale = [
        [i / 8, colour]
        for i, colour in enumerate(plot_style.maturity_colours(np.linspace(0.0, 1.0, 9)))
    ]
    marker = {
        "color": [0.0], "cmin": 0.0, "cmax": 1.0, "colorscale": scale, "showscale": True,
        "colorbar": plot_style.colour_bar_layout("maturity", tickvals=values, ticktext=texts),
    }  # fmt: skip
    hidden = {"x": [None], "y": [None], "hoverinfo": "skip"}
    return {"type": "scatter", "mode": "markers", "marker": marker} | hidden
