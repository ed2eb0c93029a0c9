"""The VIX side of the page: smiles, futures against forward variance, VVIX, and the coupling."""

from __future__ import annotations

from typing import Any

import numpy as np

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.fitting.vix_comparison import JointComparison
from arbiter.report import plot_style
from arbiter.report.contact_sheet import Drawing, draw_smiles
from arbiter.report.number_format import (
    ABSENT,
    escape_label,
    format_count,
    format_number,
    format_percent,
    format_significant,
    round_for_json,
)
from arbiter.report.plot_style import BLUE, GREEN, GREY, INK, PURPLE, VERMILION, Figure
from arbiter.report.tables import Table
from arbiter.report.vix_curves import VixReadings

_HOVER_TEMPLATE = "%{y:.2f} at %{x:.0f} days<extra>%{fullData.name}</extra>"


def draw_vix_smiles(readings: VixReadings) -> list[Drawing]:
    """Every VIX smile as a small drawing."""
    return [] if readings.smile_readings is None else draw_smiles(readings.smile_readings)


def build_vix_figures(readings: VixReadings) -> dict[str, Figure]:
    """The figures of the VIX side."""
    found = {"vix-futures": draw_futures(readings), "vvix": draw_vvix(readings)}
    if readings.agreement is not None:
        found["vix-coupling"] = draw_coupling(readings.agreement)
    return found


def draw_futures(readings: VixReadings) -> Figure:
    """Futures, quoted and fitted, below the root of forward variance."""
    days = round_for_json(DAYS_PER_YEAR * readings.T, 3)
    traces = [_vix_line("√FV of the surface", days, readings.root_forward_variance, BLUE)]
    if readings.root_forward_variance_alone is not None:
        traces.append(
            _vix_line("√FV, index alone", days, readings.root_forward_variance_alone, GREY, "dash")
        )
    traces.append(_vix_line("future, fitted", days, readings.future, GREEN))
    if readings.agreement is not None:
        at = round_for_json(readings.agreement.column("days"), 3)
        own = readings.agreement.column("vix_alone")
        if np.isfinite(own).any():
            traces.append(
                plot_style.marker_trace(
                    "√E[VIX²], VIX alone", at, own, VERMILION, "diamond-open", 9
                )
            )
        quoted = plot_style.marker_trace(
            "future, quoted", at, readings.agreement.column("future"), INK, "circle", 6
        )
        half = round_for_json(readings.agreement.column("half_spread"), 4)
        traces.append(quoted | {"error_y": {"array": half, "color": INK, "thickness": 1.4}})
    return {"data": traces, "layout": _vix_layout(readings, "index points", 440)}


def draw_vvix(readings: VixReadings) -> Figure:
    """Term structure of VVIX."""
    curve = _vix_line("VVIX", round_for_json(DAYS_PER_YEAR * readings.T, 3), readings.vvix, PURPLE)
    at = plot_style.marker_trace(
        "at VIX dates",
        round_for_json(DAYS_PER_YEAR * readings.vix_maturities, 3),
        np.asarray(readings.surface.vvix(readings.vix_maturities)),
        PURPLE,
    )
    return {"data": [curve, at], "layout": _vix_layout(readings, "VVIX, points", 380)}


def draw_coupling(agreement: JointComparison) -> Figure:
    """Root of the second moment less root of forward variance: fitted apart, and together."""
    labels = [escape_label(label) for label in agreement.table["date"]]
    hover = "<b>%{x}</b><br>%{y:.3g} points<extra>%{fullData.name}</extra>"
    traces: list[Figure] = []
    if np.isfinite(agreement.column("gap")).any():
        traces.append(
            {
                "type": "bar", "name": "each market alone", "x": labels,
                "y": round_for_json(agreement.column("gap"), 4),
                "marker": {"color": VERMILION},
                "hovertemplate": hover,
            }
        )  # fmt: skip
    for name, column, colour, symbol in (
        ("this surface", "residual", BLUE, "circle"),
        ("future, fitted less quoted", "future_error", GREEN, "diamond-open"),
    ):
        dots = plot_style.marker_trace(name, labels, agreement.column(column), colour, symbol, 8)
        exact = {"y": round_for_json(agreement.column(column), 16), "hovertemplate": hover}
        traces.append(dots | exact)
    frame = plot_style.figure_layout(
        380,
        xaxis=plot_style.axis_layout(None, type="category", tickangle=-40),
        yaxis=plot_style.axis_layout("√E[VIX²] − √FV, points", zeroline=True),
        showlegend=True,
        legend=plot_style.LEGEND_ABOVE,
        margin={"l": 58, "r": 12, "t": 66, "b": 76},
    )
    return {"data": traces, "layout": frame}


def coupling_table(readings: VixReadings) -> Table | None:
    """Both markets by themselves and together, date by date."""
    if readings.agreement is None:
        return None
    titles = {
        "date": "VIX date", "days": "Days", "quotes": "Options", "inside": "Inside",
        "future": "Future", "fitted_future": "Fitted", "spx_alone": "√FV, index alone",
        "vix_alone": "√E[VIX²], VIX alone", "gap": "Residual before",
        "root_forward_variance": "√FV, surface", "residual": "Residual after", "vvix": "VVIX",
    }  # fmt: skip
    digits = {"days": 1, "quotes": 0, "vvix": 1}
    rows = [
        [_format_cell(name, row[name], digits.get(name, 2)) for name in titles]
        for row in readings.agreement.table.iter_rows(named=True)
    ]
    return Table(list(titles.values()), rows, "l" + "r" * (len(titles) - 1))


def coupling_text(readings: VixReadings) -> str:
    """What the coupling comes to, in a few sentences."""
    if readings.agreement is None:
        return ""
    found = readings.agreement.to_dict()
    sentences = []
    if found["quotes"]:
        options = format_count(found["quotes"], "option")
        share = format_percent(found["inside_bid_ask"])
        sentences.append(f"{share} of {options} on the VIX are inside bid-ask.")
    if found["largest_gap_alone"] is not None:
        gap = format_number(found["largest_gap_alone"])
        sentences.append(f"Fitted apart, the two markets are up to {gap} points from each other.")
    residual = format_significant(found["largest_residual"], 1)
    sentences.append(f"Together E[VIX²] = FV at every date: the largest residual is {residual}.")
    return " ".join(sentences)


def _format_cell(name: str, value: Any, digits: int) -> str:
    if value is None:
        return ABSENT
    if name == "date":
        return str(value)
    if name == "residual":
        return format_significant(value, 1)
    return format_percent(value, 1) if name == "inside" else format_number(value, digits)


def _vix_line(name: str, x: Any, y: Array, colour: str, dash: str = "solid") -> Figure:
    return plot_style.line_trace(name, x, y, colour, dash) | {"hovertemplate": _HOVER_TEMPLATE}


def _vix_layout(readings: VixReadings, title: str, height: int) -> Figure:
    first, last = readings.vix_maturities[[0, -1]]
    values, texts = plot_style.time_ticks(first, last, np.log, 10)
    ends = np.log10(DAYS_PER_YEAR * np.array([first, last])) + np.array([-0.05, 0.05])
    return plot_style.figure_layout(
        height,
        xaxis=plot_style.axis_layout(
            "VIX date", type="log", tickvals=values, ticktext=texts, range=round_for_json(ends, 4)
        ),
        yaxis=plot_style.axis_layout(title),
        showlegend=True,
        legend=plot_style.LEGEND_ABOVE,
        margin={"l": 58, "r": 12, "t": 66, "b": 48},
    )
