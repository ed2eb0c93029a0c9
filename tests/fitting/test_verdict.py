"""A fit says whether it explains its quotes, and not only that its search has ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.chains import ChainError
from arbiter.conventions import Array
from arbiter.fitting import FitQuality, FitVerdict
from arbiter.fitting.verdict import judge_residuals
from arbiter.pricing import black

WEEK, MONTH, QUARTER = 7.0 / 365.0, 30.0 / 365.0, 90.0 / 365.0
LABELS = ("first", "second", "third")


def quote(T: Array, k: Array, iv: Array, half: float) -> ab.Quotes:
    return ab.Quotes.from_frame({"T": T, "k": k, "iv_bid": iv - half, "iv_ask": iv + half})


def two_lobes(half: float) -> ab.Quotes:
    """An event of ±8 % before the first expiry: two lognormal lobes, in every expiry."""
    rows = []
    for t, reach in ((WEEK, 0.15), (MONTH, 0.25), (QUARTER, 0.25)):
        k, v, up = np.linspace(-reach, reach, 41), 0.12 * np.sqrt(t), np.exp(0.08)
        lobes = (0.5 * up, np.log(up)), (1.0 - 0.5 * up, np.log((1.0 - 0.5 * up) / 0.5))
        call = np.zeros(k.size)
        for weight, at in lobes:
            call += weight * black.call(k - at, np.full(k.size, v))
        price = np.where(k < 0.0, call - 1.0 + np.exp(k), call)
        iv = black.implied_total_volatility(price, k).volatility / np.sqrt(t)
        seen = price > 1e-6
        rows.append((np.full(seen.sum(), t), k[seen], iv[seen]))
    T, k, iv = (np.concatenate(column) for column in zip(*rows, strict=True))
    return quote(T, k, iv, half)


def smile(noise: float, half: float = 0.002) -> ab.Quotes:
    k, T = (a.ravel() for a in np.meshgrid(np.linspace(-0.2, 0.2, 41), [MONTH, QUARTER]))
    iv = 0.2 - 0.2 * k + k * k + noise * np.random.default_rng(3).normal(size=k.size)
    return quote(T, k, iv, half)


@pytest.mark.parametrize("half", [0.002, 0.005])
def test_a_law_of_two_lobes_is_missed_and_said_to_be(half: float) -> None:
    quotes = two_lobes(half)
    surface = ab.fit(quotes)
    result = surface.result
    assert result.status.value == "converged"
    error = surface.iv(quotes.k, quotes.T) - quotes.iv_mid
    assert np.sqrt(np.mean(error**2)) > 0.005
    assert result.verdict is not None
    assert result.verdict.quality is FitQuality.MISSED
    assert len(result.verdict.missed) >= 2  # of three: wide spreads hide some of the shape
    assert result.verdict.warning in result.warnings
    assert "an event with two outcomes" in result.warnings[-1]


def test_quotes_that_no_surface_explains_are_said_to_be() -> None:
    """Volatility that halves from one month to the next: calendar arbitrage."""
    k, T = (a.ravel() for a in np.meshgrid(np.linspace(-0.1, 0.1, 21), [MONTH, QUARTER]))
    quotes = quote(T, k, np.where(T == MONTH, 0.6, 0.15), 0.001)
    verdict = ab.fit(quotes).result.verdict
    assert verdict is not None
    assert verdict.quality is FitQuality.MISSED
    assert verdict.inside < 0.2


def test_noise_beyond_the_spreads_is_told_from_a_missed_shape() -> None:
    verdict = ab.fit(smile(noise=0.006)).result.verdict
    assert verdict is not None
    assert verdict.quality is FitQuality.SCATTERED
    assert "scatter" in str(verdict.warning)


def test_what_is_explained_has_no_warning() -> None:
    """Negative control."""
    result = ab.fit(smile(noise=0.0005)).result
    assert result.verdict == FitVerdict(FitQuality.EXPLAINED, 1.0)
    assert result.warnings == ()


def test_no_real_chain_is_missed(data_dir: Path) -> None:
    for path in sorted((data_dir / "chains").glob("spx_202[0-6]*"))[::3]:
        try:
            chain = ab.read_chain(path)
        except ChainError as error:
            moment = error.remedy.value if error.remedy else None
            chain = ab.read_chain(path, as_of=moment, underlying="SPX")
        verdict = ab.fit(chain.quotes()).result.verdict
        assert verdict is not None
        assert verdict.quality is FitQuality.EXPLAINED, path.name
        assert verdict.missed == ()


def test_an_update_has_its_own_verdict_and_a_file_keeps_it(tmp_path: Path) -> None:
    quotes = smile(noise=0.0005)
    shifted = quotes.mid + np.where(quotes.expiry == 0, 6.0, 0.0) * quotes.half_spread * np.sign(
        np.sin(60.0 * quotes.k)
    )
    columns = {"T": quotes.T, "k": quotes.k}
    other = ab.Quotes.from_frame(
        {**columns, "bid": shifted - quotes.half_spread, "ask": shifted + quotes.half_spread}
    )
    surface = ab.fit(quotes)
    moved = surface.update(other)
    assert moved.result.verdict is not None
    assert moved.result.verdict.missed == (quotes.labels[0],)
    back = moved.update(quotes)
    assert back.result.verdict == surface.result.verdict
    assert back.result.warnings == ()
    moved.save(tmp_path / "moved.npz")
    loaded = ab.Surface.load(tmp_path / "moved.npz")
    assert isinstance(loaded, ab.fitting.FittedSurface)
    assert loaded.result.verdict == moved.result.verdict


def test_few_quotes_and_ignored_ones_do_not_condemn_an_expiry() -> None:
    rng = np.random.default_rng(5)
    residuals = rng.uniform(-0.8, 0.8, 60)
    expiry = np.repeat(np.arange(3), 20)
    residuals[[3, 25]] = 9.0
    assert judge_residuals(residuals, expiry, LABELS).quality is FitQuality.EXPLAINED
    missed = residuals.copy()
    missed[20:40] = np.where(np.arange(20) < 10, 4.0, -4.0)
    found = judge_residuals(missed, expiry, LABELS)
    assert (found.quality, found.missed) == (FitQuality.MISSED, ("second",))
    ignored = np.where(expiry == 1, 0.0, 1.0)
    assert judge_residuals(missed, expiry, LABELS, ignored).quality is FitQuality.EXPLAINED
    # a range of strikes outside on one side is missed, though nine tenths are inside
    shaped = rng.uniform(-0.8, 0.8, 150)
    of = np.repeat(np.arange(3), 50)
    shaped[70:75] = 1.5
    found = judge_residuals(shaped, of, LABELS)
    assert (found.quality, found.missed) == (FitQuality.MISSED, ("second",))
    for place in ([60, 65, 70, 75, 80], [70, 71, 72, 73]):  # the controls: apart, and fewer
        apart = np.clip(shaped, -0.8, 0.8)
        apart[place] = 1.5
        assert judge_residuals(apart, of, LABELS).quality is FitQuality.EXPLAINED
    alternating = residuals.copy()
    alternating[20:40] = 4.0 * rng.choice([-1.0, 1.0], 20)
    assert judge_residuals(alternating, expiry, LABELS).quality is FitQuality.SCATTERED
    assert judge_residuals(np.full(60, 2.0), expiry, LABELS).quality is FitQuality.MISSED
