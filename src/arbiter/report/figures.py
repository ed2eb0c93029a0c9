"""Interactive figures of the report as plotly dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.report import plot_style, slice_figures
from arbiter.report.curves import Readings, VolatilityMesh
from arbiter.report.number_format import escape_label, round_for_json
from arbiter.report.plot_style import (
    BLUE,
    DIVERGING_COLOURS,
    GREEN,
    GREY,
    INK,
    PURPLE,
    VERMILION,
    Figure,
)


def build_figures(
    readings: Readings, summary: Mapping[str, Any], index: pl.DataFrame | None = None
) -> dict[str, Figure]:
    """Figures by name, all but the two that the page's script builds from the quotes.

    Args:
        readings: The surface evaluated at its quotes.
        summary: What ``fit.json`` holds.
        index: Term structure of the index, from :mod:`arbiter.vix.replication`, or None.
    """
    return {
        "residual-map": draw_residual_map(readings),
        "surface": draw_surface(readings),
        "contours": draw_contours(readings),
        "total-variance": slice_figures.draw_total_variance(readings),
        "densities": slice_figures.draw_densities(readings),
        "term-structure": draw_term_structure(readings, summary, index),
    }


def draw_residual_map(readings: Readings) -> Figure:
    """Mean residual by expiry and moneyness, and the share inside bid-ask beside it."""
    quotes, rows = readings.quotes, readings.T.size
    cells = readings.residual_cells
    names = [escape_label(label) for label in quotes.labels]
    heat = {
        "type": "heatmap",
        "x": round_for_json(0.5 * (cells.edges[1:] + cells.edges[:-1]), 4),
        "y": list(range(rows)),
        "z": round_for_json(cells.mean, 3),
        "customdata": round_for_json(np.dstack([cells.number, np.floor(100.0 * cells.inside)]), 0),
        "text": [[name] * (cells.edges.size - 1) for name in names],
        "zmin": -1.5,
        "zmax": 1.5,
        "colorscale": [[i / 4, colour] for i, colour in enumerate(DIVERGING_COLOURS)],
        "xgap": 1,
        "ygap": 1,
        "colorbar": plot_style.colour_bar_layout(
            "mean residual,<br>half-spreads", lenmode="pixels", len=240, y=1.0, yanchor="top"
        ),
        "hovertemplate": "<b>%{text}</b><br>%{x:.3f} standard deviations<br>mean residual %{z:.2f} "
        "half-spreads<br>%{customdata[0]:.0f} quotes, %{customdata[1]:.0f} % inside<extra></extra>",
        "hoverongaps": False,
    }  # fmt: skip
    share = 100.0 * readings.share_inside
    shares = {
        "type": "scatter",
        "mode": "markers",
        "x": round_for_json(np.floor(100.0 * share) / 100.0, 2),
        "y": list(range(rows)),
        "xaxis": "x2",
        "text": names,
        "customdata": np.diff(readings.quote_offsets).tolist(),
        "marker": {"size": 8, "color": [BLUE if s >= 99.0 else VERMILION for s in share]},
        "hovertemplate": "<b>%{text}</b><br>%{x:.2f} % of %{customdata} quotes inside"
        "<extra></extra>",
    }
    lowest = min(98.0, float(np.floor(share.min() - 1.0)))
    every = max(1, -(-rows // 64))
    frame = plot_style.figure_layout(
        max(300, 100 + 15 * rows),
        xaxis=plot_style.axis_layout(
            "moneyness, standard deviations",
            domain=[0.0, 0.78],
            zeroline=True,
            range=round_for_json(cells.edges[[0, -1]], 4),
        ),
        xaxis2=plot_style.axis_layout(
            "inside bid-ask, %",
            domain=[0.81, 1.0],
            range=[max(lowest, 0.0) - 0.02 * (100.0 - lowest), 100.0 + 0.05 * (100.0 - lowest)],
        ),
        yaxis=plot_style.axis_layout(
            None,
            range=[rows - 0.5, -0.5],
            tickvals=list(range(0, rows, every)),
            ticktext=names[::every],
            showgrid=False,
            tickfont={"size": 11},
        ),
        margin={"l": 20, "r": 12, "t": 30, "b": 52},
    )
    return {"data": [heat, shares], "layout": frame}


def draw_surface(readings: Readings) -> Figure:
    """The volatility surface in three dimensions, with the ends of the quotes drawn on it."""
    mesh = readings.mesh
    root = np.sqrt(mesh.T)
    iv = 100.0 * mesh.iv
    solid = {
        "type": "surface",
        "x": round_for_json(mesh.z, 3),
        "y": round_for_json(root, 4),
        "z": round_for_json(iv, 2),
        "customdata": _hover_values(readings),
        "surfacecolor": round_for_json(np.log(iv), 4),
        **_volatility_colours(mesh, "c"),
        "lighting": {"ambient": 0.85, "diffuse": 0.35, "specular": 0.02, "roughness": 0.9},
        "contours": {"x": plot_style.wire_contours(mesh.z), "y": plot_style.wire_contours(root)},
        "hovertemplate": "IV %{z:.2f} %<br>K/F %{customdata[0]:.4f}<br>%{customdata[1]:.0f} days"
        "<extra></extra>",
    }
    ends = [
        {
            "type": "scatter3d",
            "mode": "lines",
            "x": round_for_json(end, 3),
            "y": round_for_json(root, 4),
            "z": round_for_json(
                [np.interp(z, mesh.z, row) for z, row in zip(end, iv, strict=True)], 2
            ),
            "line": {"color": INK, "width": 4},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for end in (mesh.low, mesh.high)
    ]
    values, texts = _root_time_ticks(mesh, 6)
    scene = {
        "xaxis": plot_style.scene_axis_layout("moneyness z"),
        "yaxis": plot_style.scene_axis_layout("maturity") | {"tickvals": values, "ticktext": texts},
        "zaxis": plot_style.scene_axis_layout("IV, %"),
        "camera": {"eye": {"x": -1.2, "y": -1.95, "z": 0.8}, "center": {"x": 0, "y": 0, "z": -0.1}},
        "aspectratio": {"x": 1.2, "y": 1.2, "z": 0.9},
    }  # fmt: skip
    return {
        "data": [solid, *ends],
        "layout": plot_style.figure_layout(
            520, scene=scene, margin={"l": 0, "r": 0, "t": 20, "b": 8}
        ),
    }


def draw_contours(readings: Readings) -> Figure:
    """Contours of the volatility surface, shaded past the outermost quotes."""
    mesh = readings.mesh
    root = np.sqrt(mesh.T)
    low, high = (round(float(np.log(100.0 * end)), 4) for end in mesh.colour_range)
    filled = {
        "type": "contour",
        "x": round_for_json(mesh.z, 3),
        "y": round_for_json(root, 4),
        "z": round_for_json(np.log(100.0 * mesh.iv), 4),
        "customdata": _hover_values(readings),
        "autocontour": False,
        "contours": {"start": low, "end": high, "size": (high - low) / 24.0},
        "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"},
        "hovertemplate": "IV %{customdata[2]:.2f} %<br>z %{x:.2f}, K/F %{customdata[0]:.4f}<br>"
        "%{customdata[1]:.0f} days<extra></extra>",
        **_volatility_colours(mesh, "z"),
    }
    veils = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": round_for_json(np.concatenate([end, [border, border]]), 3),
            "y": round_for_json(np.concatenate([root, root[[-1, 0]]]), 4),
            "line": {"color": "rgba(255,255,255,0.9)", "width": 1.5, "dash": "dash"},
            "fill": "toself",
            "fillcolor": "rgba(255,255,255,0.45)",
            "hoverinfo": "skip",
        }
        for end, border in ((mesh.low, mesh.z[0]), (mesh.high, mesh.z[-1]))
    ]
    values, texts = _root_time_ticks(mesh, 10)
    frame = plot_style.figure_layout(
        520,
        xaxis=plot_style.axis_layout(
            "moneyness z", showgrid=False, range=round_for_json(mesh.z[[0, -1]], 3)
        ),
        yaxis=plot_style.axis_layout(
            "maturity",
            tickvals=values,
            ticktext=texts,
            showgrid=False,
            range=round_for_json(root[[0, -1]], 4),
        ),
    )
    return {"data": [filled, *veils], "layout": frame}


def draw_term_structure(
    readings: Readings, summary: Mapping[str, Any], index: pl.DataFrame | None = None
) -> Figure:
    """Volatility of the log contract, of the 30 days that follow, and at the money."""
    t = readings.term_structure
    days = round_for_json(DAYS_PER_YEAR * t.T, 3)
    name = "30-day forward √FV"
    known, beyond = np.where(t.known, t.forward, np.nan), _mask_known(t.known, t.forward)
    traces = [
        plot_style.line_trace("variance swap √(W/T), exact", days, t.swap, BLUE),
        plot_style.line_trace(name, days, known, VERMILION),
        plot_style.line_trace(f"{name}, past the last expiry", days, beyond, VERMILION, dash="dot"),
        plot_style.line_trace("at the money", days, t.atm, GREY, dash="dash", width=1.4),
        plot_style.marker_trace(
            "listed expiries", round_for_json(DAYS_PER_YEAR * readings.T, 3), t.listed, BLUE, size=6
        ),
    ]
    traces += _index_markers(readings, summary, index)
    values, texts = plot_style.time_ticks(readings.T[0], readings.T[-1], np.log, 14)
    ends = np.log10(DAYS_PER_YEAR * readings.T[[0, -1]]) + np.array([-0.05, 0.05])
    frame = plot_style.figure_layout(
        440,
        xaxis=plot_style.axis_layout(
            "maturity", type="log", tickvals=values, ticktext=texts, range=round_for_json(ends, 4)
        ),
        yaxis=plot_style.axis_layout("volatility, %"),
        showlegend=True,
        legend=plot_style.LEGEND_ABOVE,
        margin={"l": 58, "r": 12, "t": 66, "b": 48},
    )
    shown = [trace for trace in traces if any(value is not None for value in trace["y"])]
    return {"data": shown, "layout": frame}


def _index_markers(
    readings: Readings, summary: Mapping[str, Any], index: pl.DataFrame | None
) -> list[Figure]:
    """Markers of the index: by the rule on quotes, by the rule on the surface, and exact."""
    found = []
    styles = {
        "quoted": ("index rule on the quotes", PURPLE, "diamond-open", 11),
        "listed": ("index rule on the surface", GREEN, "circle-open", 8),
    }
    table = {}
    if index is not None:
        names = [name for name in index.columns if index[name].null_count() < index.height]
        table = {name: index[name].to_numpy() for name in names}
    for name, (title, colour, symbol, size) in styles.items():
        if name in table:
            x, y = round_for_json(table["days"], 3), table[name].astype(np.float64)
            found.append(plot_style.marker_trace(title, x, y, colour, symbol, size))
        elif name == "quoted" and summary.get("vix") is not None:
            found.append(
                plot_style.marker_trace(title, [30.0], [summary["vix"]], colour, symbol, size)
            )
    exact, error = summary.get("vix_surface"), readings.index_error(summary)
    if exact is not None and error is not None:
        dot = plot_style.marker_trace(
            "exact at 30 days ± 2 s.e.", [30.0], [exact], INK, "line-ew-open", 10
        )
        found.append(dot | {"error_y": {"array": [2.0 * error], "color": INK, "thickness": 1.6}})
    return found


def _root_time_ticks(mesh: VolatilityMesh, most: int) -> tuple[list[float], list[str]]:
    """Places and texts of ticks on an axis of √T."""
    days, texts = plot_style.time_ticks(mesh.T[0], mesh.T[-1], np.sqrt, most)
    return round_for_json(np.sqrt(np.array(days) / DAYS_PER_YEAR), 4), texts


def _volatility_colours(mesh: VolatilityMesh, prefix: str) -> Figure:
    """A logarithmic scale of volatility: a wing at 80 % must not hide a body at 15 %."""
    low, high = (100.0 * end for end in mesh.colour_range)
    marks = plot_style.volatility_ticks(low, high)
    return {
        "colorscale": "Viridis",
        f"{prefix}min": round(float(np.log(low)), 4),
        f"{prefix}max": round(float(np.log(high)), 4),
        "colorbar": plot_style.colour_bar_layout(
            "IV, %",
            tickvals=round_for_json(np.log(marks), 4),
            ticktext=[f"{mark:g}" for mark in marks],
            len=0.7 if prefix == "c" else 0.94,
        ),
    }


def _hover_values(readings: Readings) -> list[list[list[float | None]]]:
    """K/F, days and IV in percent of every point of the mesh, for the hover text."""
    mesh = readings.mesh
    days = np.broadcast_to(DAYS_PER_YEAR * mesh.T[:, None], mesh.k.shape)
    iv = np.round(100.0 * mesh.iv, 2)
    values: list[list[list[float | None]]] = round_for_json(
        np.dstack([np.round(np.exp(mesh.k), 4), np.round(days, 1), iv]), 4
    )
    return values


def _mask_known(known: NDArray[np.bool_], values: Array) -> Array:
    """``values`` past the known ones and at the last known one, NaN elsewhere."""
    last = np.flatnonzero(known)[-1:] if not known.all() else np.empty(0, dtype=np.int64)
    shown = ~known
    shown[last] = True
    return np.where(shown, values, np.nan)
