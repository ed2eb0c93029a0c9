"""A surface as a table: prices and Greeks by maturity and strike, or its expiries to be read."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from arbiter import forked
from arbiter.conventions import DAYS_PER_YEAR
from arbiter.timing.maturities import MaturityLike

if TYPE_CHECKING:
    from arbiter.surface import Surface

# Gaussian coordinates of the default strikes: where index options are listed, put side deeper.
DEFAULT_GAUSSIAN_COORDINATES = np.linspace(-3.5, 2.5, 25)
_COLUMNS = ("expiry", "days", "at the money")
_FIRST_ROWS, _LAST_ROWS = 4, 3  # of the expiries that are shown
_LONGEST_LABEL = 32  # letters


def surface_frame(
    surface: Surface, k: ArrayLike | None = None, T: MaturityLike | None = None
) -> pl.DataFrame:
    """Evaluate a surface on a grid: one row per (T, k), sorted.

    Args:
        surface: The surface to read.
        k: Log-moneyness grid used at every maturity; by default 25 strikes per maturity
            between Gaussian percentiles −3.5 and 2.5.
        T: Maturities; by default the listed ones.

    Returns:
        Columns T, k, strike, forward, discount, call, put, iv, total_variance, delta, gamma,
        vega, theta, density, local_variance. ``call`` and ``put`` are discounted currency.
    """
    forked.require_polars()
    maturities = surface.years(surface.maturities if T is None else T).reshape(-1, 1)  # (U, 1)
    if k is None:
        points = surface.log_strike(DEFAULT_GAUSSIAN_COORDINATES, maturities)
    else:
        row = np.asarray(k, dtype=np.float64).reshape(1, -1)
        points = np.broadcast_to(row, (maturities.size, row.size))
    years = np.broadcast_to(maturities, points.shape)
    strikes = surface.forward(years) * np.exp(points)
    iv = surface.iv(points, years)
    columns = {
        "T": years,
        "k": points,
        "strike": strikes,
        "forward": surface.forward(years),
        "discount": surface.discount(years),
        "call": surface.call(strikes, years),
        "put": surface.put(strikes, years),
        "iv": iv,
        "total_variance": iv**2 * years,
        "delta": surface.delta(strikes, years),
        "gamma": surface.gamma(strikes, years),
        "vega": surface.vega(strikes, years),
        "theta": surface.theta(strikes, years),
        "density": surface.density(points, years),
        "local_variance": surface.local_variance(points, years),
    }
    table = pl.DataFrame({name: np.ravel(values) for name, values in columns.items()})
    return table.sort("T", "k")


def describe_surface(surface: Surface) -> str:
    """A surface in one line: its size, its range of volatilities and its moment."""
    components, count, n = surface.slopes.shape
    days = surface.maturities * DAYS_PER_YEAR
    vol = np.sqrt(surface.variance_swap(surface.maturities[[0, -1]]))
    mixture = f", {components} components" if components > 1 else ""
    moment = f", as of {surface.as_of}" if surface.as_of is not None else ""
    slices = surface.vix_slices
    dates = "" if slices is None else f", VIX at {slices.maturities.size} dates"
    return (
        f"Surface({count} maturities from {days[0]:.3g} to {days[-1]:.4g} days, {n} knots"
        f"{mixture}, variance-swap volatility {vol[0]:.2%} to {vol[1]:.2%}{dates}{moment})"
    )


def format_expiries(surface: Surface) -> str:
    """The same, and a line for each of the first and last expiries."""
    rows = [_COLUMNS, *_list_rows(surface)]
    width = max(len(row[0]) for row in rows)
    lines = (f"  {label:<{width}} {days:>9} {iv:>13}".rstrip() for label, days, iv in rows)
    return "\n".join([str(surface), *lines])


def format_expiries_html(surface: Surface) -> str:
    """The same as an HTML table, below the sentence about the surface."""
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
        for row in _list_rows(surface)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p>{html.escape(str(surface))}</p>{table}</div>"


def _list_rows(surface: Surface) -> Iterator[tuple[str, str, str]]:
    """The cells of each row that is shown, with one for those left out."""
    count = surface.maturities.size
    shown = np.arange(count)
    if count > _FIRST_ROWS + _LAST_ROWS + 1:
        shown = np.concatenate([shown[:_FIRST_ROWS], shown[-_LAST_ROWS:]])
    labels = [one.label for one in surface.expiries]
    T = surface.maturities[shown]
    volatilities = np.atleast_1d(surface.iv(np.zeros(T.size), T))
    for row, (place, t, iv) in enumerate(zip(shown.tolist(), T, volatilities, strict=True)):
        if row == _FIRST_ROWS and shown.size < count:
            yield f"... {count - shown.size} more", "", ""
        label = labels[place] if labels else f"T={t:.4g}"
        shown_label = "".join(letter if letter.isprintable() else "?" for letter in label)
        yield shown_label[:_LONGEST_LABEL], f"{t * DAYS_PER_YEAR:.2f}", f"{iv:.2%}"
