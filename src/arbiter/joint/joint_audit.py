"""The joint SPX-VIX audit: does a joint law of ``S_T``, ``VIX_T`` and ``S_{T+Δ}`` exist?

Two numbers enclose the smallest relaxation of prices that makes one exist: ``violation`` from
below, proved by a portfolio, and ``bound`` from above, proved by a law.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.joint.instruments import Book, Units
from arbiter.joint.marginals import IndexLaws, Marginal, VixLaws
from arbiter.joint.portfolio import Portfolio
from arbiter.joint.program import (
    ProgramResult,
    SearchLimits,
    build_starting_columns,
    generate_columns,
)
from arbiter.joint.strike_mesh import StateMesh, place_first_strikes
from arbiter.joint.witness import (
    JointLaw,
    PriceGaps,
    option_price_gaps,
    refine_strikes,
    variance_price_gaps,
)
from arbiter.timing.maturities import MaturityLike
from arbiter.values import ExplainedCode, require_positive

logger = logging.getLogger(__name__)

_MIN_VIOLATION_SHARE = 0.25  # of the resolution: smaller violations are not looked for
_MAX_UNIT = 1e6  # weight of one kind of price against another, or its inverse
_MAX_BOUND_RATIO = 1.25  # a bound within this factor of the violation has said what there is to say


class Verdict(ExplainedCode):
    """How a joint audit ended. The value is the code, :meth:`explain` the sentence."""

    FEASIBLE = (
        "feasible",
        "a joint law was found that reproduces every price within the resolution",
    )
    ARBITRAGE = "arbitrage", "a portfolio was found that is paid today and never loses"
    OPEN = (
        "open",
        "neither was found: the law strays by more than the resolution, and no portfolio is "
        "certain to gain; allow more strikes, or ask for a coarser resolution",
    )


class AuditedMarket(IndexLaws, VixLaws, Protocol):
    """A surface whose index and VIX laws a joint audit can compare."""

    @property
    def vix_slices(self) -> object:
        """Slices of the VIX at future dates; None where the surface has no law of the VIX."""

    def vix_years(self, T: MaturityLike, /) -> Array:
        """Year fractions of dates of the VIX, in any form."""


@dataclass(frozen=True)
class JointSettings:
    """How the joint program is set up; the defaults suit index options up to a year.

    Attributes:
        resolution: Prices that differ by less are the same, and violations below a quarter of it
            are not looked for. 1e-4 is a basis point of the forward on an index option, and 0.01
            points on a VIX option or future.
        strikes: Strikes per law at the start.
        most_strikes: Strikes per law at the end, at most.
        rounds: How often strikes are added, at most.
        index_unit: Weight of the index in the relaxation: small means that its prices are right.
        vix_unit: Weight of the VIX in the relaxation.
        variance_unit: Weight of variance contracts, on top of the two above. They depend on
            every strike: with a large number only options and futures constrain the joint law.
        tenor: Days between the two index levels, as a year fraction.
    """

    resolution: float = 1e-4
    strikes: int = 20
    most_strikes: int = 90
    rounds: int = 12
    index_unit: float = 1.0
    vix_unit: float = 1.0
    variance_unit: float = 1.0
    tenor: float = THIRTY_DAYS

    def __post_init__(self) -> None:
        for name in ("resolution", "index_unit", "vix_unit", "variance_unit", "tenor"):
            require_positive(name, getattr(self, name))
        for name in ("index_unit", "vix_unit", "variance_unit"):
            value = getattr(self, name)
            if not 1.0 / _MAX_UNIT <= value <= _MAX_UNIT:
                raise ValueError(
                    f"{name} = {value!r} must lie between {1.0 / _MAX_UNIT:g} and {_MAX_UNIT:g}: "
                    "beyond it the program's numbers are lost in rounding"
                )
        if not 4 <= self.strikes <= self.most_strikes:
            raise ValueError(
                f"strikes = {self.strikes!r} must be at least 4 and at most most_strikes = "
                f"{self.most_strikes!r}"
            )
        if self.rounds < 1:
            raise ValueError(f"rounds = {self.rounds!r} must be at least 1")


@dataclass(frozen=True, eq=False)
class JointAudit:
    """The result of a joint audit.

    Attributes:
        verdict: Feasible, arbitrage, or open.
        violation: At least this much must prices move for a joint law to exist: the premium of
            ``portfolio`` for gross weights of one. Zero where no portfolio is certain to gain.
        bound: A joint law exists once prices move by this much: ``law`` is one. The difference
            from ``violation`` is what discretisation leaves open.
        portfolio: The arbitrage; None where there is none.
        law: The joint law nearest to the market that was found.
        strikes: How many strikes of each law the program had in the end.
        passes: Linear programs solved.
    """

    verdict: Verdict
    violation: float
    bound: float
    portfolio: Portfolio | None
    law: JointLaw
    strikes: tuple[int, int, int]
    passes: int

    @property
    def feasible(self) -> bool:
        """Whether a joint law was found that reproduces every price within the resolution."""
        return self.verdict is Verdict.FEASIBLE

    def __str__(self) -> str:
        text = f"{self.verdict.capitalize()}: {self.verdict.explain()}."
        if self.portfolio is not None:
            text += f" Violation {self.violation:.3g} (at most {self.bound:.3g}). {self.portfolio}"
        else:
            text += f" No violation above {self.bound:.3g}."
        return text


def joint_audit(
    surface: AuditedMarket, T: MaturityLike, settings: JointSettings | None = None
) -> JointAudit:
    """Decide whether a surface's index and VIX laws are jointly free of arbitrage.

    Args:
        surface: A surface with VIX slices.
        T: The VIX expiry: in any form (docs/surface.md); a date alone is its open.
        settings: Resolution, units and sizes.

    Returns:
        The verdict with its proof: a portfolio or a joint law. It never raises for a finding.

    Raises:
        ValueError: If the surface has no law of the VIX, or T is not one maturity.
    """
    settings = settings or JointSettings()
    if surface.vix_slices is None:
        raise ValueError(
            "this surface has no VIX slices, so no law of the VIX that anything was quoted for: "
            "fit with vix_quotes=..., or choose one with surface.with_vix(slices)"
        )
    at = np.asarray(surface.vix_years(T), dtype=np.float64)
    if at.size != 1:
        raise ValueError(f"T = {T!r} must be one maturity: audit a term structure one by one")
    t = float(at.ravel()[0])
    return joint_program(
        Marginal.of_index(surface, t),
        Marginal.of_volatility(surface, t),
        Marginal.of_index(surface, t + settings.tenor),
        settings,
    )


def joint_program(
    near: Marginal, volatility: Marginal, far: Marginal, settings: JointSettings | None = None
) -> JointAudit:
    """Decide whether the laws of two index levels and of the VIX between them have a joint law.

    Args:
        near: Law of ``S_T/F_T``.
        volatility: Law of ``VIX_T/100``.
        far: Law of ``S_{T+Δ}/F_{T+Δ}``.
        settings: Resolution, units and sizes.

    Returns:
        The verdict with its proof: a portfolio or a joint law.

    Raises:
        ValueError: If an index law does not have mean one, or a contract's price is missing.

    Example:
        >>> day, later = (Marginal.lognormal(0.2 * t**0.5) for t in (0.1, 0.1 + 30 / 365))
        >>> joint_program(day, Marginal.discrete(0.2, 1.0), later).feasible
        True
    """
    settings = settings or JointSettings()
    laws = near, volatility, far
    _check_laws(laws)
    units = Units(settings.index_unit, settings.vix_unit, settings.variance_unit)
    enough = _MIN_VIOLATION_SHARE * settings.resolution
    effort = SearchLimits(enough=enough)
    mesh = StateMesh.from_laws(laws, settings.tenor)
    book = Book(laws, place_first_strikes(laws, settings.strikes), units, settings.tenor)
    columns, passes = build_starting_columns(book, mesh), 0
    witnesses = []
    for left in reversed(range(settings.rounds)):
        answer = generate_columns(book, columns, mesh, replace(effort, between=False))
        law, found, bound = _measure_law(answer, book)
        witnesses.append((bound, law))
        passes, columns = passes + answer.passes, answer.columns
        logger.info(
            "%s strikes: relaxation %.3g, bound %.3g", _strike_counts(book), answer.epsilon, bound
        )
        if bound <= max(settings.resolution, _MAX_BOUND_RATIO * answer.epsilon) or left == 0:
            break
        allowed = max(0.5 * settings.resolution, 0.5 * (1.0 + _MAX_BOUND_RATIO) * answer.epsilon)
        strikes = refine_strikes(book.strikes, found, allowed, settings.most_strikes)
        if all(a.size == b.size for a, b in zip(strikes, book.strikes, strict=True)):
            break
        book = replace(book, strikes=strikes)
    if answer.epsilon > enough:
        answer = generate_columns(book, columns, mesh, effort)
        law, _, bound = _measure_law(answer, book)
        witnesses.append((bound, law))
        passes += answer.passes
    bound, law = min(witnesses, key=lambda pair: pair[0])  # a law proves its bound at any strikes
    portfolio = None if answer.proof is None else Portfolio(answer.proof, book)
    verdict = Verdict.OPEN
    if portfolio is not None:
        verdict = Verdict.ARBITRAGE
    elif bound <= settings.resolution:
        verdict = Verdict.FEASIBLE
    return JointAudit(verdict, answer.profit, bound, portfolio, law, _strike_counts(book), passes)


def _measure_law(answer: ProgramResult, book: Book) -> tuple[JointLaw, list[PriceGaps], float]:
    law = JointLaw.from_columns(answer.columns, answer.mass)
    found = option_price_gaps(law, book)
    sizes = [np.abs(stray.gaps).max() for stray in found]
    return law, found, float(max(*sizes, np.abs(variance_price_gaps(law, book)).max()))


def _strike_counts(book: Book) -> tuple[int, int, int]:
    near, volatility, far = (K.size for K in book.strikes)
    return near, volatility, far


def _check_laws(laws: tuple[Marginal, Marginal, Marginal]) -> None:
    near, volatility, far = laws
    for name, law in (("near", near), ("far", far)):
        if abs(law.mean - 1.0) > 1e-9:
            raise ValueError(f"{name}.mean = {law.mean!r}: index levels are over their forward")
        if not np.isfinite(law.log_mean):
            raise ValueError(f"{name}.log_mean = {law.log_mean!r}: give E log X, the log contract")
    if not (volatility.second_moment >= volatility.mean**2 * (1.0 - 1e-12) > 0.0):
        raise ValueError(
            f"volatility.second_moment = {volatility.second_moment!r} must be at least the mean "
            f"squared, {volatility.mean**2!r}: both are of VIX/100"
        )
