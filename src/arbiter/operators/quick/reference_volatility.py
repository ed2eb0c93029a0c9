"""Chains divided by their own levels, compiled: :mod:`..prior.reference_volatility`.

Shapes: B chains of L slices with S places for quotes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators import quote_tensors
from arbiter.operators.prior import reference_volatility
from arbiter.operators.prior.reference_volatility import Scaled
from arbiter.operators.quick.elementary import asinh, exp, log
from arbiter.operators.quote_tensors import Ragged

Flags = NDArray[np.bool_]


def scaled(quotes: Ragged) -> Scaled:
    """As :func:`..prior.reference_volatility.scaled`, in float64."""
    slices, places = _scaled(*(part.numpy() for part in quotes))
    sigma, total, gap, ahead = torch.from_numpy(slices)
    zeta, u, noise, moneyness, spacing, width = torch.from_numpy(places)
    return Scaled(
        sigma, total, zeta, u, noise, moneyness, spacing, width, quotes.quoted, gap, ahead
    )


@compiled
def _scaled(T: Array, k: Array, iv: Array, half: Array, quoted: Flags) -> tuple[Array, Array]:
    """Numbers of slices ``(4, B, L)`` and of places ``(6, B, L, S)``."""
    B, L, S = k.shape
    slices, places = np.empty((4, B, L)), np.empty((6, B, L, S))
    level, doubt, listed = np.empty(L), np.empty(L), np.empty(L, np.bool_)
    log_T = np.log(T)
    for i in range(B):
        sigma, total, gap, ahead = slices[0, i], slices[1, i], slices[2, i], slices[3, i]
        zeta, u, noise, moneyness = places[0, i], places[1, i], places[2, i], places[3, i]
        for each in range(L):
            _relative(iv[i, each], half[i, each], u[each], noise[each])
            listed[each] = quoted[i, each].any()
            level[each], doubt[each] = _level(
                T[i, each], k[i, each], u[each], noise[each], quoted[i, each]
            )
        _smooth(level, doubt, log_T[i], listed, sigma)
        for each in range(L):
            total[each] = sigma[each] + 0.5 * log_T[i, each]
            scale = math.exp(-total[each])
            _in_units(k[i, each], scale, zeta[each], moneyness[each], noise[each])
            for s in range(S):
                off = u[each, s] - sigma[each]
                u[each, s] = min(
                    max(off, -reference_volatility.MAX_LOG_VOLATILITY_RATIO),
                    reference_volatility.MAX_LOG_VOLATILITY_RATIO,
                )
                u[each, s] *= quoted[i, each, s]
            _trapezoid(zeta[each], quoted[i, each], places[4, i, each])
            _trapezoid(moneyness[each], quoted[i, each], places[5, i, each])
            sigma[each] = math.exp(sigma[each])
        _gaps(log_T[i], listed, gap, ahead)
    return slices, places


@compiled
def _relative(iv: Array, half: Array, u: Array, noise: Array) -> None:
    """Logarithms of volatilities, and half-spreads over them."""
    for s in range(iv.size):
        relative = half[s] / iv[s]
        noise[s] = min(
            max(relative, reference_volatility.MIN_RELATIVE_HALF_SPREAD),
            reference_volatility.MAX_RELATIVE_HALF_SPREAD,
        )
        u[s] = log(iv[s])


@compiled
def _in_units(k: Array, scale: float, zeta: Array, moneyness: Array, noise: Array) -> None:
    """What strikes are in deviations, and of the spot; logarithms of the noise."""
    for s in range(k.size):
        zeta[s] = asinh(k[s] * scale)
    for s in range(k.size):
        moneyness[s] = exp(k[s])
        noise[s] = log(noise[s])


@compiled
def _level(
    T: float, k: Array, log_iv: Array, relative: Array, quoted: Flags
) -> tuple[float, float]:
    """A slice's log-volatility at the money by a local line, and its variance."""
    nearest, root = 0, math.sqrt(T)
    for s in range(k.size):
        closer = abs(k[s]) < abs(k[nearest]) or not quoted[nearest]
        nearest = s if quoted[s] and closer else nearest
    found = log_iv[nearest]
    mass = away = 0.0
    for _ in range(2):
        per = 1.0 / (math.exp(found) * root)
        mass = first = second = mean = cross = 0.0
        for s in range(k.size):
            z = k[s] * per
            bell = exp(
                -0.5 * (z / reference_volatility.AT_MONEY_WIDTH_SD) ** 2
            ) + reference_volatility.FAR_WEIGHT / (1.0 + z * z)
            near = (
                quoted[s]
                * bell
                / (relative[s] ** 2 + reference_volatility.WEIGHT_HALF_SPREAD_FLOOR**2)
            )
            mass += near
            first += near * z
            second += near * z * z
            mean += near * log_iv[s]
            cross += near * z * log_iv[s]
        mass += reference_volatility.DIVISION_FLOOR
        centre, away, mean = first / mass, second / mass, mean / mass
        lean = (cross / mass - centre * mean) / (
            away - centre**2 + reference_volatility.STRIKE_RIDGE
        )
        found = mean - min(max(centre, -1.0), 1.0) * lean
    return found, 1.0 / max(mass, reference_volatility.MIN_SLICE_WEIGHT) + (
        reference_volatility.OFF_MONEY_ERROR * away
    ) ** 2


@compiled
def _smooth(level: Array, doubt: Array, log_T: Array, listed: Flags, smooth: Array) -> None:
    """Levels along maturity, by a local line in log-maturity."""
    for here in range(level.size):
        mass = first = second = mean = cross = 0.0
        for there in range(level.size):
            if listed[there]:
                apart = log_T[there] - log_T[here]
                bell = math.exp(-0.5 * (apart / reference_volatility.LOG_MATURITY_BANDWIDTH) ** 2)
                near = bell + reference_volatility.FAR_WEIGHT / (1.0 + apart * apart)
                near /= doubt[there] + reference_volatility.MIN_ATM_LOG_IV_ERROR**2
                mass += near
                first += near * apart
                second += near * apart * apart
                mean += near * level[there]
                cross += near * apart * level[there]
        centre, mean = first / mass, mean / mass
        lean = (cross / mass - centre * mean) / (
            second / mass - centre**2 + reference_volatility.MATURITY_RIDGE
        )
        smooth[here] = mean - min(max(centre, -1.0), 1.0) * lean


@compiled
def _gaps(log_T: Array, listed: Flags, gap: Array, ahead: Array) -> None:
    """Log-maturities to the slice before and to the one after; 1 where none there is listed."""
    L = log_T.size
    gap[0] = ahead[L - 1] = 1.0
    begun = left = False
    for each in range(1, L):
        begun |= listed[each - 1]
        gap[each] = log_T[each] - log_T[each - 1] if begun else 1.0
    for each in range(L - 2, -1, -1):
        left |= listed[each + 1]
        ahead[each] = log_T[each + 1] - log_T[each] if left else 1.0


@compiled
def _trapezoid(at: Array, quoted: Flags, width: Array) -> None:
    """As :func:`arbiter.operators.quote_tensors.trapezoid`."""
    last = before = -1
    for s in range(at.size):
        width[s] = 0.0
        if quoted[s]:
            if last >= 0:
                right = at[s] - at[last]
                left = at[last] - at[before] if before >= 0 else right
                width[last] = max(0.5 * (left + right), quote_tensors.MIN_QUADRATURE_WEIGHT)
            before, last = last, s
    if last >= 0:
        width[last] = (
            max(at[last] - at[before], quote_tensors.MIN_QUADRATURE_WEIGHT) if before >= 0 else 1.0
        )
