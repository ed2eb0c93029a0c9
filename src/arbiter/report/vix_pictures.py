"""The VIX side as static pictures."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arbiter.conventions import DAYS_PER_YEAR
from arbiter.fitting.vix_comparison import JointComparison
from arbiter.report import plot_style
from arbiter.report.number_format import escape_dollars
from arbiter.report.picture_style import new_figure, place_axes
from arbiter.report.vix_curves import VixReadings


def draw_market(readings: VixReadings) -> Figure:
    """Futures against the root of forward variance, VVIX, and the coupling before and after."""
    figure = new_figure(11.0, 8.0, "VIX futures, VVIX and the coupling")
    days = DAYS_PER_YEAR * readings.T
    ax = place_axes(figure, 0.75, 4.5, 10.05, 3.05)
    ax.plot(days, readings.root_forward_variance, color=plot_style.BLUE, label="√FV of the surface")
    if readings.root_forward_variance_alone is not None:
        ax.plot(
            days,
            readings.root_forward_variance_alone,
            "--",
            color=plot_style.GREY,
            label="√FV, index alone",
        )
    ax.plot(days, readings.future, color=plot_style.GREEN, label="future, fitted")
    if readings.agreement is not None:
        at = readings.agreement.column("days")
        ax.plot(
            at,
            readings.agreement.column("vix_alone"),
            "D",
            markerfacecolor="none",
            color=plot_style.VERMILION,
            label="√E[VIX²], VIX alone",
        )
        ax.errorbar(
            at,
            readings.agreement.column("future"),
            readings.agreement.column("half_spread"),
            fmt="o",
            markersize=4,
            color=plot_style.INK,
            label="future, quoted",
        )
    _set_date_axis(ax, readings)
    ax.set_ylabel("index points")
    ax.legend(ncols=2, fontsize=9)
    ax = place_axes(figure, 0.75, 0.9, 4.6, 2.85)
    ax.plot(days, readings.vvix, color=plot_style.PURPLE)
    ax.plot(
        DAYS_PER_YEAR * readings.vix_maturities,
        readings.surface.vvix(readings.vix_maturities),
        "o",
        color=plot_style.PURPLE,
    )
    _set_date_axis(ax, readings)
    ax.set_title("VVIX, points")
    if readings.agreement is not None:
        _draw_coupling(place_axes(figure, 6.2, 0.9, 4.6, 2.85), readings.agreement)
    return figure


def _draw_coupling(ax: Axes, agreement: JointComparison) -> None:
    labels = list(agreement.table["date"])
    place = np.arange(len(labels))
    ax.bar(
        place,
        agreement.column("gap"),
        color=plot_style.VERMILION,
        label="each market alone",
    )
    ax.plot(
        place,
        agreement.column("residual"),
        "o",
        color=plot_style.BLUE,
        label="this surface",
    )
    clean = [escape_dollars(label) for label in labels]
    ax.set_xticks(place, clean, rotation=40, ha="right", fontsize=7)
    ax.set_title("√E[VIX²] − √FV, index points")
    ax.legend(fontsize=9)


def _set_date_axis(ax: Axes, readings: VixReadings) -> None:
    days, texts = plot_style.time_ticks(
        readings.vix_maturities[0], readings.vix_maturities[-1], np.log, 10
    )
    ax.set_xscale("log")
    ax.set_xticks(days, texts)
    ax.set_xticks([], minor=True)
