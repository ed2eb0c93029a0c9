"""Machine code is made once for each function: every other kind of array would take seconds.

Read-only, strided, broadcast and single-precision arguments are given to the same code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

import arbiter as ab
from arbiter.compiled import compiled
from arbiter.pricing import (
    black,
    calendar_rate,
    knots,
    maturity,
    normal,
    price_derivatives,
    slice_integrals,
)
from arbiter.pricing.transport import Transport

MODULES = (black, calendar_rate, knots, maturity, normal, price_derivatives, slice_integrals)
SURFACE = ab.example()
LAW = Transport([-1.0, 0.5], np.array([[0.2, 0.2], [0.3, 0.2]]))

CALLS: dict[str, Callable[[NDArray[np.floating]], object]] = {
    "prices": lambda k: black.call(k, 0.2),
    "vega": lambda k: black.vega(k, 0.2),
    "implied volatility": lambda k: black.implied_total_volatility(np.exp(-10.0 - k), k),
    "distribution": normal.cdf_of,
    "quantile": lambda k: normal.quantile_of(0.5 + k),
    "slices": LAW.delta,
    "slopes of slices": lambda k: Transport([-1.0, 0.5], np.exp(k[..., :2])).density(k[..., 1:3]),
    "dual": lambda k: LAW.dual(0.5 + k),
    "surface": lambda k: SURFACE.iv(k, 0.3),
    "maturities": lambda k: SURFACE.theta(6000.0, 0.5 + k),
}


def list_code() -> set[tuple[str, str]]:
    """The argument types that each function of the decoder was compiled for."""
    return {
        (name, str(types))
        for module in MODULES
        for name, function in vars(module).items()
        for types in getattr(function, "signatures", ())
    }


@pytest.mark.parametrize("name", list(CALLS))
def test_kinds_of_arrays_share_their_code(name: str) -> None:
    k = np.linspace(-0.2, 0.2, 6)
    CALLS[name](k)
    before = list_code()
    locked = k.copy()
    locked.setflags(write=False)
    for other in (locked, k[::-1], np.repeat(k, 2)[::2], k.astype(np.float32)):
        CALLS[name](other)
    if name not in ("slices", "slopes of slices", "dual"):  # where the first axis counts slices
        CALLS[name](np.asfortranarray(np.stack([k, k])))
        CALLS[name](np.broadcast_to(k, (3, 6)))
    assert list_code() == before


def test_a_second_kind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @njit
    def total(x: NDArray[np.floating]) -> float:
        return float(x.sum())

    assert hasattr(compiled(lambda x: x), "signatures")
    monkeypatch.setattr(black, "total", total, raising=False)
    k = np.linspace(-0.2, 0.2, 6)
    total(k)
    before = list_code()
    total(k[::2])
    assert len(list_code() - before) == 1
