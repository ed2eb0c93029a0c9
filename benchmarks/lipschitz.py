"""How far log-slopes move when quotes do: random pairs, and ascent along finite differences.

Quotes move in log-volatility at fixed strikes, maturities and relative spreads, by at most EPSILON
in sup norm; outputs are log-slopes of the surface at |x| ≤ 3. *End to end* moves the quotes;
*network* moves what it reads, the misfits, at a fixed prior, which is what its constant bounds.
Chains are Heston surfaces from seed 7000 on, base and hard by turns.

    python -m benchmarks.lipschitz [--pairs 10000] [--chains 50] [--ascents 6] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.law.answer import answer
from arbiter.operators.law.network import LawNetwork, LawTask
from arbiter.operators.law.proposal import decode, integrate_laws, price_law, prior_law
from arbiter.operators.law.reading import law_vega
from arbiter.operators.pretrained import Operator
from arbiter.operators.prior.gaussian_process import Kriged, kriged
from arbiter.operators.prior.reference_volatility import scaled
from arbiter.operators.quote_rows import QuoteRows, lay_quotes
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.evaluation.heston_surfaces import heston_surface

EPSILON, FINITE_STEP, FIRST_SEED = 1e-3, 1e-5, 7000
INSIDE = np.abs(np.array(KNOTS)) <= 3.0
TOGETHER = 64  # copies of a chain in one pass
Respond = Callable[[Array], Array]  # from moves (C, m) to log-slopes (C, L, n)


def end_to_end(network: LawNetwork, rows: QuoteRows) -> Respond:
    """Log-slopes of a chain whose log-volatilities are moved."""

    def respond(moves: Array) -> Array:
        times = np.exp(moves).ravel()
        many = copies(rows, len(moves))
        moved = many._replace(iv=many.iv * times, half=many.half * times)
        return np.log(answer(network, moved).slopes[..., INSIDE])

    return respond


def at_fixed_prior(network: LawNetwork, rows: QuoteRows) -> Respond:
    """Log-slopes of a chain whose misfits are moved, the prior held."""
    chain = scaled(rows)
    prior = kriged(chain, network.places)
    slices = integrate_laws(prior.start, chain.total)
    seen = price_law(prior_law(prior.start, slices), slices, rows.row, rows.k)
    vega = law_vega(rows.k, seen.x, chain.total.ravel()[rows.row])
    mid = LawTask.from_chain(chain, prior).mid

    def respond(moves: Array) -> Array:
        many = scaled(copies(rows, len(moves)))
        held = Kriged(*(np.repeat(part, len(moves), 0) for part in prior))
        task = LawTask(many, (mid + vega * moves).ravel(), held)
        slopes = decode(network(task).law, many.total, many.quotes.listed)
        return np.log(slopes[..., INSIDE])

    return respond


def copies(rows: QuoteRows, count: int) -> QuoteRows:
    """A chain several times."""
    slices = rows.T.shape[1]
    ends = np.append((rows.ends[:-1] + rows.k.size * np.arange(count)[:, None]).ravel(), 0)
    ends[-1] = rows.k.size * count
    row = (rows.row + slices * np.arange(count)[:, None]).ravel()
    T, k, iv, half = np.repeat(rows.T, count, 0), *(np.tile(x, count) for x in rows[3:])
    return QuoteRows(T, ends, row, k, iv, half)


def random_gains(respond: Respond, size: int, count: int, rng: np.random.Generator) -> Array:
    """``(count,)`` gains of random moves: signs of single quotes, of stretches, of the chain."""
    base = respond(np.zeros((1, size)))[0]
    stretch = rng.choice([1, 5, 20, size], count)
    moves = np.empty((count, size))
    for move, length in zip(moves, stretch, strict=True):
        signs = rng.choice([-1.0, 1.0], -(-size // length) + 1)
        move[:] = np.repeat(signs, length)[rng.integers(length) :][:size]
    moves *= EPSILON * rng.uniform(0.01, 1.0, (count, 1))
    found = []
    for i in range(0, count, TOGETHER):
        part = moves[i : i + TOGETHER]
        apart = np.abs(respond(part) - base).max((1, 2))
        found.append(apart / np.abs(part).max(1))
    return np.concatenate(found)


def ascend(respond: Respond, size: int, steps: int, rng: np.random.Generator) -> float:
    """The largest gain found by moving every quote the way that moves the worst slope most."""
    base = respond(np.zeros((1, size)))[0]
    move, best = EPSILON * rng.choice([-1.0, 1.0], size), 0.0
    for _ in range(steps):
        here = respond(move[None])[0]
        apart = np.abs(here - base)
        best = max(best, float(apart.max()) / EPSILON)
        worst = np.unravel_index(apart.argmax(), apart.shape)
        gradient = np.empty(size)
        for i in range(0, size, TOGETHER):
            some = np.arange(i, min(i + TOGETHER, size))
            probes = np.repeat(move[None], some.size, 0)
            probes[np.arange(some.size), some] += FINITE_STEP
            gradient[some] = respond(probes)[:, worst[0], worst[1]] - here[worst]
        side = np.sign((here - base)[worst]) or 1.0
        after = EPSILON * side * np.sign(gradient)
        if (after == move).all():
            break
        move = after
    return best


def main() -> None:
    """Print gains of both kinds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--chains", type=int, default=50)
    parser.add_argument("--ascents", type=int, default=6)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    operator = Operator.pretrained() if given.weights is None else Operator.load(given.weights)
    network = LawNetwork(operator.weights, operator.config)
    told: dict[str, dict[str, float | None]] = {}
    for name, make in (("end to end", end_to_end), ("network", at_fixed_prior)):
        rng, gains, best = np.random.default_rng(0), [], []
        for i in range(given.chains):
            rows = lay_quotes([heston_surface(FIRST_SEED + i, bool(i % 2)).quotes])
            respond = make(network, rows)
            gains.append(random_gains(respond, rows.k.size, given.pairs // given.chains, rng))
            if i < given.ascents:
                best.append(ascend(respond, rows.k.size, 4, rng))
        every = np.concatenate(gains)
        middle, high = np.quantile(every, [0.5, 0.99])
        told[name] = {
            "p50": float(middle),
            "p99": float(high),
            "largest": float(every.max()),
            "ascent": max(best, default=None),
        }
    told["network"]["constant"] = operator.lipschitz
    for name, row in told.items():
        numbers = ", ".join(f"{key} {value:.3g}" for key, value in row.items() if value is not None)
        print(f"{name}: {numbers}")
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
