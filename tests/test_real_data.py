"""Real quotes: what mids violate, and what a certified surface makes of them.

The data are other people's and stay outside the project; without ``ARBITER_DATA`` these tests are
reported as not run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import arbiter as ab
from arbiter.surface import Surface
from direct import Problem, represent

EXPIRIES, STRIKES = 12, 33


@pytest.fixture(scope="module")
def quotes(data_dir: Path) -> pl.DataFrame:
    """Two-sided SPX volatility quotes of 2023-02-15, expiries of at least two days."""
    raw = pl.read_csv(data_dir / "joint" / "spx_implied_vol_20230215.csv")
    two_sided = (pl.col("Bid") > 0.0) & (pl.col("Ask") > pl.col("Bid"))
    return raw.filter(two_sided & (pl.col("Texp") >= 2 / 365)).select(
        T="Texp", k=(pl.col("Strike") / pl.col("Fwd")).log(), bid="Bid", ask="Ask"
    )


def test_market_mids_can_be_arbitraged(quotes: pl.DataFrame) -> None:
    """46 expiries, 6,490 mids: butterflies above all, most of them smaller than a tick."""
    mids = quotes.select("T", "k", iv=(pl.col("bid") + pl.col("ask")) / 2.0)
    certificate = ab.audit(mids)
    assert not certificate.passed
    assert 0.99 < certificate.nas < 1.0
    families = set(certificate.findings["family"])
    assert {"butterfly", "calendar"} <= families
    assert certificate.findings["size"].to_numpy().max() < 1e-3
    assert certificate.findings["material"].to_numpy().mean() < 0.2


def test_a_certified_surface_goes_through_the_spreads(quotes: pl.DataFrame) -> None:
    """Slopes chosen directly on a subset of quotes: inside bid and ask, and no finding."""
    listed = quotes.group_by("T").len().filter(pl.col("len") >= STRIKES)["T"].sort()
    listed = listed.filter(listed.is_between(5 / 365, 2.0))
    pick = np.linspace(0, len(listed) - 1, EXPIRIES).round().astype(int)
    T = listed.to_numpy()[pick]
    rows = [quotes.filter(pl.col("T") == t).sort("k") for t in T]
    chosen = [
        row[np.linspace(0, row.height - 1, STRIKES).round().astype(int).tolist()] for row in rows
    ]
    k, bid, ask = (
        np.stack([row[name].to_numpy() for row in chosen]) for name in ("k", "bid", "ask")
    )
    knots, mid = np.linspace(-5.5, 4.5, 31), 0.5 * (bid + ask)
    slopes, _, _ = represent(Problem(knots, T, k, mid, 1, 0.5 * (ask - bid)), steps=25)
    surface = Surface.from_slopes(knots, T, slopes)
    iv = surface.iv(k, T[:, None])
    inside = np.mean((iv >= bid) & (iv <= ask))
    near = np.abs(k) <= 2.0 * mid * np.sqrt(T)[:, None]
    rmse = 1e4 * np.sqrt(np.mean((iv - mid)[near] ** 2))
    assert inside > 0.99
    assert rmse < 3.0
    assert surface.certificate().passed
