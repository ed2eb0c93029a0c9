"""The joint SPX-VIX program: time by grid size, against the whole grid as one linear program.

``grid``: every node (x, v, y) a variable and two conditions for every pair (x, v), HiGHS interior
point. ``grid, simplex``: the same by the dual simplex. ``columns``: the method of the package on
the same nodes, whose rows are the prices alone. The three minimise the same number.

    python -m benchmarks.joint_program [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from arbiter.conventions import THIRTY_DAYS
from arbiter.joint import JointSettings, Marginal, joint_program
from arbiter.joint.envelope import Envelope
from arbiter.joint.instruments import Book, Columns
from arbiter.joint.program import PRICE_SCALE, SearchLimits, generate_columns
from arbiter.joint.strike_mesh import StateMesh, place_first_strikes
from arbiter.markets import LiftedHeston

Laws = tuple[Marginal, Marginal, Marginal]

SIZES = ((4, 3, 10), (5, 4, 14), (8, 5, 18), (11, 7, 26))
SIMPLEX = 3  # sizes at which the simplex ends within a minute
STRIKES = 12
RESOLUTIONS = (4e-4, 2e-4, 1e-4)
T = 30.0 / 365.0


def heston(T: float = T) -> Laws:
    """Exact laws of one market without arbitrage."""
    return laws_of(LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.04, sigma=0.5, rho=-0.7), T)


def laws_of(market: LiftedHeston, T: float) -> Laws:
    """Exact laws of the index at T, of the VIX then, and of the index thirty days later."""

    def index(t: float) -> Marginal:
        total = float(market.log_variance(t))
        span = float(np.exp(-7.0 * total**0.5)), float(np.exp(5.0 * total**0.5))
        return Marginal.of_calls(lambda K: market.call(K, t), 1.0, span, log_mean=-0.5 * total)

    future = float(market.vix_future(T)) / 100.0
    volatility = Marginal.of_calls(
        lambda K: np.asarray(market.vix_call(100.0 * K, T) / 100.0),
        future,
        (0.2 * future, 5.0 * future),
        second_moment=float(market.forward_variance(T)),
    )
    return index(T), volatility, index(T + THIRTY_DAYS)


def too_wide(laws: Laws, deviation: float = 1.0) -> Laws:
    """The same index, and a VIX of the same second moment whose tail the index cannot carry."""
    near, volatility, far = laws
    mean = float(np.sqrt(volatility.second_moment) * np.exp(-0.5 * deviation**2))
    return near, Marginal.lognormal(deviation, mean), far


def grid_program(book: Book, mesh: StateMesh, method: str = "highs-ipm") -> float:
    """The smallest relaxation over laws on all nodes of a mesh, as one linear program."""
    nodes = [part.ravel() for part in np.meshgrid(mesh.x, mesh.v, mesh.y, indexing="ij")]
    x, v, y = nodes
    one = np.ones((x.size, 1))
    payoffs = book.expected_payoffs(Columns(x, v, y[:, None], one)).tolil()
    payoffs[-2] = -2.0 / book.tenor * np.log(y)  # no condition holds atom by atom
    pair = np.repeat(np.arange(mesh.x.size * mesh.v.size), mesh.y.size)
    place = np.arange(x.size)
    spread = -2.0 / book.tenor * np.log(y / x) - v * v
    conditions = [sparse.csr_matrix((z, (pair, place))) for z in (y - x, spread)]
    moves = book.price_shifts.shape[1]
    rows = sparse.bmat(
        [
            [payoffs, book.price_shifts / PRICE_SCALE, None],
            [conditions[0], None, sparse.csr_matrix((pair[-1] + 1, 1))],
            [conditions[1], None, None],
        ],
        format="csc",
    )
    right = np.concatenate([book.prices, np.zeros(2 * (pair[-1] + 1))])
    none, eye, edge = sparse.csc_matrix((moves, x.size)), sparse.eye(moves), np.ones((moves, 1))
    within = sparse.bmat([[none, eye, -edge], [none, -eye, -edge]], format="csc")
    lowest = np.concatenate([np.zeros(x.size), np.full(moves, -np.inf), [0.0]])
    bounds = np.stack([lowest, np.full(lowest.size, np.inf)], 1)
    cost = np.append(np.zeros(x.size + moves), 1.0)
    found = linprog(cost, within, np.zeros(2 * moves), rows, right, bounds, method)
    if found.status != 0:
        raise ArithmeticError(found.message)
    return float(found.fun) / PRICE_SCALE


def column_program(book: Book, mesh: StateMesh) -> float:
    """The same by columns, on the same nodes."""
    nodes = mesh.with_strikes(book.strikes)
    x, v = (part.ravel() for part in np.meshgrid(nodes.x, nodes.v))
    first = Envelope.from_values(nodes.y, np.log(nodes.y) ** 2, book.tenor).columns(x, v)
    return generate_columns(book, first, nodes, SearchLimits(between=False)).epsilon


def seconds(f: Callable[[], float], repeats: int) -> tuple[float, float]:
    """The least processor time of a call, and its answer."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        answer = f()
        times.append(time.process_time() - start)
    return min(times), answer


def run(sizes: int = len(SIZES), repeats: int = 1) -> Iterator[dict[str, Any]]:
    """One row per market, size and way, with the ratio to the interior point on the whole grid."""
    for name, laws in (("Heston", heston()), ("VIX too wide", too_wide(heston()))):
        book = Book(laws, place_first_strikes(laws, STRIKES))
        for place, size in enumerate(SIZES[:sizes]):
            mesh = StateMesh.from_laws(laws, THIRTY_DAYS, size).with_strikes(book.strikes)
            ways: dict[str, Callable[[], float]] = {
                "grid": partial(grid_program, book, mesh),
                "grid, simplex": partial(grid_program, book, mesh, "highs-ds"),
                "columns": partial(column_program, book, mesh),
            }
            base = None
            for way, call in ways.items():
                if way == "grid, simplex" and place >= SIMPLEX:
                    continue
                spent, epsilon = seconds(call, repeats)
                base = base or spent
                yield {
                    "market": name,
                    "nodes": [z.size for z in mesh.axes],
                    "way": way,
                    "seconds": round(spent, 4),
                    "ratio": round(spent / base, 4),
                    "relaxation": epsilon,
                }


def audits() -> Iterator[dict[str, Any]]:
    """Whole audits by resolution, with the ratio to the coarsest."""
    for name, laws in (("Heston", heston()), ("VIX too wide", too_wide(heston()))):
        base = None
        for resolution in RESOLUTIONS:
            start = time.process_time()
            found = joint_program(*laws, JointSettings(resolution=resolution))
            spent = time.process_time() - start
            base = base or spent
            yield {
                "market": name,
                "resolution": resolution,
                "verdict": str(found.verdict),
                "violation": found.violation,
                "bound": found.bound,
                "strikes": list(found.strikes),
                "passes": found.passes,
                "seconds": round(spent, 2),
                "ratio": round(spent / base, 2),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the grid sizes")
    asked, _ = parser.parse_known_args()
    rows, whole = [], []
    for row in run(asked.sizes):
        nodes = " × ".join(str(n) for n in row["nodes"])
        print(
            f"{row['market']:13} {nodes:15} {row['way']:14} {row['seconds']:8.3f} s "
            f"{row['ratio']:8.4f}   relaxation {row['relaxation']:.6g}",
            flush=True,
        )
        rows.append(row)
    for row in audits():
        print(
            f"{row['market']:13} resolution {row['resolution']:.0e}: {row['verdict']:9} "
            f"[{row['violation']:.3g}, {row['bound']:.3g}], strikes {row['strikes']}, "
            f"{row['passes']} programs, {row['seconds']:.2f} s, {row['ratio']:.2f}",
            flush=True,
        )
        whole.append(row)
    if asked.json:
        about = {"machine": platform.processor() or platform.machine()}
        asked.json.write_text(json.dumps({**about, "rows": rows, "audits": whole}, indent=1) + "\n")


if __name__ == "__main__":
    main()
