"""Flow matching regresses on the oracle's own transports; every ablation trains with one flag."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import tiny
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.network import Output
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.training.batch_stream import make_generator
from arbiter_lab.training.batches import Batch, BatchLayout, draw_batch
from arbiter_lab.training.flow_matching import (
    MAX_VELOCITY,
    OracleSlopes,
    compute_velocity_targets,
    gaussian_coordinate,
    measure_alignment,
    oracle_slopes,
    velocity_mse,
)
from arbiter_lab.training.held_out import HeldOut
from arbiter_lab.training.objective import make_task
from arbiter_lab.training.settings import ABLATIONS
from arbiter_lab.training.trainer import Trainer
from device_waits import Waits

LAYOUT = BatchLayout(6, 16, 12)
X = torch.tensor(KNOTS, dtype=torch.float64)


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Unscaled surfaces at maturities of the pool itself, so that their slopes are known."""
    drawn = draw_batch(tiny.laws(), LAYOUT, make_generator("cpu", 3), 16)
    T = tiny.laws().T[torch.linspace(8, 40, LAYOUT.expiries).long()].expand(16, -1)
    return drawn._replace(T=T.contiguous(), clock=T.contiguous())


@pytest.fixture(scope="module")
def chain(batch: Batch) -> Scaled:
    return make_task(batch, tiny.laws()).chain._replace(quoted=torch.ones_like(batch.quoted))


def exact(batch: Batch) -> Tensor:
    """The slopes that the laws were made from."""
    every = tiny.slopes(24, 0)[batch.rows]  # (B, M, n)
    return every[:, torch.linspace(8, 40, LAYOUT.expiries).long()]


def test_slopes_of_the_oracle_are_those_of_the_law(batch: Batch) -> None:
    found, truth = oracle_slopes(tiny.laws(), batch), exact(batch)
    inside = found.known & (X.abs() < 3.5)
    assert inside[..., X.abs() < 2.0].all()
    off = (found.b / truth - 1.0).abs()
    # the laws' slopes bend at knots, where a derivative over five nodes is blunt
    assert off[inside].max() < 0.02
    assert off[inside].median() < 2e-3
    assert (found.b / (1.05 * truth) - 1.0).abs()[inside].min() > 0.02


def test_a_lognormal_law_is_exact() -> None:
    k = torch.linspace(-1.2, 0.9, 81, dtype=torch.float64)
    x = gaussian_coordinate(k, torch.full_like(k, 0.25))[2:-2]
    assert torch.allclose(x, (k / 0.25 + 0.125)[2:-2], atol=1e-9)
    skewed = gaussian_coordinate(k, 0.25 - 0.1 * k)[2:-2]
    assert (skewed - x).abs().max() > 0.1


def test_velocities_of_an_ordered_law_are_not_cut(batch: Batch, chain: Scaled) -> None:
    slopes = oracle_slopes(tiny.laws(), batch)
    wanted = compute_velocity_targets(slopes, chain)
    assert (wanted.target >= 0.0).all()
    assert wanted.cut.float().mean() < 1e-3
    assert velocity_mse(slopes.b, chain, wanted) < 1e-6
    faster = velocity_mse(1.1 * slopes.b, chain, wanted)
    assert 1e-3 < float(faster) < 0.1


def test_a_broken_star_order_is_cut_and_counted(batch: Batch, chain: Scaled) -> None:
    slopes = oracle_slopes(tiny.laws(), batch)
    broken = slopes.b.clone()
    broken[3, 2, 16] = 0.5 * broken[3, 1, 16]
    wanted = compute_velocity_targets(OracleSlopes(broken, slopes.known), chain)
    assert wanted.cut[3, 2, 16]
    assert wanted.target[3, 2, 16] == 0.0
    assert wanted.target.max() <= MAX_VELOCITY
    assert velocity_mse(broken, chain, wanted) > 10.0 * velocity_mse(
        slopes.b, chain, compute_velocity_targets(slopes, chain)
    )


def test_padding_and_unknown_knots_weigh_nothing(batch: Batch, chain: Scaled) -> None:
    slopes = oracle_slopes(tiny.laws(), batch)
    known = slopes.known.clone()
    known[:, 2, 7] = False
    quoted = torch.ones_like(batch.quoted)
    quoted[:, -1] = False
    weight = compute_velocity_targets(
        OracleSlopes(slopes.b, known), chain._replace(quoted=quoted)
    ).weight
    assert (weight[:, 2:4, 7] == 0.0).all()
    assert (weight[:, -1] == 0.0).all()
    assert (weight[:, 1, 16] > 0.0).all()


def test_a_flow_in_more_steps_weighs_as_much(batch: Batch, chain: Scaled) -> None:
    """Expiries a day apart do not drown the others: weights add up to ``log √T`` and a bit."""
    weight = compute_velocity_targets(oracle_slopes(tiny.laws(), batch), chain).weight[..., 16]
    root = torch.exp(chain.total) / chain.sigma
    assert (weight[:, 1:].sum(1) <= torch.log(root[:, -1] / root[:, 0]) + 1e-4).all()


def test_laws_are_compared_as_lognormal_ones_are(chain: Scaled) -> None:
    """Relative entropy of two lognormal laws is known in closed form."""
    total = torch.linspace(0.1, 0.3, LAYOUT.expiries).log().expand_as(chain.total).contiguous()
    even = chain._replace(total=total)
    unit = torch.exp(total)[..., None].expand(*total.shape, len(KNOTS))
    truth = OracleSlopes(unit, torch.ones_like(unit, dtype=torch.bool))
    same = measure_alignment(unit, truth, even)
    assert float(same.relative_entropy) == pytest.approx(0.0, abs=1e-12)
    assert float(same.cvar) == pytest.approx(0.0, abs=1e-12)
    wider = measure_alignment(1.2 * unit, truth, even)
    s = torch.exp(total).double()
    apart = (0.5 * s**2 * (1.2**2 - 1.0)) ** 2
    closed = math.log(1.2) + (s**2 + apart) / (2.0 * 1.2**2 * s**2) - 0.5
    assert float(wider.relative_entropy) == pytest.approx(float(closed.mean()), rel=1e-2)
    assert float(wider.cvar) > 0.1


def test_a_planted_wait_is_seen() -> None:
    x = torch.arange(3.0)
    for wait in (lambda: float(x.sum()), x.nonzero, lambda: x[x > 1.0]):
        with Waits() as waits:
            wait()
        assert waits.seen
    with Waits() as waits:
        torch.where(x > 1.0, x, 0.0)
    assert not waits.seen


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_a_step_can_be_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing between the batch and its gradients, nor in Q-Align, waits for the device."""
    monkeypatch.setattr(
        "arbiter_lab.differentiable.pricing.transport.any_or_recording", lambda mask: True
    )  # as while recording
    trainer = Trainer(tiny.SETTINGS.apply_ablation(name), tiny.laws())
    lesson = trainer.draws.next_lesson(0).lesson
    trainer.differentiate_lesson(*lesson)  # fills caches, as runs before the recording do
    with Waits() as waits:
        trainer.differentiate_lesson(*lesson)
        trainer.network.align()
    assert waits.seen == []


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_every_ablation_trains_and_is_evaluated(name: str) -> None:
    settings = tiny.SETTINGS.apply_ablation(name)
    trainer = Trainer(settings, tiny.laws())
    before = [p.detach().clone() for p in trainer.params]
    for _ in range(2):
        seen = trainer.step(measure=True)
    assert torch.isfinite(seen.step.value)
    moved = [not torch.equal(a, b) for a, b in zip(before, trainer.params, strict=True)]
    assert sum(moved) > len(moved) // 2
    held_out = HeldOut(settings, tiny.laws(12, 777), trainer.route.make_lesson)
    found = held_out.measure(trainer.averaged_network())
    assert all(math.isfinite(value) for value in found.values())
    assert ("mfm_mse" in found) is (name != "icnn")
    gap, _ = trainer.measure_dual_gap(held_out.kind, held_out.lesson)
    assert gap.gap >= 0.0


def test_what_is_measured_is_the_error_of_volatility() -> None:
    """Against a network whose slopes are the truth, or the truth and one percent."""
    settings = tiny.SETTINGS
    trainer = Trainer(settings, tiny.laws())
    held_out = HeldOut(settings, tiny.laws(12, 777), trainer.route.make_lesson)
    slopes = {id(exam.chain): exam.slopes.b for exam in held_out.exams}
    exact_iv = torch.cat([(e.batch.target_iv)[e.batch.target] for e in held_out.exams])
    decode = trainer.network.decode

    def told(factor: float) -> dict[str, float]:
        def perfect(chain: Scaled) -> Output:
            return decode(chain)._replace(slopes=factor * slopes[id(chain)])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trainer.network, "decode", perfect)
            return held_out.measure(trainer.network)

    exact, off = told(1.0), told(1.01)
    assert exact["heldout_median_bp"] < 2.0
    assert exact["heldout_inside_bp"] < 8.0
    assert exact["mfm_mse"] < 1e-3
    assert exact["relative_entropy"] == pytest.approx(0.0, abs=1e-9)
    assert exact["mfm_cut"] < 0.01
    one_percent = 1e4 * 0.01 * float(exact_iv.square().mean().sqrt())
    assert off["heldout_inside_bp"] == pytest.approx(one_percent, rel=0.3)
    assert off["relative_entropy"] == pytest.approx(1e-4, rel=0.2)
    assert off["martingale_residual"] == exact["martingale_residual"]


def test_each_flag_takes_away_what_it_names() -> None:
    def trainer(name: str) -> Trainer:
        return Trainer(tiny.SETTINGS.apply_ablation(name), tiny.laws())

    plain = Trainer(tiny.SETTINGS, tiny.laws())
    assert set(plain.duals.boxes) == {"no_arbitrage", "martingale", "replication"}
    assert set(trainer("no_vix").duals.boxes) == {"no_arbitrage", "martingale"}
    assert set(trainer("mfm").duals.boxes) == set()
    assert plain.network.icnn is None
    assert trainer("icnn").network.icnn is not None
    halved, full = trainer("rank_half").network.config, plain.network.config
    assert (halved.state, halved.rank) == (full.state // 2, full.rank // 2)
    free, kept = (
        Trainer(replace(s, lr=3.0, warm=0, decay=0), tiny.laws())
        for s in (tiny.SETTINGS.apply_ablation("no_qalign"), tiny.SETTINGS)
    )
    for one in (free, kept):
        one.step()
    assert free.lipschitz_constant() > 10.0 * kept.lipschitz_constant()
    pair = [trainer(name) for name in ("causal_only", "gate_off")]
    assert sum(p.numel() for p in pair[0].params) < sum(p.numel() for p in plain.params)
    assert not pair[1].network.config.gate


def test_a_guard_that_is_off_acts_in_no_scan() -> None:
    """Neither stream's: the geometry's scans have a guard of their own."""
    off, on = (
        Trainer(s, tiny.laws()) for s in (tiny.SETTINGS.apply_ablation("guard_off"), tiny.SETTINGS)
    )
    assert (
        off.parameter_names() == on.parameter_names()
    )  # a switch and no parameter: weights of either are read
    (hits, distance, largest), (scaled, moved, wanted) = (t.step().guards for t in (off, on))
    assert (float(hits), float(distance)) == (0.0, 0.0)
    assert float(scaled) > 0.0
    assert float(moved) > 0.0
    assert min(float(largest), float(wanted)) > 1.0  # there was something to scale in both
    for scan in off.network.context.modules():  # one that is left on is found
        if isinstance(scan, GreenScan):
            scan.guarded = True
    assert float(off.step().guards[0]) > 0.0
