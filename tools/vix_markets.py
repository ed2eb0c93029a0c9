"""Draw synthetic markets with both an index and its VIX, for the prior of VIX slices.

Usage: PYTHONPATH=src python tools/vix_markets.py OUT.npz [--markets 775] [--seed 0]

Of each market, at its start and in a state that a path reaches, and at a few dates: the features of
its SPX surface (arbiter.vix.prior_features) and the slopes of the law of its VIX, both exact. A
market whose VIX can come too near zero to have a law that is computed is drawn again. What is there
is kept: the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import ndtri

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.files import open_whole
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import Parameters, draw
from arbiter.models.vix_oracle import IndexLaw
from arbiter.vix.prior import KNOTS
from arbiter.vix.prior_features import features
from arbiter_lab.training.variance_states import simulate_states

Sample = dict[str, Array]

DATES = 4  # of each market
SPAN = (4.0 / 365.0, 1.2)  # years, even in logarithms
STATES = 2
WIDE, FINE = 6.0, 241  # deviations of log VIX to either side, and strikes among them
SAVED = 25  # markets between files


def main() -> None:
    """Draw and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--markets", type=int, default=775)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    parts = [dict(np.load(given.out))] if given.out.is_file() else []
    if parts and np.any(parts[0]["seed"] != given.seed):
        raise SystemExit(f"{given.out} is of another seed than {given.seed}: name another file")
    done = int(parts[0]["market"].max()) + 1 if parts else 0
    for number in range(done, given.markets):
        parts.append(one(given.seed, number))
        if (number + 1) % SAVED == 0 or number + 1 == given.markets:
            parts = [{name: np.concatenate([p[name] for p in parts]) for name in parts[0]}]
            with open_whole(given.out) as file:
                np.savez(file, **parts[0])
            sys.stderr.write(f"\r{number + 1} of {given.markets} markets")
    sys.stderr.write("\n")


def one(seed: int, number: int) -> Sample:
    """Samples of one market; the same number gives the same market."""
    rng = np.random.default_rng([seed, number])
    while True:
        p = draw(rng)
        low, high = np.log(SPAN)
        T = np.sort(np.exp(rng.uniform(low, high, DATES)))
        states = simulate_states([p], STATES, rng)[0]
        try:
            return sampled(p, T, states, (seed, number))
        except (ValueError, ArithmeticError):  # too near zero: another
            continue


def sampled(p: Parameters, T: Array, states: Array, name: tuple[int, int]) -> Sample:
    """Features, slopes, futures and forward variances at dates ``(U,)`` in states ``(D, n)``."""
    (seed, number), market = name, LiftedHeston.of(p)
    found: list[Sample] = []
    for state in states:
        index = SimpleNamespace(
            iv=partial(market.iv, state=state),
            variance_swap=partial(market.variance_swap, state=state),
            forward_variance=partial(market.forward_variance, state=state),
        )
        seen = features(index, T)
        laws = [law_slopes(IndexLaw.from_parameters(p, t), state) for t in T]
        slopes, futures = (np.array(part) for part in zip(*laws, strict=True))
        good = np.isfinite(seen).all(1) & np.isfinite(slopes).all(1) & (slopes > 0.0).all(1)
        if not good.all():
            raise ValueError("a date without smiles or law")
        found.append(
            {
                "features": seen,
                "slopes": slopes,
                "future": futures,
                "variance": np.asarray(market.forward_variance(T, state)),
                "T": T,
                "market": np.full(T.size, number),
                "seed": np.full(T.size, seed),
            }
        )
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def law_slopes(law: IndexLaw, state: Array) -> tuple[Array, float]:
    """Slopes ``(n,)`` of log VIX at the knots from exact calls, and the future."""
    future = float(law.future(state[None])[0])
    second = INDEX_POINTS**2 * float(law.mean_squared_index(state[None])[0])
    width = np.sqrt(np.log(max(second / future**2, 1.0 + 1e-8)))
    k = width * np.linspace(-WIDE, WIDE, FINE)
    calls = law.calls(state[None], future * np.exp(k))[0] / future
    # the law is minus the slope of calls in strike; a spline in log-strike has it
    below = 1.0 + CubicSpline(k, calls)(k, 1) * np.exp(-k)
    inside = (below > 1e-4) & (below < 1.0 - 1e-4)
    inside &= np.maximum.accumulate(np.where(inside, below, 0.0)) <= below
    if np.count_nonzero(inside) < len(KNOTS):
        raise ValueError("too few strikes tell the law")
    x, y = ndtri(below[inside]), k[inside]
    keep = np.concatenate([[True], np.diff(x) > 1e-6])
    quantile = CubicSpline(x[keep], y[keep])
    return np.asarray(quantile(np.clip(KNOTS, x[0] + 0.05, x[-1] - 0.05), 1)), future


if __name__ == "__main__":
    main()
