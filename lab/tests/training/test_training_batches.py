"""Batches hold the truth, quotes that deserve their spreads, and every kind of listing promised."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from arbiter import Quotes
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training import noise
from arbiter_lab.training.batches import (
    HESTON_SHARE,
    MIN_QUOTES_PER_EXPIRY,
    MODEL_LAW_SHARE,
    POOR_HESTON_SHARE,
    TARGET_WINDOW,
    Batch,
    BatchLayout,
    default_batch_layouts,
    draw_batch,
    draw_law_rows,
)
from arbiter_lab.training.calendars import (
    HESTON_DAYS,
    MORNING_LEAD_DAYS,
    TIMELINE_DAYS,
    draw_maturities,
)
from arbiter_lab.training.law_pool import Laws, solve_laws
from arbiter_lab.training.noise import Friction, draw_friction, draw_noise, make_quotes
from arbiter_lab.training.parameter_prior import draw_sets
from arbiter_lab.training.strikes import draw_kept_quotes
from arbiter_lab.training.training_clocks import UNEVEN_CLOCK_SHARE
from counts import count

LAYOUT = BatchLayout(16, 41, 24)


@pytest.fixture(scope="module")
def laws() -> Laws:
    return solve_laws(draw_sets(4, np.random.default_rng(2)), 1)


def draw(laws: Laws, seed: int, size: int = 200, layout: BatchLayout = LAYOUT) -> Batch:
    return draw_batch(laws, layout, torch.Generator().manual_seed(seed), size)


@pytest.fixture(scope="module")
def batches(laws: Laws) -> list[Batch]:
    return [draw(laws, seed) for seed in range(count(full=40, reduced=4))]


def joined(batches: list[Batch]) -> Batch:
    return Batch(*(torch.cat(parts) for parts in zip(*batches, strict=True)))


@pytest.fixture(scope="module")
def many(batches: list[Batch]) -> Batch:
    return joined(batches)


def test_masks_shapes_and_padding_agree(laws: Laws) -> None:
    for layout, size in default_batch_layouts():
        batch = draw(laws, 3, max(4, size // 40), layout)
        B, L, S, P = max(4, size // 40), *layout
        assert batch.T.shape == batch.listed.shape == (B, L)
        assert batch.k.shape == batch.iv.shape == batch.half.shape == batch.quoted.shape
        assert batch.k.shape == batch.oracle_iv.shape == (B, L, S)
        assert batch.target_k.shape == batch.target_iv.shape == batch.target.shape == (B, L, P)
        for name, part in batch._asdict().items():
            if part.is_floating_point():
                assert part.dtype == torch.float32, name
                assert torch.isfinite(part).all(), name
        assert (batch.T[:, :1] > 0.0).all()
        assert (batch.T.diff(dim=1) > 0.0).all()
        assert (batch.k.diff(dim=-1) > 0.0).all()
        assert (batch.iv > 0.0).all()
        assert (batch.half > 0.0).all()
        # padding only at the ends
        assert not (batch.listed.int().diff(dim=1) > 0).any()
        assert not (batch.quoted.int().diff(dim=-1) > 0).any()
        assert (batch.listed.sum(1) >= 2).all()
        assert torch.equal(batch.quoted.sum(-1) >= MIN_QUOTES_PER_EXPIRY, batch.listed)
        assert torch.equal(batch.quoted.any(-1), batch.listed)
        assert not (batch.target & ~batch.listed[..., None]).any()
        assert batch.target[batch.listed].float().mean() > 0.99


def truth_gap(laws: Laws, batch: Batch) -> float:
    """Largest relative gap between the truth in a batch and the pool, at quotes and targets."""
    root, gaps = torch.sqrt(batch.clock / batch.T)[..., None], []
    for k, iv, there in (
        (batch.k, batch.oracle_iv, batch.quoted),
        (batch.target_k, batch.target_iv, batch.target),
    ):
        want = root * laws.volatility_at(batch.rows, batch.clock, k)
        gaps.append(float((iv / want - 1.0)[there].abs().nan_to_num(torch.inf).max()))
    return max(gaps)


def test_truth_is_the_pools(laws: Laws, batches: list[Batch]) -> None:
    assert truth_gap(laws, batches[0]) < 2e-5
    assert truth_gap(replace(laws, reference=laws.reference * 1.001), batches[0]) > 2e-5
    assert truth_gap(laws, batches[0]._replace(clock=batches[0].clock * 1.002)) > 2e-5


def test_same_generator_same_batch(laws: Laws) -> None:
    one, two, other = draw(laws, 1, 20), draw(laws, 1, 20), draw(laws, 2, 20)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one.iv, other.iv)


def test_expiries_are_as_varied_as_promised(many: Batch) -> None:
    days = many.T * 365.0
    last = torch.where(many.listed, days, 0.0).amax(1)
    expiries = many.listed.sum(1)
    assert abs(float(days[:, 0].min()) - 1.0) < 1e-3
    assert 5.0 < float(days[:, 0].median()) < 12.0
    assert float((last < 14.0).float().mean()) < 0.002  # unless the farthest have no quotes
    assert float((last < 30.0).float().mean()) > 0.02
    assert float((last > 3 * 365.0).float().mean()) > 0.01
    assert float(last.max()) < 6.2 * 365.0
    assert set(range(2, 17)) == set(expiries.tolist())
    even = ((many.clock / many.T - 1.0).abs() < 1e-5).all(1).float().mean()
    exchange = 0.45  # share of exchanges' calendars; the others: uneven, or rescaled
    assert abs(float(even) - (1.0 - exchange * UNEVEN_CLOCK_SHARE) * 0.7) < 0.1


@pytest.mark.parametrize("listed", [HESTON_DAYS, TIMELINE_DAYS])
def test_maturities_of_the_benchmarks_are_drawn_whole(listed: tuple[int, ...]) -> None:
    T, there, _ = draw_maturities(500, 16, torch.Generator().manual_seed(1))
    want = torch.tensor(listed) / 365.0
    n = len(listed)
    same = (there.sum(1) == n) & ((T[:, :n] - want).abs() < 1e-6).all(1)
    assert same.float().mean() > 0.04


@pytest.mark.parametrize("expiries", [2, 8, 60])
def test_maturities_increase_inside_the_pool(expiries: int) -> None:
    T, listed, _ = draw_maturities(2000, expiries, torch.Generator().manual_seed(2))
    assert (T.diff(dim=1) > 0.0).all()
    assert (listed.sum(1) >= 2).all()
    inside = (T * 365.0)[listed]
    assert float(inside.min()) > 1.0 - 1e-4
    assert 5.5 * 365.0 < float(inside.max()) < 6.1 * 365.0
    last = torch.where(listed, T * 365.0, 0.0).amax(1)
    assert float(last.min()) >= 14.0
    assert int(listed.sum(1).max()) == expiries


def test_index_calendars_hold_sixty_expiries_and_monthlies_of_morning_and_close() -> None:
    T, listed, _ = draw_maturities(4000, 60, torch.Generator().manual_seed(3))
    days = 365.0 * T
    last = torch.where(listed, days, 0.0).amax(1)
    near = ((days.diff(dim=1) - MORNING_LEAD_DAYS).abs() < 1e-3) & listed[:, 1:]
    assert float((near.sum(1) >= 3).float().mean()) > 0.05
    # a random list has no pairs, so these are of an index
    full = (listed.sum(1) == 60) & (near.sum(1) >= 3)
    assert full.any()
    assert float(last[full].max()) > 4 * 365.0


def deviations(laws: Laws, batch: Batch) -> Tensor:
    scale = laws.reference_at(batch.rows, batch.clock) * torch.sqrt(batch.clock)
    return batch.k / scale[..., None]


def test_strikes_are_as_varied_as_promised(laws: Laws, many: Batch) -> None:
    z, q = deviations(laws, many), many.quoted
    assert float(z[q].min()) < -7.5
    assert float(z[q].max()) > 3.0
    quotes = many.quoted.sum(-1)[many.listed]
    assert int(quotes.min()) == MIN_QUOTES_PER_EXPIRY
    assert int(quotes.max()) == LAYOUT.strikes
    assert float((quotes <= 6).float().mean()) > 0.03
    # the benchmark's strikes, up to what was dropped
    s = torch.linspace(-3.5, 2.0, 41)
    near = (z[..., None] - s).abs().amin(-1) < 1e-3
    whole = (near | ~q).all(-1).all(-1)
    assert 0.05 < float(whole.float().mean()) < 0.3
    assert float((many.quoted.sum((1, 2)) / (41.0 * many.listed.sum(1))).min()) < 0.3


def test_quotes_below_the_floor_are_not_shown(many: Batch) -> None:
    price = black.otm(many.k, many.oracle_iv * torch.sqrt(many.T)[..., None])[many.quoted]
    assert float(price.min()) > 0.999e-6
    assert float((price < 1e-5).float().mean()) > 0.003


def test_spreads_are_as_varied_as_promised(many: Batch) -> None:
    relative = (many.half / many.oracle_iv)[many.quoted]
    assert float(relative.min()) < 8e-4
    assert float((relative > 0.1).float().mean()) > 0.02
    assert float(relative.max()) <= 0.5 + 1e-6


def bias(batch: Batch, near: Tensor) -> float:
    """The mean of the noise, in its standard errors; noise of a slice counts as one."""
    error = ((batch.iv - batch.oracle_iv) / batch.half * near).sum(-1)[near.any(-1)]
    return float(error.mean() / (error.std() / error.numel() ** 0.5))


def test_noise_is_unbiased_near_the_money_and_about_the_spread(laws: Laws, many: Batch) -> None:
    # elsewhere the volatility of a mid price is above the middle of those of bid and ask
    near = many.quoted & (deviations(laws, many).abs() < 1.0) & (many.half < 0.01 * many.oracle_iv)
    assert abs(bias(many, near)) < 4.0
    assert abs(bias(many._replace(iv=many.iv + 0.1 * many.half), near)) > 4.0
    moved = ((many.iv - many.oracle_iv).abs() / many.half)[many.quoted]
    assert float(moved.max()) < 2.0
    assert float((moved > 1.0).float().mean()) < 0.02
    ratio = (many.iv / many.oracle_iv)[many.quoted]
    assert float(ratio.min()) > 0.3
    assert float(ratio.max()) < 3.0
    exact = torch.where(many.quoted, (many.iv / many.oracle_iv - 1.0).abs(), 0.0).amax((1, 2))
    quiet = torch.where(many.quoted, many.half / many.oracle_iv, 0.0).amax((1, 2))
    still = exact < 0.1 * quiet
    assert 0.01 < float(still.float().mean()) < 0.2


def asked(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Strikes, volatilities, half-spreads from tight to as wide as they get, noise and √T."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(5, 6, 4, 50, generator=generator)
    root = (0.05 + u[0, :, :, :1]).sqrt()
    truth = 0.1 + 0.6 * u[1]
    half = truth * torch.where(u[2] < 0.1, 0.5, 1e-3 + 0.2 * u[2] ** 2)
    k = (6.0 * u[3] - 4.5) * truth * root
    return k, truth, half, 2.0 * u[4] - 1.0, root


def read(k: Tensor, root: Tensor, bid: Tensor, ask: Tensor) -> Quotes:
    """Return the volatilities that `Quotes` computes from all prices; strikes must differ."""
    return Quotes.from_frame(
        pl.DataFrame({name: x.double().flatten().numpy() for name, x in locals().items()})
        .with_columns(T=pl.col("root") ** 2)
        .drop("root")
    )


def test_mid_and_spread_are_what_a_reader_of_prices_sees() -> None:
    k, truth, half, drawn, root = (x.double() for x in asked(1))
    iv, seen = make_quotes(k, truth, half, drawn, root)
    middle = truth + half * drawn
    fair, low, high = (black.otm(k, (truth + side * half) * root) for side in (0.0, -1.0, 1.0))
    room = torch.minimum(0.5 * (high - low), 0.48 * fair)
    in_price = [fair + room * (drawn + side) for side in (-1.0, 1.0)]
    in_iv = [black.otm(k, ((middle + side * half) * root).clamp(min=0.0)) for side in (-1.0, 1.0)]
    for i in range(6):
        bid, ask = (x[i] for x in (in_iv if i % noise.PRICE_NOISE_STRIDE else in_price))
        assert ((bid <= fair[i] * (1 + 1e-9)) & (fair[i] <= ask * (1 + 1e-9))).all()
        for j in range(4):
            order = torch.argsort(k[i, j])
            order = order[bid[j][order] > 1e-14]
            quotes = read(
                k[i, j][order], root[i, j].expand(len(order)), bid[j][order], ask[j][order]
            )
            np.testing.assert_allclose(iv[i, j][order], quotes.iv_mid, rtol=1e-9)
            half_spread = 0.5 * (quotes.iv_ask - quotes.iv_bid)
            np.testing.assert_allclose(seen[i, j][order], half_spread, rtol=1e-7)
            # the middle of the volatilities is something else
            assert np.abs(middle[i, j][order].numpy() / quotes.iv_mid - 1.0).max() > 1e-3


def test_noise_in_price_is_symmetric_in_price_and_that_in_volatility_is_not() -> None:
    k, truth, half, drawn, root = (x.double() for x in asked(2))
    fair = black.otm(k, truth * root)
    up, down = (
        black.otm(k, make_quotes(k, truth, half, side * drawn, root)[0] * root) - fair
        for side in (1.0, -1.0)
    )
    lean = ((up + down).abs() / up.abs()).flatten(1).median(1).values
    priced = torch.arange(6) % noise.PRICE_NOISE_STRIDE == 0
    assert float(lean[priced].max()) < 1e-9
    assert float(lean[~priced].min()) > 0.1


def friction_of(kind: int, size: int) -> Friction:
    drawn = draw_friction(size, torch.Generator().manual_seed(1))
    return drawn._replace(kind=torch.full_like(drawn.kind, kind), size=torch.ones_like(drawn.size))


@pytest.mark.parametrize(
    ("kind", "deviation", "correlation"),
    [
        (noise.UNIFORM, 3.0**-0.5, 0.0),
        (noise.GAUSSIAN, 0.348, 0.0),
        (noise.SMOOTH, 0.348, 0.917),  # e^{−1/(4·1.7²)}, a Gaussian kernel with itself
    ],
)
def test_each_kind_of_noise_has_its_law(kind: int, deviation: float, correlation: float) -> None:
    found = draw_noise(
        torch.Size((400, 4, 60)), friction_of(kind, 400), torch.Generator().manual_seed(5)
    )
    assert abs(float(found.std()) - deviation) < 0.01
    near = float((found[..., 1:] * found[..., :-1]).mean() / found.square().mean())
    assert abs(near - correlation) < 0.03


def test_frictions_cover_their_ranges() -> None:
    found = draw_friction(5000, torch.Generator().manual_seed(3))
    assert set(found.kind.flatten().tolist()) == {0, 1, 2, 3, 4}
    assert 1e-6 <= float(found.floor.min()) < 1.1e-6
    assert 2.8e-4 < float(found.floor.max()) <= 3e-4
    assert 5e-4 <= float(found.base.min()) < 5.5e-4
    assert 0.045 < float(found.base.max()) <= 0.05
    assert 0.3 < float((found.tick == 0.0).float().mean()) < 0.5


def test_far_expiries_may_be_wide_about_steady_mids() -> None:
    drawn = draw_friction(5000, torch.Generator().manual_seed(3))
    T = torch.tensor([3 / 365, 0.25, 1.0, 5.0])[:, None].expand(5000, 4, 1)
    found = drawn.vary_by_maturity(T, torch.Generator().manual_seed(4))
    wider = found.base / drawn.base  # (B, L, 1)
    uneven = drawn.alone[:, 0, 0] > 0.0
    assert 0.55 < float(uneven.float().mean()) < 0.65
    assert (wider[~uneven] == 1.0).all()
    # listed: 0.3 % of volatility at a year and 15 % at five, or nearly the same
    far = (wider[:, 3] / wider[:, 2])[uneven, 0]
    assert 0.1 < float((far > 10.0).float().mean()) < 0.4
    assert 0.2 < float((far < 2.0).float().mean()) < 0.6
    # listed: two to three times as wide in days as in months
    near = (wider[:, 0] / wider[:, 1])[uneven, 0]
    assert 0.1 < float((near > 2.5).float().mean()) < 0.4
    assert float(near.min()) < 1.0
    steady = found.size / drawn.size.clamp(min=1e-9)
    noisy = (drawn.size > 0.0)[:, 0, 0] & uneven
    moved = (steady * wider)[noisy, 3, 0]  # noise in volatility over that at the middle
    assert float(steady[noisy].max()) <= 1.0 + 1e-6
    assert 0.4 < float((steady[noisy] > 1.0 - 1e-6).all(1).float().mean()) < 0.7
    assert float((moved[wider[noisy, 3, 0] > 10.0] < 5.0).float().mean()) > 0.1


def test_spreads_differ_between_expiries(many: Batch) -> None:
    relative = torch.where(many.quoted, torch.log(many.half / many.oracle_iv), torch.nan)
    middle = relative.nanmedian(-1).values  # (B, L)
    gap = torch.where(torch.isnan(middle), -torch.inf, middle).amax(1) - torch.where(
        torch.isnan(middle), torch.inf, middle
    ).amin(1)
    assert float((gap > math.log(10.0)).float().mean()) > 0.05
    assert float((gap < math.log(2.0)).float().mean()) > 0.1


def test_far_wings_are_wide_because_of_the_tick() -> None:
    drawn = draw_friction(1, torch.Generator().manual_seed(1))
    k, iv, root = torch.linspace(-0.3, 0.1, 9)[None, None], torch.full((1, 1, 9), 0.2), 0.25
    wide, narrow = (
        drawn._replace(
            tick=torch.full((1, 1, 1), tick), slope=0 * drawn.slope, rough=0 * drawn.rough
        ).half_spread(
            k,
            iv,
            torch.full((1, 1, 1), root),
            torch.full((1, 1, 1), 0.2 * root),
            torch.Generator().manual_seed(2),
        )
        for tick in (1e-5, 0.0)
    )
    assert float(wide[..., 0]) > 5.0 * float(narrow[..., 0])
    money = int(k.abs().argmin())
    assert abs(float((wide / narrow)[..., money]) - 1.0) < 0.05
    np.testing.assert_allclose(narrow.numpy() / 0.2, float(drawn.base), rtol=1e-5)


def test_dropping_leaves_each_expiry_its_few() -> None:
    generator = torch.Generator().manual_seed(1)
    offered = torch.rand(300, 8, 41, generator=generator) < 0.9
    offered[:, 0, 2:] = False
    offered[:, 0, :2] = True
    kept = draw_kept_quotes(offered, MIN_QUOTES_PER_EXPIRY, generator)
    assert not (kept & ~offered).any()
    assert torch.equal(kept[:, 0], offered[:, 0])  # two were offered, both are shown
    assert int(kept[:, 1:].sum(-1).min()) == MIN_QUOTES_PER_EXPIRY
    share = kept[:, 1:].sum((1, 2)) / offered[:, 1:].sum((1, 2))
    assert float(share.min()) < 0.3
    assert float(share.max()) > 0.95


def test_targets_lie_in_the_window_or_among_the_quotes(laws: Laws, many: Batch) -> None:
    scale = (laws.reference_at(many.rows, many.clock) * torch.sqrt(many.clock))[..., None]
    z, quotes = many.target_k / scale, many.k / scale
    low = (
        torch.where(many.quoted, quotes, TARGET_WINDOW[0])
        .amin(-1, keepdim=True)
        .clamp(max=TARGET_WINDOW[0])
    )
    high = torch.where(many.quoted, quotes, TARGET_WINDOW[1]).amax(-1, keepdim=True)
    high = high.clamp(min=TARGET_WINDOW[1])
    outside = (z < low - 1e-3) | (z > high + 1e-3)
    assert not (outside & many.target).any()
    beyond = ((z < TARGET_WINDOW[0]) | (z > TARGET_WINDOW[1]))[many.target].float().mean()
    assert 0.03 < float(beyond) < 0.4


def test_buckets_hold_about_as_many_quotes() -> None:
    sizes = [size * layout.expiries * layout.strikes for layout, size in default_batch_layouts()]
    assert max(sizes) < 1.4 * min(sizes)


@pytest.mark.parametrize(
    ("layout", "size"),
    [(BatchLayout(1, 9, 4), 2), (BatchLayout(4, 2, 4), 2), (BatchLayout(4, 9, 4), 0)],
)
def test_impossible_batch_is_refused(laws: Laws, layout: BatchLayout, size: int) -> None:
    with pytest.raises(ValueError, match="give at least 2 expiries"):
        draw(laws, 1, size, layout)


def test_generator_of_another_device_is_refused(laws: Laws) -> None:
    elsewhere = replace(laws, iv=torch.empty(laws.iv.shape, device="meta"))
    with pytest.raises(ValueError, match="the generator is on cpu, the pool on meta"):
        draw(elsewhere, 1)


def test_models_own_laws_are_commoner_where_no_exchange_lists(laws: Laws) -> None:
    number = torch.arange(6000)
    exchange, poor = number % 3 == 0, number % 3 == 1
    rows = draw_law_rows(laws, exchange, poor, torch.Generator().manual_seed(4))
    assert 0 <= int(rows.min()) <= int(rows.max()) < len(laws)
    own, heston = (rows < laws.model_law_count).float(), (rows < laws.heston_law_count).float()
    plain, classic = laws.model_law_count / len(laws), laws.heston_law_count / len(laws)
    assert 0.0 < classic < plain < 1.0
    assert int(rows[exchange].min()) == laws.heston_law_count
    assert abs(float(own[exchange].mean()) - (plain - classic) / (1.0 - classic)) < 0.05
    assert (
        abs(float(own[~exchange].mean()) - (MODEL_LAW_SHARE + (1.0 - MODEL_LAW_SHARE) * plain))
        < 0.05
    )
    for share, surfaces in ((POOR_HESTON_SHARE, poor), (HESTON_SHARE, ~exchange & ~poor)):
        among = (MODEL_LAW_SHARE - share) * classic / plain + (1.0 - MODEL_LAW_SHARE) * classic
        assert abs(float(heston[surfaces].mean()) - (share + among)) < 0.05


def test_poor_surfaces_are_quoted_widely_and_seldom() -> None:
    poor = torch.arange(2000) % 2 == 0
    base = draw_friction(2000, torch.Generator().manual_seed(1), poor).base[:, 0, 0]
    assert float(base[poor].min()) > 10.0 * float(base[~poor].min())
    assert float(base.max()) <= 0.05
    offered = torch.ones(2000, 8, 40, dtype=torch.bool)
    share = (
        draw_kept_quotes(offered, MIN_QUOTES_PER_EXPIRY, torch.Generator().manual_seed(1), poor)
        .float()
        .mean((1, 2))
    )
    assert float(share[poor].max()) < 0.6 < float(share[~poor].quantile(0.6))
    assert 0.2 < float(share[poor].mean()) < 0.4
