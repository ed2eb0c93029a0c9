"""Forward and discount curves of a surface."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array

_MAX_ABS_LOG = 708.0  # of a forward or a discount factor: e^708 and e^-708 are ordinary float64


@dataclass(frozen=True, eq=False)
class ForwardCurve:
    """Forwards and discount factors at the listed maturities, log-linear in T between them.

    Before the first and after the last maturity the forward goes on at the nearest rate; the
    discount factor is 1 at T = 0. With one maturity the forward is flat.

    Attributes:
        maturities: ``(L,)`` year fractions, increasing.
        forwards: ``(L,)`` forwards in currency.
        discounts: ``(L,)`` discount factors.
    """

    maturities: Array
    forwards: Array
    discounts: Array

    def forward(self, T: ArrayLike) -> Array:
        """Forward for maturities ``T``.

        Raises:
            ValueError: Where it would be zero or infinite in float64. So does :meth:`discount`.
        """
        at = _as_floats(T)
        _require_range("forward", at, self._forward_range)
        return np.exp(_interpolate_linear(*self._forward_nodes, at))

    def discount(self, T: ArrayLike) -> Array:
        """Discount factor for maturities ``T``."""
        at = _as_floats(T)
        _require_range("discount factor", at, self._discount_range)
        return np.exp(_interpolate_linear(*self._discount_nodes, at))

    @cached_property
    def _forward_range(self) -> tuple[float, float]:
        return _find_finite_range(*self._forward_nodes)

    @cached_property
    def _discount_range(self) -> tuple[float, float]:
        return _find_finite_range(*self._discount_nodes)

    @cached_property
    def _forward_nodes(self) -> tuple[Array, Array]:
        return self.maturities, np.log(self.forwards)

    @cached_property
    def _discount_nodes(self) -> tuple[Array, Array]:
        logs = np.concatenate([[0.0], np.log(self.discounts)])
        return np.concatenate([[0.0], self.maturities]), logs


def _as_floats(a: ArrayLike) -> Array:
    return np.asarray(a, dtype=np.float64)


def _find_finite_range(at: Array, logs: Array) -> tuple[float, float]:
    """Maturities between which the exponential of a line carried on is a float64 above zero."""
    if at.size == 1:
        return 0.0, np.inf
    with np.errstate(divide="ignore", over="ignore"):
        room = _MAX_ABS_LOG - np.abs(logs[[0, -1]])  # before the first and past the last node
        reach = room / np.abs((logs[[1, -1]] - logs[[0, -2]]) / (at[[1, -1]] - at[[0, -2]]))
    return float(at[0] - reach[0]), float(at[-1] + reach[1])


def _require_range(name: str, T: Array, ends: tuple[float, float]) -> None:
    """A ``ValueError`` where a maturity lies outside of ``ends``."""
    # most questions have one maturity, for which reductions of arrays would take longer
    low, high = (float(T),) * 2 if T.ndim == 0 else (T.min(initial=np.inf), T.max(initial=0.0))
    if low < ends[0] or high > ends[1]:
        raise ValueError(
            f"T = {high if high > ends[1] else low:g}: the {name} there, at the rate of the "
            "nearest listed maturities, is not a float64 above zero; ask from T = "
            f"{max(ends[0], 0.0):.6g} to {ends[1]:.6g}"
        )


def _interpolate_linear(at: Array, logs: Array, T: Array) -> Array:
    if at.size == 1:
        return np.full(T.shape, logs[0])
    i = np.searchsorted(at[1:-1], T, side="right")
    left, right = logs[i], logs[i + 1]
    share = (T - at[i]) / (at[i + 1] - at[i])
    # written from the nearer node, so that a listed maturity gives its own number back
    rise = right - left
    return np.where(share < 0.5, left + share * rise, right - (1.0 - share) * rise)
