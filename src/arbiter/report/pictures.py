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
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from arbiter.conventions import DAYS_PER_YEAR
from arbiter.files import write_whole
from arbiter.report import headline, picture_style, plot_style
from arbiter.report.curves import Readings, ReportedSurface
from arbiter.report.number_format import escape_dollars
from arbiter.report.picture_style import TITLE_INCHES, draw_lines, new_figure, place_axes
from arbiter.report.smile_pictures import draw_smiles
from arbiter.report.vix_pictures import draw_market

if TYPE_CHECKING:
    from arbiter.fitting.vix_comparison import JointComparison
    from arbiter.quotes import Quotes


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
    return write_panels(folder, Readings.of(surface, quotes, agreement))


def write_panels(folder: str | PathLike[str], readings: Readings) -> list[Path]:
    """Write the pictures of :func:`write_pictures` from a surface that is evaluated already."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    return [
        write_whole(target / f"{name}.png", picture_style.encode_png(figure))
        for name, figure in _draw_figures(readings).items()
    ]


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
    return write_booklet(path, Readings.of(surface, quotes, agreement), summary)


def write_booklet(
    path: str | PathLike[str], readings: Readings, summary: Mapping[str, Any]
) -> Path:
    """Write the PDF of :func:`write_pdf` from a surface that is evaluated already."""
    from matplotlib.backends.backend_pdf import PdfPages

    buffer = io.BytesIO()
    name = headline.page_title(summary, readings.all_quotes)
    with PdfPages(buffer, metadata={"Title": name, "CreationDate": None}) as pages:
        for figure in (_draw_cover(readings, summary), *_draw_figures(readings).values()):
            with mpl.rc_context(picture_style.STYLE):
                pages.savefig(figure)
    return write_whole(path, buffer.getvalue())


def _draw_figures(readings: Readings) -> dict[str, Figure]:
    with mpl.rc_context(picture_style.STYLE):
        found = {name: draw(readings) for name, draw in PICTURES.items()}
        vix = readings.vix
        if vix is not None:
            found["vix_market"] = draw_market(vix)
            if vix.smile_readings is not None:
                found["vix_smiles"] = draw_smiles(vix.smile_readings, "VIX smiles")
        return found


def _draw_cover(readings: Readings, summary: Mapping[str, Any]) -> Figure:
    with mpl.rc_context(picture_style.STYLE):
        figure = Figure(figsize=(11.0, 6.5))
        title = escape_dollars(headline.page_title(summary, readings.all_quotes))
        figure.text(0.06, 0.86, title, fontsize=26, weight="bold")
        subtitle = escape_dollars(headline.page_subtitle(summary, readings))
        figure.text(0.06, 0.80, subtitle, fontsize=12, color=plot_style.GREY)
        for i, card in enumerate(headline.build_cards(summary, readings)):
            x, y = 0.06 + 0.30 * (i % 3), 0.62 - 0.24 * (i // 3)
            figure.text(x, y, card.title, fontsize=10, color=plot_style.GREY)
            figure.text(x, y - 0.07, card.value, fontsize=22, weight="bold")
            figure.text(x, y - 0.115, card.note, fontsize=10, color=plot_style.GREY)
        return figure


def draw_residuals(readings: Readings) -> Figure:
    """Residuals in half-spreads, one row an expiry."""
    rows, labels = readings.T.size, [escape_dollars(v) for v in readings.quotes.labels]
    cloud_height, map_height = 3.2, 0.6 + 0.13 * rows
    height = TITLE_INCHES + cloud_height + 0.7 + map_height + 0.6
    figure = new_figure(11.0, height, "Residuals, fit minus mid in half-spreads")
    every = max(1, rows // 30)
    left = max(0.7, 0.2 + 0.062 * max(map(len, labels[::every])))
    bottom = 0.6 + map_height + 0.7
    _draw_cloud(place_axes(figure, left, bottom, 9.95 - left, cloud_height), readings)
    bar = place_axes(figure, 10.15, bottom, 0.2, cloud_height)
    picture_style.draw_maturity_bar(figure, bar, readings)
    cells = readings.residual_cells
    width = 8.1 - left
    ax = place_axes(figure, left, 0.6, width, map_height)
    scale = LinearSegmentedColormap.from_list("residual", plot_style.DIVERGING_COLOURS)
    mesh = ax.pcolormesh(
        cells.edges, np.arange(rows + 1) - 0.5, cells.mean, cmap=scale, vmin=-1.5, vmax=1.5
    )
    ax.set(ylim=(rows - 0.5, -0.5), xlabel="moneyness, standard deviations")
    ax.set_yticks(range(0, rows, every), labels[::every], fontsize=7)
    ax.grid(visible=False)
    bar = place_axes(figure, left + width + 0.1, 0.6, 0.2, map_height)
    figure.colorbar(mesh, cax=bar, label="mean residual")
    ax = place_axes(figure, 9.3, 0.6, 1.5, map_height)
    ax.plot(100.0 * readings.share_inside, np.arange(rows), ".", color=plot_style.BLUE)
    ax.set(ylim=(rows - 0.5, -0.5), yticks=[], xlabel="inside bid-ask, %")
    return figure


def _draw_cloud(ax: Axes, readings: Readings) -> None:
    """Every quote's residual over its moneyness."""
    shade, inside = readings.maturity_shade[readings.quotes.expiry], readings.inside
    y = np.clip(readings.residual, -2.6, 2.6)
    ax.axhspan(-1.0, 1.0, color=plot_style.BLUE, alpha=0.08, linewidth=0)
    near, colour = readings.deviations[inside], picture_style.maturity_colormap()(shade[inside])
    ax.scatter(near, y[inside], s=5, c=colour, alpha=0.6, linewidths=0)
    ax.scatter(
        readings.deviations[~inside], y[~inside], s=16, color=plot_style.VERMILION, marker="D"
    )
    ax.set(ylim=(-2.75, 2.75), xlabel="moneyness, standard deviations", ylabel="half-spreads")


def draw_surface(readings: Readings) -> Figure:
    """Implied volatility over strikes and maturities, as a solid and as a map."""
    mesh = readings.mesh
    root, iv = np.sqrt(mesh.T), 100.0 * mesh.iv
    z, r = np.broadcast_arrays(mesh.z, root[:, None])
    days, texts = plot_style.time_ticks(mesh.T[0], mesh.T[-1], np.sqrt, 7)
    at = np.sqrt(np.array(days) / DAYS_PER_YEAR)
    low, high = (100.0 * end for end in mesh.colour_range)
    colours: Any = {"cmap": "viridis", "norm": LogNorm(low, high)}
    figure = new_figure(13.0, 6.0, "Implied volatility surface, %")
    solid: Any = place_axes(figure, 0.0, 0.1, 6.0, 5.6, projection="3d")
    solid.plot_surface(z, r, iv, **colours, linewidth=0, rcount=61, ccount=61, rasterized=True)
    for end in (mesh.low, mesh.high):
        height = [np.interp(place, mesh.z, row) for place, row in zip(end, iv, strict=True)]
        solid.plot(
            end, root, np.array(height) + 0.1, color=plot_style.INK, linewidth=1.2, zorder=10
        )
    solid.set(xlabel="moneyness z", ylabel="maturity")
    solid.set_yticks(at, texts)
    solid.view_init(elev=24, azim=-120)
    flat = place_axes(figure, 6.6, 0.55, 5.45, 5.1)
    filled = flat.contourf(z, r, iv, levels=np.geomspace(low, high, 25), extend="both", **colours)
    flat.contour(z, r, iv, levels=np.geomspace(low, high, 13), colors="white", linewidths=0.4)
    for end, border in ((mesh.low, mesh.z[0]), (mesh.high, mesh.z[-1])):
        flat.fill_betweenx(root, border, end, color="white", alpha=0.45, linewidth=0)
        flat.plot(end, root, color="white", linestyle="--", linewidth=1.4)
    flat.set(xlabel="moneyness z (under the veil: past the last quotes)", ylabel="maturity")
    flat.set_yticks(at, texts)
    flat.set_ylim(root[0], root[-1])
    flat.grid(visible=False)
    bar = place_axes(figure, 12.25, 0.55, 0.25, 5.1)
    ticks = plot_style.volatility_ticks(low, high)
    figure.colorbar(filled, cax=bar, ticks=ticks, format="%g")
    return figure


def draw_total_variance(readings: Readings) -> Figure:
    """Total variance against log-moneyness, one line an expiry."""
    figure, ax = _start_maturity_lines("Total variance σ²T: lines must not cross", readings)
    variance = readings.smile_iv**2 * readings.T[:, None]
    inner = readings.quoted_points
    colours = picture_style.maturity_colours(readings)
    ax.set(yscale="log", xlabel="log-moneyness k (dotted: past the last quote)", ylabel="σ²T")
    dotted: Any = {"colors": colours, "linewidths": 0.8, "linestyles": ":", "alpha": 0.7}
    draw_lines(ax, readings.smile_k, variance, **dotted)
    quoted = readings.smile_k[:, inner], variance[:, inner]
    draw_lines(ax, *quoted, colors=colours, linewidths=1.1)
    return figure


def draw_densities(readings: Readings) -> Figure:
    """Risk-neutral densities, one line an expiry."""
    figure, ax = _start_maturity_lines("Risk-neutral densities", readings)
    x, y = readings.densities.standardised_density
    known = readings.densities.quoted
    colours = picture_style.maturity_colours(readings)
    draw_lines(ax, x, y, colors=colours, linewidths=0.8, linestyles=":", alpha=0.7)
    quoted = [[row[inside] for row, inside in zip(part, known, strict=True)] for part in (x, y)]
    draw_lines(ax, *quoted, colors=colours, linewidths=1.1)
    ax.set(
        xlim=(-5.0, 3.0), xlabel="log-return in at-the-money standard deviations", ylabel="density"
    )
    ax.set_ylim(bottom=0.0)
    return figure


def _start_maturity_lines(title: str, readings: Readings) -> tuple[Figure, Axes]:
    """A figure for one line an expiry, with the bar of their colours."""
    figure = new_figure(10.0, 6.0, title)
    ax = place_axes(figure, 0.8, 0.6, 8.25, 4.95)
    picture_style.draw_maturity_bar(figure, place_axes(figure, 9.2, 0.6, 0.2, 4.95), readings)
    return figure, ax


def draw_term_structure(readings: Readings) -> Figure:
    """Variance-swap and forward volatilities against maturity."""
    figure = new_figure(10.0, 5.5, "Term structure of volatility, %")
    ax = place_axes(figure, 0.7, 0.6, 9.1, 4.45)
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


# by the names of their files
PICTURES: dict[str, Callable[[Readings], Figure]] = {
    "smiles": draw_smiles,
    "residuals": draw_residuals,
    "surface": draw_surface,
    "total_variance": draw_total_variance,
    "densities": draw_densities,
    "term_structure": draw_term_structure,
}
