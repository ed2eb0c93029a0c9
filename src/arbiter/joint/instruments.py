"""Instruments of the joint program: options, futures and variance contracts, and positions.

Glossary (docs/joint-arbitrage.md):

    x, v, y   levels of S_T/F_T, VIX_T/100 and S_{T+Δ}/F_{T+Δ}
    ℓ(z)      log contract, −(2/Δ) log z: an annualised variance over the window
    hat       payoff that is one at its strike and zero at the neighbours: a butterfly

Options of one market span the functions that are linear between its strikes. Hats are the same
span with two nonzeros a point instead of a full column, which is what makes the program sparse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.joint.marginals import Marginal


class Columns(NamedTuple):
    """Joint states with a conditional law of the later index level, one per row.

    Each law has the mean ``x`` and the mean log contract ``ℓ(x) + v²``, so that any mixture of
    columns is a joint law that meets both conditions.
    """

    x: Array  # (c,)
    v: Array  # (c,)
    y: Array  # (c, 3) atoms
    p: Array  # (c, 3) their probabilities

    def append_columns(self, other: Columns) -> Columns:
        """These columns followed by the ``other`` ones."""
        return Columns(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def select_columns(self, which: NDArray[np.bool_]) -> Columns:
        """The columns where ``which`` is true."""
        return Columns(*(part[which] for part in self))


@dataclass(frozen=True, eq=False)
class Payoff:
    """A function that is linear between strikes, and beyond them.

    Attributes:
        strikes: ``(n,)`` increasing.
        values: ``(n,)`` at the strikes.
        left: Weight of the put ``(K_1 − z)⁺`` beyond the first.
        right: Weight of the call ``(z − K_n)⁺`` beyond the last.
    """

    strikes: Array
    values: Array
    left: float
    right: float

    def __call__(self, z: Array) -> Array:
        """Values of the payoff at levels ``z``."""
        below, above = self.strikes[0] - z, z - self.strikes[-1]
        tails = self.left * np.maximum(below, 0.0) + self.right * np.maximum(above, 0.0)
        return np.asarray(np.interp(z, self.strikes, self.values) + tails)

    @cached_property
    def segment_derivatives(self) -> Array:
        """``(n + 1,)`` slopes, the outer ones included."""
        inner = np.diff(self.values) / np.diff(self.strikes)
        return np.concatenate([[-self.left], inner, [self.right]])

    @cached_property
    def kinks(self) -> Array:
        """``(n,)`` changes of slope: the number of options at each strike."""
        return np.diff(self.segment_derivatives)

    def linear_piece(self, z: Array) -> tuple[Array, Array]:
        """Intercept and slope of the pieces that hold the points ``z`` (not on a strike)."""
        at = np.searchsorted(self.strikes, z)
        anchor = np.minimum(at, self.strikes.size - 1)
        slope = self.segment_derivatives[at]
        return self.values[anchor] - slope * self.strikes[anchor], slope

    def add_cash(self, cash: float) -> Payoff:
        """This payoff plus ``cash`` at every level."""
        return Payoff(self.strikes, self.values + cash, self.left, self.right)


@dataclass(frozen=True, eq=False)
class Position:
    """A position bought today: options, cash and forwards of three markets, and three contracts.

    Attributes:
        near: Options on ``S_T/F_T``, cash and forwards included.
        volatility: Options and futures on ``VIX_T/100``.
        far: Options on ``S_{T+Δ}/F_{T+Δ}``.
        near_log: Number of log contracts at T.
        far_log: Number of log contracts at T+Δ.
        square: Number of contracts on ``(VIX_T/100)²``.
        tenor: Δ in years.
    """

    near: Payoff
    volatility: Payoff
    far: Payoff
    near_log: float
    far_log: float
    square: float
    tenor: float

    def log_contract(self, z: Array) -> Array:
        """``ℓ(z) = −(2/Δ) log z``."""
        return np.asarray(-2.0 / self.tenor * np.log(z))

    def add_cash(self, cash: float) -> Position:
        """This position plus an amount of ``cash``."""
        return Position(**{**self.__dict__, "near": self.near.add_cash(cash)})


@dataclass(frozen=True)
class Units:
    """Price move of each kind of instrument for a relaxation of one."""

    index: float = 1.0  # options on the index, over the forward
    vix: float = 1.0  # options and futures on VIX/100
    variance: float = 1.0  # variance contracts, as errors of volatility, times the one above

    @property
    def options(self) -> tuple[float, float, float]:
        """Units of the options of the three markets, in the order of the laws."""
        return self.index, self.vix, self.index

    @property
    def contracts(self) -> Array:
        """Units of the two log contracts and of the squared volatility."""
        return self.variance * np.array([self.index, self.index, self.vix])


@dataclass(frozen=True, eq=False)
class Book:
    """Strikes and prices on three laws, with the units of their relaxation.

    Attributes:
        laws: ``S_T/F_T``, ``VIX_T/100`` and ``S_{T+Δ}/F_{T+Δ}``.
        strikes: Increasing strikes of each.
        units: Relaxation of each kind of instrument.
        tenor: Δ in years.
    """

    laws: tuple[Marginal, Marginal, Marginal]
    strikes: tuple[Array, Array, Array]
    units: Units = field(default_factory=Units)
    tenor: float = THIRTY_DAYS

    @cached_property
    def variances(self) -> Array:
        """Prices of the log contracts and of the squared volatility, annualised."""
        near, volatility, far = self.laws
        scale = -2.0 / self.tenor
        return np.array([scale * near.log_mean, scale * far.log_mean, volatility.second_moment])

    @cached_property
    def contract_units(self) -> Array:
        """Relaxation of the three variance contracts: that of a volatility, times 2 √E v²."""
        return np.asarray(2.0 * np.sqrt(self.variances[2]) * self.units.contracts)

    @cached_property
    def prices(self) -> Array:
        """``(rows,)`` right-hand side of the program: the price of each row's payoff."""
        parts = []
        for law, K in zip(self.laws, self.strikes, strict=True):
            differences, constant = _hat_price_matrix(K, law.mean)
            parts.append(differences @ law.call(K) + constant)
        return np.concatenate([*parts, self.variances])

    @cached_property
    def price_shifts(self) -> sparse.csc_matrix:
        """``(rows, instruments)``: how a move of each price by ε moves the rows.

        Instruments are the options out of the money by market, the volatility future, and the
        three variance contracts. Forwards of the index are exact.
        """
        blocks = []
        for law, K, unit in zip(self.laws, self.strikes, self.units.options, strict=True):
            differences, _ = _hat_price_matrix(K, law.mean)
            blocks.append(unit * differences)
        # a future that rises lifts the calls that are quoted as puts, and lowers the put row
        future = blocks[1] @ (self.laws[1].mean > self.strikes[1])
        future[0] -= self.units.vix
        rows = np.cumsum([0, *(block.shape[0] for block in blocks)])
        lifted = np.zeros((rows[-1], 1))
        lifted[rows[1] : rows[2], 0] = future
        options = sparse.block_diag(blocks)
        whole = sparse.block_diag(
            [sparse.hstack([options, sparse.csr_matrix(lifted)]), sparse.diags(self.contract_units)]
        )
        return whole.tocsc()

    def expected_payoffs(self, columns: Columns) -> sparse.csc_matrix:
        """``(rows, columns)`` expected payoff of every row in every column."""
        count = columns.x.size
        one = np.arange(count)
        near = _hat_payoffs(self.strikes[0], columns.x, np.ones(count), one)
        volatility = _hat_payoffs(self.strikes[1], columns.v, np.ones(count), one)
        three = np.repeat(one, columns.y.shape[1])
        far = _hat_payoffs(self.strikes[2], columns.y.ravel(), columns.p.ravel(), three)
        log = -2.0 / self.tenor * np.log(columns.x)
        square = columns.v**2
        variances = sparse.csr_matrix(np.stack([log, log + square, square]))
        return sparse.vstack([near, volatility, far, variances], format="csc")

    def position(self, weights: Array) -> Position:
        """The position whose weights on the rows are given."""
        found, start = [], 0
        for K in self.strikes:
            part = weights[start : start + K.size + 2]
            found.append(Payoff(K, part[1:-1], float(part[0]), float(part[-1])))
            start += K.size + 2
        near, volatility, far = found
        near_log, far_log, square = (float(w) for w in weights[start:])
        return Position(near, volatility, far, near_log, far_log, square, self.tenor)

    def cost(self, position: Position) -> float:
        """Price of the position today."""
        total = position.near_log * self.variances[0] + position.far_log * self.variances[1]
        total += position.square * self.variances[2]
        payoffs = (position.near, position.volatility, position.far)
        for law, payoff in zip(self.laws, payoffs, strict=True):
            cash, forward, options = decompose_payoff(payoff, law.mean)
            K = payoff.strikes
            total += cash + forward * law.mean
            total += options @ price_out_of_the_money(law, K)
        return float(total)

    def gross_weight(self, position: Position) -> float:
        """Weights of all legs in units of the relaxation: at most one unit of ε moves them."""
        contracts = np.array([position.near_log, position.far_log, position.square])
        total = self.contract_units @ np.abs(contracts)
        payoffs = (position.near, position.volatility, position.far)
        for law, payoff, unit in zip(self.laws, payoffs, self.units.options, strict=True):
            _, forward, options = decompose_payoff(payoff, law.mean)
            future = abs(forward) if payoff is position.volatility else 0.0
            total += unit * (np.abs(options).sum() + future)
        return float(total)


def decompose_payoff(payoff: Payoff, mean: float) -> tuple[float, float, Array]:
    """Cash, forwards, and options out of the money at each strike, that make a payoff."""
    K, options = payoff.strikes, payoff.kinks
    forward = float(payoff.segment_derivatives[np.searchsorted(K, mean, side="right")])
    at_mean = float(payoff(np.asarray(mean)))
    return at_mean - forward * mean, forward, options


def price_out_of_the_money(law: Marginal, strikes: Array) -> Array:
    """Prices of calls from the mean on and of puts below it."""
    return np.asarray(law.call(strikes) - np.maximum(law.mean - strikes, 0.0))


def _hat_payoffs(K: Array, z: Array, weight: Array, column: NDArray[np.int64]) -> sparse.csr_matrix:
    """``(n + 2, columns)``: put beyond the first strike, hats, call beyond the last."""
    left = np.clip(np.searchsorted(K, z, side="right") - 1, 0, K.size - 2)
    share = np.clip((z - K[left]) / (K[left + 1] - K[left]), 0.0, 1.0)
    values = [np.maximum(K[0] - z, 0.0), 1.0 - share, share, np.maximum(z - K[-1], 0.0)]
    rows = [np.zeros_like(left), left + 1, left + 2, np.full_like(left, K.size + 1)]
    data = np.concatenate([weight * value for value in values])
    shape = (K.size + 2, int(column.max(initial=-1)) + 1)
    entries = (data, (np.concatenate(rows), np.tile(column, 4)))
    made = sparse.coo_matrix(entries, shape=shape).tocsr()
    made.eliminate_zeros()
    return made


def _hat_price_matrix(K: Array, mean: float) -> tuple[Array, Array]:
    """Matrix and constant that turn call prices at K into those of tails and hats."""
    n = K.size
    matrix, constant = np.zeros((n + 2, n)), np.zeros(n + 2)
    matrix[0, 0], constant[0] = 1.0, K[0] - mean
    matrix[n + 1, n - 1] = 1.0
    i, width = np.arange(n - 1), 1.0 / np.diff(K)
    matrix[i + 2, i] += width
    matrix[i + 2, i + 1] -= width
    matrix[i + 1, i] -= width
    matrix[i + 1, i + 1] += width
    constant[1] += 1.0
    return matrix, constant
