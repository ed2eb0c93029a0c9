"""Both markets together and each by itself: the same fits as one by one, from shared stages."""

import numpy as np
import pytest

import arbiter as ab
from arbiter.fitting import smoothing
from arbiter.fitting.vix_comparison import JointComparison, fit_markets
from arbiter.futures import FuturesCurve
from arbiter.quotes import Quotes

VIX_YEARS = 47.0 / 365.0


def index_quotes() -> Quotes:
    surface, k = ab.example(), np.linspace(-0.2, 0.12, 13)
    T = np.repeat(np.array([30.0, 47.0, 60.0, 77.0, 120.0]) / 365.0, k.size)
    iv = surface.iv(np.tile(k, 5), T)
    table = {"T": T, "k": np.tile(k, 5), "iv_bid": iv - 0.001, "iv_ask": iv + 0.001}
    return Quotes.from_frame(table | {"forward": np.full(T.size, 6000.0)})


def vix_quotes(count: int = 11) -> Quotes:
    k = np.linspace(-0.3, 0.7, count)
    iv = 0.8 + 0.3 * k
    table = {"T": np.full(count, VIX_YEARS), "k": k, "iv_bid": iv - 0.01, "iv_ask": iv + 0.01}
    return Quotes.from_frame(table | {"forward": np.full(count, 16.0)})


@pytest.mark.parametrize("roughness", ["likelihood", ab.Roughness(0.3, 3.0)])
def test_fits_are_those_made_one_by_one(roughness: str | ab.Roughness) -> None:
    quotes, vix, options = index_quotes(), vix_quotes(), ab.FitOptions(roughness=roughness)
    found = fit_markets(quotes, vix, options=options)
    joint, alone = ab.fit(quotes, vix_quotes=vix, options=options), ab.fit(quotes, options=options)
    smiles = ab.fit_vix(vix, options=options)
    assert found.smiles is not None
    assert joint.vix_slices is not None
    assert found.joint.vix_slices is not None
    for made, wanted in ((found.joint, joint), (found.alone, alone)):
        assert made.slopes.tobytes() == wanted.slopes.tobytes()
        assert made.uncertainty.matrix.tobytes() == wanted.uncertainty.matrix.tobytes()
        assert made.info == wanted.info
    assert found.joint.vix_slices.slopes.tobytes() == joint.vix_slices.slopes.tobytes()
    assert found.smiles.vix_slices.slopes.tobytes() == smiles.vix_slices.slopes.tobytes()
    assert (found.joint.slopes != alone.slopes).any()  # the control: the VIX moves the index
    compared = JointComparison.from_fits(*found)
    wanted_table = JointComparison.from_surfaces(joint, alone, vix, options=options).table
    assert compared.table.equals(wanted_table)


def test_the_roughness_of_each_market_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    quotes, vix, choose = index_quotes(), vix_quotes(), smoothing.choose_roughness
    calls: list[object] = []

    def counted(interior, limit):  # type: ignore[no-untyped-def]
        calls.append(interior)
        return choose(interior, limit)

    monkeypatch.setattr(smoothing, "choose_roughness", counted)
    found = fit_markets(quotes, vix)
    assert len(calls) == 2
    JointComparison.from_fits(*found)
    assert len(calls) == 2
    ab.fit(quotes, vix_quotes=vix)
    ab.fit(quotes)
    ab.fit_vix(vix)
    assert len(calls) == 2 + 4  # the control: one by one


def test_futures_alone_have_no_smiles() -> None:
    futures = FuturesCurve.of([VIX_YEARS], [16.0])
    assert fit_markets(index_quotes(), None, futures).smiles is None
    assert fit_markets(index_quotes(), vix_quotes(2), futures).smiles is None
    assert fit_markets(index_quotes(), vix_quotes(3), futures).smiles is not None


def test_two_components_have_a_vix_side() -> None:
    found = fit_markets(index_quotes(), vix_quotes(), options=ab.FitOptions(components=2))
    assert found.joint.slopes.shape[0] == found.alone.slopes.shape[0] == 2
    T = found.market.quotes.maturities
    assert np.allclose(found.joint.vix_second_moment(T), found.joint.forward_variance(T))


def test_what_a_joint_fit_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match="give vix_quotes, vix_futures or both"):
        fit_markets(index_quotes(), None)
