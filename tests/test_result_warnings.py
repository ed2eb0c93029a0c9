"""Warnings are data in the results; the log repeats them and nothing is read from it."""

import copy
import json
import logging
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arbiter as ab
from arbiter import scoring
from arbiter.chains import read_chain
from arbiter.conventions import Array
from arbiter.data import example_chain_path
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.operators.pretrained import Operator
from arbiter.pipeline import Job, run_job
from arbiter.quotes import Quotes
from arbiter.sources import QuoteSource
from arbiter.vix.prior import vix_prior


def smiles(days: list[int], forward: float, k: Array, iv: float) -> Quotes:
    T = np.repeat(np.array(days) / 365.0, k.size)
    wide = np.full(T.size, 0.01 * iv)
    return Quotes.from_frame(
        {
            "T": T,
            "k": np.tile(k, len(days)),
            "iv_bid": iv - wide,
            "iv_ask": iv + wide,
            "forward": np.full(T.size, forward),
        }
    )


@pytest.fixture(scope="module")
def quotes() -> Quotes:
    return smiles([30, 60, 90], 6000.0, np.linspace(-0.2, 0.1, 9), 0.2)


@pytest.fixture
def month(tmp_path: Path) -> Path:
    """Four expiries of the shipped chain."""
    lines = example_chain_path().read_text().splitlines(keepends=True)
    kept = [line for line in lines[4:] if re.match(r"^\w+ Nov (06|13|20|27) 2026,", line)]
    path = tmp_path / "month.csv"
    path.write_text("".join(lines[:4] + kept))
    return path


@pytest.fixture
def silent() -> Iterator[None]:
    """No record is made at all."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def tear_rows(path: Path) -> Path:
    """A chain in which the strike of every ninth line is not that of its symbols."""
    lines = path.read_text().splitlines()
    for i in range(4, len(lines), 9):
        part = lines[i].split(",")
        part[11] = str(float(part[11]) + 5.0)
        lines[i] = ",".join(part)
    torn = path.with_name("torn.csv")
    torn.write_text("\n".join(lines))
    return torn


def test_a_chain_and_its_quotes_know_what_could_not_be_read(month: Path) -> None:
    whole, torn = read_chain(month), read_chain(tear_rows(month))
    assert whole.warnings == whole.quotes().warnings == ()
    (unread,) = torn.warnings
    assert unread == f"torn.csv: {torn.set_aside.height} options could not be read or assigned"
    assert torn.quotes().warnings == (unread,)
    assert torn.quotes().select(torn.quotes().k > 0.0).warnings == (unread,)


def test_a_table_of_quotes_knows_what_is_not_used() -> None:
    table = {"T": [0.5] * 4, "k": [-0.1, 0.0, 0.1, 0.2], "iv_bid": [0.2] * 4, "iv_ask": [0.21] * 4}
    assert Quotes.from_frame(table).warnings == ()
    table["iv_bid"][2] = 0.3
    assert Quotes.from_frame(table).warnings == ("1 of 4 quotes are not used; see .counts()",)


def test_a_fit_knows_how_it_ended(quotes: Quotes) -> None:
    fitted = ab.fit(quotes)
    assert fitted.result.warnings == ()
    hurried = ab.fit(quotes, options=ab.FitOptions(iterations=1))
    (ending,) = hurried.result.warnings
    assert ending.startswith("the fit ended as max_iterations: ")
    assert "warnings" not in hurried.result.to_dict()  # files of surfaces stay as they are
    assert fitted.info["fit"].keys() == hurried.info["fit"].keys()


def test_a_joint_fit_knows_which_windows_are_open(quotes: Quotes) -> None:
    inside, beyond = (smiles([day], 20.0, np.linspace(-0.2, 0.4, 9), 0.8) for day in (47, 80))
    assert ab.fit(quotes, vix_quotes=inside).result.warnings == ()
    (windows,) = ab.fit(quotes, vix_quotes=beyond).result.warnings
    assert windows.startswith("1 of 1 VIX windows end after the last index expiry")


def test_a_prior_of_the_vix_knows_which_windows_are_open() -> None:
    surface = ab.example()
    assert vix_prior(surface, [0.1]).warnings == ()
    last = float(surface.maturities[-1])
    assert "1 of 2 VIX windows" in vix_prior(surface, [0.1, last]).warnings[0]


def test_the_operator_knows_that_quotes_are_unlike_its_own(quotes: Quotes) -> None:
    operator, known = Operator.pretrained(), ab.example_chain().quotes()
    assert operator(known).result.warnings == ()
    odd = known.select(known.expiry == 8)
    surface = operator(odd)
    assert surface.domain is not None
    assert surface.result.warnings == (f"quotes {surface.domain}",)
    assert operator.refine(odd, surface).result.warnings == surface.result.warnings
    assert "warnings" not in surface.result.to_dict()


def test_the_index_knows_what_it_passed_over(month: Path) -> None:
    lines = month.read_text().splitlines()
    assert ab.vix(read_chain(month)).warnings == ()
    for i, line in enumerate(lines):
        if " Nov 13 2026" in line and i % 7 == 0:
            part = line.split(",")
            part[5] = part[16] = "0"
            lines[i] = ",".join(part)
    month.write_text("\n".join(lines))
    found = ab.vix(read_chain(month))
    assert any("2026-11-13 SPXW" in warning for warning in found.warnings)
    assert copy.deepcopy(found).warnings == found.warnings
    assert "warnings" not in found.to_dict()


def test_a_score_knows_where_a_model_has_no_volatility(quotes: Quotes) -> None:
    surface = ab.example()
    assert scoring.score(surface, quotes).warnings == ()
    flat = ab.Surface.from_slopes([-1.0, 1.0], [0.01, 1.0], [[1e-5, 1e-5]] * 2)
    reason, count = scoring.score(flat, quotes).warnings
    near = np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T)
    assert (reason,) == flat.explain_missing_iv(quotes.k[near], quotes.T[near])
    assert reason.startswith("implied volatility is NaN at ")
    assert count.startswith("the model has no volatility at ")
    assert "warnings" not in scoring.score(flat, quotes).to_dict()


@pytest.mark.usefixtures("silent")
def test_the_pipeline_has_its_warnings_without_a_log(month: Path, tmp_path: Path) -> None:
    hurried = Job(report=False, options=ab.FitOptions(iterations=2), holdout=0.2)
    found = run_job(tear_rows(month), tmp_path / "out", hurried).summary["warnings"]
    words = ("could not be read", "max_iterations", "inside bid-ask", "without the held-out")
    assert [word in sentence for word, sentence in zip(words, found[:4], strict=True)] == [True] * 4
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["warnings"] == found


def test_the_pipeline_takes_nothing_from_the_log(
    month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A record of the package that is in no result, the control, is not in the summary."""
    certify = ab.Surface.certificate

    def noisy(surface: ab.Surface) -> object:
        logging.getLogger("arbiter.planted").warning("planted")
        return certify(surface)

    monkeypatch.setattr(ab.Surface, "certificate", noisy)
    assert run_job(month, tmp_path / "out", Job(report=False)).summary["warnings"] == []
    assert "planted" in caplog.messages


def test_what_is_new_without_held_out_quotes_says_so(
    month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, calls = ab.fit, []

    def planted(*args: object, **options: object) -> ab.FittedSurface:
        surface = fit(*args, **options)  # type: ignore[arg-type]
        calls.append(surface)
        known = ("both",) if len(calls) == 1 else ("both", "second", "second")
        return replace(surface, result=replace(surface.result, warnings=known))

    monkeypatch.setattr("arbiter.pipeline.fit", planted)
    summary = run_job(month, tmp_path / "out", Job(report=False, holdout=0.2)).summary
    assert summary["warnings"] == ["both", "without the held-out quotes: second"]
    assert len(calls) == 2  # the fit, and the one without the quotes that are held out


@pytest.mark.parametrize("method", ["fit", "operator", "both"])
def test_a_surface_is_scored_and_certified_once(
    method: str, month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored, certified = [], []

    def score(model: scoring.Model, quotes: Quotes) -> scoring.Score:
        scored.append(model)
        return scoring.score(model, quotes)

    certify = ab.Surface.certificate

    def certificate(surface: ab.Surface) -> object:
        certified.append(surface)
        return certify(surface)

    monkeypatch.setattr("arbiter.report.fit_summary.score", score)
    monkeypatch.setattr(ab.Surface, "certificate", certificate)
    run_job(month, tmp_path / "out", Job(report=False, method=method))
    assert len(scored) == len({id(model) for model in scored}) == 1 + (method == "both")
    assert len(certified) == 1


@pytest.mark.parametrize("kind", ["chain", "volatilities"])
def test_a_file_is_read_once(
    kind: str, month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = month
    if kind == "volatilities":
        path = tmp_path / "volatilities.csv"
        strikes = np.linspace(5000.0, 6500.0, 12)
        columns = {"Expiry": 20230322, "Texp": 35 / 365, "Strike": strikes, "Bid": 0.2, "Ask": 0.21}
        pl.DataFrame({**columns, "Fwd": 6000.0}).write_csv(path)
    reads, open_path = [], Path.open

    def counted(self: Path, *args: Any, **more: Any) -> Any:
        reads.append(self)
        return open_path(self, *args, **more)

    monkeypatch.setattr(Path, "open", counted)
    assert (QuoteSource.read(path).chain is None) == (kind == "volatilities")
    assert reads == [path]
    read_chain(month)  # the control: another reading is counted
    assert reads == [path, month]


def test_copies_of_a_surface_keep_its_result(quotes: Quotes) -> None:
    fitted, answer = ab.fit(quotes), Operator.pretrained()(quotes)
    for surface in (fitted, answer):
        sent = pickle.loads(pickle.dumps(surface))  # noqa: S301 - our own bytes
        for twin in (sent, copy.deepcopy(surface)):
            assert type(twin) is type(surface)
            assert (twin.slopes == surface.slopes).all()
            assert twin.info == surface.info
            assert (twin.result.residuals == surface.result.residuals).all()
            assert twin.result.to_dict() == surface.result.to_dict()
    twin = copy.deepcopy(fitted)
    assert float(twin.vix_error()) == float(fitted.vix_error())
    copied = copy.deepcopy(answer)
    assert copied.domain == answer.domain
    assert dict(copied.result.traits) == dict(answer.result.traits)
    with pytest.raises(TypeError, match="does not support item assignment"):
        copied.result.traits["expiries"] = 1.0  # type: ignore[index]


def test_files_keep_what_an_operator_said(quotes: Quotes, tmp_path: Path) -> None:
    answer = Operator.pretrained()(quotes)
    answer.save(tmp_path / "surface.npz")
    found = ab.Surface.load(tmp_path / "surface.npz")
    assert isinstance(found, OperatorSurface)
    assert (found.slopes == answer.slopes).all()
    assert (found.result.residuals == answer.result.residuals).all()
    assert (found.result.reference == answer.result.reference).all()
    assert found.result.to_dict() == {**answer.result.to_dict(), "seconds": 0.0}
    assert found.result.warnings == answer.result.warnings
    assert dict(found.result.traits) == dict(answer.result.traits)
    assert found.domain == answer.domain
    assert (tmp_path / "surface.npz").stat().st_size < 100_000
