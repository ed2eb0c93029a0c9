"""The panels of the report as static matplotlib pictures: PNG files, or one PDF."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.files import write_whole
from arbiter.report import headline, plot_style
from arbiter.report.curves import Readings, ReportedSurface
from arbiter.report.number_format import escape_dollars, format_days, format_percent
from arbiter.report.smile_curves import SmileReadings
from arbiter.report.vix_panels import VixReadings
from arbiter.report.vix_pictures import draw_market

if TYPE_CHECKING:
    from arbiter.fitting.vix_comparison import JointComparison
    from arbiter.quotes import Quotes

DPI = 130
_MAX_SMILES_PER_ROW = 5
_STYLE: Any = {
    "axes.axisbelow": True,
    "font.size": 10.0,
    "axes.edgecolor": "#b8bfc6",
    "axes.grid": True,
    "axes.labelcolor": plot_style.GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "figure.titlesize": 13.0,
    "grid.color": plot_style.LINE,
    "legend.frameon": False,
    "text.color": plot_style.INK,
    "xtick.color": plot_style.GREY,
    "ytick.color": plot_style.GREY,
    "svg.hashsalt": "arbiter",
}


def write_pictures(
    folder: str | PathLike[str],
    surface: ReportedSurface,
    quotes: Quotes,
    agreement: JointComparison | None = None,
) -> list[Path]:
    """Write the panels of the report as PNG files.

    Args:
        folder: Where they go; made if it is not there.
        surface: The fitted surface.
        quotes: The quotes it was fitted to.
        agreement: Index and VIX apart and together, where it was fitted to both.

    Returns:
        The files, in the order of the report: smiles, residuals, surface, total_variance,
        densities, term_structure; vix_market and vix_smiles where the surface has a VIX side.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in _draw_figures(Readings(surface, quotes), agreement).items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        written.append(write_whole(target / f"{name}.png", buffer.getvalue()))
    return written


def write_pdf(
    path: str | PathLike[str],
    surface: ReportedSurface,
    quotes: Quotes,
    *,
    summary: Mapping[str, Any],
    agreement: JointComparison | None = None,
) -> Path:
    """Write a PDF: a cover with the headline numbers, then one panel per page.

    Args:
        path: Where the PDF goes.
        surface: The fitted surface.
        quotes: The quotes it was fitted to.
        summary: What ``fit.json`` holds; keys that are absent are left out.
        agreement: Index and VIX apart and together, where it was fitted to both.

    Returns:
        The path that was written.
    """
    readings = Readings(surface, quotes)
    buffer = io.BytesIO()
    name = headline.page_title(summary, quotes)
    with PdfPages(buffer, metadata={"Title": name, "CreationDate": None}) as pages:
        for figure in (
            _draw_cover(readings, summary),
            *_draw_figures(readings, agreement).values(),
        ):
            with mpl.rc_context(_STYLE):
                pages.savefig(figure)
    return write_whole(path, buffer.getvalue())


def _draw_figures(readings: Readings, agreement: JointComparison | None) -> dict[str, Figure]:
    vix = VixReadings.from_surface(readings.surface, agreement)
    with mpl.rc_context(_STYLE):
        found = {name: draw(readings) for name, draw in PICTURES.items()}
        if vix is not None:
            found["vix_market"] = _new_figure(11.0, 8.0, "VIX futures, VVIX and the coupling")
            draw_market(found["vix_market"], vix)
            if vix.smile_readings is not None:
                found["vix_smiles"] = draw_smiles(vix.smile_readings, "VIX smiles")
        return found


def _new_figure(width: float, height: float, title: str) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left", fontweight="bold")
    return figure


def _maturity_colours(readings: Readings) -> Array:
    return mpl.colormaps["viridis"](plot_style.VIRIDIS_END * readings.maturity_shade)


def _draw_cover(readings: Readings, summary: Mapping[str, Any]) -> Figure:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 6.5))
        figure.text(
            0.06, 0.86, headline.page_title(summary, readings.quotes), fontsize=26, weight="bold"
        )
        figure.text(
            0.06,
            0.80,
            headline.page_subtitle(summary, readings),
            fontsize=12,
            color=plot_style.GREY,
        )
        for i, card in enumerate(headline.build_cards(summary, readings)):
            x, y = 0.06 + 0.30 * (i % 3), 0.62 - 0.24 * (i // 3)
            figure.text(x, y, card.title, fontsize=10, color=plot_style.GREY)
            figure.text(x, y - 0.07, card.value, fontsize=22, weight="bold")
            figure.text(x, y - 0.115, card.note, fontsize=10, color=plot_style.GREY)
        return figure


def draw_smiles(readings: SmileReadings, title: str = "Smiles") -> Figure:
    """Every smile with its bid-ask bars, one panel an expiry."""
    quotes, count = readings.quotes, readings.T.size
    columns = min(_MAX_SMILES_PER_ROW, count)
    rows = -(-count // columns)
    figure = _new_figure(max(2.7 * columns, 5.0), 0.7 + 2.0 * rows, title)
    for i in range(count):
        ax = figure.add_subplot(rows, columns, i + 1)
        part = slice(readings.quote_offsets[i], readings.quote_offsets[i + 1])
        at = readings.strike_axis(i, quotes.k[part])
        for colour, chosen in (
            ("#8b96a1", readings.inside[part]),
            (plot_style.VERMILION, ~readings.inside[part]),
        ):
            low, high = 100.0 * quotes.iv_bid[part], 100.0 * quotes.iv_ask[part]
            ax.vlines(at[chosen], low[chosen], high[chosen], color=colour, linewidth=0.8)
        x, y = readings.strike_axis(i, readings.smile_k[i]), 100.0 * readings.smile_iv[i]
        if readings.smile_error is not None:
            two = 200.0 * readings.smile_error[i]
            ax.fill_between(x, y - two, y + two, color=plot_style.BLUE, alpha=0.16, linewidth=0)
        inner = readings.quoted_points
        ax.plot(x, y, color=plot_style.BLUE, linewidth=0.9, linestyle=":")
        ax.plot(x[inner], y[inner], color=plot_style.BLUE, linewidth=1.3)
        ax.set_ylim(*(100.0 * readings.smile_range[i]))
        ax.set_xlim(x[0], x[-1])
        ax.locator_params(axis="both", nbins=4)
        ax.tick_params(labelsize=7.5)
        if readings.in_currency:
            ax.xaxis.set_major_formatter("{x:,.0f}")
        note = (
            f"{format_days(DAYS_PER_YEAR * float(readings.T[i]))}, "
            f"{format_percent(readings.share_inside[i], 1)} inside"
        )
        ax.set_title(f"{escape_dollars(quotes.labels[i])}\n{note}", fontsize=8)
    across = "strike" if readings.in_currency else "log-moneyness k"
    figure.supxlabel(across, fontsize=9, color=plot_style.GREY)
    figure.supylabel("implied volatility, %", fontsize=9, color=plot_style.GREY)
    return figure


def draw_residuals(readings: Readings) -> Figure:
    """Residuals in half-spreads, one row an expiry."""
    rows = readings.T.size
    figure = _new_figure(11.0, 5.5 + 0.13 * rows, "Residuals, fit minus mid in half-spreads")
    grid = figure.add_gridspec(
        2, 2, width_ratios=[4.0, 1.0], height_ratios=[4.2, 1.0 + 0.13 * rows]
    )
    ax = figure.add_subplot(grid[0, :])
    shade, inside = readings.maturity_shade[readings.quotes.expiry], readings.inside
    y = np.clip(readings.residual, -2.6, 2.6)
    ax.axhspan(-1.0, 1.0, color=plot_style.BLUE, alpha=0.08, linewidth=0)
    near, colour = readings.deviations[inside], _maturity_colormap()(shade[inside])
    ax.scatter(near, y[inside], s=5, c=colour, alpha=0.6, linewidths=0)
    ax.scatter(
        readings.deviations[~inside], y[~inside], s=16, color=plot_style.VERMILION, marker="D"
    )
    ax.set(ylim=(-2.75, 2.75), xlabel="moneyness, standard deviations", ylabel="half-spreads")
    _add_maturity_bar(figure, ax, readings)
    cells = readings.residual_cells
    ax = figure.add_subplot(grid[1, 0])
    scale = LinearSegmentedColormap.from_list("residual", plot_style.DIVERGING_COLOURS)
    mesh = ax.pcolormesh(
        cells.edges, np.arange(rows + 1) - 0.5, cells.mean, cmap=scale, vmin=-1.5, vmax=1.5
    )
    ax.set(ylim=(rows - 0.5, -0.5), xlabel="moneyness, standard deviations")
    every = max(1, rows // 30)
    ax.set_yticks(
        range(0, rows, every),
        [escape_dollars(v) for v in readings.quotes.labels[::every]],
        fontsize=7,
    )
    ax.grid(visible=False)
    figure.colorbar(mesh, ax=ax, label="mean residual", pad=0.01, fraction=0.04)
    ax = figure.add_subplot(grid[1, 1])
    ax.plot(100.0 * readings.share_inside, np.arange(rows), ".", color=plot_style.BLUE)
    ax.set(ylim=(rows - 0.5, -0.5), yticks=[], xlabel="inside bid-ask, %")
    return figure


def draw_surface(readings: Readings) -> Figure:
    """Implied volatility over strikes and maturities, as a solid and as a map."""
    mesh = readings.mesh
    root, iv = np.sqrt(mesh.T), 100.0 * mesh.iv
    z, r = np.broadcast_arrays(mesh.z, root[:, None])
    days, texts = plot_style.time_ticks(mesh.T[0], mesh.T[-1], np.sqrt, 7)
    at = np.sqrt(np.array(days) / DAYS_PER_YEAR)
    low, high = (100.0 * end for end in mesh.colour_range)
    colours: Any = {"cmap": "viridis", "norm": LogNorm(low, high)}
    figure = _new_figure(13.0, 6.0, "Implied volatility surface, %")
    solid: Any = figure.add_subplot(1, 2, 1, projection="3d")
    solid.plot_surface(z, r, iv, **colours, linewidth=0, rcount=61, ccount=61, rasterized=True)
    for end in (mesh.low, mesh.high):
        height = [np.interp(place, mesh.z, row) for place, row in zip(end, iv, strict=True)]
        solid.plot(
            end, root, np.array(height) + 0.1, color=plot_style.INK, linewidth=1.2, zorder=10
        )
    solid.set(xlabel="moneyness z", ylabel="maturity")
    solid.set_yticks(at, texts)
    solid.view_init(elev=24, azim=-120)
    flat = figure.add_subplot(1, 2, 2)
    filled = flat.contourf(z, r, iv, levels=np.geomspace(low, high, 25), extend="both", **colours)
    flat.contour(z, r, iv, levels=np.geomspace(low, high, 13), colors="white", linewidths=0.4)
    for end, border in ((mesh.low, mesh.z[0]), (mesh.high, mesh.z[-1])):
        flat.fill_betweenx(root, border, end, color="white", alpha=0.45, linewidth=0)
        flat.plot(end, root, color="white", linestyle="--", linewidth=1.4)
    flat.set(xlabel="moneyness z (under the veil: past the last quotes)", ylabel="maturity")
    flat.set_yticks(at, texts)
    flat.set_ylim(root[0], root[-1])
    flat.grid(visible=False)
    figure.colorbar(filled, ax=flat, ticks=plot_style.volatility_ticks(low, high), format="%g")
    return figure


def draw_total_variance(readings: Readings) -> Figure:
    """Total variance against log-moneyness, one line an expiry."""
    figure = _new_figure(10.0, 6.0, "Total variance σ²T: lines must not cross")
    ax = figure.add_subplot()
    variance = readings.smile_iv**2 * readings.T[:, None]
    inner = readings.quoted_points
    for k, w, colour in zip(readings.smile_k, variance, _maturity_colours(readings), strict=True):
        ax.plot(k, w, color=colour, linewidth=0.8, linestyle=":", alpha=0.7)
        ax.plot(k[inner], w[inner], color=colour, linewidth=1.1)
    ax.set(yscale="log", xlabel="log-moneyness k (dotted: past the last quote)", ylabel="σ²T")
    _add_maturity_bar(figure, ax, readings)
    return figure


def draw_densities(readings: Readings) -> Figure:
    """Risk-neutral densities, one line an expiry."""
    figure = _new_figure(10.0, 6.0, "Risk-neutral densities")
    ax = figure.add_subplot()
    x, y = readings.densities.standardised_density
    known = readings.densities.quoted
    for row_x, row_y, inside, colour in zip(x, y, known, _maturity_colours(readings), strict=True):
        ax.plot(row_x, row_y, color=colour, linewidth=0.8, linestyle=":", alpha=0.7)
        ax.plot(row_x[inside], row_y[inside], color=colour, linewidth=1.1)
    ax.set(
        xlim=(-5.0, 3.0), xlabel="log-return in at-the-money standard deviations", ylabel="density"
    )
    ax.set_ylim(bottom=0.0)
    _add_maturity_bar(figure, ax, readings)
    return figure


def draw_term_structure(readings: Readings) -> Figure:
    """Variance-swap and forward volatilities against maturity."""
    figure = _new_figure(10.0, 5.5, "Term structure of volatility, %")
    ax = figure.add_subplot()
    t = readings.term_structure
    style = "-" if t.T.size > 1 else "o"
    ax.plot(
        DAYS_PER_YEAR * t.T,
        t.swap,
        style,
        color=plot_style.BLUE,
        label="variance swap √(W/T), exact",
    )
    ax.plot(DAYS_PER_YEAR * readings.T, t.listed, ".", color=plot_style.BLUE)
    ax.plot(DAYS_PER_YEAR * t.T, t.forward, ":", color=plot_style.VERMILION)
    known = np.where(t.known, t.forward, np.nan)
    ax.plot(
        DAYS_PER_YEAR * t.T,
        known,
        style,
        color=plot_style.VERMILION,
        label="30-day forward (dotted: past the last expiry)",
    )
    ax.plot(DAYS_PER_YEAR * t.T, t.atm, "--", color=plot_style.GREY, label="at the money")
    days, texts = plot_style.time_ticks(readings.T[0], readings.T[-1], np.log, 14)
    ax.set_xscale("log")
    ax.set_xticks(days, texts)
    ax.set_xticks([], minor=True)
    ax.set(xlabel="maturity", ylabel="volatility, %")
    ax.legend()
    return figure


def _maturity_colormap() -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(
        "maturity", mpl.colormaps["viridis"](np.linspace(0.0, plot_style.VIRIDIS_END, 64))
    )


def _add_maturity_bar(figure: Figure, ax: Axes, readings: Readings) -> None:
    """Draw a colour bar beside ``ax`` that shows which colour is which maturity."""
    if readings.T.size < 2:
        return
    points = mpl.cm.ScalarMappable(Normalize(0.0, 1.0), _maturity_colormap())
    days, texts = plot_style.time_ticks(readings.T[0], readings.T[-1], np.log, 9)
    low, high = np.log(readings.T[[0, -1]])
    bar = figure.colorbar(points, ax=ax, pad=0.01, fraction=0.04)
    places = np.clip((np.log(np.array(days) / DAYS_PER_YEAR) - low) / (high - low), 0.0, 1.0)
    bar.set_ticks(list(places), labels=texts)


# by the names of their files
PICTURES: dict[str, Callable[[Readings], Figure]] = {
    "smiles": draw_smiles,
    "residuals": draw_residuals,
    "surface": draw_surface,
    "total_variance": draw_total_variance,
    "densities": draw_densities,
    "term_structure": draw_term_structure,
}
