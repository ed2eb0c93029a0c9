"""The evaluation: its law is the stated one, its scores are right, and arbitrage is found."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arbiter as ab
from arbiter.conventions import Array
from arbiter.data import example_chain_path as example_path
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter_lab.baselines.matched_size import match_design
from arbiter_lab.baselines.trained_baseline import Baseline
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.evaluation import stored_surfaces, unseen_surfaces
from arbiter_lab.evaluation.arbitrage_check import (
    ArbitrageVerdict,
    audit_model,
    tabulate_volatility,
)
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.listed_chains import evaluate_chains, find_chain_files
from arbiter_lab.evaluation.methods import Method, select_methods
from arbiter_lab.evaluation.pictures import draw_errors
from arbiter_lab.evaluation.run_methods import CHAINS_PER_BATCH, evaluate
from arbiter_lab.evaluation.scores import (
    MONEYNESS_EDGES,
    moneyness_labels,
    noise_bp,
    score_case,
    score_refusal,
    summary,
)
from arbiter_lab.peers import SVI, fit_svi
from arbiter_lab.training.law_pool import make_laws
from counts import FULL, count


@pytest.fixture(scope="module")
def sheets() -> unseen_surfaces.UnseenSurfaces:
    return unseen_surfaces.make_unseen_surfaces(count(unseen_surfaces.SURFACE_COUNT, 12))


@pytest.fixture(scope="module")
def cases(sheets: unseen_surfaces.UnseenSurfaces) -> list[Case]:
    return [sheets.build_case(i) for i in range(6)]


class Shifted:
    """The truth of a case, off by a constant."""

    def __init__(self, case: Case, by: float = 0.0) -> None:
        self.case, self.by = case, by

    def iv(self, k: Any, T: Any) -> Array:
        """Between the exact points linear; the tests ask at them."""
        points, times = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(T, dtype=float))
        out = np.empty(points.shape)
        for row, t in enumerate(self.case.T.tolist()):
            here, known = times == t, self.case.listed[row]
            out[here] = np.interp(points[here], self.case.k[row, known], self.case.iv[row, known])
        return out + self.by

    def otm(self, k: Any, T: Any) -> Array:
        return np.asarray(black.otm(k, self.iv(k, T) * np.sqrt(T)))

    def vix(self) -> float:
        return self.case.vix + 100.0 * self.by


def test_the_law_is_the_stated_one(sheets: unseen_surfaces.UnseenSurfaces) -> None:
    listed = np.isfinite(sheets.iv)
    assert listed.sum(-1).mean() == pytest.approx(33.0, abs=0.5)
    assert sheets.quoted.sum(-1).mean() == pytest.approx(26.4, abs=0.5)
    assert sheets.quoted.sum(-1).min() >= unseen_surfaces.MIN_QUOTES_PER_SLICE
    assert not (sheets.quoted & ~listed).any()
    z = sheets.k / (sheets.reference * np.sqrt(unseen_surfaces.T))[..., None]
    half = unseen_surfaces.half_spread(z, sheets.iv)
    error = ((sheets.mid - sheets.iv) / half)[sheets.quoted]
    assert np.abs(error).max() <= 1.0
    assert np.var(error) == pytest.approx(1.0 / 3.0, rel=0.05)
    assert abs(error.mean()) < 4.0 / np.sqrt(3.0 * error.size)
    strikes = np.exp(sheets.k) / unseen_surfaces.STRIKE_ROUNDING
    assert np.abs(strikes - np.rint(strikes)).max() < 1e-6
    price = black.otm(sheets.k, sheets.iv * np.sqrt(unseen_surfaces.T)[:, None])
    assert np.nanmin(price) > 0.999 * unseen_surfaces.MIN_LISTED_PRICE
    assert np.nanmin(sheets.iv) > unseen_surfaces.MIN_LISTED_VOLATILITY
    assert unseen_surfaces.T.size == 14


def test_the_noise_is_eighteen_basis_points(sheets: unseen_surfaces.UnseenSurfaces) -> None:
    """All 2,000 surfaces are within half a basis point; a dozen have a noise of their own."""
    noise = np.sqrt(np.mean((sheets.mid - sheets.iv)[sheets.quoted] ** 2)) / 1e-4
    slack = 0.5 if FULL else 5.0
    assert noise == pytest.approx(18.0, abs=slack)
    assert 2.0 * noise != pytest.approx(18.0, abs=slack)


def test_a_third_is_of_the_family_outside(cases: list[Case]) -> None:
    assert [case.family for case in cases] == [*unseen_surfaces.FAMILIES] * 2


def test_a_surface_depends_on_its_number_alone(sheets: unseen_surfaces.UnseenSurfaces) -> None:
    again = unseen_surfaces.make_unseen_surfaces(2, first=4)
    for name in ("k", "iv", "mid", "quoted", "reference", "vix"):
        one, other = getattr(sheets, name)[4:6], getattr(again, name)
        assert np.array_equal(one, other, equal_nan=True), name
        assert not np.array_equal(getattr(sheets, name)[1:3], other, equal_nan=True), name
    # the first two of three share their parameters, and are two states
    assert not np.allclose(sheets.reference[0], sheets.reference[1])
    with pytest.raises(ValueError, match="count = 0"):
        unseen_surfaces.make_unseen_surfaces(0)


def test_training_has_not_seen_them(sheets: unseen_surfaces.UnseenSurfaces) -> None:
    """No law of a training pool with the evaluation's own seed is one of these surfaces."""
    pool = make_laws(count(400, 6), seed=unseen_surfaces.LAW_SEED, states_per_set=2, workers=1)
    rows = np.arange(len(pool))
    times = torch.from_numpy(np.broadcast_to(unseen_surfaces.T, (rows.size, 14)).copy()).float()
    level = pool.reference_at(torch.from_numpy(rows), times).numpy()
    gap = np.abs(np.log(level[:, None] / sheets.reference[None])).max(-1)  # (pool, surfaces)
    assert gap.min() > 1e-3
    assert np.abs(np.log(level[:, None] / level[None])).max(-1).min() < 1e-3


def test_an_exact_answer_has_no_error_and_a_shifted_one_its_shift(cases: list[Case]) -> None:
    case = cases[0]
    good = score_case(case, Shifted(case), ArbitrageVerdict(1.0, 0, True), 0.1)
    assert np.nanmax(np.abs(good.error)) < 1e-9
    assert np.array_equal(np.isnan(good.error), ~case.listed)
    assert good.inside == len(case.quotes)
    found = summary(
        [case], [score_case(case, Shifted(case, 7e-4), ArbitrageVerdict(1.0, 0, True), 0.1)]
    )
    for name in ("rmse_bp", "rmse_unquoted_bp", "rmse_quoted_bp", "mae_bp", "max_bp", "bias_bp"):
        assert found[name] == pytest.approx(7.0), name
    assert found["vix_rmse"] == pytest.approx(0.07)
    assert found["inside_bid_ask"] < 1.0
    assert all(row["rmse_bp"] == pytest.approx(7.0) for row in found["by_maturity"])
    cells = [v for row in found["rmse_bp_by_maturity_and_moneyness"] for v in row if v is not None]
    assert np.allclose(cells, 7.0)
    assert len(moneyness_labels()) == MONEYNESS_EDGES.size + 1


def test_errors_are_pooled_over_points_and_counted_where_they_are(cases: list[Case]) -> None:
    def planted(case: Case, quoted: float, unquoted: float) -> Any:
        answer = score_case(case, Shifted(case), ArbitrageVerdict(1.0, 0, True), 0.1)
        answer.error[case.listed & case.quoted] = quoted
        answer.error[case.listed & ~case.quoted] = unquoted
        return answer

    pair = cases[:2]
    found = summary(pair, [planted(pair[0], 3.0, 1.0), planted(pair[1], -4.0, 2.0)])
    seen = [int((c.listed & c.quoted).sum()) for c in pair]
    gaps = [int((c.listed & ~c.quoted).sum()) for c in pair]
    squares = 9 * seen[0] + 16 * seen[1] + gaps[0] + 4 * gaps[1]
    assert found["rmse_bp"] == pytest.approx(np.sqrt(squares / sum(seen + gaps)))
    quoted = (9 * seen[0] + 16 * seen[1]) / sum(seen)
    assert found["rmse_quoted_bp"] == pytest.approx(np.sqrt(quoted))
    unquoted = (gaps[0] + 4 * gaps[1]) / sum(gaps)
    assert found["rmse_unquoted_bp"] == pytest.approx(np.sqrt(unquoted))
    assert found["max_bp"] == 4.0
    assert found["worst"]["name"] == pair[1].name
    assert found["by_family"][pair[0].family]["max_bp"] == 3.0
    # one planted error is seen at its maturity and moneyness and nowhere else
    one = score_case(pair[0], Shifted(pair[0]), ArbitrageVerdict(1.0, 0, True), 0.1)
    one.error[2, 0] = 50.0
    heat = summary(pair[:1], [one])["rmse_bp_by_maturity_and_moneyness"]
    where = np.argwhere(np.array(heat, dtype=float) > 1e-6)
    assert where.tolist() == [[2, 0]]


def test_the_noise_is_that_of_the_quotes(cases: list[Case]) -> None:
    case = heston_case(3)
    assert noise_bp([case]) == pytest.approx(18.7, abs=8.0)
    half = 0.5 * (case.quotes.iv_ask - case.quotes.iv_bid)
    assert noise_bp([case]) < 1e4 * half.max()
    assert case.quoted.sum() == len(case.quotes)
    assert case.vix == pytest.approx(float(ab.fit(case.quotes).vix()), abs=0.3)


def test_no_volatility_and_no_model_are_infinite_errors(cases: list[Case]) -> None:
    case = cases[2]

    class Holed(Shifted):
        def iv(self, k: Any, T: Any) -> Array:
            found = super().iv(k, T)
            if found.size == case.listed.sum():  # the points, and not those of a table
                found[5] = np.nan
            return found

    answer = score_case(case, Holed(case), ArbitrageVerdict(1.0, 0, True), 0.1)
    found = summary([case], [answer])
    assert found["absent"] == 1
    assert found["rmse_bp"] is None
    assert found["refused"] == 0
    nothing = summary([case], [score_refusal(case, "too few quotes")])
    assert nothing["refused"] == 1
    assert nothing["refusal"] == "too few quotes"
    assert nothing["rmse_bp"] is None
    assert nothing["nas_one"] == 0
    json.dumps([found, nothing], allow_nan=False)


def test_every_method_is_scored_on_the_same_quotes(cases: list[Case]) -> None:
    given: list[int] = []

    def spy(chains: Sequence[Quotes]) -> list[Any]:
        given.extend(len(quotes) for quotes in chains)
        return [ab.fit(quotes) for quotes in chains]

    told: list[tuple[str, int]] = []
    found = evaluate(
        cases[:3],
        [Method("spy", spy), *select_methods(["svi"])],
        tell=lambda name, done: told.append((name, done)),
    )
    facts = found.to_dict()
    assert given == [len(case.quotes) for case in cases[:3]]
    assert told == [("spy", 3), ("svi", 3)]
    assert CHAINS_PER_BATCH > 3
    assert facts["methods"]["spy"]["nas_one"] == 3 == facts["methods"]["spy"]["proved"]
    assert facts["methods"]["svi"]["proved"] == 0
    assert 1.0 < facts["methods"]["spy"]["rmse_bp"] < facts["noise_bp"]
    with pytest.raises(ValueError, match="no cases"):
        evaluate([], select_methods(["svi"]))


def test_one_refused_chain_does_not_stop_the_others(cases: list[Case]) -> None:
    def picky(chains: Sequence[Quotes]) -> list[Any]:
        if any(quotes is cases[1].quotes for quotes in chains):
            raise ValueError("not this one")
        return [ab.fit(quotes) for quotes in chains]

    answers = evaluate(cases[:2], [Method("picky", picky)]).answers["picky"]
    assert answers[0].refusal is None
    assert answers[1].refusal == f"{cases[1].name}: not this one"


def test_a_refused_batch_is_not_timed(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def solve(chains: Sequence[Quotes]) -> list[SVI]:
        now[0] += 100.0 if len(chains) > 1 else 1.0
        if len(chains) > 1:
            raise ValueError("one at a time")
        return [fit_svi(chains[0])]

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = evaluate(cases[:2], [Method("slow", solve, promises=False)])
    assert [answer.seconds for answer in found.answers["slow"]] == [1.0, 1.0]


def test_arbitrage_is_found_in_a_peer_and_in_a_surface(cases: list[Case]) -> None:
    case = cases[2]
    good = ab.fit(case.quotes)
    assert audit_model(good, case.quotes) == ArbitrageVerdict(1.0, 0, True)
    assert audit_model(good, case.quotes, full=True) == ArbitrageVerdict(1.0, 0, True)
    falling = np.linspace(0.05, 0.01, 14)  # total variance that falls with maturity
    flat = np.column_stack([falling, *np.zeros((3, 14)), np.full(14, 0.1)])
    bad = audit_model(SVI(case.T, flat), case.quotes)
    assert bad.nas < 1.0
    assert bad.findings > 0
    assert bad.proved is None

    class Tampered:
        """Prices that are not those of the stored slopes."""

        knots, slopes, weights = good.knots, good.slopes, good.weights
        maturities = good.maturities

        def iv(self, k: Any, T: Any) -> Array:
            return good.iv(k, T)

        def otm(self, k: Any, T: Any) -> Array:
            return good.otm(k, T)

        def forward(self, T: Any) -> Array:
            return good.forward(T)

        def discount(self, T: Any) -> Array:
            return good.discount(T)

        def call(self, K: Any, T: Any) -> Array:
            return good.call(K, T) + 1e-4

        def put(self, K: Any, T: Any) -> Array:
            return good.put(K, T) + 1e-4

    assert audit_model(Tampered(), case.quotes) == ArbitrageVerdict(0.0, 0, False)
    assert len(tabulate_volatility(good, case.quotes)["k"]) == 27 * 51


def test_stored_surfaces_are_those_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stored_surfaces, "SURFACES_PER_FILE", 3)
    told: list[int] = []
    first = stored_surfaces.load_unseen_surfaces(5, tmp_path, told.append)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["unseen-00000.npz", "unseen-00003.npz"]
    assert told == [3, 5]
    content = (tmp_path / names[0]).read_bytes()

    def refuse(*_: object) -> unseen_surfaces.UnseenSurfaces:
        raise AssertionError("made again")

    with monkeypatch.context() as patch:
        patch.setattr(unseen_surfaces, "make_unseen_surfaces", refuse)
        again = stored_surfaces.load_unseen_surfaces(5, tmp_path)
        with pytest.raises(AssertionError, match="made again"):
            stored_surfaces.load_unseen_surfaces(7, tmp_path)
    plain = stored_surfaces.load_unseen_surfaces(5)
    for one, other, third in zip(first, again, plain, strict=True):
        assert np.array_equal(one.iv, other.iv, equal_nan=True)
        assert np.array_equal(one.quotes.bid, other.quotes.bid)
        assert np.array_equal(one.quotes.bid, third.quotes.bid)
        assert one.name == other.name == third.name
    # from any number on, across files and without them: the benchmark's own come first
    for folder in (tmp_path, None):
        later = stored_surfaces.load_unseen_surfaces(2, folder, first=2)
        assert [case.name for case in later] == ["unseen 2", "unseen 3"]
        assert np.array_equal(later[1].quotes.bid, first[3].quotes.bid)
    with pytest.raises(ValueError, match=r"first = -1"):
        stored_surfaces.load_unseen_surfaces(1, tmp_path, first=-1)
    # damage is found and mended, to the byte
    broken = bytearray(content)
    broken[len(broken) // 2] ^= 0xFF
    for bad in (bytes(broken), content[:100], b""):
        (tmp_path / names[0]).write_bytes(bad)
        with caplog.at_level(logging.WARNING):
            stored_surfaces.load_unseen_surfaces(1, tmp_path)
        assert "made again" in caplog.text
        caplog.clear()
        assert (tmp_path / names[0]).read_bytes() == content
    monkeypatch.setattr(unseen_surfaces, "ATM_HALF_SPREAD", 0.5)
    with pytest.raises(ValueError, match="another law"):
        stored_surfaces.load_unseen_surfaces(1, tmp_path)


def test_methods_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'sabr' is not one of prior, operator, refine, fit, svi"):
        select_methods(["fit", "sabr"])
    with pytest.raises(ValueError, match="'fit' is named twice"):
        select_methods(["fit", "fit"])
    with pytest.raises(ValueError, match="'refine' needs an operator"):
        select_methods(["refine"])
    with pytest.raises(ValueError, match="'gru' needs a trained network"):
        select_methods(["gru"])


def test_prices_too_small_for_a_volatility_are_audited_as_prices() -> None:
    """Stale quotes can leave a slice so little variance that far prices underflow."""
    knots = np.linspace(-5.0, 4.5, 20)
    T = np.array([0.02, 0.5])
    slopes = np.stack([np.full(20, 2e-3), np.full(20, 0.1)])
    flat = ab.Surface.from_slopes(knots, T, slopes)
    k = np.linspace(-0.3, 0.2, 21)
    frame = {"T": np.repeat(T, k.size), "k": np.tile(k, 2)}
    quotes = ab.Quotes.from_frame(frame | {"iv_bid": np.full(42, 0.3), "iv_ask": np.full(42, 0.4)})
    assert not np.isfinite(flat.iv(-0.3, 0.02))
    assert audit_model(flat, quotes).nas == 1.0

    class Bumped:
        """The same model with one price too high for its neighbours."""

        def iv(self, k: Any, T: Any) -> Array:
            return np.asarray(flat.iv(k, T))

        def otm(self, k: Any, T: Any) -> Array:
            return np.asarray(flat.otm(k, T)) + 0.01 * (np.abs(np.asarray(k) - 0.05) < 0.004)

    found = audit_model(Bumped(), quotes)
    assert found.findings > 0
    assert found.nas < 1.0

    class Broken(Bumped):
        def otm(self, k: Any, T: Any) -> Array:
            return np.full(np.broadcast(k, T).shape, np.nan)

    with pytest.raises(ValueError, match="iv"):
        audit_model(Broken(), quotes)


def test_baselines_are_methods_by_name() -> None:
    config = Config(heads=8, width=12, state=6, rank=2, context=12, looks=1, spans=())
    design = match_design("gru", config)
    named = select_methods(
        ["ssvi", "fit_then_clean", "gru"], networks={"gru": Baseline(design.build(), design)}
    )
    assert [method.promises for method in named] == [True, True, False]
    found = evaluate([heston_case(0)], named).to_dict()["methods"]
    assert list(found) == ["ssvi", "fit_then_clean", "gru"]
    assert found["fit_then_clean"]["nas_least"] == found["ssvi"]["nas_least"] == 1.0
    assert found["fit_then_clean"]["rmse_bp"] < found["ssvi"]["rmse_bp"]


def test_the_picture_is_drawn_with_gaps_and_without(cases: list[Case], tmp_path: Path) -> None:
    answers = [
        score_case(case, Shifted(case, 1e-4), ArbitrageVerdict(1.0, 0, True), 0.1) for case in cases
    ]
    facts = {"surfaces": 6, "quotes": 100, "noise_bp": 18.0}
    some = {"good": summary(cases, answers)}
    none = {"none": summary(cases, [score_refusal(case, "no") for case in cases])}
    families = [case.family for case in cases]
    for methods_found in (some, some | none):
        path = tmp_path / f"{len(methods_found)}.png"
        figure = draw_errors(facts | {"methods": methods_found}, families, path)
        assert path.read_bytes().startswith(b"\x89PNG")
        assert len(figure.axes) == 3 * len(methods_found)
        legend = figure.axes[1].get_legend()
        assert legend is not None
        assert {text.get_text() for text in legend.get_texts()} == {
            f"{family}: median 1.0 bp" for family in unseen_surfaces.FAMILIES
        }


def test_chains_are_scored_and_bad_ones_named(tmp_path: Path) -> None:
    lines = example_path().read_text().splitlines(keepends=True)
    few = [line for line in lines[4:] if " Nov 20 2026," in line or " Dec 18 2026," in line]
    (tmp_path / "good.csv").write_text("".join(lines[:4] + few))
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    (tmp_path / "notes.md").write_text("no chain")
    paths = find_chain_files(tmp_path)
    assert [path.name for path in paths] == ["bad.csv", "good.csv"]
    told: list[tuple[str, int]] = []
    rows = evaluate_chains(paths, select_methods(["fit"]), lambda *done: told.append(done))
    assert told == [("bad.csv", 1), ("good.csv", 2)]
    assert [row["chain"] for row in rows] == ["bad.csv", "good.csv"]
    assert "error" in rows[0]
    assert "error" not in rows[1]
    assert rows[1]["nas"] == 1.0
    assert rows[1]["inside_bid_ask"] > 0.9
    assert rows[1]["median_half_spreads"] < 1.0
    assert rows[1]["steps"] > 0
    json.dumps(rows, allow_nan=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no chains in it"):
        find_chain_files(tmp_path / "empty")
    with pytest.raises(ValueError, match="not a folder"):
        find_chain_files(tmp_path / "good.csv")
