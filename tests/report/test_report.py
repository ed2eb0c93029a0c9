"""The page of a fit: one file, nothing fetched, nothing lost, nothing that a file says can run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arbiter as ab
from arbiter.exclusions import Exclusion
from arbiter.maturity_scores import score_by_maturity
from arbiter.quotes import Quotes, drop_expiries
from arbiter.report import page, write_report
from arbiter.report.curves import Readings
from arbiter.report.number_format import (
    choose_ticks,
    escape_label,
    format_number,
    format_percent,
    round_for_json,
)
from arbiter.report.tables import MAX_EXCLUDED_ROWS
from arbiter.scoring import score
from arbiter.surface import Surface
from arbiter.vix.replication import term_structure
from counts import count

HOSTILE = '</script><script>alert(1)</script><img src="http://x.test/a.png"><b>&amp;'


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and the texts of some."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag in self.texts:
            self._open = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open][-1] += data
        else:
            self.words.append(data)

    @property
    def payload(self) -> Any:
        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        return json.loads(self.texts["script"][0], parse_constant=refuse)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def fetched(text: str) -> list[str]:
    """Everything that opening the page would load from elsewhere."""
    seen = Page(text)
    found = [
        f"{tag} {name}={value}"
        for tag, attributes in seen.elements
        for name, value in attributes.items()
        if name in {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}
        and not value.startswith(("#", "data:"))
    ]
    styles = [*seen.texts["style"], *(a["style"] for _, a in seen.elements if "style" in a)]
    for style in styles:
        found += re.findall(r"@import[^;]*", style)
        found += [u for u in re.findall(r"url\(\s*['\"]?([^'\")]+)", style) if u[:5] != "data:"]
    return found


@pytest.fixture(scope="module")
def surface() -> Surface:
    return ab.example()


def quoted(surface: Surface, seed: int = 1, forward: bool = True, label: str = "") -> Quotes:
    """Noisy quotes on ragged strikes of a surface, some of them unusable."""
    rng = np.random.default_rng(seed)
    z = np.sort(rng.uniform(-3.2, 2.0, (surface.maturities.size, 17)), axis=1)
    T = np.broadcast_to(surface.maturities[:, None], z.shape)
    k = surface.log_strike(z, T)
    iv = surface.iv(k, T)
    half = iv * (0.004 + 0.005 * np.abs(z))
    mid = iv + half * rng.uniform(-1.05, 1.05, z.shape)
    bid, ask = (mid - half).ravel(), (mid + half).ravel()
    bid[[5, 40, 90]] = 0.0
    ask[[8, 70]] = np.nan
    bid[21], ask[21] = ask[21], bid[21]
    names = [f"{t * 365:.0f} days {label}" for t in T.ravel()]
    table: dict[str, Any] = {"T": T.ravel(), "k": k.ravel(), "iv_bid": bid, "iv_ask": ask}
    table["expiry"] = names
    if forward:
        table |= {"forward": surface.forward(T).ravel(), "discount": surface.discount(T).ravel()}
    return Quotes.from_frame(table, as_of="2026-01-02T16:15")


@pytest.fixture(scope="module")
def quotes(surface: Surface) -> Quotes:
    return quoted(surface)


@pytest.fixture(scope="module")
def certificate(surface: Surface) -> ab.Certificate:
    return surface.certificate()


def summed(surface: Surface, quotes: Quotes, certificate: ab.Certificate) -> dict[str, Any]:
    found = score(surface, quotes)
    return {
        "status": "converged",
        "expiries": quotes.maturities.size,
        "quotes": len(quotes),
        "excluded": quotes.exclusions.height,
        "inside_bid_ask": found.inside_bid_ask,
        "inside_bid_ask_held_out": 0.9951,
        "iv_rmse_bp_2sd": found.iv_rmse_bp,
        "vix": 15.6312,
        "vix_surface": float(surface.vix()),
        "certificate": {"passed": True, "nas": 1.0, "findings": 0},
        "iterations": 23,
        "seconds": 0.4131,
        "notes": ["the header says Saturday: Friday's close is meant"],
        "warnings": ["2.1 % of the quotes are crossed"],
        "underlying": "SPX",
        "source": "made for a test",
        "roughness": {"strike": 0.125, "maturity": 1.5},
    }


@pytest.fixture(scope="module")
def summary(surface: Surface, quotes: Quotes, certificate: ab.Certificate) -> dict[str, Any]:
    return summed(surface, quotes, certificate)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
    surface: Surface,
    quotes: Quotes,
    summary: dict[str, Any],
    certificate: ab.Certificate,
) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    written = write_report(
        path,
        surface,
        quotes,
        summary=summary,
        certificate=certificate,
        term_structure=term_structure(surface, source=quotes),
    )
    assert written == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def seen(whole: str) -> Page:
    return Page(whole)


def test_page_loads_nothing_from_elsewhere(whole: str, seen: Page) -> None:
    assert fetched(whole) == []
    policies = [a for _, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies[0]["content"].startswith("default-src 'none';")
    assert "http" not in policies[0]["content"]


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://cdn.test/plotly.js"></script>',
        '<link rel="stylesheet" href="//fonts.test/a.css">',
        '<img src="picture.png">',
        "<style>@import 'https://x.test/a.css';</style>",
        '<style>p { background: url("https://x.test/a.png") }</style>',
        '<p style="background: url(//x.test/a.png)"></p>',
    ],
)
def test_planted_resource_is_found(planted: str) -> None:
    assert len(fetched(f"<!doctype html><body>{planted}</body>")) == 1


def test_plotly_is_inside_and_does_not_offer_to_upload(seen: Page) -> None:
    data, bundle, own = seen.texts["script"]
    assert data.startswith("{")
    assert "plotly.js v" in bundle[:200]
    # from version 4 plotly shows a button that sends a chart to its makers
    assert "showSendToCloud: false" in own
    assert 'plotlyServerURL: ""' in own
    assert "http" not in own


def drawn_kinds(payload: Any) -> set[str]:
    views = [view for figure in payload["figures"].values() for view in figure.get("views", [])]
    figures = [*payload["figures"].values(), *(view for view in views if "data" in view)]
    return {trace["type"] for figure in figures for trace in figure["data"]}


def test_no_figure_is_a_map(seen: Page) -> None:
    # maps are what plotly would fetch tiles and borders for
    assert drawn_kinds(seen.payload) <= {"scatter", "heatmap", "surface", "scatter3d", "contour"}


def test_same_inputs_give_the_same_bytes(
    tmp_path: Path, surface: Surface, quotes: Quotes, summary: dict[str, Any], whole: str
) -> None:
    more: dict[str, Any] = {
        "summary": summary,
        "certificate": surface.certificate(),
        "term_structure": term_structure(surface, source=quotes),
    }
    again = write_report(tmp_path / "a.html", surface, quotes, **more)
    assert again.read_text(encoding="utf-8") == whole
    more["summary"] = summary | {"vix": 15.6313}
    other = write_report(tmp_path / "b.html", surface, quotes, **more)
    assert other.read_text(encoding="utf-8") != whole


def test_many_quotes_stay_light(tmp_path: Path) -> None:
    strikes = count(full=400, reduced=60)
    T = (
        np.concatenate([np.arange(1, 41), np.arange(47, 188, 10), [365, 730, 1095, 1460, 1825]])
        / 365
    )
    assert T.size == 60
    slopes = 0.2 * np.sqrt(T)[:, None] * np.linspace(1.6, 0.8, 31)
    wide = Surface.from_slopes(np.linspace(-5.5, 4.5, 31), T, slopes, 5000.0 * np.exp(0.02 * T))
    k = wide.log_strike(np.linspace(-3.5, 2.5, strikes), T[:, None])
    at = np.broadcast_to(T[:, None], k.shape)
    iv = wide.iv(k, at)
    table = {
        "T": at.ravel(),
        "k": k.ravel(),
        "iv_bid": 0.98 * iv.ravel(),
        "iv_ask": 1.02 * iv.ravel(),
    }
    table["forward"] = wide.forward(at).ravel()
    path = write_report(tmp_path / "r.html", wide, Quotes.from_frame(table), summary={})
    assert path.stat().st_size <= 8_000_000


def test_error_midway_leaves_the_old_page(
    tmp_path: Path,
    surface: Surface,
    quotes: Quotes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")

    def full(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="disk full"):
            write_report(path, surface, quotes, summary={})
    with monkeypatch.context() as patch:
        patch.setattr(page, "build_figures", full)
        with pytest.raises(OSError, match="disk full"):
            write_report(path, surface, quotes, summary={})
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_report(path, surface, quotes, summary={})
    assert path.stat().st_size > 1_000_000
    assert list(tmp_path.iterdir()) == [path]


def test_headline_numbers_are_those_of_the_summary(seen: Page, summary: dict[str, Any]) -> None:
    exact = [float(attributes["value"]) for tag, attributes in seen.elements if tag == "data"]
    for name in ("inside_bid_ask", "iv_rmse_bp_2sd", "vix", "quotes"):
        assert summary[name] in exact, name
    shown = [format_percent(summary["inside_bid_ask"]), "99.51\u00a0% of those held out"]
    shown += [
        format_number(summary["iv_rmse_bp_2sd"]),
        "15.63",
        format_number(summary["vix_surface"]),
    ]
    shown += ["converged", "23 steps, 0.413 s", f"{summary['excluded']} excluded"]
    for text in shown:
        assert text in seen.text, text


def test_everything_that_was_said_is_shown(seen: Page, summary: dict[str, Any]) -> None:
    for text in (*summary["notes"], *summary["warnings"], "made for a test", "SPX"):
        assert text in seen.text, text
    assert "strike = 0.125, maturity = 1.5" in seen.text


def test_every_expiry_and_every_reason_is_shown(seen: Page, quotes: Quotes) -> None:
    for label in quotes.labels:
        assert seen.words.count(label) >= 4, label  # select, sheet, expiries, exclusions by expiry
    reasons = quotes.counts()
    assert reasons.height == 3
    for reason, n, meaning in reasons.iter_rows():
        assert {reason, str(n), meaning} <= set(seen.words), reason
        assert Exclusion(reason).explain() == meaning
    assert [smile["label"] for smile in seen.payload["smiles"]] == list(quotes.labels)


def test_residuals_are_in_half_spreads(seen: Page, surface: Surface, quotes: Quotes) -> None:
    smiles = seen.payload["smiles"]
    shown = np.concatenate([smile["residual"] for smile in smiles])
    mid, half = 0.5 * (quotes.ask + quotes.bid), 0.5 * (quotes.ask - quotes.bid)
    expected = (surface.otm(quotes.k, quotes.T) - mid) / half
    np.testing.assert_allclose(shown, expected, atol=6e-4)
    inside = np.concatenate([smile["inside"] for smile in smiles])
    np.testing.assert_array_equal(inside == 1, np.abs(expected) <= 1.0)
    assert 0 < inside.sum() < inside.size  # both kinds are there to be told apart
    assert f"{inside.sum()} of {inside.size} quotes" in seen.text


def test_moved_quote_is_seen_outside(surface: Surface, quotes: Quotes) -> None:
    near = int(np.argmin(np.abs(quotes.k)))
    bid, ask = quotes.bid.copy(), quotes.ask.copy()
    bid[near], ask[near] = 2.0 * ask[near], 2.0 * ask[near] + quotes.half_spread[near]
    moved = Quotes(
        quotes.maturities, quotes.forwards, quotes.discounts, quotes.expiry, quotes.k, bid, ask,
        quotes.labels,
    )  # fmt: skip
    readings = Readings(surface, moved)
    assert not readings.inside[near]
    assert readings.residual[near] < -1.0


def test_share_and_shape_of_each_expiry(seen: Page, surface: Surface, quotes: Quotes) -> None:
    readings = Readings(surface, quotes)
    for i in range(quotes.maturities.size):
        own = readings.inside[quotes.expiry == i]
        assert readings.share_inside[i] == own.mean()
    dots = seen.payload["figures"]["residual-map"]["data"][1]
    np.testing.assert_allclose(dots["x"], 100.0 * readings.share_inside, atol=0.01)
    cells = readings.residual_cells
    assert cells.number.sum() == len(quotes)
    total = np.nansum(cells.mean * cells.number)
    assert total == pytest.approx(readings.residual.sum())


def test_what_lies_past_the_quotes_is_told_apart(seen: Page, quotes: Quotes) -> None:
    for i, smile in enumerate(seen.payload["smiles"]):
        own, curve = quotes.k[quotes.expiry == i], smile["curve"]
        k = np.array(curve["k"])
        inner = k[curve["from"] : curve["to"]]
        assert inner[[0, -1]] == pytest.approx(own[[0, -1]], abs=1e-5)
        assert k[0] < own[0]
        assert k[-1] > own[-1]
    lines = seen.payload["figures"]["total-variance"]["data"]
    for i in range(quotes.maturities.size):
        own = quotes.k[quotes.expiry == i]
        beyond, inside = lines[2 * i], lines[2 * i + 1]
        assert beyond["line"]["dash"] == "dot"
        assert "dash" not in inside["line"]
        assert min(inside["x"]) >= own[0] - 1e-4
        assert max(inside["x"]) <= own[-1] + 1e-4
        assert min(v for v in beyond["x"] if v is not None) < own[0]


def crossings(readings: Readings) -> int:
    """How often a line of total variance dips below that of an earlier expiry."""
    k = np.linspace(-0.05, 0.04, 21)
    iv = [np.interp(k, *line) for line in zip(readings.smile_k, readings.smile_iv, strict=True)]
    return int((np.diff(np.array(iv) ** 2 * readings.T[:, None], axis=0) <= 0.0).sum())


def test_lines_of_total_variance_do_not_cross(surface: Surface, quotes: Quotes) -> None:
    assert crossings(Readings(surface, quotes)) == 0


def test_crossing_lines_would_be_found(surface: Surface, quotes: Quotes) -> None:
    class Crossed(Surface):
        def iv(self, k: Any, T: Any) -> Any:
            return super().iv(k, T) * np.where(np.isclose(T, quotes.maturities[2]), 0.5, 1.0)

    assert crossings(Readings(copied(Crossed, surface), quotes)) > 0


class Known(Surface):
    """A surface that knows its standard errors, as a fitted one does."""

    def iv_error(self, k: Any, T: Any) -> Any:
        return 0.001 * (1.0 + np.broadcast_arrays(k, T)[1])

    def vix_error(self) -> float:
        return 0.04


class Forgetful(Known):
    def iv_error(self, k: Any, T: Any) -> Any:
        raise ValueError("this copy of the surface has no covariance")

    def vix_error(self) -> float:
        raise ValueError("this copy of the surface has no covariance")


def copied(kind: type[Surface], surface: Surface) -> Surface:
    parts = surface.knots, surface.maturities, surface.slopes, surface.weights, surface.curve
    return kind(*parts)


def test_standard_errors_are_drawn_where_known(
    tmp_path: Path, surface: Surface, quotes: Quotes, summary: dict[str, Any], seen: Page
) -> None:
    path = write_report(tmp_path / "k.html", copied(Known, surface), quotes, summary=summary)
    known = Page(path.read_text(encoding="utf-8"))
    for smile in known.payload["smiles"]:
        assert smile["curve"]["error"] == pytest.approx([0.1 * (1.0 + smile["T"])] * 133, abs=1e-4)
    assert f"exact {format_number(summary['vix_surface'])}\u00a0±\u00a00.08" in known.text
    assert sum(a.get("class") == "band" for _, a in known.elements) == len(quotes.labels)
    # the same page of a surface that does not know them
    assert all(smile["curve"]["error"] is None for smile in seen.payload["smiles"])
    assert "±\u00a00.08" not in seen.text
    forgetful = Readings(copied(Forgetful, surface), quotes)
    assert forgetful.smile_error is None
    assert forgetful.index_error({}) is None
    assert forgetful.index_error({"vix_error": 0.03}) == 0.03


def test_index_at_its_horizons_is_shown(seen: Page, surface: Surface, quotes: Quotes) -> None:
    table = term_structure(surface, source=quotes)
    for value in table["exact"]:
        assert format_number(value, 3) in seen.words
    names = [trace["name"] for trace in seen.payload["figures"]["term-structure"]["data"]]
    assert {"index rule on the surface", "index rule on the quotes"} <= set(names)


def test_parity_is_shown_with_its_errors(
    tmp_path: Path, surface: Surface, quotes: Quotes, seen: Page
) -> None:
    assert "Pairs" not in seen.words  # nothing is known of them there
    table = pl.DataFrame(
        {
            "label": quotes.labels,
            "forward_error": np.linspace(0.101, 0.114, len(quotes.labels)),
            "discount_error": np.linspace(0.000201, 0.000214, len(quotes.labels)),
            "pairs": np.arange(201, 201 + len(quotes.labels)),
        }
    )
    path = write_report(tmp_path / "f.html", surface, quotes, summary={}, forwards=table)
    words = Page(path.read_text(encoding="utf-8")).words
    for row in table.iter_rows():
        assert format_number(row[1], 3) in words
        assert format_number(row[2], 6) in words
        assert str(row[3]) in words
    for forward, discount in zip(quotes.forwards, quotes.discounts, strict=True):
        assert {format_number(forward), format_number(discount, 6)} <= set(words)


def test_certificate_is_shown(seen: Page, certificate: ab.Certificate) -> None:
    assert str(certificate) in seen.text
    assert certificate.structural is not None
    for check in certificate.structural.checks:
        assert check.name in seen.words
        assert any(check.detail in word for word in seen.words)
    for family, checked in certificate.checked.items():
        assert {family.replace("_", " "), f"{checked:,}"} <= set(seen.words)
    assert "Findings" not in seen.words


def test_findings_are_shown(tmp_path: Path, surface: Surface, quotes: Quotes) -> None:
    table = {"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "iv": [0.2, 0.5, 0.2]}
    failed = ab.audit(table)
    path = write_report(tmp_path / "c.html", surface, quotes, summary={}, certificate=failed)
    words = Page(path.read_text(encoding="utf-8")).words
    assert "2 findings" in words
    assert "Findings" in words
    assert set(failed.findings["family"]) <= set(words)
    assert set(failed.findings["legs"]) <= set(words)


def test_score_and_endings_are_shown_where_there_are_any(
    tmp_path: Path, surface: Surface, quotes: Quotes
) -> None:
    bare = Page(write_report(tmp_path / "bare.html", surface, quotes, summary={}).read_text())
    assert "Score by time to expiry" not in bare.words  # the controls
    assert "Expiries that are not used" not in bare.words
    scored = score_by_maturity(surface, quotes)
    kept = drop_expiries(quotes, quotes.labels[0])
    path = write_report(tmp_path / "full.html", surface, kept, summary={"score": scored.to_dict()})
    seen = Page(path.read_text())
    assert {"Score by time to expiry", "Expiries that are not used", "dropped"} <= set(seen.words)
    for name, bucket in scored.buckets.items():
        assert (name in seen.words) == (bucket.quotes > 0), name
    assert format_number(scored.overall.worst_half_spreads) in seen.words
    assert "contradict other quotes" not in seen.text
    found = {"expiry": "2026-03-20", "strike": 3700.0}
    asks = {"quotes": 12, "violated": 1, "contradictory": [found]}
    both = {"score": {**scored.to_dict(), "one_sided": asks}}
    told = Page(write_report(tmp_path / "asks.html", surface, kept, summary=both).read_text())
    assert (
        "1 of 12 asks without a bid violated, 1 exceeded that contradict other quotes "
        "(2026-03-20 3700)" in told.text
    )


def test_without_a_certificate_the_page_says_so(
    tmp_path: Path, surface: Surface, quotes: Quotes, summary: dict[str, Any]
) -> None:
    path = write_report(tmp_path / "n.html", surface, quotes, summary={})
    assert "No certificate was made." in Page(path.read_text(encoding="utf-8")).text
    path = write_report(tmp_path / "v.html", surface, quotes, summary=summary)
    assert "The certificate itself was not given to this page." in path.read_text(encoding="utf-8")


def test_excluded_quotes_are_listed_to_a_limit(tmp_path: Path, surface: Surface) -> None:
    k = np.linspace(-0.1, 0.1, MAX_EXCLUDED_ROWS + 60)
    bid = np.zeros(k.size)
    bid[::40] = 0.1
    some = Quotes.from_frame(
        {"T": np.full(k.size, 0.25), "k": k, "iv_bid": bid, "iv_ask": bid + 0.2}
    )
    left = some.exclusions.height - MAX_EXCLUDED_ROWS
    assert left > 0
    path = write_report(tmp_path / "x.html", surface, some, summary={})
    text = Page(path.read_text(encoding="utf-8")).text
    assert f"{left} more rows not shown" in text
    assert text.count("zero bid") == MAX_EXCLUDED_ROWS + 2


def test_text_from_a_file_stays_text(tmp_path: Path, surface: Surface) -> None:
    hostile = quoted(surface, label=HOSTILE)
    said: dict[str, Any] = {
        "underlying": HOSTILE,
        "source": HOSTILE,
        "status": HOSTILE,
        "command": HOSTILE,
    }
    said |= {"notes": [HOSTILE], "warnings": [HOSTILE], "options": {HOSTILE: HOSTILE}}
    path = write_report(tmp_path / "h.html", surface, hostile, summary=said)
    text = path.read_text(encoding="utf-8")
    seen = Page(text)
    tags = [tag for tag, _ in seen.elements]
    assert fetched(text) == []
    assert tags.count("script") == 3
    assert "img" not in tags
    assert [smile["label"] for smile in seen.payload["smiles"]] == list(hostile.labels)
    assert HOSTILE in seen.texts["script"][0].encode().decode("unicode_escape")
    # what plotly is given has no tags either
    figures = json.dumps(seen.payload["figures"])
    assert "<script" not in figures
    assert "<img" not in figures
    assert seen.text.count(HOSTILE) >= 6


def test_unescaped_text_would_be_found() -> None:
    planted = Page(f"<body><p>{HOSTILE}</p></body>")
    assert [tag for tag, _ in planted.elements].count("script") == 1
    assert len(fetched(f"<body><p>{HOSTILE}</p></body>")) == 1


def shapes() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "one quote", {"T": [0.1], "k": [0.0], "iv_bid": [0.14], "iv_ask": [0.16]}
    yield "locked", {"T": [0.1] * 2, "k": [0.0, 0.1], "iv_bid": [0.14] * 2, "iv_ask": [0.14] * 2}
    yield (
        "two expiries",
        {"T": [0.1, 0.5], "k": [0.0, 0.0], "iv_bid": [0.1] * 2, "iv_ask": [0.3] * 2},
    )
    far = {"T": [0.001, 9.0], "k": [0.0, -1.0], "iv_bid": [0.01] * 2, "iv_ask": [0.9] * 2}
    yield "beyond the surface", far


@pytest.mark.parametrize("table", [t for _, t in shapes()], ids=[name for name, _ in shapes()])
def test_small_and_odd_sets_of_quotes_have_a_page(
    tmp_path: Path, surface: Surface, table: dict[str, Any]
) -> None:
    path = write_report(tmp_path / "s.html", surface, Quotes.from_frame(table), summary={})
    seen = Page(path.read_text(encoding="utf-8"))
    assert len(seen.payload["smiles"]) == len(set(table["T"]))
    assert "Strike" not in seen.words  # no currency, no strikes
    assert "Log-moneyness" in seen.words


def test_locked_quote_has_a_residual() -> None:
    flat = Surface.from_slopes([-1.0, 1.0], [0.25], [[0.1, 0.1]])
    table = {"T": [0.25] * 2, "k": [0.0, 0.1], "iv_bid": [0.2, 0.3], "iv_ask": [0.2, 0.3]}
    readings = Readings(flat, Quotes.from_frame(table))
    np.testing.assert_array_equal(readings.residual, [0.0, -99.0])


def test_no_quotes_no_page(tmp_path: Path, surface: Surface) -> None:
    none = Quotes.from_frame({"T": [0.1], "k": [0.0], "iv_bid": [0.0], "iv_ask": [0.2]})
    with pytest.raises(ValueError, match=r"nothing to report on; see quotes\.counts"):
        write_report(tmp_path / "none.html", surface, none, summary={})
    assert list(tmp_path.iterdir()) == []


def test_real_chain_has_a_page(data_dir: Path, tmp_path: Path) -> None:
    from arbiter.chains import read_chain
    from arbiter.fitting import fit

    chain = read_chain(data_dir / "chains" / "spx_2023-02-07_close.csv")
    quotes = chain.quotes()
    fitted = fit(quotes)
    path = write_report(
        tmp_path / "real.html", fitted, quotes, summary={"vix": 18.66}, forwards=chain.forwards()
    )
    seen = Page(path.read_text(encoding="utf-8"))
    assert path.stat().st_size <= 8_000_000
    assert set(quotes.labels) <= set(seen.words)
    assert set(quotes.counts()["reason"]) <= set(seen.words)
    assert all(smile["curve"]["error"] is not None for smile in seen.payload["smiles"])


@given(st.floats(0.0, 1.0))
def test_a_share_is_never_rounded_up(share: float) -> None:
    shown = float(format_percent(share).removesuffix("\u00a0%"))
    assert shown <= 100.0 * share * (1.0 + 1e-12)
    assert shown > 100.0 * share - 0.01 - 1e-9
    assert (shown == 100.0) == (share > 1.0 - 1e-13)


def test_numbers_as_people_read_them() -> None:
    assert format_number(-1234.5678) == "−1,234.57"
    assert format_number(-0.0001) == "0.00"
    assert format_number(None) == format_number(float("nan")) == format_number(True) == "–"
    assert format_percent(0.99999) == "99.99\u00a0%"
    assert format_percent(0.57) == "57.00\u00a0%"
    assert escape_label("<b>&") == "&lt;b&gt;&amp;"
    assert round_for_json([1.23456, float("nan"), -1e-9], 2) == [1.23, None, 0.0]


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4), st.integers(2, 8))
def test_ticks_are_round_and_inside(low: float, width: float, most: int) -> None:
    found = choose_ticks(low, low + width, most)
    assert len(found) <= most
    assert all(low - 1e-6 * width <= t <= low + 1.000001 * width for t in found)
    assert found == sorted(set(found))
