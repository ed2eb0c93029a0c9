"""What the audit asks of a surface: a protocol of public methods, and three optional extensions.

The audit calls nothing else, so a peer's surface is audited like our own. Arguments are float64
arrays that broadcast; maturities are year fractions and strikes are in currency.
"""

from __future__ import annotations

from typing import Protocol, TypeGuard

from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.pricing.vix_slices import VixSlices


class AuditedSurface(Protocol):
    """A surface of option prices: the methods that every audit needs."""

    @property
    def maturities(self) -> ArrayLike:
        """``(L,)`` listed maturities in years, increasing."""

    def forward(self, T: Array, /) -> ArrayLike:
        """Forwards in currency for maturities ``T``."""

    def discount(self, T: Array, /) -> ArrayLike:
        """Discount factors for maturities ``T``."""

    def call(self, K: Array, T: Array, /) -> ArrayLike:
        """Discounted call prices in currency."""

    def put(self, K: Array, T: Array, /) -> ArrayLike:
        """Discounted put prices in currency."""


class LogContractSurface(Protocol):
    """A surface that also prices the log contract."""

    def variance_swap(self, T: Array, /) -> ArrayLike:
        """Annualised variance of the log contract to maturities ``T``."""


class TransportSurface(AuditedSurface, Protocol):
    """A surface that also shows the numbers of the structural proof."""

    @property
    def knots(self) -> Array:
        """``(n,)`` Gaussian coordinates of the slopes."""

    @property
    def slopes(self) -> Array:
        """``(J, L, n)`` transport slopes."""

    @property
    def weights(self) -> Array:
        """``(J, L)`` mixture weights."""


class VixSurface(Protocol):
    """A surface that also has a law of the VIX. Prices of the VIX are in index points."""

    @property
    def vix_slices(self) -> VixSlices:
        """Transport slices of the VIX at its listed dates."""

    def discount(self, T: Array, /) -> ArrayLike:
        """Discount factors for maturities ``T``."""

    def forward_variance(self, T: Array, /) -> ArrayLike:
        """Annualised variance of the 30 days after ``T``."""

    def vix_future(self, T: Array, /) -> ArrayLike:
        """VIX futures."""

    def vix_option(self, K: Array, T: Array, side: str, /) -> ArrayLike:
        """Discounted prices of VIX options; ``side`` is ``"call"`` or ``"put"``."""

    def vix_second_moment(self, T: Array, /) -> ArrayLike:
        """``E[(VIX_T/100)²]``."""

    def vvix(self, T: Array, /) -> ArrayLike:
        """Volatility index of the VIX."""


def has_log_contract(surface: object) -> TypeGuard[LogContractSurface]:
    """Whether the surface prices the log contract."""
    return hasattr(surface, "variance_swap")


def has_transport(surface: object) -> TypeGuard[TransportSurface]:
    """Whether the surface shows knots, slopes and weights."""
    return all(hasattr(surface, name) for name in ("knots", "slopes", "weights"))


def has_vix(surface: object) -> TypeGuard[VixSurface]:
    """Whether the surface has VIX slices."""
    return getattr(surface, "vix_slices", None) is not None
