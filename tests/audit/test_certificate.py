"""Certificates of surfaces: the proof, the survey, no false alarms, and what tampering shows."""

import json
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

import arbiter as ab
from arbiter.audit.certificate import certify_surface
from arbiter.audit.law_quadrature import reprice_by_quadrature
from arbiter.audit.sampling import sample_surface
from arbiter.audit.structural_proof import check_structure
from arbiter.conventions import Array
from arbiter.pricing import black, maturity
from arbiter.pricing.vix_slices import VixSlices
from counts import count

KNOTS = np.linspace(-5.5, 4.5, 31)
MATURITIES = np.array([0.1, 0.5, 1.0])
SLOPES = 0.2 * np.sqrt(MATURITIES)[:, None] * (1.0 + 0.1 * np.abs(KNOTS - 0.5))
FORWARDS = 4000.0 * np.exp(0.03 * MATURITIES)
DISCOUNTS = np.exp(-0.04 * MATURITIES)


def smile() -> ab.Surface:
    return ab.Surface.from_slopes(KNOTS, MATURITIES, SLOPES, FORWARDS, DISCOUNTS)


class Tampered(ab.Surface):
    """Call and put moved together, so that parity holds; the slopes are untouched."""

    def shift(self, k: Array, T: Array) -> Array:
        raise NotImplementedError

    def _moved(self, price: Array, K: ArrayLike, T: Any) -> Array:
        k, at = np.broadcast_arrays(self.log_moneyness(K, T), np.asarray(T, dtype=np.float64))
        return price + self.shift(k, at) * self.forward(T) * self.discount(T)

    def call(self, K: ArrayLike, T: Any) -> Array:
        return self._moved(super().call(K, T), K, T)

    def put(self, K: ArrayLike, T: Any) -> Array:
        return self._moved(super().put(K, T), K, T)


def tampered(shift: Any) -> ab.Surface:
    kind: Any = type("Moved", (Tampered,), {"shift": lambda self, k, T: shift(k, T)})
    surface: ab.Surface = kind.from_slopes(KNOTS, MATURITIES, SLOPES, FORWARDS, DISCOUNTS)
    return surface


TAMPERINGS = {
    "a shift in a region of strikes": lambda k, T: 1e-9 * ((k > -0.05) & (k < 0.04)),
    "a shift down in a region of strikes": lambda k, T: -1e-9 * ((k > -0.05) & (k < 0.04)),
    "a shift of one slice": lambda k, T: 1e-9 * ((k > 0.01) & (k < 0.3) & (T == 0.5)),
    "a shift of the left wing": lambda k, T: 1e-9 * (k < -0.2),
    "a shift of the right wing": lambda k, T: 1e-9 * (k > 0.2),
    "a smooth bump in the left wing": lambda k, T: 1e-9 * np.exp(-0.5 * ((k + 1.0) / 0.05) ** 2),
    "a smooth bump in the right wing": lambda k, T: 1e-9 * np.exp(-0.5 * ((k - 0.9) / 0.05) ** 2),
    "a shift of everything": lambda k, T: np.full(k.shape, 1e-9),
    "a fall in maturity": lambda k, T: -1e-9 * (T > 0.7) * np.exp(-0.5 * (k / 0.1) ** 2),
    "a listed maturity above its neighbours": lambda k, T: 1e-9 * (T == 0.5),
    "a month above the next": lambda k, T: 1e-9 * ((T > 0.6) & (T < 0.7)),
    "a late dip": lambda k, T: (
        -1e-3 * np.exp(-0.5 * ((T - 0.9) / 0.05) ** 2 - 0.5 * (k / 0.2) ** 2)
    ),
}


@pytest.mark.parametrize("shift", TAMPERINGS.values(), ids=TAMPERINGS.keys())
@pytest.mark.parametrize("seed", [0, 1])
def test_audit_alone_finds_tampered_prices(shift: Any, seed: int) -> None:
    certificate = tampered(shift).certificate(seed=seed)
    assert certificate.structural is not None
    assert certificate.structural.passed  # the slopes are what they were
    assert not certificate.passed
    assert certificate.nas < 1.0


def test_tampering_is_found_among_the_smallest_prices() -> None:
    """There is no floor under the sizes: prices near 1e-35 doubled in a narrow region."""

    class Deep(ab.Surface):
        def put(self, K: ArrayLike, T: Any) -> Array:
            k = self.log_moneyness(K, T) / np.sqrt(np.asarray(T, dtype=np.float64))
            return np.asarray(super().put(K, T) * (1.0 + ((k > -5.4) & (k < -5.2))))

        def call(self, K: ArrayLike, T: Any) -> Array:
            forward = self.forward(T) - np.asarray(K)
            put = self.put(K, T) / self.discount(T)
            return np.where(forward > 0.0, (put + forward) * self.discount(T), super().call(K, T))

    slopes = np.outer(np.sqrt(MATURITIES), [0.4, 0.4])
    certificate = Deep.from_slopes([-1.0, 1.0], MATURITIES, slopes).certificate()
    assert not certificate.passed
    assert 0.0 < certificate.findings["size"].to_numpy().max() < 1e-30
    certificate = ab.Surface.from_slopes([-1.0, 1.0], MATURITIES, slopes).certificate()
    assert certificate.passed


def test_untouched_surface_of_the_same_kind_passes() -> None:
    certificate = tampered(lambda k, T: np.zeros(k.shape)).certificate()
    assert certificate.passed, certificate.findings
    assert certificate.structural is not None
    assert certificate.structural.covers_prices


def test_prices_that_are_not_those_of_the_slopes_are_told_apart() -> None:
    """A broad bump at the money is no arbitrage, but the proof does not cover it."""
    certificate = tampered(lambda k, T: 1e-7 * T * np.exp(-0.5 * (k / 0.1) ** 2)).certificate()
    assert certificate.structural is not None
    assert certificate.structural.passed
    assert certificate.structural.covers_prices is False
    assert "does not cover them" in str(certificate)


@pytest.mark.parametrize("side", ["call", "put"])
def test_one_side_tampered_breaks_parity(side: str) -> None:
    def moved(self: ab.Surface, K: ArrayLike, T: Any) -> Array:
        return np.asarray(getattr(ab.Surface, side)(self, K, T) * (1.0 + 1e-9))

    kind: Any = type("OneSide", (ab.Surface,), {side: moved})
    certificate = kind.from_slopes(KNOTS, MATURITIES, SLOPES).certificate()
    assert "parity" in certificate.findings["family"]


def test_mass_at_infinity_is_found() -> None:
    """Prices of a law that has lost 1e-9 of its mean: convex, decreasing, within all bounds."""

    class Bubble(ab.Surface):
        def call(self, K: ArrayLike, T: Any) -> Array:
            money = self.forward(T) * self.discount(T)
            return np.asarray(super().call(K, T) * (1.0 - 1e-9) + 1e-9 * money)

        def put(self, K: ArrayLike, T: Any) -> Array:
            strike = np.asarray(K) * self.discount(T)
            return np.asarray(super().put(K, T) * (1.0 - 1e-9) + 1e-9 * strike)

    certificate = Bubble.from_slopes(KNOTS, MATURITIES, SLOPES).certificate()
    assert set(certificate.findings["family"]) == {"mass", "mean"}
    np.testing.assert_allclose(certificate.findings["size"], 1e-9, rtol=1e-3)


def test_falling_log_contract_is_found() -> None:
    class Falling(ab.Surface):
        def variance_swap(self, T: Any) -> Array:
            late = 1e-9 * (np.asarray(T) > 0.8)
            return super().variance_swap(T) - late

    certificate = Falling.from_slopes(KNOTS, MATURITIES, SLOPES).certificate()
    assert certificate.findings["family"].unique().to_list() == ["forward_variance"]


def test_price_that_is_not_a_number_is_found() -> None:
    class Gap(ab.Surface):
        def put(self, K: ArrayLike, T: Any) -> Array:
            price = super().put(K, T)
            k = self.log_moneyness(K, T)
            return np.where((k > -0.3) & (k < -0.1), np.nan, price)

    certificate = Gap.from_slopes(KNOTS, MATURITIES, SLOPES).certificate()
    assert not certificate.passed
    assert "is not a number" in certificate.findings["legs"].str.join(" ")[0]
    json.loads(certificate.to_json())


def test_clean_surface_passes_in_every_family() -> None:
    certificate = smile().certificate()
    assert certificate.passed, certificate.findings
    assert certificate.nas == 1.0
    assert all(n > 0 for n in certificate.checked.values()), certificate.checked
    assert certificate.structural is not None
    assert certificate.structural.price_gap is not None
    assert certificate.structural.price_gap < 1e-13
    assert certificate.slices["T"].to_list() == MATURITIES.tolist()
    assert certificate.slices["min_g"].to_numpy().min() > 0.0
    assert "Structural proof: 10 of 10" in str(certificate)


def test_the_grid_is_random_and_reproducible() -> None:
    surface = smile()
    assert surface.certificate(seed=3).to_json() == surface.certificate(seed=3).to_json()
    one, two = sample_surface(surface, 3).grid, sample_surface(surface, 4).grid
    shared = np.intersect1d(one.k, two.k)
    assert shared.size <= 1  # the forward itself


def test_the_grid_covers_twelve_standard_deviations_and_other_maturities() -> None:
    surface = ab.Surface.from_slopes([-1.0, 1.0], MATURITIES, np.outer(MATURITIES**0.5, [0.2, 0.2]))
    grid = sample_surface(surface, 0).grid
    for part in grid.maturity_slices:
        spread = 0.2 * math.sqrt(grid.T[part.start])
        assert grid.k[part].min() < -11.0 * spread
        assert grid.k[part].max() > 11.0 * spread
    T = np.unique(grid.T)
    assert T.min() < 0.1
    assert 1.0 < T.max() <= 1.5
    assert set(MATURITIES) <= set(T)
    assert np.any((T > 0.1) & (T < 0.5))


ONE = ab.Surface.from_slopes(KNOTS, [1.0], SLOPES[-1:])


@pytest.mark.parametrize(
    "shift",
    [
        lambda k, T: np.where(0.5 * MATURITIES[0] > T, 1e-3, 0.0) + 0.0 * k,
        lambda k, T: np.where(~np.isin(T, MATURITIES) & (k < -20.0), np.exp(k), 0.0),
        lambda k, T: np.where((T > 0.5) & (T < 1.0), 1e-6, 0.0) + 0.0 * k,
    ],
    ids=["before the first", "the far wing of unlisted maturities", "between two"],
)
def test_suspect_prices_do_not_decide_where_to_look(shift: Any) -> None:
    """Tampering with unlisted maturities alone, however it makes their tails look."""
    for seed in range(3):
        certificate = tampered(shift).certificate(seed=seed)
        assert not certificate.passed
        assert certificate.structural is not None
        assert certificate.structural.passed


@pytest.mark.parametrize("size", [1e-6, 1e-2])
def test_one_listed_maturity_can_be_tampered_with_too(size: float) -> None:
    kind: Any = type(
        "Moved", (Tampered,), {"shift": lambda self, k, T: np.where(T == 1.0, 0.0, size) + 0.0 * k}
    )
    assert ONE.certificate().passed
    assert not kind.from_slopes(KNOTS, [1.0], SLOPES[-1:]).certificate().passed


@pytest.mark.parametrize(("side", "sign"), [("call", -1.0), ("put", 1.0)])
def test_nan_in_the_money_is_a_finding(side: str, sign: float) -> None:
    def broken(self: ab.Surface, K: ArrayLike, T: Any) -> Array:
        k, price = self.log_moneyness(K, T), getattr(ab.Surface, side)(self, K, T)
        return np.where(sign * k > 0.0, np.nan, price)

    kind: Any = type("Broken", (ab.Surface,), {side: broken})
    surface = kind.from_slopes(KNOTS, MATURITIES, SLOPES, FORWARDS, DISCOUNTS)
    findings = surface.certificate().findings
    assert findings["legs"].str.contains("not a number").any()


def random_surface(seed: int, steepness: str) -> ab.Surface:
    """A valid surface: any positive slopes, made nondecreasing in maturity and component."""
    rng = np.random.default_rng(seed)
    low, high = {"extreme": (1e-6, 20.0), "ordinary": (0.02, 0.5), "flat": (1e-6, 1e-4)}[steepness]
    components, maturities = rng.choice([1, 1, 2, 3]), rng.integers(1, 6)
    knots = np.linspace(-5.5, 4.5, rng.choice([2, 5, 31, 41]))
    slopes = np.exp(
        rng.uniform(math.log(low), math.log(high), (components, maturities, knots.size))
    )
    slopes = np.maximum.accumulate(np.maximum.accumulate(slopes, axis=0), axis=1)
    slopes = np.clip(slopes, 1e-6, 20.0)
    T = np.cumsum(np.exp(rng.uniform(math.log(1e-3), 0.0, maturities)))
    share = np.sort(rng.uniform(0.0, 1.0, (components - 1, T.size)), axis=1)
    share = share / max(1, components - 1)
    weights = np.concatenate([1.0 - share.sum(axis=0, keepdims=True), share])
    return ab.Surface.from_slopes(
        knots,
        T,
        slopes,
        forwards=np.exp(rng.uniform(-2.0, 9.0)) * np.exp(0.03 * T),
        discounts=np.exp(-0.05 * T),
        weights=weights,
    )


@settings(max_examples=count(full=1000, reduced=40))
@given(seed=st.integers(0, 2**32 - 1), steepness=st.sampled_from(["extreme", "ordinary", "flat"]))
def test_no_false_alarm_on_valid_surfaces(seed: int, steepness: str) -> None:
    certificate = random_surface(seed, steepness).certificate(seed=seed % 7)
    assert certificate.passed, certificate.findings
    assert certificate.nas == 1.0
    assert certificate.structural is not None
    assert certificate.structural.covers_prices


def test_table_of_a_surface_passes_too() -> None:
    assert ab.audit(smile().to_frame()).passed


class Peer:
    """Somebody else's surface: total variance as a function, and the public methods only."""

    maturities = np.array([0.5, 1.0, 2.0])

    def __init__(self, variance: Any) -> None:
        self.variance = variance

    def forward(self, T: ArrayLike) -> Any:
        return 100.0

    def discount(self, T: ArrayLike) -> Array:
        return np.exp(-0.02 * np.asarray(T))

    def call(self, K: ArrayLike, T: Any) -> Array:
        k = np.log(np.asarray(K) / 100.0)
        v = np.sqrt(self.variance(k, np.asarray(T)))
        return np.asarray(100.0 * self.discount(T) * black.call(k, v))

    def put(self, K: ArrayLike, T: Any) -> Array:
        k = np.log(np.asarray(K) / 100.0)
        v = np.sqrt(self.variance(k, np.asarray(T)))
        return np.asarray(100.0 * self.discount(T) * black.put(k, v))


def test_peers_are_judged_by_the_same_audit() -> None:
    flat = certify_surface(Peer(lambda k, T: 0.04 * T + 0.0 * k))
    assert flat.passed, flat.findings
    assert flat.structural is None
    assert flat.checked["forward_variance"] > 0  # by the strip, without a log contract
    falling = certify_surface(Peer(lambda k, T: 0.04 / (1.0 + T) + 0.0 * k))
    assert "calendar" in falling.findings["family"]
    steep = certify_surface(Peer(lambda k, T: T * (0.01 + 0.3 * np.sqrt((k - 0.1) ** 2 + 0.01))))
    assert "butterfly" in steep.findings["family"]


def test_reprice_against_black() -> None:
    for v in (1e-6, 0.01, 0.3, 5.0, 20.0):
        k = np.array([-0.3, 0.0, 0.4])
        call, put = reprice_by_quadrature([-2.0, 1.0], [[[v, v]]], [[1.0]], np.exp(k))
        np.testing.assert_allclose(call[0], black.call(k, v), atol=4e-15)
        np.testing.assert_allclose(put[0], black.put(k, v), atol=4e-15)
        single, _ = reprice_by_quadrature([0.5], [[[v]]], [[1.0]], np.exp(k))
        np.testing.assert_allclose(single, call, atol=4e-15)


def broken(**change: Any) -> Any:
    """Stored numbers of a mixture with one of them changed."""
    numbers: dict[str, Any] = {
        "knots": KNOTS.copy(),
        "maturities": MATURITIES.copy(),
        "slopes": np.stack([SLOPES, 2.0 * SLOPES]),
        "weights": np.array([[0.9, 0.8, 0.8], [0.1, 0.2, 0.2]]),
    }
    for name, (at, value) in change.items():
        numbers[name][at] = value
    return check_structure(**numbers)


def test_proof_of_valid_numbers() -> None:
    assert broken().passed
    assert broken().failures == ()


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ({"knots": (3, 9.0)}, "knots increasing", "knots[4]"),
        ({"knots": (0, math.nan)}, "knots increasing", "knots[0] = nan"),
        ({"maturities": (1, 0.05)}, "maturities increasing", "maturities[1]"),
        ({"maturities": (0, 0.0)}, "maturities increasing", "not positive"),
        (
            {"maturities": (slice(1, 3), [1.0, np.nextafter(1.0, 2.0)])},
            "maturities increasing",
            "maturities[2] = 1.0000000000000002 has the same square root as maturities[1] = 1.0",
        ),
        ({"slopes": ((0, 0, 2), 0.0)}, "slopes positive", "knot x=-4.83333 (index 2) is 0.0"),
        ({"slopes": ((1, 2, 30), math.inf)}, "slopes positive", "is inf"),
        (
            {"slopes": ((0, 1, 5), np.nextafter(SLOPES[0, 5], 0.0))},
            "slopes nondecreasing in T",
            "component 0, maturity T=0.5 (index 1), knot x=-3.83333 (index 5)",
        ),
        (
            {"slopes": ((1, 0, 5), np.nextafter(SLOPES[0, 5], 0.0))},
            "components nested",
            "component 1, maturity T=0.1 (index 0)",
        ),
        ({"weights": ((0, 0), -0.1)}, "weights a distribution", "is -0.1"),
        ({"weights": ((0, 0), 0.9 + 1e-14)}, "weights a distribution", "divide them by their sum"),
        (
            {"weights": ((slice(None), 2), [0.9, 0.1])},
            "survival of weights nondecreasing in T",
            "falls from 0.2 at T=0.5 to 0.1",
        ),
    ],
)
def test_proof_names_what_is_wrong(change: Any, name: str, said: str) -> None:
    """Each is planted in one stored number; one unit in the last place is enough for slopes."""
    proof = broken(**change)
    assert not proof.passed
    failures = {check.name: check.detail for check in proof.failures}
    assert name in failures
    assert said in failures[name]


@pytest.mark.parametrize(
    ("limit", "factor", "said"),
    [
        ("_end_tangent", 4.0, "may fall"),
        ("_end_tangent", -1.0, "may fall"),
        ("limit_crossing_tangents", 1.0, "may cross"),
    ],
)
def test_proof_covers_maturities_between(
    limit: str, factor: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cubics whose tangents lack one limit are told, with the interval."""
    steps = np.array([[0.1, 0.11, 0.5], [0.1, 0.3, 0.5], [0.1, 0.3, 0.9]])[:, :, None]
    slopes, weights = np.repeat(steps, KNOTS.size, axis=2), np.full((3, 3), 1.0 / 3.0)
    numbers: Any = (KNOTS, MATURITIES, slopes, weights)
    assert check_structure(*numbers).passed
    plain = getattr(maturity, limit)
    if limit == "_end_tangent":
        monkeypatch.setattr(maturity, limit, lambda u, b, rate: factor * rate[:, -1])
        monkeypatch.setattr(maturity, "limit_crossing_tangents", lambda u, b, tangent: tangent)
    else:
        monkeypatch.setattr(maturity, limit, lambda u, b, tangent: tangent)
    failure = check_structure(*numbers).failures[0]
    assert failure.name == "ordered between maturities"
    assert said in failure.detail
    monkeypatch.setattr(maturity, limit, plain)


def test_price_gap_covers_maturities_between_listed_ones() -> None:
    shifted = tampered(lambda k, T: 1e-10 * ((T > 0.1) & (T < 0.5)))
    proof = certify_surface(shifted).structural
    assert proof is not None
    assert proof.passed
    assert proof.covers_prices is False
    assert proof.price_gap == pytest.approx(1e-10, rel=1e-3)


def test_proof_checks_shapes() -> None:
    for arguments, said in (
        ((KNOTS, MATURITIES, SLOPES[:, :-1]), "slopes has shape"),
        ((KNOTS, MATURITIES, np.stack([SLOPES, SLOPES])), "no weights"),
        ((KNOTS, MATURITIES, SLOPES, np.ones(3)), "weights has shape"),
        ((KNOTS[:0], MATURITIES, SLOPES), "knots has shape"),
    ):
        failure = check_structure(*arguments).failures[0]
        assert failure.name == "shapes"
        assert said in failure.detail


def test_slopes_too_steep_to_normalise() -> None:
    assert check_structure([-1.0, 1.0], [1.0], [[1.0, 1e200]]).failures[0].name == "mean one"


def test_failed_proof_is_a_finding() -> None:
    """Prices are clean, the stored slopes are not theirs."""

    class Swapped:
        def __init__(self) -> None:
            self.honest = smile()
            self.slopes = self.honest.slopes[:, ::-1]

        def __getattr__(self, name: str) -> Any:
            return getattr(self.honest, name)

    certificate = certify_surface(Swapped())
    assert not certificate.passed
    assert certificate.nas < 1.0
    finding = certificate.findings.row(0, named=True)
    assert finding["family"] == "structural"
    assert finding["size"] is None
    assert certificate.findings.filter(pl.col("family") != "structural").is_empty()
    assert json.loads(certificate.to_json())["structural"]["passed"] is False


def hostile_surface(seed: int) -> ab.Surface:
    """A surface of allowed numbers of any size, with a VIX now and then.

    Slopes from 1e-6 to 20, one to six components, maturities from 1e-9 years to 1e300 and as little
    as 1e-12 apart, forwards from 1e-307 to 1e307.

    Raises:
        ValueError: Where the numbers are refused.
    """
    rng = np.random.default_rng(seed)
    J, L, n = rng.choice([1, 1, 2, 6]), rng.choice([1, 2, 3, 8, 20]), rng.choice([2, 5, 31])
    T = [
        np.sort(10.0 ** rng.uniform(-9, 3, L)),
        1.0 + 1e-12 * np.arange(L),
        np.sort(10.0 ** rng.uniform(-9, 300, L)),
        np.cumsum(rng.uniform(0.01, 1.0, L)),
    ][rng.integers(4)]
    low, high = [(-6.0, 1.3), (-3.0, 0.0), (-6.0, -5.0), (0.0, 1.3)][rng.integers(4)]
    slopes = 10.0 ** rng.uniform(low, high, (J, L, n))
    slopes = np.maximum.accumulate(np.maximum.accumulate(slopes, axis=0), axis=1)
    years = np.minimum(T, 100.0)
    forwards = [
        np.ones(L),
        10.0 ** rng.uniform(-300, 300, L),
        np.full(L, 10.0 ** rng.uniform(-307, 307)),
        4000.0 * np.exp(0.03 * years),
    ][rng.integers(4)]
    discounts = [np.exp(-0.03 * years), 10.0 ** rng.uniform(-300, 0, L)][rng.integers(2)]
    shares = np.sort(np.sort(rng.random((J - 1, L)), axis=1), axis=0)[::-1]
    survival = np.concatenate([np.ones((1, L)), shares, np.zeros((1, L))])
    vix = None
    if rng.random() < 0.3:
        dates = np.sort(10.0 ** rng.uniform(-3, 1, 2))
        vix = VixSlices.of([-2.0, 1.0], dates, 10.0 ** rng.uniform(-6, 1, (2, 2)))
    return ab.Surface.from_slopes(
        np.linspace(-5.5, 4.5, n), T, slopes, forwards, discounts,
        weights=survival[:-1] - survival[1:], vix_slices=vix,
    )  # fmt: skip


def test_hostile_surfaces_are_judged_and_never_raise() -> None:
    judged, verdicts = 0, {"passed": 0, "unjudged": 0}
    for seed in range(count(full=3000, reduced=60)):
        try:
            surface = hostile_surface(seed)
        except ValueError:
            continue
        judged += 1
        certificate = surface.certificate(seed=seed)
        json.loads(certificate.to_json())
        assert str(certificate)
        verdicts["passed"] += certificate.passed
        if "unjudged" in certificate.findings["family"]:
            verdicts["unjudged"] += 1
            assert not certificate.passed
            assert certificate.nas < 1.0
    assert judged > count(full=1000, reduced=20)
    assert verdicts["passed"] > 5
    assert verdicts["unjudged"] > count(full=20, reduced=0)


@pytest.mark.parametrize("method", ["forward", "call", "variance_swap", "slopes", "vix_slices"])
def test_a_method_that_raises_is_a_finding_with_its_words(method: str) -> None:
    def refuse(*_: Any) -> Any:
        raise ZeroDivisionError("there is nothing here")

    broken_method: Any = property(refuse) if method in ("slopes", "vix_slices") else refuse

    class Broken:
        def __init__(self) -> None:
            self.honest = smile()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.honest, name)

    setattr(Broken, method, broken_method)
    certificate = certify_surface(Broken())
    assert not certificate.passed
    row = certificate.findings.row(0, named=True)
    assert row["family"] == "unjudged"
    assert row["legs"].endswith("there is nothing here")
    assert json.loads(certificate.to_json())["passed"] is False


def test_forwards_far_away_are_refused_where_they_are_no_number() -> None:
    """A forward that grows twentyfold a year is infinite after 236 years, a discount zero."""
    growing = ab.Surface.from_slopes(
        KNOTS, MATURITIES, SLOPES, forwards=np.exp(3.0 * MATURITIES), discounts=np.exp(-MATURITIES)
    )
    assert growing.certificate().passed
    assert np.isfinite(growing.curve.forward(235.0))
    for T in (236.5, [1.0, 1e4]):
        with pytest.raises(ValueError, match=r"the forward there.*ask from T = 0 to 236$"):
            growing.curve.forward(T)
    with pytest.raises(ValueError, match=r"the discount factor there.*to 708"):
        growing.curve.discount(800.0)
    assert float(ab.example().curve.forward(1e4)) > 0.0  # negative control


def test_forwards_that_leave_float64_before_the_first_maturity_do_not_certify() -> None:
    T = np.array([1.0, 1.0 + 1e-9])
    steep = ab.Surface.from_slopes(KNOTS, T, SLOPES[:2], forwards=[1.0, 1.01])
    certificate = steep.certificate()
    assert not certificate.passed
    assert "is not a float64 above zero" in certificate.findings["legs"][0]
