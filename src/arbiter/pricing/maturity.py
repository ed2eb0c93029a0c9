"""Slopes and mixture weights at any maturity, from those at the listed ones.

In ``u = √T`` every slope follows a monotone cubic (Hermite) that starts at 0, passes through
the listed slopes and leaves the last one on a straight line. Its tangents are limited so that
it never falls between two listed maturities and so that ordered components stay ordered
(docs/theory.md, section 5). Being continuously differentiable it gives a continuous theta,
forward variance and local variance, which straight lines between maturities would not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.pricing.monotone_cubic import Hermite, Numbers

# Volatility past the last maturity tends to at most this multiple of the last one.
MAX_END_VOLATILITY_RATIO = 1.25
_COLOUR_COUNT = 5  # a slope between expiries depends on at most four of them, next to each other
_COMPLEX_STEP = 1e-100  # of complex-step derivatives, which have no cancellation


def interpolate_slopes(maturities: Array, slopes: Array) -> Hermite:
    """The cubics of slopes ``(J, L, n)`` at maturities ``(L,)``.

    Args:
        maturities: ``(L,)`` listed maturities, increasing and positive.
        slopes: ``(J, L, n)``, nondecreasing along L and along J.
    """
    u = np.concatenate([[0.0], np.sqrt(maturities)])
    values = np.concatenate([np.zeros_like(slopes[:, :1]), slopes], axis=1)  # (J, L+1, n)
    return Hermite(u, values, _slope_tangents(u, values))


def _slope_tangents(u: Array, values: Numbers) -> Numbers:
    rate = _divided_differences(u, values)
    last = _end_tangent(u, values, rate)
    # past the last maturity components must not cross: no tangent above a higher component's
    for j in range(values.shape[0] - 2, -1, -1):
        last[j] = _smaller(last[j], last[j + 1])
    # the first tangent is the first secant: volatility b/√T is flat towards T = 0
    tangent = _fritsch_butland_tangents(u, rate, rate[:, 0], last)
    return limit_crossing_tangents(u, values, tangent)


def slopes_at(maturities: Array, slopes: Array, T: Array) -> Array:
    """Slopes ``(J, U, n)`` at maturities ``(U,)``; arguments as in :func:`interpolate_slopes`."""
    return interpolate_slopes(maturities, slopes).at(T)


def slope_derivatives_at(maturities: Array, slopes: Array, T: Array) -> Array:
    """Derivatives ``(U, J, J, L, n)`` of the slopes at ``T`` by the listed ones of their own knot.

    The second component is the one that is moved: one may limit the tangents of the other.
    Complex steps are exact to rounding; listed slopes that no maturity shares are moved together.
    """
    components, count, n = slopes.shape
    node = np.arange(count)
    left = np.searchsorted(maturities, T, side="right") - 1
    if components == 1 and T.size and left.min() > 0 and left.max() < count - 2:
        return _inner_derivatives_at(maturities, slopes[0], T, left)
    touched = np.abs(node - left[:, None]) <= _COLOUR_COUNT // 2  # (U, L)
    found = np.zeros((T.size, components, components, count, n))
    u = np.concatenate([[0.0], np.sqrt(maturities)])
    values = np.concatenate([np.zeros_like(slopes[:, :1]), slopes], axis=1)
    for colour in range(min(_COLOUR_COUNT, count)):
        own = node % _COLOUR_COUNT == colour
        for j in range(components):
            moved = values.astype(np.complex128)
            moved[j, 1:][own] += 1j * _COMPLEX_STEP
            tangent = _slope_tangents(u, moved)
            cubic = Hermite(u, moved.imag / _COMPLEX_STEP, tangent.imag / _COMPLEX_STEP)
            change = cubic.changes_at(T).transpose(1, 0, 2)  # (U, J, n)
            for at in np.flatnonzero(own):
                found[:, :, j, at] = np.where(touched[:, at, None, None], change, 0.0)
    return found


def _inner_derivatives_at(
    maturities: Array, slopes: Array, T: Array, left: NDArray[np.intp]
) -> Array:
    """The same in closed form, for one component and intervals that are not at an end."""
    u = np.sqrt(maturities)
    width, around = np.diff(u), left[:, None] + np.arange(-1, 3)  # (U, 4) two nodes on each side
    w = width[around[:, :3], None]  # (U, 3, 1)
    rate = np.diff(slopes[around], axis=1) / w  # (U, 3, n)
    near_left, near_right = 2.0 * w[:, 1:] + w[:, :-1], w[:, 1:] + 2.0 * w[:, :-1]
    bottom = near_left * rate[:, 1:] + near_right * rate[:, :-1]  # as of the harmonic means
    scale = np.where(bottom > 0.0, near_left + near_right, 0.0)
    scale /= np.where(bottom > 0.0, bottom, 1.0) ** 2
    t = ((np.sqrt(T) - u[left]) / width[left])[:, None, None]
    lean = w[:, 1:2] * np.concatenate([t * (1.0 - t) ** 2, -t * t * (1.0 - t)], axis=1)
    before = lean * scale * near_left * rate[:, 1:] ** 2  # (U, 2, n) by the secant before a node
    after = lean * scale * near_right * rate[:, :-1] ** 2
    by_rate = np.concatenate([before[:, :1], after[:, :1] + before[:, 1:], after[:, 1:]], axis=1)
    by_rate /= w
    by = np.zeros((T.size, 4, slopes.shape[1]))
    by[:, :3] -= by_rate
    by[:, 1:] += by_rate
    rise = t[:, 0] ** 2 * (3.0 - 2.0 * t[:, 0])
    by[:, 1] += 1.0 - rise
    by[:, 2] += rise
    found = np.zeros((T.size, 1, 1, *slopes.shape))
    found[np.arange(T.size)[:, None], 0, 0, around] = by
    return found


def interpolate_survival(maturities: Array, weights: Array) -> Hermite | None:
    """The cubics of ``P(J ≥ j)``, ``j = J … 2``; None for one component or one maturity.

    The survival function must not fall in T. It is held constant before the first and after the
    last listed maturity.
    """
    if weights.shape[0] == 1 or maturities.size == 1:
        return None
    u = np.sqrt(maturities)
    survival = np.cumsum(weights[::-1], axis=0)[:-1, :, None]  # (J-1, L, 1), increasing in j
    rate = _divided_differences(u, survival)
    flat = np.zeros_like(rate[:, 0])
    tangent = _fritsch_butland_tangents(u, rate, flat, flat)
    return Hermite(u, survival, limit_crossing_tangents(u, survival, tangent))


def weights_at(maturities: Array, weights: Array, T: Array) -> Array:
    """Mixture weights ``(J, U)`` at maturities ``T``, from ``(J, L)`` at the listed ones."""
    survival = interpolate_survival(maturities, weights)
    if survival is None:
        return np.repeat(weights[:, :1], T.size, axis=1)
    at = survival.at(np.clip(T, maturities[0], maturities[-1]))[:, :, 0]  # (J-1, U)
    steps = np.diff(np.concatenate([at, np.ones((1, T.size))]), axis=0)
    return np.concatenate([at[:1], steps])[::-1]


def weight_derivatives_at(maturities: Array, weights: Array, T: Array) -> Array:
    """Derivatives ``(U, L)`` of the second of two weights at ``T`` by the listed ones.

    The interpolant of the weight is a monotone cubic, so complex steps serve as in
    :func:`slope_derivatives_at`.
    """
    found = np.zeros((T.size, maturities.size))
    if maturities.size == 1:
        return found + 1.0
    u, inside = np.sqrt(maturities), np.clip(T, maturities[0], maturities[-1])
    for at in range(maturities.size):
        survival = weights[1][None, :, None].astype(np.complex128)
        survival[:, at] += 1j * _COMPLEX_STEP
        rate = _divided_differences(u, survival)
        flat = np.zeros_like(rate[:, 0])
        tangent = _fritsch_butland_tangents(u, rate, flat, flat)
        cubic = Hermite(u, survival.imag / _COMPLEX_STEP, tangent.imag / _COMPLEX_STEP)
        found[:, at] = cubic.changes_at(inside)[0, :, 0]
    return found


def weight_rates_at(maturities: Array, weights: Array, T: Array) -> Array:
    """Derivatives ``(J, U)`` of the mixture weights by T."""
    survival = interpolate_survival(maturities, weights)
    if survival is None:
        return np.zeros((weights.shape[0], T.size))
    inside = (maturities[0] < T) & (maturities[-1] > T)
    rate = survival.rates_at(np.clip(T, maturities[0], maturities[-1]))[:, :, 0] * inside
    steps = np.diff(np.concatenate([rate, np.zeros((1, T.size))]), axis=0)
    return np.concatenate([rate[:1], steps])[::-1]


def _divided_differences(u: Array, values: Numbers) -> Numbers:
    return np.diff(values, axis=1) / np.diff(u)[:, None]


def _smaller(a: Numbers, b: Numbers) -> Numbers:
    """The smaller of two numbers by their real parts, so that complex steps pass through."""
    return np.where(np.real(a) <= np.real(b), a, b)


def _fritsch_butland_tangents(u: Array, rate: Numbers, first: Numbers, last: Numbers) -> Numbers:
    """Fritsch-Butland tangents: a weighted harmonic mean of the two secants, given ends."""
    width = np.diff(u)[:, None]
    left, right = rate[:, :-1], rate[:, 1:]
    near_left, near_right = 2.0 * width[1:] + width[:-1], width[1:] + 2.0 * width[:-1]
    bottom = near_left * right + near_right * left
    flat = np.real(bottom) <= 0.0
    inner = (near_left + near_right) * left * right / np.where(flat, 1.0, bottom)
    inner = np.where(flat, 0.0, inner)
    return np.concatenate([first[:, None], inner, last[:, None]], axis=1)


def _end_tangent(u: Array, values: Numbers, rate: Numbers) -> Numbers:
    """Tangent at the last node, which is also the slope's growth beyond it.

    The three-point formula, kept within what is monotone, and within a little more than the
    rate of a flat volatility, b/u: two late maturities that lie close together say nothing
    about years to come.
    """
    if u.size == 2:
        return np.array(rate[:, -1])
    width = np.diff(u)
    lean = width[-1] / (width[-1] + width[-2])
    tangent = rate[:, -1] + lean * (rate[:, -1] - rate[:, -2])
    limit = _smaller(3.0 * rate[:, -1], MAX_END_VOLATILITY_RATIO * values[:, -1] / u[-1])
    return _smaller(np.where(np.real(tangent) < 0.0, 0.0, tangent), limit)


def limit_crossing_tangents(u: Array, values: Numbers, tangent: Numbers) -> Numbers:
    """Tangents drawn together, node by node, so that ordered components cannot cross.

    In Bernstein form two cubics are ordered when their control points are: at a node with
    gap g between neighbours, tangents may differ by at most 3g over the interval's width.
    """
    if values.shape[0] == 1:
        return tangent
    width = np.diff(u)[:, None]
    gap, apart = np.diff(values, axis=0), np.diff(tangent, axis=0)
    pad = np.zeros_like(gap[:, :1])
    ahead = np.concatenate([-_smaller(apart[:, :-1], pad) * width, pad], axis=1)
    behind = np.concatenate([pad, -_smaller(-apart[:, 1:], pad) * width], axis=1)
    need = -_smaller(-ahead, -behind)
    crossing = np.real(need) > 3.0 * np.real(gap)
    shrink = np.where(crossing, 3.0 * gap / np.where(np.real(need) > 0.0, need, 1.0), 1.0)
    least, lowest = shrink[0], tangent[0]
    for j in range(1, values.shape[0]):
        lowest = _smaller(lowest, tangent[j])
        least = _smaller(least, shrink[j - 1])
    return np.asarray(lowest + (tangent - lowest) * least)
