"""The comparison with peers: quotes like a listed index, one audit grid for every method."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from benchmarks import fit as benchmark
from rich.console import Console

from arbiter import scoring
from arbiter.audit.certificate import audit
from arbiter.quotes import Quotes
from arbiter_lab.evaluation import arbitrage_check
from arbiter_lab.peers import SSVI, SVI

GOOD = SSVI(np.array([0.1, 0.5, 1.0]), np.array([0.003, 0.018, 0.04]), -0.6, 1.1, 0.4)


def test_listed_quotes_have_the_stated_size_and_all_count() -> None:
    quotes = benchmark.listed_quotes()
    assert quotes.maturities.size == 51
    assert 8_300 <= len(quotes) <= 8_500
    assert scoring.find_counted_quotes(quotes).all()
    assert quotes.exclusions.is_empty()
    assert quotes.maturities[0] * 365 == pytest.approx(2.0)
    assert quotes.bid.min() * benchmark.FORWARD > 0.0


def test_the_truth_lies_inside_the_listed_quotes() -> None:
    quotes = benchmark.listed_quotes(4, 20)
    for i, T in enumerate(quotes.maturities.tolist()):
        here = quotes.select(quotes.expiry == i)
        assert scoring.inside_bid_ask(benchmark.MARKET.otm(here.k, T), here) == 1.0
        assert scoring.inside_bid_ask(1.1 * benchmark.MARKET.otm(here.k, T), here) < 0.5


def test_the_audit_grid_stays_among_the_quotes_and_finds_planted_arbitrage() -> None:
    T, s = np.repeat(GOOD.maturities, 12), np.tile(np.linspace(-2.0, 1.5, 12), 3)
    k = s * np.sqrt(GOOD.at_the_money(T))
    iv = GOOD.iv(k, T)
    quotes = Quotes.from_frame({"T": T, "k": k, "iv_bid": 0.99 * iv, "iv_ask": 1.01 * iv})
    table = arbitrage_check.tabulate_volatility(GOOD, quotes, 101)
    assert np.unique(table["T"]).tolist() == pytest.approx([0.1, 0.3, 0.5, 0.75, 1.0])
    assert table["k"].size == 5 * 101
    assert table["k"][:101].min() == pytest.approx(k[:12].min())
    assert audit(table).passed
    crossed = SVI(GOOD.maturities, np.array([[0.02, 0.0, 0.0, 0.0, 0.1]] * 3) * [[1], [0.5], [2]])
    assert not audit(arbitrage_check.tabulate_volatility(crossed, quotes, 101)).passed


@pytest.mark.parametrize("markdown", [False, True])
def test_every_column_of_the_tables_is_written(markdown: bool) -> None:
    example = {"s": "word", "d": 12, ",d": 1234}
    for name, (_, columns) in benchmark.TABLES.items():
        row = {key: example.get(form, 0.125) for _, key, form in columns}
        console = Console(width=300, record=True, file=StringIO())
        console.print(benchmark.rendered(name, [row], markdown))
        written = console.export_text()
        assert all(title in written for title, _, _ in columns)
        assert ("| " in written) is markdown
    assert benchmark.TABLES.keys() == {"time", "growth", "peers", "oracle"}
