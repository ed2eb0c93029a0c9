"""The benchmark of 2,000 unseen surfaces; a third of them is of a family that training lacks.

Surfaces come in threes. The first two are a parameter set of the markets' prior
(:func:`arbiter.markets.draw`, 20 factors), at its start and in a state that a path of it reaches;
the third is a double Heston market with double-exponential jumps
(:mod:`arbiter.models.double_heston`), which the training universe does not contain. Sets are drawn
again until they are like an index: the log contract's volatility between 5 % and 100 % at every
maturity, and no listed volatility below 4 %.

Each has 14 maturities from a week to two years. Strikes are even in standard deviations of the log
contract, from −3.5 to 2, rounded to multiples of 0.05 % of the forward, and listed where the option
is worth a millionth of the forward or more: about 33 per slice. The half-spread in volatility is
``ATM_HALF_SPREAD·(1 + 3 |z|/3.5)·IV`` at z deviations. The mid is the exact volatility plus
half-spread times uniform(−1, 1). Each strike keeps its quote with probability 0.8, about 26 per
slice, at least 6. ``ATM_HALF_SPREAD`` is set so that the root mean square of mid minus exact
volatility over all quotes of the 2,000 surfaces is 18 basis points.

Surface i depends only on the seed and on i.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.models.double_heston import draw_double_heston
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import draw
from arbiter.pricing import black
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities
from arbiter_lab.training.variance_states import simulate_states

Mask = NDArray[np.bool_]

LAW_SEED = 20_261_115
SURFACE_COUNT = 2_000
MATURITY_DAYS = np.array([7, 14, 21, 30, 45, 60, 91, 122, 182, 273, 365, 456, 547, 730])
T = MATURITY_DAYS / DAYS_PER_YEAR
DEVIATION_RANGE = (-3.5, 2.0)  # deviations
STRIKES_PER_SLICE = 33
STRIKE_ROUNDING = 5e-4  # of the forward: strikes are multiples
MIN_LISTED_PRICE = 1e-6  # of the forward: cheaper options are not listed
ATM_HALF_SPREAD = 0.00414  # half-spread over volatility at the money
WING_HALF_SPREAD_GROWTH = 3.0  # how much more at 3.5 deviations
KEPT_SHARE, MIN_QUOTES_PER_SLICE = 0.8, 6
VOLATILITY_RANGE = (0.05, 1.0)  # of the log contract
MIN_LISTED_VOLATILITY = 0.04  # volatility of a listed strike
FAMILIES = ("prior, start", "prior, path", "outsider")
_MODEL_SEED_KEY, _QUOTE_SEED_KEY = 0, 1  # what the children of the seed are for


@dataclass(frozen=True, eq=False)
class UnseenSurfaces:
    """N consecutive surfaces with L maturities and up to S strikes.

    Attributes:
        first: Number of the first surface.
        k: ``(N, L, S)`` log-strikes.
        iv: ``(N, L, S)`` exact volatilities; NaN where no strike is listed.
        mid: ``(N, L, S)`` quoted mid volatilities.
        quoted: ``(N, L, S)`` whether a strike has a quote.
        reference: ``(N, L)`` volatility of the log contract.
        vix: ``(N,)`` exact volatility index, in points.
    """

    first: int
    k: Array
    iv: Array
    mid: Array
    quoted: Mask
    reference: Array
    vix: Array

    def __len__(self) -> int:
        return self.vix.size

    def build_case(self, i: int) -> Case:
        """Return surface ``first + i`` as a :class:`Case`."""
        number = self.first + i
        smiles = ExactSmiles(self.k[i], self.iv[i], self.reference[i], float(self.vix[i]))
        market = f"{number // 3}, {'set' if number % 3 < 2 else 'outsider'}"
        names = f"unseen {number}", FAMILIES[number % 3], market
        return quoted_case(names, smiles, self.mid[i], self.quoted[i])


class ExactSmiles(NamedTuple):
    """Exact volatilities of a market at the maturities :data:`T`.

    Attributes:
        k: ``(L, S)`` log-strikes.
        iv: ``(L, S)`` volatilities; NaN where no strike is listed.
        reference: ``(L,)`` volatility of the log contract.
        vix: Volatility index, in points.
    """

    k: Array
    iv: Array
    reference: Array
    vix: float

    @property
    def deviations(self) -> Array:
        """``(L, S)`` log-strikes in standard deviations of the log contract."""
        return np.asarray(self.k / (self.reference * np.sqrt(T))[:, None])


def quoted_case(names: tuple[str, str, str], smiles: ExactSmiles, mid: Array, quoted: Mask) -> Case:
    """Return a case from its name, family and market, the truth, and the quoted mids."""
    name, family, market = names
    half = half_spread(smiles.deviations, smiles.iv)
    return Case(
        name, family, quotes_from_volatilities(T, smiles.k, mid, half, quoted), T, smiles.k,
        smiles.deviations, smiles.iv, quoted, smiles.vix, market,
    )  # fmt: skip


def half_spread(deviations: Array, iv: Array) -> Array:
    """Return half-spreads in volatility at strikes in deviations of the log contract."""
    return np.asarray(
        ATM_HALF_SPREAD * (1.0 + WING_HALF_SPREAD_GROWTH * np.abs(deviations) / 3.5) * iv
    )


def make_unseen_surfaces(count: int, first: int = 0) -> UnseenSurfaces:
    """Make surfaces ``first`` to ``first + count − 1``, bit-identical each time.

    Example:
        >>> make_unseen_surfaces(1, first=2).build_case(0).family
        'outsider'
    """
    if first < 0 or count < 1:
        raise ValueError(f"first = {first}, count = {count}: give 0, 1, … and at least one")
    threes = range(first // 3, (first + count - 1) // 3 + 1)
    # one thread each: sums in one order, the same bits with more processors and with fewer
    with ThreadPoolExecutor(os.cpu_count(), "", torch.set_num_threads, (1,)) as pool:
        rows = [row for three in pool.map(_draw_triple, threes) for row in three]
    rows = rows[first - 3 * threes[0] :][:count]
    parts = [np.stack(part) for part in zip(*rows, strict=True)]
    return UnseenSurfaces(first, *parts)


def _draw_triple(number: int) -> list[tuple[NDArray[Any], ...]]:
    """Return the columns of surfaces 3·number to 3·number + 2."""
    rng = np.random.default_rng(
        np.random.SeedSequence(LAW_SEED, spawn_key=(_MODEL_SEED_KEY, number))
    )
    made = [
        *draw_until_accepted(_draw_prior_smiles, rng),
        *draw_until_accepted(_draw_double_heston_smiles, rng),
    ]
    return [_quote_surface(3 * number + i, smile) for i, smile in enumerate(made)]


def draw_until_accepted(
    make: Callable[[np.random.Generator], list[ExactSmiles] | None], rng: np.random.Generator
) -> list[ExactSmiles]:
    """Draw until all smiles of a market are like an index."""
    while True:
        made = make(rng)
        if made is not None and all(
            np.nanmin(smiles.iv) > MIN_LISTED_VOLATILITY for smiles in made
        ):
            return made


def _draw_prior_smiles(rng: np.random.Generator) -> list[ExactSmiles] | None:
    """Draw a market of the prior at its start and in a state on a path; None if rejected."""
    market = LiftedHeston.of(draw(rng))
    states = simulate_states([market], 2, rng)[0]
    total = np.stack([market.log_variance(T, state) for state in states])
    if not is_index_like(total):
        return None
    k = np.stack([list_strikes(w) for w in total])
    made = zip(k, market.days(states, k, T), total, market.vix(states).tolist(), strict=True)
    return [imply_smiles(*parts) for parts in made]


def _draw_double_heston_smiles(rng: np.random.Generator) -> list[ExactSmiles] | None:
    market = draw_double_heston(rng)
    total = market.log_variance(T)
    if not is_index_like(total):
        return None
    k = list_strikes(total)
    return [imply_smiles(k, market.otm(k, T[:, None]), total, float(market.vix()))]


def is_index_like(total: Array) -> bool:
    """Return whether total variances ``(L,)`` of the log contract are those of an index."""
    volatility = np.sqrt(total / T)
    low, high = VOLATILITY_RANGE
    return bool((volatility > low).all() and (volatility < high).all())


def list_strikes(total: Array) -> Array:
    """Return ``(L, S)`` log-strikes from total variances ``(L,)``, rounded in strike."""
    even = np.linspace(*DEVIATION_RANGE, STRIKES_PER_SLICE) * np.sqrt(total)[:, None]
    return np.asarray(
        np.log(np.maximum(np.rint(np.exp(even) / STRIKE_ROUNDING), 1.0) * STRIKE_ROUNDING)
    )


def imply_smiles(k: Array, price: Array, total: Array, index: float) -> ExactSmiles:
    """Return volatilities from prices ``(L, S)``; strikes that cost nothing are not listed."""
    # rounded to one strike: listed once
    apart = np.diff(np.exp(k), axis=1, prepend=0.0) > 0.5 * STRIKE_ROUNDING
    listed = np.where(apart & (price > MIN_LISTED_PRICE), price, np.nan)
    iv = black.implied_total_volatility(listed, k).volatility / np.sqrt(T)[:, None]
    return ExactSmiles(k, np.asarray(iv), np.sqrt(total / T), index)


def _quote_surface(number: int, smiles: ExactSmiles) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(
        np.random.SeedSequence(LAW_SEED, spawn_key=(_QUOTE_SEED_KEY, number))
    )
    mid, quoted = draw_quotes(smiles, rng)
    return smiles.k, smiles.iv, mid, quoted, smiles.reference, np.array(smiles.vix)


def draw_quotes(smiles: ExactSmiles, rng: np.random.Generator) -> tuple[Array, Mask]:
    """Draw mid volatilities ``(L, S)`` of all listed strikes, and which of them are quoted."""
    k, iv = smiles.k, smiles.iv
    noise, chance = rng.uniform(-1.0, 1.0, k.shape), rng.uniform(size=k.shape)
    mid = iv + half_spread(smiles.deviations, iv) * noise
    listed = np.isfinite(iv)
    rank = np.argsort(np.argsort(np.where(listed, chance, np.inf), axis=1), axis=1)
    return mid, listed & ((chance < KEPT_SHARE) | (rank < MIN_QUOTES_PER_SLICE))


def iterate_cases(surfaces: UnseenSurfaces) -> Iterator[Case]:
    """Iterate over the surfaces as cases."""
    return (surfaces.build_case(i) for i in range(len(surfaces)))
