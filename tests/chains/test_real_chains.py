"""Real chains: what the exchange and the vendors published ends in right quotes, or in words.

The files are other people's and stay outside the project; docs/chains.md describes them.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from arbiter.chains import Chain, ChainError, read_chain
from arbiter.exclusions import Exclusion
from arbiter.pricing import black
from arbiter.quotes import Quotes

CLOSES = {
    "spx_2020-09-04_close.dat": ("2020-09-04T16:15", 18_738, 3426.96),
    "spx_2022-02-04_close.csv": ("2022-02-04T16:15", 20_514, 4500.5298),
    "spx_2022-07-12_1155ET.csv": ("2022-07-12T11:55", 19_378, 3856.28),
    "spx_2023-02-07_close.csv": ("2023-02-07T16:15", 18_962, 4164.0),
    "spx_2023-08-18_close.csv": ("2023-08-18T16:15", 20_342, 4369.71),
    "spx_2023-09-14_close.csv": ("2023-09-14T16:15", 19_920, 4505.1001),
    "spx_2023-12-08_close.csv": ("2023-12-08T16:15", 6_230, 4604.3701),
}
OTHERS = {
    "spx_2019-05-13_0447ET_gth.dat": ("2019-05-13T04:47", 13_944, 2881.4),
    "spx_2025-01-29_long.csv": ("2025-01-29T16:15", 24_858, 6039.3101),
    "spx_2026-01-30_yahoo.csv": ("2026-01-30T16:15", 17_107, None),
    "vix_2019-08-29_0928ET_premarket.dat": ("2019-08-29T09:28", 760, 18.34),
    "xsp_2023-09-14_close.csv": ("2023-09-14T16:15", 10_882, 450.51),
}
ALL = {**CLOSES, **OTHERS}

_cache: dict[str, Chain] = {}
_cached_quotes: dict[str, Quotes] = {}


def chain_of(data_dir: Path, name: str) -> Chain:
    if name not in _cache:
        as_of = "2025-01-29T16:15" if "long" in name else None
        _cache[name] = read_chain(data_dir / "chains" / name, as_of=as_of)
    return _cache[name]


def quotes_of(data_dir: Path, name: str) -> Quotes:
    if name not in _cached_quotes:
        _cached_quotes[name] = chain_of(data_dir, name).quotes()
    return _cached_quotes[name]


def gaps(chain: Chain) -> pl.DataFrame:
    """Call minus put volatility at the same strikes near the money, in basis points, by expiry.

    Median over the strikes within a quarter of a deviation (four at least), and the half-spread
    there; a wrong forward shows here, and nowhere else as clearly.
    """
    parity = chain.forwards().filter((pl.col("T") >= 2.0 / 365.0) & pl.col("forward").is_finite())
    two_sided = [
        (pl.col(f"{side}_bid") > 0.0) & (pl.col(f"{side}_ask") > pl.col(f"{side}_bid"))
        for side in ("call", "put")
    ]
    strips = chain.strips().filter(*two_sided).partition_by("label", as_dict=True)
    rows = []
    for at in parity.iter_rows(named=True):
        strip = strips[(at["label"],)]
        unit = at["forward"] * at["discount"]
        kappa = strip["strike"].to_numpy() / at["forward"]
        k = np.log(kappa)
        call, put = (
            ((strip[f"{side}_bid"] + strip[f"{side}_ask"]) / 2.0 / unit).to_numpy()
            for side in ("call", "put")
        )
        spread = np.hypot(
            *[(strip[f"{s}_ask"] - strip[f"{s}_bid"]).to_numpy() for s in ("call", "put")]
        )
        near = np.argsort(np.abs(k))[:4]
        total = np.nanmedian(
            black.implied_total_volatility(np.where(k >= 0.0, call, put), k).volatility[near]
        )
        window = np.abs(k) <= max(0.25 * total, np.abs(k[near[-1]]))
        k, kappa, call, put, spread = (a[window] for a in (k, kappa, call, put, spread))
        ivs = [
            black.implied_total_volatility(np.where(k >= 0.0, c, c - 1.0 + kappa), k).volatility
            for c in (call, put + 1.0 - kappa)
        ]
        root = np.sqrt(at["T"])
        rows.append(
            {
                "label": at["label"],
                "gap": 1e4 * np.nanmedian(ivs[0] - ivs[1]) / root,
                "half_spread": 1e4 * np.median(spread) / 2.0 / unit / 0.4 / root,
            }
        )
    return pl.DataFrame(rows)


def assert_complete(chain: Chain, quotes: Quotes) -> None:
    assert len(quotes) + quotes.exclusions.height == chain.frame.height + chain.set_aside.height
    assert quotes.exclusions.select("row", "side").is_duplicated().sum() == 0


@pytest.mark.parametrize("name", ALL)
def test_moment_spot_and_every_option_are_read(data_dir: Path, name: str) -> None:
    chain = chain_of(data_dir, name)
    moment, options, spot = ALL[name]
    assert chain.as_of == np.datetime64(moment, "s")
    assert chain.spot == spot
    assert chain.frame.height + chain.set_aside.height == options
    assert chain.underlying == name[:3].upper()


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_used_or_excluded_once(data_dir: Path, name: str) -> None:
    chain = chain_of(data_dir, name)
    quotes = quotes_of(data_dir, name)
    assert_complete(chain, quotes)
    assert np.all(np.isfinite(quotes.iv_bid) & np.isfinite(quotes.iv_ask))


@pytest.mark.parametrize("name", CLOSES)
def test_at_most_two_percent_of_two_sided_quotes_are_excluded(
    data_dir: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted here without the code that cleans: a bid, a higher ask, out of the money by spot."""
    chain = chain_of(data_dir, name)
    with caplog.at_level(logging.WARNING):
        quotes = chain.quotes(shortest_days=2.0, fewest_strikes=8)
    assert caplog.text == ""
    forward = chain.forwards().select("label", "forward")
    otm = pl.when(pl.col("side") == "call").then(pl.col("strike") >= pl.col("forward"))
    two_sided = (
        chain.frame.join(forward, on="label")
        .filter(otm.otherwise(pl.col("strike") < pl.col("forward")))
        .filter((pl.col("bid") > 0.0) & (pl.col("ask") > pl.col("bid")))
        .filter((pl.col("T") >= 2.0 / 365.0) & (pl.len().over("label") >= 8))
    )
    lost = 1.0 - len(quotes) / two_sided.height
    assert 0.0 <= lost <= 0.003  # 0.26 % on the worst of them; 2 % are allowed


@pytest.mark.parametrize("name", CLOSES)
def test_the_rule_of_two_zero_bids_costs_little(data_dir: Path, name: str) -> None:
    """Which is why it is on by default."""
    chain = chain_of(data_dir, name)
    with_it, without = quotes_of(data_dir, name), chain.quotes(stop_after_zero_bids=False)
    assert 0.0 <= 1.0 - len(with_it) / len(without) < 0.003


@pytest.mark.parametrize("name", CLOSES)
def test_put_and_call_volatilities_meet_at_the_money(data_dir: Path, name: str) -> None:
    """A forward that is off would part them; the rest is what wide quotes leave open."""
    table = gaps(chain_of(data_dir, name))
    gap = table["gap"].abs().to_numpy()
    assert np.median(gap) < 0.7
    assert np.quantile(gap, 0.9) < 3.5
    assert np.all(gap < 0.25 * table["half_spread"].to_numpy() + 0.5)


def test_a_wrong_forward_would_be_seen(data_dir: Path) -> None:
    """The control: half a point on 4,500 opens the gap."""
    chain = chain_of(data_dir, "spx_2023-09-14_close.csv")
    parity = chain.forwards()
    moved = read_chain(data_dir / "chains" / "spx_2023-09-14_close.csv")
    moved.__dict__["parity_estimates"] = chain.parity_estimates._replace(
        frame=parity.with_columns(pl.col("forward") + 0.5)
    )
    assert gaps(moved)["gap"].abs().median() > 5.0  # type: ignore[operator]


@pytest.mark.parametrize("name", CLOSES)
def test_discounts_mean_rates_of_their_time(data_dir: Path, name: str) -> None:
    """Between T-bills and what box spreads paid that year, from two months on."""
    rates = {"2020": (0.0, 0.8), "2022-02": (0.3, 2.3), "2022-07": (1.8, 3.6), "2023": (3.5, 6.2)}
    low, high = next(band for key, band in rates.items() if f"_{key}" in name)
    table = chain_of(data_dir, name).forwards().filter(pl.col("T") > 0.16)
    rate = -100.0 * np.log(table["discount"].to_numpy()) / table["T"].to_numpy()
    assert np.all((rate > low) & (rate < high))


def test_spx_and_xsp_imply_the_same_forwards(data_dir: Path) -> None:
    """Two listings of one index at one minute, ten to one."""
    spx, xsp = (
        chain_of(data_dir, f"{root}_2023-09-14_close.csv")
        .forwards()
        .select("settles", "forward", "T", "forward_error")
        for root in ("spx", "xsp")
    )
    both = spx.join(xsp, on="settles", suffix="_xsp").filter(
        (pl.col("T") < 0.6) & (pl.col("forward_error_xsp") < 0.05)  # one series is quoted very wide
    )
    assert both.height >= 35
    ratio = both["forward"].to_numpy() / (10.0 * both["forward_xsp"].to_numpy()) - 1.0
    assert np.median(np.abs(ratio)) < 5e-5
    assert np.max(np.abs(ratio)) < 2e-4


def test_a_bid_without_an_ask_is_named(data_dir: Path) -> None:
    quotes = chain_of(data_dir, "spx_2023-02-07_close.csv").quotes()
    row = quotes.exclusions.filter(pl.col("reason") == Exclusion.NO_ASK.value)
    assert row.select("row", "expiry", "strike", "side", "bid").rows() == [
        (9372, "2026-12-18 SPX", 200.0, "call", 0.05)
    ]


def test_the_overnight_file_drops_what_has_settled_and_distrusts_its_spot(data_dir: Path) -> None:
    chain = chain_of(data_dir, "spx_2019-05-13_0447ET_gth.dat")
    quotes = chain.quotes()
    gone = quotes.exclusions.filter(pl.col("reason") == Exclusion.EXPIRED.value)
    assert set(gone["expiry"]) == {"2019-05-10 SPXW"}
    assert gone.height == 422
    assert any("spot 2881.4 and the forward" in note for note in chain.notes)
    today = chain.strips().filter(pl.col("label") == "2019-05-13 SPXW")
    assert today["minutes"].unique().to_list() == [673]  # 04:47 to 16:00


def test_the_long_file_needs_a_moment_and_separates_third_fridays(data_dir: Path) -> None:
    with pytest.raises(ChainError, match="as_of='2025-01-29T16:15'"):
        read_chain(data_dir / "chains" / "spx_2025-01-29_long.csv")
    chain = chain_of(data_dir, "spx_2025-01-29_long.csv")
    assert set(chain.set_aside["reason"]) == {Exclusion.AMBIGUOUS.value}
    assert chain.set_aside.height == 124
    assert any("told apart" in note for note in chain.notes)
    both = chain.forwards().filter(pl.col("expiry").is_duplicated())
    assert both.height == 10
    am, pm = (both.filter(pl.col("settlement") == s) for s in ("AM", "PM"))
    # 6.5 hours of carry are 0.2 points; a mixed-up series would be off by much more
    assert np.all(np.abs(am["forward"].to_numpy() - pm["forward"].to_numpy()) < 0.3)
    gap = gaps(chain)
    assert gap["gap"].abs().median() < 0.3  # type: ignore[operator]


def test_the_yahoo_file_loses_its_stale_quotes_and_nothing_good(data_dir: Path) -> None:
    chain = chain_of(data_dir, "spx_2026-01-30_yahoo.csv")
    assert any("latest trade was at 2026-01-30T16:15" in note for note in chain.notes)
    quotes = chain.quotes()
    codes = [code.value for code in (Exclusion.PARITY, Exclusion.STALE)]
    wrong = quotes.exclusions.filter(pl.col("reason").is_in(codes)).sort("row")
    # each is 3 to 18 points off its neighbours, looked at one by one
    assert wrong.select("expiry", "strike", "side").rows() == [
        ("2026-09-30 SPXW", 7160.0, "call"),
        ("2026-09-30 SPXW", 7165.0, "call"),
        ("2026-09-30 SPXW", 7245.0, "call"),
        ("2026-09-30 SPXW", 7305.0, "call"),
        ("2027-06-17 SPX", 4250.0, "put"),
    ]
    assert gaps(chain)["gap"].abs().median() < 0.3  # type: ignore[operator]


def test_the_russian_header_is_friday_evening(data_dir: Path) -> None:
    chain = chain_of(data_dir, "spx_2023-12-08_close.csv")
    assert (
        "the stamp 2023-12-09T13:49 is not in a session: taken as 2023-12-08T16:15" in chain.notes
    )


def test_vix_options_before_the_open_have_forwards_of_their_own(data_dir: Path) -> None:
    chain = chain_of(data_dir, "vix_2019-08-29_0928ET_premarket.dat")
    quotes = chain.quotes()
    assert quotes.labels == (
        *("2019-09-18 VIX", "2019-10-16 VIX", "2019-11-20 VIX"),
        *("2019-12-18 VIX", "2020-01-22 VIX", "2020-02-19 VIX"),
    )
    # VX1 to VX6 of the day before and of that day (futures/vix_futures_2007-2021_quantintell.csv)
    before = np.array([19.375, 19.625, 19.325, 18.925, 19.325, 19.375])
    after = np.array([18.475, 19.025, 18.925, 18.525, 18.925, 19.025])
    assert np.all((quotes.forwards > after) & (quotes.forwards < before))
    assert any("2019-09-11 VIXW: 0 pairs do not imply a forward" in note for note in chain.notes)
