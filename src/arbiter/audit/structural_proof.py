"""The structural proof: exact comparisons on the numbers a surface stores.

A surface is free of static arbitrage at every strike and every maturity when its transport
slopes are positive, nondecreasing in ``T`` at every knot (the star order), nondecreasing from
one component of the mixture to the next, and the survival function of the weights does not
fall in ``T`` (docs/theory.md, section 3). All of these are comparisons of stored float64
numbers; none of them needs a price. Between listed maturities slopes follow cubics, which keep
the order in floating point when their tangents obey the limits that are compared here. The only
quadrature here is the normaliser ``M``, done a second time and differently from the decoder.

Glossary: ``x`` Gaussian percentile, ``b = s'`` slope, ``s`` transport, ``M = E exp s(Z)``,
``X = exp(s(Z))/M``, ``κ`` strike over forward, J components, L maturities, n knots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from arbiter.audit.law_quadrature import MAX_PIECE_WIDTH, Law
from arbiter.conventions import Array
from arbiter.pricing.maturity import interpolate_slopes, interpolate_survival
from arbiter.pricing.monotone_cubic import Hermite
from arbiter.timing.time_change import TimeChange

# Mean one has to hold to this on the stored numbers, and public prices have to agree with the
# repriced ones to this, in units of the forward.
PRICE_TOLERANCE = 1e-12

_TANGENT_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)  # relative, of a limit of tangents
_MAX_CHECK_PIECE_WIDTH = 0.11  # pieces of the second quadrature, which checks the first


@dataclass(frozen=True)
class ProofCheck:
    """One named condition of the proof.

    Attributes:
        name: The condition in a few words.
        passed: Whether the stored numbers satisfy it.
        detail: A sentence: what was compared, or what is wrong, where, and the remedy.
    """

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class StructuralProof:
    """The proof as data: every condition, whether it holds, and where it does not.

    Attributes:
        checks: The conditions in the order in which they were checked.
        price_gap: Largest distance between public prices and the prices of the stored slopes,
            in forward units; None when no prices were compared.
    """

    checks: tuple[ProofCheck, ...]
    price_gap: float | None = None

    @property
    def passed(self) -> bool:
        """Whether every condition holds."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[ProofCheck, ...]:
        """The conditions that do not hold."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def covers_prices(self) -> bool | None:
        """Whether public prices are those of the stored slopes; None if they were not compared."""
        return None if self.price_gap is None else self.price_gap <= PRICE_TOLERANCE


def check_structure(
    knots: ArrayLike,
    maturities: ArrayLike,
    slopes: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    mean: bool = True,
    time: TimeChange | None = None,
) -> StructuralProof:
    """Check every condition of the no-arbitrage theorem on the stored numbers.

    Args:
        knots: Gaussian percentiles, (n,), strictly increasing.
        maturities: Year fractions, (L,), positive and strictly increasing.
        slopes: Transport slopes, (L, n) or (J, L, n).
        weights: Mixture weights, (J, L); may be left out for one component.
        mean: Whether to check mean one and the tangents too: the conditions that need more than
            comparisons, and that no slopes within a surface's range are known to break.
        time: Clock along which slopes are interpolated; None for calendar time.

    Returns:
        The checks; those after a failed shape, knot or slope check are left out when they
        would have no meaning.

    Example:
        >>> check_structure([-2.0, 0.0, 2.0], [0.5, 1.0], [[0.1] * 3, [0.2] * 3]).passed
        True
        >>> check_structure([-2.0, 2.0], [0.5, 1.0], [[0.1, 0.1], [0.2, 0.0]]).failures[0].name
        'slopes positive'
    """
    x = np.asarray(knots, dtype=np.float64)
    T = np.asarray(maturities, dtype=np.float64)
    b = np.asarray(slopes, dtype=np.float64)
    b = b[None] if b.ndim == 2 else b
    w = np.ones(b.shape[:2]) if weights is None else np.asarray(weights, dtype=np.float64)
    shapes = _check_shapes(x, T, b, w, weights is None)
    if not shapes.passed:
        return StructuralProof((shapes,))
    checks = [shapes, _check_increasing("knots", x), _check_increasing("maturities", T)]
    years = T
    if time is not None:
        checks.append(_check_clock(time))
        if checks[-1].passed:
            years = time.at(T)
            checks.append(_check_increasing("clock", years))
    checks.append(_check_slopes_positive(x, T, b))
    sound = all(check.passed for check in checks)
    checks += [
        _check_slopes_ordered(x, T, b, 1),
        _check_slopes_ordered(x, T, b, 0),
        _check_weights(T, w),
        _check_weight_survival(T, w),
    ]
    if mean and all(check.passed for check in checks):
        checks.append(_check_between_maturities(years, b, w))
    if sound and mean:
        checks.append(_check_mean_one(x, T, b))
    return StructuralProof(tuple(checks))


def _check_shapes(x: Array, T: Array, b: Array, w: Array, no_weights: bool) -> ProofCheck:
    name = "shapes"
    for title, row in (("knots", x), ("maturities", T)):
        if row.ndim != 1 or row.size < 1:
            return ProofCheck(
                name, False, f"{title} has shape {row.shape}; give one row, not empty"
            )
    if b.ndim != 3 or b.shape[0] < 1 or b.shape[1:] != (T.size, x.size):
        return ProofCheck(
            name,
            False,
            f"slopes has shape {b.shape}; with {T.size} maturities and {x.size} knots it must be "
            f"({T.size}, {x.size}), or (J, {T.size}, {x.size}) for a mixture of J components",
        )
    if no_weights and b.shape[0] > 1:
        need = f"give weights of shape {b.shape[:2]}"
        return ProofCheck(name, False, f"slopes has {b.shape[0]} components and no weights; {need}")
    if w.shape != b.shape[:2]:
        return ProofCheck(name, False, f"weights has shape {w.shape}; it must be {b.shape[:2]}")
    return ProofCheck(name, True, f"{b.shape[0]} component(s), {T.size} maturities, {x.size} knots")


def _check_increasing(name: str, v: Array) -> ProofCheck:
    title = f"{name} increasing"
    if not np.all(np.isfinite(v)):
        i = int(np.argmin(np.isfinite(v)))
        return ProofCheck(title, False, f"{name}[{i}] = {v[i]} is not finite; give a finite number")
    is_time = name in ("maturities", "clock")
    if is_time and v[0] <= 0.0:
        return ProofCheck(title, False, f"{name}[0] = {v[0]} is not positive; drop expired slices")
    step = np.diff(v)
    if np.any(step <= 0.0):
        i = int(np.argmin(step))
        return ProofCheck(
            title,
            False,
            f"{name}[{i + 1}] = {v[i + 1]} does not exceed {name}[{i}] = {v[i]}; "
            f"sort {name} and drop duplicates",
        )
    if is_time and np.any(np.diff(np.sqrt(v)) <= 0.0):
        i = int(np.argmin(np.diff(np.sqrt(v))))
        return ProofCheck(
            title,
            False,
            f"{name}[{i + 1}] = {float(v[i + 1])!r} has the same square root as "
            f"{name}[{i}] = {float(v[i])!r}; drop one of them",
        )
    return ProofCheck(title, True, f"{name} run from {v[0]:g} to {v[-1]:g}")


def _describe_place(x: Array, T: Array, at: tuple[int, ...]) -> str:
    j, ell, i = at
    return f"component {j}, maturity T={T[ell]:g} (index {ell}), knot x={x[i]:g} (index {i})"


def _check_clock(time: TimeChange) -> ProofCheck:
    """Nodes that never fall: then an order along the clock is one along the calendar."""
    for title, row in (("T", time.T), ("clock", time.clock)):
        falls = np.flatnonzero(~(np.diff(row) >= 0.0))
        if row[0] != 0.0 or falls.size or not np.isfinite(row[-1]):
            at = int(falls[0]) + 1 if falls.size else 0
            detail = f"node {at} of the clock has {title} = {float(row[at])!r}"
            return ProofCheck("clock", False, f"{detail}: nodes start at 0 and never fall")
    return ProofCheck("clock", True, f"{time.T.size} nodes, none of which falls")


def _check_slopes_positive(x: Array, T: Array, b: Array) -> ProofCheck:
    name = "slopes positive"
    good = np.isfinite(b) & (b > 0.0)
    if good.all():
        return ProofCheck(name, True, f"slopes lie in [{b.min():g}, {b.max():g}]")
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    return ProofCheck(
        name,
        False,
        f"the slope of {_describe_place(x, T, at)} is {b[at]}; slopes must be finite and above "
        "zero "
        f"({int((~good).sum())} are not): raise it to a small positive number such as 1e-6",
    )


def _check_slopes_ordered(x: Array, T: Array, b: Array, axis: int) -> ProofCheck:
    """Compare neighbouring slopes exactly; those with NaN are left to the check of positivity."""
    name = ("components nested", "slopes nondecreasing in T")[axis]
    falls = b[:-1] > b[1:] if axis == 0 else b[:, :-1] > b[:, 1:]
    if not falls.any():
        return ProofCheck(name, True, f"{falls.size} comparisons")
    before = tuple(int(v) for v in np.argwhere(falls)[0])
    after = tuple(v + (n == axis) for n, v in enumerate(before))
    remedy = (
        "order the components from narrow to wide, np.maximum.accumulate(slopes, axis=0)",
        "take the running maximum over maturities, np.maximum.accumulate(slopes, axis=-2)",
    )[axis]
    return ProofCheck(
        name,
        False,
        f"the slope of {_describe_place(x, T, after)} is {float(b[after])!r}, below "
        f"{float(b[before])!r} of "
        f"{(f'component {before[0]}', f'T={T[before[1]]:g}')[axis]} ({int(falls.sum())} pairs "
        f"fall); {remedy}",
    )


def _check_weights(T: Array, w: Array) -> ProofCheck:
    name = "weights a distribution"
    good = np.isfinite(w) & (w >= 0.0)
    if not good.all():
        j, ell = (int(v) for v in np.argwhere(~good)[0])
        return ProofCheck(
            name,
            False,
            f"the weight of component {j} at maturity T={T[ell]:g} (index {ell}) is {w[j, ell]}; "
            "weights must be finite and not negative",
        )
    total = w.sum(axis=0)
    # A sum of J rounded numbers; nothing finer can be asked of the caller.
    off = np.abs(total - 1.0) > 2.0 * w.shape[0] * np.finfo(np.float64).eps
    if off.any():
        ell = int(np.argmax(off))
        return ProofCheck(
            name,
            False,
            f"the weights at maturity T={T[ell]:g} (index {ell}) sum to {float(total[ell])!r}; "
            "divide them by their sum",
        )
    return ProofCheck(name, True, f"{w.shape[0]} component(s), {T.size} maturities")


def _check_weight_survival(T: Array, w: Array) -> ProofCheck:
    name = "survival of weights nondecreasing in T"
    survival = np.cumsum(w[::-1], axis=0)[::-1][1:]  # (J-1, L): P(J >= j), j = 1..J-1
    # The last weight is compared exactly; sums of two and more carry their own rounding.
    slack = 2.0 * np.finfo(np.float64).eps * np.arange(survival.shape[0])[::-1, None]
    falls = survival[:, :-1] > survival[:, 1:] + slack
    if not falls.any():
        return ProofCheck(name, True, f"{falls.size} comparisons")
    j, ell = (int(v) for v in np.argwhere(falls)[0])
    return ProofCheck(
        name,
        False,
        f"the weight of components {j + 1} and above falls from {float(survival[j, ell])!r} at "
        f"T={T[ell]:g} to {float(survival[j, ell + 1])!r} at T={T[ell + 1]:g} (index {ell + 1}); "
        "later maturities must not move weight back to narrower components",
    )


def _check_between_maturities(T: Array, b: Array, w: Array) -> ProofCheck:
    """Limits of tangents under which the cubics between maturities neither fall nor cross."""
    name = "ordered between maturities"
    cubics = {"slopes": interpolate_slopes(T, b), "survival of weights": interpolate_survival(T, w)}
    for title, cubic in cubics.items():
        wrong = None if cubic is None else _find_unlimited_tangent(cubic)
        if wrong is not None:
            at, said = wrong
            detail = f"the cubic of the {title} {said} in the interval that ends at {T[at]:g} years"
            return ProofCheck(name, False, f"{detail}; keep its maturities further apart")
    return ProofCheck(name, True, f"{max(b[:, :, 0].size, 1)} rows of cubics, tangents in limits")


def _find_unlimited_tangent(cubic: Hermite) -> tuple[int, str] | None:
    """The interval and the fault of the first tangent beyond its limits; None if all obey them.

    A cubic does not fall if no tangent is negative or above three times the secant, and two
    cubics do not cross if their control points do not (docs/theory.md, sections 5 and 6).
    """
    third = np.diff(cubic.u)[:, None] / 3.0
    first, last = cubic.tangent[:, :-1] * third, cubic.tangent[:, 1:] * third
    rise = np.diff(cubic.values, axis=1)
    slack = _TANGENT_ROUNDING * cubic.values[:, 1:]
    room = rise + slack
    kept = (first >= 0.0) & (last >= 0.0) & (first <= room) & (last <= room)
    apart = np.ones_like(kept)
    for points in (cubic.values[:, :-1] + first, cubic.values[:, 1:] - last):
        apart[1:] &= np.diff(points, axis=0) >= -slack[1:]
    for good, said in ((kept, "may fall"), (apart, "may cross that of the component before")):
        if not good.all():
            return int(np.argwhere(~good)[0][1]), said
    return None


def _check_mean_one(x: Array, T: Array, b: Array) -> ProofCheck:
    name = "mean one"
    with np.errstate(over="ignore", invalid="ignore"):
        law = Law(x, b)
        defect = np.abs(
            np.expm1(law.log_mean(_MAX_CHECK_PIECE_WIDTH) - law.log_mean(MAX_PIECE_WIDTH))
        )
    good = defect <= PRICE_TOLERANCE  # false for NaN
    if good.all():
        return ProofCheck(name, True, f"two quadratures of M agree to {float(defect.max()):.1e}")
    j, ell = (int(v) for v in np.argwhere(~good)[0])
    return ProofCheck(
        name,
        False,
        f"the mean of component {j} at maturity T={T[ell]:g} (index {ell}) is off one by "
        f"{defect[j, ell]}; its slopes (largest {b[j, ell].max():g}) are too steep to normalise, "
        "keep them below 20",
    )
