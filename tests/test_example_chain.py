"""The chain that ships with the package: synthetic, reproducible, and as dirty as a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import make_example_chain as tool
from arbiter.chains import Chain, read_chain
from arbiter.conventions import Array
from arbiter.data import example_chain_path
from arbiter.vix.index_rule import vix


@pytest.fixture(scope="module")
def chain() -> Chain:
    return read_chain(example_chain_path())


def test_the_seed_gives_the_committed_bytes() -> None:
    assert tool.chain().encode() == example_chain_path().read_bytes()


def test_another_seed_gives_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "LISTED", "SPXW 2026-10-15, SPX 2027-02-19")
    first, second = tool.chain(), tool.chain(seed=1)
    assert first != second
    assert len(first.splitlines()) == len(second.splitlines())


def test_it_says_that_it_is_synthetic_and_stays_small() -> None:
    raw = example_chain_path().read_bytes()
    assert len(raw) <= 700_000
    assert b"(synthetic)" in raw.splitlines()[1]


def test_it_has_the_layout_of_the_download(data_dir: Path) -> None:
    real = (data_dir / "chains" / "spx_2023-09-14_close.csv").read_text().splitlines()
    ours = example_chain_path().read_text().splitlines()
    assert ours[3] == real[3]
    assert {line.count(",") for line in ours[4:]} == {21}
    assert [line.count(",") for line in ours[:3]] == [line.count(",") for line in real[:3]]


def test_it_is_read_as_the_exchange_s_file(chain: Chain) -> None:
    assert chain.layout == "exchange (new)"
    assert chain.as_of == np.datetime64("2026-10-15T16:15")
    assert chain.spot == tool.SPOT
    assert chain.frame["label"].n_unique() == len(tool.LISTED.split(", ")) == 27


def model_prices(strips: pl.DataFrame) -> tuple[Array, Array]:
    """Call and put of the model the quotes were made from, without noise."""
    T = float(strips["minutes"][0]) / 525_600
    K = strips["strike"].to_numpy()
    F, D = tool.forward(T), np.exp(-tool.rate(T) * T)
    otm = D * F * tool.heston(np.log(K / F), T)
    value = D * (F - K)
    return otm + np.maximum(value, 0.0), otm + np.maximum(-value, 0.0)


def outside(strips: pl.DataFrame) -> int:
    """How many sound quotes do not contain the model's price."""
    found = 0
    for side, price in zip(("call", "put"), model_prices(strips), strict=True):
        bid, ask = (strips[f"{side}_{name}"].to_numpy() for name in ("bid", "ask"))
        found += int(np.sum((ask >= bid) & (ask > 0.0) & ((price < bid) | (price > ask))))
    return found


@pytest.mark.parametrize("label", ["2026-10-16 SPX", "2026-11-13 SPXW", "2028-12-15 SPX"])
def test_the_true_price_lies_between_bid_and_ask(chain: Chain, label: str) -> None:
    strips = chain.strips().filter(pl.col("label") == label)
    assert outside(strips) == 0
    shifted = strips.with_columns(put_bid=pl.col("put_ask"), put_ask=pl.col("put_ask") + 1.0)
    assert outside(shifted) > 10


def test_it_has_the_faults_of_real_files(chain: Chain) -> None:
    frame = chain.frame
    assert frame.filter(pl.col("T") <= 0.0)["expiry"].unique().len() == 1  # settled today
    assert frame.filter((pl.col("bid") == 0.0) & (pl.col("ask") > 0.0)).height > 500
    assert 3 <= frame.filter((pl.col("bid") > pl.col("ask")) & (pl.col("ask") > 0.0)).height <= 5
    assert frame.filter((pl.col("bid") > 0.0) & (pl.col("ask") == 0.0)).height >= 5
    both = frame.filter(pl.col("expiry") == pl.date(2026, 11, 20))
    assert set(both["settlement"]) == {"AM", "PM"}


def test_prices_are_on_the_tick(chain: Chain) -> None:
    price = np.concatenate([chain.frame[name].to_numpy() for name in ("bid", "ask")])
    step = np.where(price < 3.0, 0.05, 0.10)
    assert np.abs(price / step - np.round(price / step)).max() < 1e-6


@pytest.mark.parametrize("days", [9, 30, 93, 184, 365])
def test_its_index_is_that_of_the_model(chain: Chain, days: int) -> None:
    # Heston: the log contract costs the mean of the variance.
    T = days / 365.0
    kappa, theta, v0 = (tool.HESTON[name] for name in ("kappa", "theta", "v0"))
    exact = 100.0 * np.sqrt(theta + (v0 - theta) * -np.expm1(-kappa * T) / (kappa * T))
    assert vix(chain, days=days, rate=tool.rate(T)) == pytest.approx(exact, abs=0.05)
