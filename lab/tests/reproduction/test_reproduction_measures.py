"""What the reproduction measures beside the metrics: each with a case whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arbiter.operators.checkpoint import REQUIRED_PROVENANCE
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter.scoring import Model
from arbiter_lab.baselines.cleaned_svi import Nodes
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.evaluation.convex_decoder_model import ConvexOperator
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.metrics.numeraire import ni_invariance
from arbiter_lab.peers import fit_svi
from arbiter_lab.reproduction import (
    coverage_windows,
    networks,
    scored_days,
    training_stage,
    verdicts,
)
from arbiter_lab.reproduction.input_variations import (
    convert_index_calls,
    evaluate_variations,
    in_index_units,
)
from arbiter_lab.reproduction.models import Checkpoints, ModelEntry, add_unprojected, list_untrained
from arbiter_lab.reproduction.profiles import SMOKE
from arbiter_lab.reproduction.query_models import audit_or_zero
from arbiter_lab.reproduction.stages import StageContext
from arbiter_lab.training.held_out import HeldOut
from arbiter_lab.training.law_pool import Laws, make_laws
from arbiter_lab.training.routes import make_route

FEW = replace(
    SMOKE.small, pool=8, held_out=6, steps=2, decay=1, measure_every=2, save_every=2, ramp=1
)


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> scored_days.Days:
    out = tmp_path_factory.mktemp("days")
    sizes = replace(SMOKE, days=8, blocks=4, embargo=0, elsewhere=())
    given = StageContext(out, sizes, Checkpoints(out / "nets"), None, lambda *_: None, 1, "0" * 16)
    given = replace(given, name="days")
    scored_days.make_days(given)
    return scored_days.read_days(given.folder / sizes.market)


@pytest.fixture(scope="module")
def laws() -> Laws:
    return make_laws(FEW.held_out, FEW.held_out_seed, "cpu")


@pytest.fixture(scope="module")
def quotes() -> Quotes:
    return heston_case(0).quotes


def test_quotes_in_index_units_keep_their_volatilities(quotes: Quotes) -> None:
    other = in_index_units(quotes)
    again = in_index_units(other)
    np.testing.assert_allclose(again.k, quotes.k, rtol=0, atol=1e-15)
    np.testing.assert_allclose(again.bid, quotes.bid, rtol=1e-13)
    for row in range(quotes.maturities.size):
        here, there = quotes.expiry == row, other.expiry == row
        assert (np.diff(other.k[there]) > 0.0).all()
        np.testing.assert_allclose(other.iv_mid[there][::-1], quotes.iv_mid[here], rtol=1e-9)


class Smile:
    """Volatilities that lean; mirrored, they lean the other way."""

    def __init__(self, lean: float) -> None:
        self.lean = lean

    def iv(self, k: Any, T: Any) -> Any:
        return 0.2 + self.lean * np.tanh(k) + 0.0 * np.asarray(T)

    def otm(self, k: Any, T: Any) -> Any:
        return np.asarray(black.otm(k, self.iv(k, T) * np.sqrt(T)))


def test_prices_come_back_from_index_units_and_a_model_that_ignores_them_is_found() -> None:
    here = scored_days.KAPPA, scored_days.MATURITIES[:, None]
    calls = Smile(-0.1).otm(np.log(here[0]), here[1]) + np.maximum(1.0 - here[0], 0.0)
    faithful, deaf = convert_index_calls(Smile(0.1)), convert_index_calls(Smile(-0.1))
    np.testing.assert_allclose(faithful, calls, rtol=0, atol=1e-14)
    assert (ni_invariance(np.stack([calls, faithful])).value or 0.0) > 1.0 - 1e-12
    assert (ni_invariance(np.stack([calls, deaf])).value or 0.0) < 0.99


def test_hidden_quotes_are_not_shown_and_are_scored(quotes: Quotes) -> None:
    shown: list[int] = []

    def solve(chains: Any) -> list[Model]:
        shown.extend(len(chain) for chain in chains)
        return [fit_svi(chain) for chain in chains]

    found = evaluate_variations(Method("svi", solve), [quotes], [3])[0]
    hidden = quotes.held_out(0.2, 3)
    assert shown == [len(quotes), len(quotes) - int(hidden.sum())]
    assert found["unseen"] == hidden.sum() > 0
    assert 0.3 * found["unseen"] < found["unseen_inside"] <= found["unseen"]
    far = evaluate_variations(
        Method("wrong", lambda chains: [Smile(5.0) for _ in chains]), [quotes], [3]
    )[0]
    assert far["unseen_inside"] < 0.1 * far["unseen"]

    def refuse(_: Any) -> list[Model]:
        raise ValueError("no")

    none = evaluate_variations(Method("none", refuse), [quotes], [3])[0]
    assert np.isnan(none["calls_index"]).all()
    assert none["unseen_inside"] == 0
    assert evaluate_variations(Method("none", refuse), [], []) == []


def test_both_tests_must_reject() -> None:
    def tests(p: float, flips: float, blocks: int = 20) -> dict[str, Any]:
        test: dict[str, Any] = {
            "difference": {"mean": -1.0},
            "holm_p_value": p,
            "holm_flip_p_value": flips,
        }
        test["blocks"] = blocks
        return {"tests": {"other": test}, "left_out": {}}

    assert verdicts.describe_paired_test(tests(1e-4, 1e-4), "other").startswith("lower error")
    assert verdicts.describe_paired_test(tests(1e-4, 0.02), "other").startswith("no difference")
    assert verdicts.describe_paired_test(tests(0.02, 1e-4), "other").startswith("no difference")
    few = verdicts.describe_paired_test(tests(1e-4, 0.03, blocks=6), "other")
    assert few == "lower error (Holm p = 0.0001; 6 blocks are too few for flips)"


@pytest.fixture(scope="module")
def convex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of an operator with the paper's decoder that nobody has trained."""
    config = replace(FEW.config, decoder="icnn")
    torch.manual_seed(0)
    network = Network(config)
    info: dict[str, Any] = {name: {} for name in REQUIRED_PROVENANCE}
    info |= {"config": config.to_dict(), "metrics": {"DualGap": 0.5}, "ended": "converged"}
    path = tmp_path_factory.mktemp("convex") / "icnn.safetensors"
    return checkpoint.save(path, network.state_dict(), info)


def test_the_papers_decoder_is_scored_after_its_projection_and_before(
    convex: Path, quotes: Quotes
) -> None:
    after, before = add_unprojected([ModelEntry("icnn", "ablation", "full", convex)])
    assert (after.name, before.name) == ("icnn", "icnn_unprojected")
    assert (after.promises, before.promises) == (True, False)
    assert before.label == "ICNN decoder, before its projection"
    clean, raw = (e.method().solve([quotes])[0] for e in (after, before))
    assert isinstance(clean, Nodes)
    assert clean.left.largest <= 1e-15
    assert clean.found.largest > 1e-6  # so that there was something to mend
    assert audit_or_zero(clean, quotes).nas == 1.0
    at = quotes.k[::7], quotes.T[::7]
    moved = np.abs(clean.otm(*at) - raw.otm(*at))
    assert np.nanmax(moved) < 0.05
    assert ConvexOperator.load(convex).many([quotes])[0].otm(0.0, 0.5) == clean.otm(0.0, 0.5)


def test_without_a_program_what_needs_a_projection_is_missing(
    convex: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ModelEntry("icnn", "ablation", "full", convex)
    assert not any(
        e.missing for e in (*list_untrained(["fit_then_clean"]), *add_unprojected([entry]))
    )
    monkeypatch.setattr("arbiter_lab.reproduction.models.is_importable", lambda _: False)
    after, before = add_unprojected([entry])
    assert "piqp" in after.reason
    assert not before.missing
    assert "piqp" in list_untrained(["fit_then_clean"])[0].reason


def test_the_guard_of_a_checkpoint_is_watched_on_the_days(
    convex: Path, timeline: scored_days.Days, laws: Laws
) -> None:
    rows = np.array([2, 3])
    exam = HeldOut(FEW, laws, make_route(FEW).make_lesson)
    found = networks.describe_network(
        ModelEntry("icnn", "ablation", "full", convex), timeline, rows, exam
    )
    assert found["parameters"] == sum(t.numel() for t in checkpoint.load(convex)[0].values())
    assert found["max_rho_dt"] <= 1.0
    assert found["ended"] == "converged"
    assert isinstance(found["martingale_passed"], bool)
    # twice the days, twice the hits or so; a guard that is off acts nowhere and says what it saw
    again = networks.describe_network(
        ModelEntry("icnn", "ablation", "full", convex), timeline, np.repeat(rows, 2), exam
    )
    assert again["spec_guard_hits"] == 2 * found["spec_guard_hits"] > 0
    torch.manual_seed(0)
    free = Network(replace(FEW.config, guard=False)).double()
    seen = networks.measure_spec_guard(free, timeline, rows)
    assert seen["max_rho_dt_proposed"] > 1.0


def test_the_shipped_operator_is_described(timeline: scored_days.Days, laws: Laws) -> None:
    exam = HeldOut(FEW, laws, make_route(FEW).make_lesson)
    found = networks.describe_network(
        ModelEntry("operator", "operator"), timeline, np.array([2]), exam
    )
    assert found["parameters"] > 100_000
    assert found["max_rho_dt"] <= 1.0
    assert found["metrics"]["DualGap"] > 0.0


def test_windows_of_low_coverage_make_the_regression(
    timeline: scored_days.Days, laws: Laws, tmp_path: Path
) -> None:
    sizes = replace(FEW, config=replace(FEW.config, representer=True))
    pools = tmp_path / "pools"
    training_stage.ensure_trained(tmp_path / "run", sizes, pools, training_stage.SilentDisplay(2))
    blocks = [np.array([2, 3, 4]), np.array([5, 6, 7])]
    found = coverage_windows.regress_error_on_gap(tmp_path / "run", laws, timeline, blocks, 1)
    count = len(blocks) * len(coverage_windows.QUOTE_SHARES_KEPT)
    assert [len(found[name]) for name in ("block", "gap", "error", "coverage")] == [count] * 4
    assert found["count"] == count
    shares = np.array(found["coverage"]).reshape(2, -1)
    assert (np.diff(shares) < 0.0).all()  # fewer quotes, window by window
    assert (shares < 0.75).all()
    assert min(found["gap"]) > 0.0
    assert 0.0 < min(found["error"]) < max(found["error"]) < 1.0
    one = coverage_windows.regress_error_on_gap(tmp_path / "run", laws, timeline, blocks[:1], 1)
    assert one["error"] == found["error"][: len(one["error"])]


def test_fewer_quotes_are_among_the_more(quotes: Quotes) -> None:
    more, less = (coverage_windows.thin_quotes(quotes, kept, 1) for kept in (0.6, 0.3))
    assert set(zip(less.T, less.k, strict=True)) < set(zip(more.T, more.k, strict=True))
    assert len(coverage_windows.thin_quotes(quotes, 0.0, 1)) == 3
