"""What the operator answers: a surface that remembers which network made it, and how it fits."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.fitting.fitted_surface import Kind, VixResult, plain_surface, rebuild_with_result
from arbiter.inputs import freeze_array, freeze_info, require_finite
from arbiter.operators.domain import DomainReport, read_traits
from arbiter.operators.monitors import Monitors
from arbiter.operators.volatility_error import HeadErrors
from arbiter.pricing.vix_slices import VixSlices
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter.timing.maturities import MaturityLike
from arbiter.vix.prior import VixPrior, vix_prior

logger = logging.getLogger(__name__)

OPERATOR, PRIOR = "operator", "prior"  # which path answered; a fit says "fit"
_MIN_OPERATOR_SHARE = 0.5  # share of the network's change, below which the answer is the prior's


@dataclass(frozen=True, eq=False)
class OperatorResult:
    """Model, residuals and domain features of an operator's surface.

    Attributes:
        model: Hash of the weights.
        lipschitz: Certified bound of the move of any log-slope of the pass over the largest move
            of a misfit, in log-volatility under the prior, for given strikes, maturities, spreads,
            prior and share. None of a network with several looks.
        residuals: ``(m,)`` (model − mid) / half-spread of each quote, in the quotes' order.
        reference: ``(L,)`` the volatility that each slice was divided by.
        traits: The numbers that the domain is judged by.
        share: Part of the network's change that is in the surface, from 0 for the prior alone to
            1 (:mod:`arbiter.operators.law.answer`). It is continuous in the quotes.
        watch: What measures :attr:`monitors` when they are first asked for.
        seconds: Wall time; of a batch's pass its share.
        vix: How its VIX slices sit in the quotes on the VIX; None without any.
        warnings: What a reader of the surface should know, as sentences; each is logged as well.
    """

    model: str
    lipschitz: float | None
    residuals: Array
    reference: Array
    traits: Mapping[str, float]
    share: float
    watch: Callable[[], Monitors | None] = field(repr=False)
    seconds: float
    vix: VixResult | None = None
    warnings: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Which path answered: ``"operator"``, or ``"prior"`` where most of its change is not made.

        The name follows from :attr:`share` and moves no price.
        """
        return OPERATOR if self.share >= _MIN_OPERATOR_SHARE else PRIOR

    @cached_property
    def monitors(self) -> Monitors | None:
        """The paper's assumptions A1 to A4 on this surface; None in older files."""
        return self.watch()

    def to_dict(self) -> dict[str, Any]:
        """Everything but arrays, traits and warnings, as plain values."""
        about: dict[str, Any] = {
            "path": self.path,
            "share": self.share,
            "monitors": None if self.monitors is None else self.monitors.to_dict(),
            "model": self.model,
            "lipschitz": self.lipschitz,
            "seconds": self.seconds,
        }
        return about if self.vix is None else about | {"vix": self.vix.to_dict()}


@dataclass(frozen=True, eq=False, repr=False)
class OperatorSurface(Surface):
    """A :class:`~arbiter.surface.Surface` from one pass of the operator.

    Copies, other processes and files keep the result, files without its seconds. Asked about the
    VIX without having seen a quote on it, it answers with the law that
    :func:`~arbiter.vix.prior.vix_prior` makes likely, and logs that once.

    Attributes:
        result: How it came about.
        domain: Whether the quotes are like those of the training universe; None where the weights
            came without limits.
        errors: Standard errors at the heads; None where the weights came without a calibration.
    """

    result: OperatorResult = field(kw_only=True)
    domain: DomainReport | None = field(default=None, kw_only=True)
    errors: HeadErrors | None = field(default=None, kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        more = {"result": self.result, "domain": self.domain, "errors": self.errors}
        return rebuild_with_result, (type(self), plain_surface(self), more)

    def iv_error(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Standard error of :meth:`iv`, annualised and decimal.

        That of the prior, times a factor that was calibrated on laws of the training universe which
        training has not seen. Linear between expiries; beyond the outermost heads and expiries it
        is what it is there, and too small (docs/operator.md, "Standard errors").

        Raises:
            ValueError: If the weights came without a calibration.
        """
        if self.errors is None:
            raise ValueError(
                f"the weights {self.result.model} came without a calibration of errors: add it "
                "with tools/operator_error.py, or take fit(quotes), which has errors of its own"
            )
        points, at = np.broadcast_arrays(require_finite("point", k), self.years(T))
        years, nodes = self.clock_years(at), self.clock_years(self.maturities)
        total = np.log(self.result.reference * np.sqrt(self.maturities))
        found = self.errors.relative(points.ravel(), years.ravel(), nodes, total)
        return np.asarray(self.iv(points, at) * found.reshape(points.shape))

    def to_stored(self) -> tuple[str, dict[str, Any], dict[str, Array]]:
        """What a file keeps of the answer: the kind, plain values and arrays."""
        found, report = self.result, self.domain
        vix = found.vix
        plain = {
            "model": found.model,
            "lipschitz": found.lipschitz,
            "traits": found.traits,
            "share": found.share,
            "monitors": None if found.monitors is None else found.monitors.to_dict(),
            "vix": None if vix is None else vix.to_dict(),
            "warnings": list(found.warnings),
            "domain": None if report is None else report.to_dict(),
        }
        arrays = {} if vix is None else vix.to_arrays()
        arrays |= {"residuals": found.residuals, "reference": found.reference}
        arrays |= {} if self.errors is None else self.errors.to_arrays()
        return "operator", _hide_missing(plain), arrays

    @classmethod
    def from_stored(
        cls, surface: Surface, plain: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> OperatorSurface:
        """A surface from a file, with what :meth:`to_stored` gave."""
        lipschitz, report = plain["lipschitz"], plain["domain"]
        result = OperatorResult(
            model=str(plain["model"]),
            lipschitz=None if lipschitz is None else float(lipschitz),
            residuals=freeze_array(arrays["residuals"]),
            reference=freeze_array(arrays["reference"]),
            traits=read_traits(plain["traits"]),
            share=float(plain.get("share", 1.0)),  # files of earlier versions have neither
            watch=partial(Monitors.from_dict, plain.get("monitors")),
            seconds=0.0,
            vix=VixResult.from_stored(plain["vix"], arrays),
            warnings=tuple(str(sentence) for sentence in plain["warnings"]),
        )
        domain = None if report is None else DomainReport.from_dict(report)
        errors = HeadErrors.from_stored(arrays, surface.maturities.size)
        more = {"result": result, "domain": domain, "errors": errors}
        return rebuild_with_result(cls, surface, more)

    @cached_property
    def vix_prior(self) -> VixPrior:
        """Likely laws of the VIX, from this surface alone, with their uncertainty."""
        return vix_prior(self)

    def require_vix_slices(self) -> VixSlices:
        """The VIX slices; likely ones where no quotes on the VIX were given."""
        if self.vix_slices is not None:
            return self.vix_slices
        known = "vix_prior" in vars(self)
        try:
            slices = self.vix_prior.slices
        except ValueError as error:
            raise ValueError(
                f"no quotes on the VIX were given, and {error}; or give vix_quotes=..., or take "
                "surface.with_vix(vix_prior(surface, T).slices)"
            ) from error
        if not known:
            logger.warning(
                "no quotes on the VIX were given: its law is the one that the index makes likely, "
                "and surface.vix_prior says how sure that is"
            )
        return slices


def put_on_clock(surface: Kind, quotes: Quotes) -> Kind:
    """A surface whose maturities are those of a clock, at the calendar's and with that clock."""
    if quotes.clock is None:
        return surface
    info = freeze_info({**surface.info, "clock": quotes.clock.to_dict()})
    moved = replace(
        surface, maturities=quotes.maturities, curve=quotes.curve, time=quotes.time, info=info
    )
    if not isinstance(moved, OperatorSurface):
        return moved
    # volatilities per year of the calendar
    reference = moved.result.reference * np.sqrt(quotes.clock_years / quotes.maturities)
    return replace(moved, result=replace(moved.result, reference=freeze_array(reference)))


def _hide_missing(value: Any) -> Any:
    """Plain values for JSON, None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: _hide_missing(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_hide_missing(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
