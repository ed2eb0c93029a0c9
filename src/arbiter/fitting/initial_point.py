"""The starting point of a fit: the quoted smiles or a previous surface, moved inside the order."""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting.objective import HIGHEST_LOG_SLOPE, LOWEST_LOG_SLOPE, FitObjective
from arbiter.fitting.prior_mean import log_slopes
from arbiter.surface import Surface

_MAX_GROWTH_SHORTFALL = 0.7  # share of its natural growth √T by which a slope may fall short, cold
_MAX_GROWTH_SHORTFALL_WARM = 0.98
_BOUND_MARGIN, _BOUND_MARGIN_WARM = 0.2, 0.05  # distance from the highest log-slope
_COMPONENT_MARGIN = 0.1  # more of it below a second component
_HALF_WINDOW = 1.0
_CRASH_WIDTH = 0.8  # width of a crash, in slopes of the middle expiry
_MAX_SLOPE_RATIO = 4.0  # a slope may start this factor from the volatility at its strike


def start_from_quotes(model: FitObjective) -> Array:
    """Slopes from the quoted smiles, each strike at its percentile by Black's formula."""
    layout, smiles = model.layout, model.misfit.smiles
    starts, quoted = smiles.starts, smiles.quoted
    logs = np.empty((layout.expiry_count, layout.knot_count))
    for i in quoted:
        part = slice(starts[i], starts[i + 1])
        smile = (smiles.gaussian_strike[part], model.quotes.k[part], smiles.total_volatility[part])
        logs[i] = log_slopes_from_smile(layout.knots, *smile)
    tau = model.penalty.tau
    for i in np.setdiff1d(np.arange(layout.expiry_count), quoted):
        after = int(np.searchsorted(quoted, i))
        pair = quoted[np.clip([after - 1, after], 0, quoted.size - 1)]
        rates = logs[pair] - tau[pair, None]
        share = (tau[i] - tau[pair[0]]) / max(tau[pair[1]] - tau[pair[0]], 1e-300)
        logs[i] = tau[i] + rates[0] + np.clip(share, 0.0, 1.0) * (rates[1] - rates[0])
    shares = np.zeros(layout.expiry_count)
    return _move_inside_order(model, logs[None], shares, (_MAX_GROWTH_SHORTFALL, _BOUND_MARGIN))


def log_slopes_from_smile(knots: Array, strike: Array, k: Array, v: Array) -> Array:
    """Log-slopes half-way between the volatility and the central difference of k by the strike.

    Volatilities alone start the wings of a steep smile so low that their prices vanish, and
    with them every pull towards the quotes; differences alone are noisy.

    Args:
        knots: ``(n,)``.
        strike: ``(m,)`` strikes as Gaussian coordinates.
        k: ``(m,)`` the same as log-moneyness.
        v: ``(m,)`` total volatilities.
    """
    x = np.maximum.accumulate(strike)  # rising, but for noise
    near, far = x[0] - 10.0, x[-1] + 10.0  # beyond the quotes go on at the last volatility
    x = np.concatenate([[near], x, [far]])
    k = np.concatenate([[k[0] - 10.0 * v[0]], k, [k[-1] + 10.0 * v[-1]]])
    both = np.interp(np.concatenate([knots + _HALF_WINDOW, knots - _HALF_WINDOW]), x, k)
    rise = both[: knots.size] - both[knots.size :]
    here = np.interp(knots, x[1:-1], v)
    slope = np.maximum(rise / (2.0 * _HALF_WINDOW), here / _MAX_SLOPE_RATIO)
    slope = np.minimum(slope, here * _MAX_SLOPE_RATIO)
    return np.asarray(0.5 * np.log(slope * here))


def start_from_surface(model: FitObjective, surface: Surface) -> Array:
    """The slopes of ``surface`` at the maturities and knots of the fit."""
    logs, shares = log_slopes(surface, model.layout.knots, model.quotes.maturities)
    return _move_inside_order(model, logs, shares, (_MAX_GROWTH_SHORTFALL_WARM, _BOUND_MARGIN_WARM))


def _move_inside_order(
    model: FitObjective, logs: Array, shares: Array, room: tuple[float, float]
) -> Array:
    """Unknowns strictly inside the order, near log-slopes ``(J, L, n)`` and shares ``(L,)``.

    ``room`` is the distance kept from the order and from the highest slope.
    """
    (kept, below), layout, highest = room, model.layout, HIGHEST_LOG_SLOPE
    tau = model.penalty.tau[:, None]
    rate = logs[0] - tau  # (L, n)
    if layout.expiry_count > 1:
        step = np.maximum(np.diff(rate, axis=0), -kept * np.diff(tau, axis=0))
        path = np.concatenate([rate[:1], rate[:1] + np.cumsum(step, axis=0)])
        rate = path + (rate - path).mean(axis=0)
    below += _COMPONENT_MARGIN * (layout.components - 1)
    first = np.clip(rate + tau, LOWEST_LOG_SLOPE + 1.0, highest - below)
    # a clip can close a slack; the least growth opens it again
    least = 1e-3 * (tau - tau[0])
    first = np.maximum.accumulate(first - least, axis=0) + least
    if layout.components == 1:
        return layout.pack(first[None], np.zeros((0, layout.expiry_count)))
    if logs.shape[0] == 1:
        second, shares = _start_crash_component(model, first)
    else:
        second = np.maximum.accumulate(logs[1] - least, axis=0) + least
    second = np.clip(second, first + 1e-3, highest - 0.05 + least)
    growing = np.clip(shares, 0.001, 0.5) + 1e-6 * np.arange(1, layout.expiry_count + 1)
    return layout.pack(np.stack([first, second]), growing[None])


def _start_crash_component(model: FitObjective, first: Array) -> tuple[Array, Array]:
    """Log-slopes and shares of a crash: as wide on short expiries as the smiles are later on.

    A jump is as large tomorrow as next year. With a wider start the share would first fall to
    nothing, where the second component no longer matters.
    """
    middle = np.searchsorted(
        model.penalty.tau, 0.5 * (model.penalty.tau[0] + model.penalty.tau[-1])
    )
    second = 0.5 * np.logaddexp(2.0 * first, 2.0 * first[middle] + 2.0 * np.log(_CRASH_WIDTH))
    T = model.quotes.maturities
    return second, 0.4 * T / (T + 0.5 * T[-1])
