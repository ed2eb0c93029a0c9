"""The VIX side of the report: what is drawn of it, and that it is left out where there is none."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arbiter as ab
from arbiter.fitting.vix_comparison import JointComparison, VixLaw
from arbiter.report import write_pictures, write_report
from arbiter.report.vix_curves import VixReadings

T = 47 / 365.0
ENDS = (T, 60 / 365.0, T + 30 / 365.0, 0.5)


def spx_quotes() -> ab.Quotes:
    t, k = (a.ravel() for a in np.meshgrid(ENDS, np.linspace(-0.2, 0.12, 9), indexing="ij"))
    iv = ab.example().iv(k, t)
    return ab.Quotes.from_frame({"T": t, "k": k, "iv_bid": iv - 0.001, "iv_ask": iv + 0.001})


def vix_quotes(level: float = 1.0) -> ab.Quotes:
    """VIX options whose second moment is ``level`` squared times that of the index."""
    known = ab.example().with_vix(ab.VixSlices.of([-3.0, 0.0, 3.0], [T], [[0.25, 0.3, 0.4]]))
    future, k = float(known.vix_future(T)), np.linspace(-0.3, 0.7, 11)
    iv = known.vix_iv(future * np.exp(k), T)
    forward = np.full(k.size, level * future)
    table = {"T": np.full(k.size, T), "k": k, "forward": forward}
    return ab.Quotes.from_frame({**table, "iv_bid": iv - 0.01, "iv_ask": iv + 0.01})


@pytest.fixture(scope="module")
def agreement() -> JointComparison:
    vix, spx = vix_quotes(), spx_quotes()
    return JointComparison.from_surfaces(ab.fit(spx, vix_quotes=vix), ab.fit(spx), vix)


@pytest.fixture(scope="module")
def page(agreement: JointComparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    summary = {"vix_market": agreement.to_dict()}
    return write_report(
        path, agreement.surface, spx_quotes(), summary=summary, agreement=agreement
    ).read_text()


def payload(text: str) -> Any:
    found = re.search(r'id="report-data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_page_has_every_panel_of_the_vix(page: str, agreement: JointComparison) -> None:
    figures = payload(page)["figures"]
    assert {"vix-futures", "vvix", "vix-coupling"} <= set(figures)
    names = [trace["name"] for trace in figures["vix-futures"]["data"]]
    assert {"√FV of the surface", "future, fitted", "future, quoted"} <= set(names)
    before, after, _ = figures["vix-coupling"]["data"]
    assert before["y"] == [pytest.approx(agreement.table["gap"][0], abs=1e-4)]
    assert abs(after["y"][0]) < 1e-10
    assert 'id="vix"' in page
    assert page.count('aria-label="VIX smile of') == 1
    assert "VIX inside bid-ask" in page


def test_fitted_futures_lie_below_the_root_of_forward_variance(page: str) -> None:
    lines = {t["name"]: t["y"] for t in payload(page)["figures"]["vix-futures"]["data"]}
    assert np.all(np.array(lines["future, fitted"]) <= np.array(lines["√FV of the surface"]))


def test_markets_apart_are_seen_apart_and_still_coupled() -> None:
    spx, far = spx_quotes(), vix_quotes(1.05)
    alone = ab.fit(spx)
    found = JointComparison.from_surfaces(ab.fit(spx, vix_quotes=far), alone, far).table
    root = 100.0 * float(np.sqrt(alone.forward_variance(T)))
    assert found["gap"][0] == pytest.approx(0.05 * root, rel=0.2)  # what was planted
    assert abs(found["residual"][0]) < 1e-10
    near = JointComparison.from_surfaces(
        ab.fit(spx, vix_quotes=vix_quotes()), alone, vix_quotes()
    ).table
    assert abs(near["gap"][0]) < 0.2 * found["gap"][0]


def test_shares_inside_are_those_of_the_fit(agreement: JointComparison) -> None:
    assert isinstance(agreement.surface, ab.FittedSurface)
    result = agreement.surface.result.vix
    assert result is not None
    assert agreement.to_dict()["inside_bid_ask"] == float(np.mean(np.abs(result.residuals) <= 1.0))
    # a surface that is elsewhere is not inside
    wide = agreement.surface.with_vix(ab.VixSlices.of([0.0], [T], [[0.9]]))
    assert (
        JointComparison.from_surfaces(wide, agreement.alone, vix_quotes()).to_dict()[
            "inside_bid_ask"
        ]
        == 0.0
    )


def test_law_in_the_units_of_quotes_inverts_itself(agreement: JointComparison) -> None:
    law = VixLaw(agreement.surface, vix_quotes())
    k = np.linspace(-0.3, 0.7, 9)
    assert law.log_strike(law.z(k, T), T) == pytest.approx(k, abs=1e-9)


def test_without_quotes_there_are_curves_alone(agreement: JointComparison, tmp_path: Path) -> None:
    path = write_report(tmp_path / "a.html", agreement.surface, spx_quotes(), summary={})
    figures = payload(path.read_text())["figures"]
    assert {"vix-futures", "vvix"} <= set(figures)
    assert "vix-coupling" not in figures
    bare = write_report(tmp_path / "b.html", agreement.alone, spx_quotes(), summary={}).read_text()
    assert "vvix" not in payload(bare)["figures"]
    assert 'id="vix"' not in bare
    assert VixReadings.from_surface(agreement.alone, None) is None


def test_pictures_show_the_vix(agreement: JointComparison, tmp_path: Path) -> None:
    written = write_pictures(tmp_path, agreement.surface, spx_quotes(), agreement)
    assert [path.stem for path in written][-2:] == ["vix_market", "vix_smiles"]
    assert all(path.stat().st_size > 10_000 for path in written)
