"""The structural proof: exact comparisons on the numbers a surface stores.

A surface is free of static arbitrage at every strike and every maturity when its transport
slopes are positive, nondecreasing in ``T`` at every knot (the star order), nondecreasing from
one component of the mixture to the next, and the survival function of the weights does not
fall in ``T`` (docs/theory.md, section 3). All of these are comparisons of stored float64
numbers; none of them needs a price. The only quadrature here is the normaliser ``M``, done a
second time and differently from the decoder.

Glossary: ``x`` Gaussian percentile, ``b = s'`` slope, ``s`` transport, ``M = E exp s(Z)``,
``X = exp(s(Z))/M``, ``κ`` strike over forward, J components, L maturities, n knots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array

# Mean one has to hold to this on the stored numbers, and public prices have to agree with the
# repriced ones to this, in units of the forward.
PRICE_TOLERANCE = 1e-12

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_MAX_PIECE_WIDTH = (
    0.25  # longest piece of the quadrature in x; 16 nodes on it are exact to rounding
)
_MAX_CHECK_PIECE_WIDTH = 0.11  # pieces of the second quadrature, which checks the first
_MAX_PIECES = 4096


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
        """Whether the proof speaks about the public prices; None when they were not compared."""
        return None if self.price_gap is None else self.price_gap <= PRICE_TOLERANCE


def check_structure(
    knots: ArrayLike,
    maturities: ArrayLike,
    slopes: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    mean: bool = True,
) -> StructuralProof:
    """Check every condition of the no-arbitrage theorem on the stored numbers.

    Args:
        knots: Gaussian percentiles, (n,), strictly increasing.
        maturities: Year fractions, (L,), positive and strictly increasing.
        slopes: Transport slopes, (L, n) or (J, L, n).
        weights: Mixture weights, (J, L); may be left out for one component.
        mean: Whether to check mean one too: the one condition that needs a quadrature, and
            that no slopes within a surface's range are known to break.

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
    checks = [
        shapes,
        _check_increasing("knots", x),
        _check_increasing("maturities", T),
        _check_slopes_positive(x, T, b),
    ]
    sound = all(check.passed for check in checks)
    checks += [
        _check_slopes_ordered(x, T, b, 1),
        _check_slopes_ordered(x, T, b, 0),
        _check_weights(T, w),
        _check_weight_survival(T, w),
    ]
    if sound and mean:
        checks.append(_check_mean_one(x, T, b))
    return StructuralProof(tuple(checks))


def reprice_by_quadrature(
    knots: ArrayLike, slopes: ArrayLike, weights: ArrayLike, kappa: ArrayLike
) -> tuple[Array, Array]:
    """Calls and puts in forward units straight from the definition, by quadrature.

    Independent of the decoder: no cumulative masses, no Legendre conjugate. The law is
    integrated on each side of the strike by itself, so that call minus put plus the strike is
    a measurement of the mean. Absolute accuracy, about 1e-13; not made for far wings.

    Args:
        knots: (n,).
        slopes: (J, L, n).
        weights: (J, L).
        kappa: Strikes over forward, (m,).

    Returns:
        Calls and puts, each (L, m).
    """
    x = np.asarray(knots, dtype=np.float64)
    b = np.asarray(slopes, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    strikes = np.atleast_1d(np.asarray(kappa, dtype=np.float64))
    x, b = _duplicate_single_knot(x, b)
    log_mean = _log_mean(x, b, _MAX_PIECE_WIDTH)  # (J, L)
    target = np.log(strikes) + log_mean[..., None]  # (J, L, m): s at the strike
    root = _invert_transport(x, b, target)  # (J, L, m)
    calls = np.zeros(root.shape)
    puts = np.zeros(root.shape)
    for m, strike in enumerate(strikes):
        puts[..., m] = _integrate_one_side(x, b, log_mean, strike, root[..., m], above=False)
        calls[..., m] = _integrate_one_side(x, b, log_mean, strike, root[..., m], above=True)
    return np.einsum("jl,jlm->lm", w, calls), np.einsum("jl,jlm->lm", w, puts)


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
    if name == "maturities" and v[0] <= 0.0:
        return ProofCheck(
            title, False, f"maturities[0] = {v[0]} is not positive; drop expired slices"
        )
    step = np.diff(v)
    if np.any(step <= 0.0):
        i = int(np.argmin(step))
        return ProofCheck(
            title,
            False,
            f"{name}[{i + 1}] = {v[i + 1]} does not exceed {name}[{i}] = {v[i]}; "
            f"sort {name} and drop duplicates",
        )
    return ProofCheck(title, True, f"{name} run from {v[0]:g} to {v[-1]:g}")


def _describe_place(x: Array, T: Array, at: tuple[int, ...]) -> str:
    j, ell, i = at
    return f"component {j}, maturity T={T[ell]:g} (index {ell}), knot x={x[i]:g} (index {i})"


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
    """Exact comparison of neighbours; one with NaN is left to the check above."""
    name = ("components nested", "slopes nondecreasing in T")[axis]
    size = b.shape[axis]
    falls = b.take(range(size - 1), axis) > b.take(range(1, size), axis)
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


def _check_mean_one(x: Array, T: Array, b: Array) -> ProofCheck:
    name = "mean one"
    x, b = _duplicate_single_knot(x, b)
    with np.errstate(over="ignore", invalid="ignore"):
        defect = np.abs(
            np.expm1(_log_mean(x, b, _MAX_CHECK_PIECE_WIDTH) - _log_mean(x, b, _MAX_PIECE_WIDTH))
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


def _duplicate_single_knot(x: Array, b: Array) -> tuple[Array, Array]:
    """A second knot for a single one, of the same slope: the same law."""
    return (np.append(x, x + 1.0), np.repeat(b, 2, axis=-1)) if x.size == 1 else (x, b)


def _quadrature_borders(x: Array, longest: float) -> Array:
    """Borders of the quadrature: the knots, and enough points between them."""
    counts = np.ceil(np.diff(x) / longest).astype(np.int64)
    counts = np.maximum(1, counts if counts.sum() <= _MAX_PIECES else np.minimum(counts, 64))
    parts = [np.linspace(x[i], x[i + 1], n, endpoint=False) for i, n in enumerate(counts)]
    return np.concatenate([*parts, x[-1:]])


def _evaluate_transport(x: Array, b: Array, at: Array) -> Array:
    """``s`` at points of shape (J, L, ...), zero at the knot nearest to x = 0."""
    rise = 0.5 * (b[..., 1:] + b[..., :-1]) * np.diff(x)
    s = np.concatenate([np.zeros((*b.shape[:2], 1)), np.cumsum(rise, axis=-1)], axis=-1)
    s -= s[..., [int(np.argmin(np.abs(x)))]]
    inside = np.clip(at, x[0], x[-1])
    i = np.clip(np.searchsorted(x, inside, side="right") - 1, 0, x.size - 2)
    j, ell = np.ogrid[: b.shape[0], : b.shape[1]]
    extra = (1,) * (at.ndim - 2)
    j, ell = j.reshape(*j.shape, *extra), ell.reshape(*ell.shape, *extra)
    t = inside - x[i]
    bend = (b[j, ell, i + 1] - b[j, ell, i]) / (x[i + 1] - x[i])
    value = s[j, ell, i] + t * (b[j, ell, i] + 0.5 * bend * t)
    value += b[j, ell, 0] * np.minimum(at - x[0], 0.0)
    value += b[j, ell, -1] * np.maximum(at - x[-1], 0.0)
    return np.asarray(value)


def _log_mean(x: Array, b: Array, longest: float) -> Array:
    """``log M``, (J, L): Gauss-Legendre inside, the normal distribution function outside."""
    border = _quadrature_borders(x, longest)
    node, weight = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(border)[:, None]
    at = (border[:-1, None] + half * (1.0 + node)).ravel()
    log_weight = np.log(half * weight).ravel() - 0.5 * at * at - _HALF_LOG_2PI
    s = _evaluate_transport(x, b, np.broadcast_to(at, (*b.shape[:2], at.size)))
    ends = _evaluate_transport(x, b, np.broadcast_to(x[[0, -1]], (*b.shape[:2], 2)))
    low, high = b[..., 0], b[..., -1]
    left = ends[..., 0] - low * x[0] + 0.5 * low * low + _log_cdf(x[0] - low)
    right = ends[..., 1] - high * x[-1] + 0.5 * high * high + _log_cdf(high - x[-1])
    terms = np.concatenate([s + log_weight, left[..., None], right[..., None]], axis=-1)
    top = terms.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(terms - top).sum(axis=-1)))


def _invert_transport(x: Array, b: Array, target: Array) -> Array:
    """The percentile at which ``s`` takes ``target``, by bisection; s is strictly increasing."""
    ends = _evaluate_transport(x, b, np.broadcast_to(x[[0, -1]], (*b.shape[:2], 2)))
    below = x[0] + (target - ends[..., :1]) / b[..., :1]
    above = x[-1] + (target - ends[..., 1:]) / b[..., -1:]
    low = np.full(target.shape, x[0])
    high = np.full(target.shape, x[-1])
    for _ in range(60):
        middle = 0.5 * (low + high)
        under = _evaluate_transport(x, b, middle) < target
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    inside = 0.5 * (low + high)
    tail = np.where(target < ends[..., :1], below, above)
    return np.asarray(np.where((target < ends[..., :1]) | (target > ends[..., 1:]), tail, inside))


def _integrate_one_side(
    x: Array, b: Array, log_mean: Array, strike: float, at: Array, above: bool
) -> Array:
    """``E[(X − κ)+]`` or ``E[(κ − X)+]`` for each (component, maturity)."""
    border = _quadrature_borders(x, _MAX_PIECE_WIDTH)
    cut = np.clip(at, x[0], x[-1])[..., None]
    border = np.maximum(border, cut) if above else np.minimum(border, cut)  # (J, L, pieces+1)
    node, weight = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(border)[..., None]
    z = border[..., :-1, None] + half * (1.0 + node)
    payoff = strike * np.expm1(
        _evaluate_transport(x, b, z) - log_mean[..., None, None] - np.log(strike)
    )
    density = np.exp(-0.5 * z * z - _HALF_LOG_2PI)
    total = np.einsum("jlpg,jlpg->jl", payoff * density, half * weight)
    ends = _evaluate_transport(x, b, np.broadcast_to(x[[0, -1]], (*b.shape[:2], 2)))
    for i, left, right in ((0, -np.inf, x[0]), (-1, x[-1], np.inf)):
        low, high = (np.maximum(at, left), right) if above else (left, np.minimum(at, right))
        slope = b[..., i]
        start = ends[..., i] - slope * x[i] + 0.5 * slope * slope - log_mean
        # Distribution functions of the smaller side: on the right, of the mirror image.
        near, far = (high, low) if i == 0 else (-low, -high)
        shift = slope if i == 0 else -slope
        mass = np.exp(start + _log_cdf(near - shift)) - np.exp(start + _log_cdf(far - shift))
        probability = np.exp(_log_cdf(near)) - np.exp(_log_cdf(far))
        total += np.where(low < high, mass - strike * probability, 0.0)
    return np.asarray(total if above else -total)


def _log_cdf(z: ArrayLike) -> Array:
    """``log Φ``; the asymptotic series where erfc underflows."""
    z = np.asarray(z, dtype=np.float64)
    erfc = np.frompyfunc(math.erfc, 1, 1)
    near = np.maximum(z, -30.0)
    far = np.minimum(z, -30.0)
    u = 1.0 / (far * far)
    series = 1.0 - u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u * (1.0 - 9.0 * u))))
    value = np.where(
        z > -30.0,
        np.log(0.5 * np.asarray(erfc(-near * math.sqrt(0.5)), dtype=np.float64)),
        -0.5 * far * far - _HALF_LOG_2PI - np.log(-far) + np.log(series),
    )
    return np.asarray(value)
