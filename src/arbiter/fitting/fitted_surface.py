"""A surface that remembers how it was fitted: residuals, ending, and standard errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from arbiter.audit.structural_proof import check_structure
from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.fitting.interior_point import Status
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.uncertainty import Uncertainty
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.fitting.verdict import FitVerdict, judge_residuals
from arbiter.inputs import freeze_array, freeze_info
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter.timing.maturities import MaturityLike

Kind = TypeVar("Kind", bound=Surface)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class VixResult:
    """How a fit sits in the quotes of VIX options and futures.

    Attributes:
        residuals: ``(m,)`` (model − mid) / half-spread of each option, in the quotes' order.
        future_errors: ``(f,)`` model − mid of each future, index points.
        roughness: Weights used; None where there are none.
        status: How the search for the slices ended; None where it was that of the whole fit.
    """

    residuals: Array
    future_errors: Array
    roughness: Roughness | None
    status: Status | None = None

    def to_arrays(self) -> dict[str, Array]:
        """The arrays that a file keeps beside :meth:`to_dict`."""
        return {"vix_residuals": self.residuals, "vix_future_errors": self.future_errors}

    @classmethod
    def from_stored(
        cls, plain: Mapping[str, Any] | None, arrays: Mapping[str, Array]
    ) -> VixResult | None:
        """The result from what a file keeps; None where it keeps none."""
        if plain is None:
            return None
        rough, ended = plain["roughness"], plain["status"]
        return cls(
            freeze_array(arrays["vix_residuals"]),
            freeze_array(arrays["vix_future_errors"]),
            None if rough is None else Roughness(**rough),
            None if ended is None else Status(ended),
        )

    def to_dict(self) -> dict[str, Any]:
        """A summary, as plain values."""
        return {
            "quotes": int(self.residuals.size),
            "inside": float(np.mean(np.abs(self.residuals) <= 1.0))
            if self.residuals.size
            else None,
            "futures": int(self.future_errors.size),
            "future_error": float(np.abs(self.future_errors).max(initial=0.0)),
            "roughness": None if self.roughness is None else asdict(self.roughness),
            "status": None if self.status is None else self.status.value,
        }


_PLAIN_RESULT_FIELDS = ("iterations", "objective", "chosen", "trust", "freedom", "dispersion")


@dataclass(frozen=True, eq=False)
class FitResult:
    """How a fit ended.

    Attributes:
        status: Its name; ``status.explain()`` is a sentence.
        iterations: Gauss-Newton steps, those that chose the roughness included.
        objective: Loss and roughness at the end.
        roughness: Weights used.
        chosen: How they were chosen: ``"likelihood"``, ``"gcv"`` or ``"given"``; ``"crossfit"`` in
            a refinement, ``"kept"`` in an update of part of a chain.
        trust: Share of the prior's shape that the quotes let stand, from 0 to 1; None without a
            prior. In a refinement, the share of the fit's freedom that its guide takes.
        freedom: Effective number of parameters.
        dispersion: Variance of the residuals, in squared half-spreads.
        residuals: ``(m,)`` (model − mid) / half-spread of each quote, in the quotes' order.
        seconds: Wall time.
        vix: The VIX side, where options or futures on it were fitted.
        warnings: What a reader of the surface should know, as sentences; each is logged as well.
        verdict: Whether the surface explains its quotes; None in files of older versions.
    """

    status: Status
    iterations: int
    objective: float
    roughness: Roughness
    chosen: str
    trust: float | None
    freedom: float
    dispersion: float
    residuals: Array
    seconds: float
    vix: VixResult | None = None
    warnings: tuple[str, ...] = ()
    verdict: FitVerdict | None = None

    @property
    def path(self) -> str:
        """Which path answered: ``"fit"``, beside those of the operator."""
        return "fit"

    def to_arrays(self) -> dict[str, Array]:
        """The arrays that a file keeps beside :meth:`to_dict`."""
        more = {} if self.vix is None else self.vix.to_arrays()
        return {"residuals": self.residuals, **more}

    @classmethod
    def from_stored(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> FitResult:
        """The result from what a file keeps: seconds are not, and are zero."""
        parts = {name: plain[name] for name in _PLAIN_RESULT_FIELDS}
        return cls(
            **parts,
            status=Status(plain["status"]),
            roughness=Roughness(**plain["roughness"]),
            residuals=freeze_array(arrays["residuals"]),
            seconds=0.0,
            vix=VixResult.from_stored(plain.get("vix"), arrays),
            warnings=tuple(str(sentence) for sentence in plain["warnings"]),
            verdict=FitVerdict.from_dict(plain.get("verdict")),
        )

    def with_verdict(self, source: FitInput) -> FitResult:
        """This result with the verdict on its residuals, and the warning that follows."""
        quotes, old = source.quotes, self.verdict
        found = judge_residuals(self.residuals, quotes.expiry, quotes.labels, source.weights)
        said = found.warning
        kept = tuple(w for w in self.warnings if old is None or w != old.warning)
        if said is not None:
            logger.warning(said)
        return replace(self, verdict=found, warnings=kept if said is None else (*kept, said))

    def to_dict(self) -> dict[str, Any]:
        """Everything but residuals and warnings, as plain values."""
        hidden = ("residuals", "vix", "warnings")
        names = (part.name for part in fields(self) if part.name not in hidden)
        plain = {name: getattr(self, name) for name in names}
        plain["roughness"] = asdict(self.roughness)
        plain["verdict"] = None if self.verdict is None else asdict(self.verdict)
        vix = {} if self.vix is None else {"vix": self.vix.to_dict()}
        return {**plain, "status": self.status.value, **vix}


class Optimum(NamedTuple):
    """Where a fit of one component ended, apart from its slopes.

    Attributes:
        duals: ``(L-1, n)`` multipliers of the star order.
        barrier: ``(L-1, n)`` what each adds to the information, its multiplier over its slack.
        reach: ``(L, 2)`` Gaussian coordinates of the end strikes of each expiry.
        losses: ``(L,)`` loss of the quotes and bounds of each expiry.
    """

    duals: Array
    barrier: Array
    reach: Array
    losses: Array


@dataclass(frozen=True, eq=False)
class FitInput:
    """What a surface was fitted to.

    Attributes:
        quotes: All of them.
        options: Of the fit.
        weights: ``(m,)`` factors of each quote's loss; None for ones.
        optimum: What an update must know of the expiries that it keeps; None but after a fit of
            one component.
    """

    quotes: Quotes
    options: FitOptions
    weights: Array | None
    optimum: Optimum | None


@dataclass(frozen=True, eq=False, repr=False)
class FittedSurface(Surface):
    """A :class:`~arbiter.surface.Surface` with the fit it came from.

    Copies and other processes keep the fit. So do files, but for the quotes, which belong to their
    publisher.

    Attributes:
        result: How the fit ended.
        uncertainty: Covariance of the log-slopes.
        source: What was fitted; None in a surface from a file.
    """

    result: FitResult = field(kw_only=True)
    uncertainty: Uncertainty = field(kw_only=True)
    source: FitInput | None = field(kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        more = {"result": self.result, "uncertainty": self.uncertainty, "source": self.source}
        return rebuild_with_result, (type(self), plain_surface(self), more)

    def update(self, quotes: Quotes) -> FittedSurface:
        """The surface after some quotes changed, with the same roughness and clock: few are fitted.

        Expiries beside those that changed move as well, as far as roughness and order carry. The
        result is that of a whole fit with the same weights, to less than a twentieth of a
        half-spread, or a tenth beside asks without a bid. ``result.freedom`` and
        ``result.dispersion`` stay those of the whole fit.

        Args:
            quotes: All quotes, changed or not, at the maturities of the fit.

        Raises:
            ValueError: If the surface has two components, a prior or the VIX, if it comes from a
                file, or if the maturities differ.
        """
        from arbiter.fitting.window_update import update_surface

        return update_surface(self, quotes)

    def to_stored(self) -> tuple[str, dict[str, Any], dict[str, Array]]:
        """What a file keeps of the fit: the kind, plain values and arrays."""
        plain = {**_summary_without_time(self.result), "warnings": list(self.result.warnings)}
        arrays = {**self.result.to_arrays(), "information": self.uncertainty.matrix}
        if self.uncertainty.coupling is not None:
            arrays["vix_information"] = self.uncertainty.coupling
        return "fit", plain, arrays

    @classmethod
    def from_stored(
        cls, surface: Surface, plain: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> FittedSurface:
        """A surface from a file, with what :meth:`to_stored` gave."""
        result = FitResult.from_stored(plain, arrays)
        J, L, n = surface.slopes.shape
        layout, matrix = UnknownLayout(surface.knots, L, J), freeze_array(arrays["information"])
        if matrix.shape != layout.band_shape:
            raise ValueError(
                f"information has shape {matrix.shape}; {L} maturities of {n} knots need "
                f"{layout.band_shape}"
            )
        years = surface.clock_years(surface.maturities)
        parts = surface.knots, years, surface.slopes, surface.weights
        coupling = arrays.get("vix_information")
        if coupling is not None and (coupling.ndim != 2 or len(coupling) != len(matrix)):
            raise ValueError(
                f"vix_information has shape {coupling.shape}; {len(matrix)} rows are due"
            )
        uncertainty = Uncertainty(*parts, matrix, result.dispersion, coupling)
        more = {"result": result, "uncertainty": uncertainty, "source": None}
        return rebuild_with_result(cls, surface, more)

    def iv_error(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Standard error of :meth:`iv`, annualised and decimal.

        Too small where ``prior`` was made from the same quotes; not in a refinement (docs/fit.md,
        "Standard errors").
        """
        t = self.years(T)
        years = self.clock_years(t)
        return np.asarray(self.uncertainty.iv(k, years) * np.sqrt(years / t))

    def vix_error(self, tenor: MaturityLike = THIRTY_DAYS) -> Array:
        """Standard error of :meth:`vix`, in index points."""
        t = self.years(tenor)
        years = self.clock_years(t)
        errors = [float(self.uncertainty.vix(float(one))) for one in years.ravel()]
        return np.reshape(errors, years.shape) * np.sqrt(years / t)


def build_surface(
    source: FitInput,
    slopes: Array,
    result: FitResult,
    matrix: Array,
    weights: Array | None = None,
    coupling: Array | None = None,
) -> FittedSurface:
    """The surface of a fit, once its slopes have passed the structural proof.

    Args:
        source: What was fitted.
        slopes: ``(J, L, n)``.
        result: How the fit ended.
        matrix: ``(p, w)`` the information, banded.
        weights: ``(J, L)`` of the components; None for one component.
        coupling: ``(p, r)`` columns of the information from VIX quotes; None without them.
    """
    result = result.with_verdict(source)
    quotes, knots, b = source.quotes, freeze_array(source.options.line()), freeze_array(slopes)
    w = freeze_array(np.ones((1, b.shape[1])) if weights is None else weights)
    proof = check_structure(knots, quotes.maturities, b, w, mean=False, time=quotes.time)
    if not proof.passed:  # the constraints are kept at every step
        raise AssertionError("; ".join(check.detail for check in proof.failures))
    return FittedSurface(
        knots,
        quotes.maturities,
        b,
        w,
        quotes.curve,
        quotes.as_of,
        freeze_info({**quotes.describe(), "fit": _summary_without_time(result)}),
        time=quotes.time,
        result=result,
        uncertainty=Uncertainty(
            knots, quotes.clock_years, b, w, matrix, result.dispersion, coupling
        ),
        source=source,
    )


def _summary_without_time(result: FitResult) -> dict[str, Any]:
    """What a saved surface remembers: no seconds, so that the same fit gives the same file."""
    return {name: value for name, value in result.to_dict().items() if name != "seconds"}


def plain_surface(surface: Surface) -> Surface:
    """The surface without what it remembers of its making."""
    return Surface(**{part.name: getattr(surface, part.name) for part in fields(Surface)})


def rebuild_with_result(kind: type[Kind], plain: Surface, more: Mapping[str, Any]) -> Kind:
    """A surface of a kind from the plain one and the fields that the kind adds."""
    return kind(**{part.name: getattr(plain, part.name) for part in fields(Surface)}, **more)
