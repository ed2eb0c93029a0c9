"""The linear program over joint laws, by columns: few rows, and only the laws that matter.

    minimise ε   over joint laws of (x, v, y) with  E[y | x, v] = x,  E[ℓ(y) − ℓ(x) | x, v] = v²
    such that every price differs from the market's by at most ε

A column is a state with a conditional law that meets both conditions (:mod:`envelope`), so that the
rows are the prices alone: a hundred or two, instead of two for every pair of states. The dual of
the program over the columns so far is a position; the envelope of its last payoff finds the states
where it loses most, and their worst laws are the next columns.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from arbiter.conventions import Array
from arbiter.joint.envelope import Envelope
from arbiter.joint.instruments import Book, Columns, Position
from arbiter.joint.payoff_floor import find_payoff_floor, hedged_payoffs
from arbiter.joint.strike_mesh import StateMesh

States = tuple[Array, Array, Array]  # x, v, and what is lost there
logger = logging.getLogger(__name__)

NEGLIGIBLE_RELAXATION = 1e-8  # a relaxation that rounding of the program explains
PRICE_SCALE = 100.0  # prices in hundredths: the solver's tolerance is then far below NOTHING
# Tighter tolerances than the solver's own make it give up now and then, in ways that it does not
# name; then another way is tried.
_SOLVER_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("highs-ds", {"time_limit": 60.0}),
    ("highs-ds", {"time_limit": 60.0, "presolve": False}),
    ("highs-ipm", {"time_limit": 120.0}),
)
_LOSS_TOLERANCE = (
    0.02  # a loss this small beside the gain is left to the cash that is added at the end
)
_MIN_PROFIT_SHARE = 0.9  # of the relaxation: a position that surely earns this is good enough
_MAX_COLUMNS_PER_PASS = 400  # columns added at once
_MAX_COLUMNS = 3_000  # columns; beyond them the dearest half is let go
_OUTER_STATE_QUANTILE = 1e-6  # quantile of the outermost states at the start


class ProgramSolution(NamedTuple):
    """Solution of the linear program over a set of columns."""

    epsilon: float
    mass: Array  # (columns,)
    weights: Array  # (rows,) of the position that is its dual


class CertifiedPosition(NamedTuple):
    """A position with a negative price and a proof that it loses nowhere in its box."""

    position: Position
    hedges: Envelope
    mesh: StateMesh
    profit: float  # today, for gross weights of one


@dataclass(frozen=True)
class SearchLimits:
    """Limits of the search on one set of strikes.

    Attributes:
        enough: Relaxations up to this count as none.
        passes: Most linear programs.
        sharpenings: Most times that later levels are added to the mesh.
        between: Whether states between the nodes of the mesh are looked for.
    """

    enough: float = NEGLIGIBLE_RELAXATION
    passes: int = 100
    sharpenings: int = 5
    between: bool = True


@dataclass(frozen=True, eq=False)
class ProgramResult:
    """Result of the program on one set of strikes.

    Attributes:
        columns: States and conditional laws.
        mass: Their probabilities.
        epsilon: Relaxation with which this joint law meets the prices of the book.
        proof: The separating position, where one is certain to gain.
        passes: Linear programs solved.
    """

    columns: Columns
    mass: Array
    epsilon: float
    proof: CertifiedPosition | None
    passes: int

    @property
    def profit(self) -> float:
        """Premium of the proved arbitrage; zero where none was proved."""
        return 0.0 if self.proof is None else self.proof.profit


def solve_program(book: Book, columns: Columns) -> ProgramSolution:
    """Minimise the relaxation over the given columns."""
    payoffs, shifts = book.expected_payoffs(columns), book.price_shifts
    count, moves = payoffs.shape[1], shifts.shape[1]
    rows = sparse.hstack(
        [payoffs, shifts / PRICE_SCALE, sparse.csc_matrix((payoffs.shape[0], 1))], format="csc"
    )
    none, eye, one = sparse.csc_matrix((moves, count)), sparse.eye(moves), np.ones((moves, 1))
    within = sparse.bmat([[none, eye, -one], [none, -eye, -one]], format="csc")
    cost = np.append(np.zeros(count + moves), 1.0)
    lowest = np.concatenate([np.zeros(count), np.full(moves, -np.inf), [0.0]])
    bounds = np.stack([lowest, np.full(lowest.size, np.inf)], 1)
    for method, options in _SOLVER_METHODS:
        found = linprog(
            cost, within, np.zeros(2 * moves), rows, book.prices, bounds, method, options=options
        )
        if found.status == 0:
            return ProgramSolution(
                found.fun / PRICE_SCALE, found.x[:count], -found.eqlin.marginals / PRICE_SCALE
            )
        logger.info("%s with %s ended without an answer: %s", method, options, found.message)
    raise ArithmeticError(
        f"the linear program with {rows.shape[0]} rows and {count} columns was not solved: "
        f"{found.message}; ask for a coarser resolution or fewer strikes"
    )


def generate_columns(
    book: Book, columns: Columns, mesh: StateMesh, effort: SearchLimits
) -> ProgramResult:
    """Minimise the relaxation over all joint laws, from some columns.

    States are first looked for among the nodes of the mesh, then in the cells between them.
    """
    mesh = mesh.with_strikes(book.strikes)
    passes, sharpenings = 0, 0
    while True:
        found, passes = solve_program(book, columns), passes + 1
        if found.epsilon <= effort.enough:
            return ProgramResult(columns, found.mass, found.epsilon, None, passes)
        position = book.position(found.weights)
        more = None
        while more is None:
            hedges = Envelope.from_values(mesh.y, position.far(mesh.y), book.tenor)
            more = _build_losing_columns(
                book, found, _worst_states_at_nodes(position, hedges, mesh), hedges
            )
            if passes < effort.passes and more is not None:
                break
            if not effort.between:
                return ProgramResult(columns, found.mass, found.epsilon, None, passes)
            lowered = hedges.lower_below(position.far)
            seen = find_payoff_floor(position, lowered, mesh, _LOSS_TOLERANCE * found.epsilon)
            more = _build_losing_columns(book, found, (seen.x, seen.v, seen.loss), hedges)
            if passes < effort.passes and more is not None:
                break
            proof = _certify_position(book, position, lowered, mesh, seen.least)
            answer = ProgramResult(columns, found.mass, found.epsilon, proof, passes)
            last = sharpenings == effort.sharpenings or passes >= effort.passes
            if last or answer.profit > _MIN_PROFIT_SHARE * found.epsilon:
                return answer
            marked = np.zeros(mesh.y.size, dtype=bool)
            bent = lowered.planes[:, 0] < hedges.planes[:, 0] - _LOSS_TOLERANCE * found.epsilon
            marked[hedges.corners[bent].ravel()] = True
            mesh, sharpenings, more = mesh.refine_marked(marked), sharpenings + 1, None
        logger.debug(
            "pass %d: %d columns, mesh %d × %d × %d, relaxation %.3g",
            passes, columns.x.size, *(z.size for z in mesh.axes), found.epsilon,
        )  # fmt: skip
        columns = _prune_columns(book, columns, found.weights).append_columns(more)


def _certify_position(
    book: Book, position: Position, hedges: Envelope, mesh: StateMesh, least: float
) -> CertifiedPosition | None:
    """The position with cash added until it loses nowhere in the box; None if it then costs."""
    raised = position.add_cash(max(-least, 0.0))
    profit = -book.cost(raised) / max(book.gross_weight(raised), np.finfo(float).tiny)
    return (
        CertifiedPosition(raised, hedges, mesh, profit) if profit > NEGLIGIBLE_RELAXATION else None
    )


def build_starting_columns(book: Book, mesh: StateMesh) -> Columns:
    """Columns to start from: states across both laws, with laws narrow, wide and skewed."""
    near, volatility, _ = book.laws
    u = np.concatenate(
        [
            [_OUTER_STATE_QUANTILE, 1e-4],
            np.linspace(0.005, 0.995, 14),
            [1 - 1e-4, 1 - _OUTER_STATE_QUANTILE],
        ]
    )
    x = np.concatenate([near.quantile(u), mesh.x[::12], mesh.x[-1:]])
    v = np.concatenate([volatility.quantile(u[::2]), mesh.v[::8], mesh.v[-1:]])
    states = [z.ravel() for z in np.meshgrid(np.unique(x), np.unique(v))]
    y = mesh.y
    log = np.log(y)
    shapes = (log**2, -(log**2), (y - 1.0) ** 4, log**3, -(log**3))
    found = [Envelope.from_values(y, shape, book.tenor).columns(*states) for shape in shapes]
    return Columns(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _worst_states_at_nodes(position: Position, hedges: Envelope, mesh: StateMesh) -> States:
    """The states that lose most in each row and in each column of the mesh."""
    x, v = np.meshgrid(mesh.x, mesh.v, indexing="ij")
    payoff = hedged_payoffs(position, hedges, x.ravel(), v.ravel())[0].reshape(x.shape)
    i = np.concatenate([np.arange(mesh.x.size), payoff.argmin(0)])
    j = np.concatenate([payoff.argmin(1), np.arange(mesh.v.size)])
    i, j = np.unique(np.stack([i, j]), axis=1)
    return mesh.x[i], mesh.v[j], -payoff[i, j]


def _build_losing_columns(
    book: Book, found: ProgramSolution, states: States, hedges: Envelope
) -> Columns | None:
    """Columns of the worst of some states, where the position does lose on them."""
    x, v, loss = states
    least = max(_LOSS_TOLERANCE * found.epsilon, 0.1 * float(loss.max(initial=0.0)))
    worst = np.argsort(-loss)[:_MAX_COLUMNS_PER_PASS]
    worst = worst[loss[worst] > least]
    if not worst.size:
        return None
    columns = hedges.columns(x[worst], v[worst])
    # a state that no law on the nodes reaches is settled beside it, where there may be no loss
    columns = columns.select_columns(
        book.expected_payoffs(columns).T @ found.weights < -0.5 * least
    )
    return columns if columns.x.size else None


def _prune_columns(book: Book, columns: Columns, weights: Array) -> Columns:
    """All columns, or where there are too many the half on which the position earns least."""
    if columns.x.size <= _MAX_COLUMNS:
        return columns
    earned = book.expected_payoffs(columns).T @ weights
    return columns.select_columns(earned <= np.median(earned))
