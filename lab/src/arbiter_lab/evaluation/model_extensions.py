"""Optional parts of a model: a volatility index, standard errors of volatilities, a domain."""

from __future__ import annotations

from typing import Protocol, SupportsFloat, TypeGuard

from numpy.typing import ArrayLike

from arbiter.conventions import Array


class IndexModel(Protocol):
    """A model with a volatility index of its own."""

    def vix(self) -> SupportsFloat:
        """Volatility index in points."""
        ...


class ErrorModel(Protocol):
    """A model that states standard errors of its volatilities."""

    def iv_error(self, k: Array, T: Array, /) -> ArrayLike:
        """Standard errors of implied volatility at log-strikes ``k`` and maturities ``T``."""
        ...


def read_index(model: object) -> float | None:
    """Return the volatility index of a model in points; None for a model without one."""
    return float(model.vix()) if _has_index(model) else None


def read_domain(model: object) -> bool | None:
    """Return whether a model takes its quotes for ordinary ones; None if it does not judge them."""
    domain = getattr(model, "domain", None)
    return None if domain is None else bool(domain.inside)


def has_iv_errors(model: object) -> TypeGuard[ErrorModel]:
    """Return whether a model states standard errors of its volatilities."""
    return hasattr(model, "iv_error")


def _has_index(model: object) -> TypeGuard[IndexModel]:
    return hasattr(model, "vix")
