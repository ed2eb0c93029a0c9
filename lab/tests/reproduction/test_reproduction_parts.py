"""Parts of the reproduction on cases known by hand: stages, leaks, verdicts, tables, display."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.protocol.machine import StageTimer
from arbiter_lab.reproduction import (
    claims,
    external_stage,
    full_size_stage,
    scored_days,
    sweep_stage,
    training_stage,
)
from arbiter_lab.reproduction.display import Display
from arbiter_lab.reproduction.metrics_stage import compare_with_others
from arbiter_lab.reproduction.models import Checkpoints, list_checkpointed
from arbiter_lab.reproduction.number_format import format_percent, format_score
from arbiter_lab.reproduction.profiles import FULL, PAPER, PROFILES, SMOKE, Profile, find_profile
from arbiter_lab.reproduction.stages import Stage, StageContext, run_stages, to_json_values
from arbiter_lab.reproduction.stress_stage import select_severities
from arbiter_lab.reproduction.text_tables import TextTable, escape_latex
from arbiter_lab.reproduction.verdicts import (
    ClaimVerdict,
    describe_ablation,
    describe_paired_test,
    judge_claim,
)
from arbiter_lab.reproduction.workers import run_in_order
from arbiter_lab.training.loop import TrainingOutcome
from arbiter_lab.training.run_folder import WEIGHTS_FILE
from arbiter_lab.training.stopping_rule import Ending


def context(out: Path, sizes: Profile = SMOKE) -> StageContext:
    return StageContext(out, sizes, Checkpoints(out / "nets"), None, lambda *_: None)


def test_a_stage_runs_again_when_its_inputs_change_and_only_then(tmp_path: Path) -> None:
    ran: list[str] = []

    def first(given: StageContext) -> dict[str, Any]:
        ran.append("first")
        return {"days": given.profile.days}

    def second(given: StageContext) -> dict[str, Any]:
        ran.append("second")
        return {"twice": 2 * given.read_facts("first")["days"]}

    stages = [Stage("first", (), ("days",), first), Stage("second", ("first",), (), second)]
    assert run_stages(context(tmp_path), stages, StageTimer()) == ["first", "second"]
    assert run_stages(context(tmp_path), stages, StageTimer()) == []
    same = replace(SMOKE, heston=9)  # neither depends on it
    assert run_stages(context(tmp_path, same), stages, StageTimer()) == []
    more = replace(SMOKE, days=40)
    assert run_stages(context(tmp_path, more), stages, StageTimer()) == ["first", "second"]
    assert ran == ["first", "second"] * 2
    assert json.loads((tmp_path / "stages" / "second.json").read_text()) == {"twice": 80}


def test_a_stage_that_fails_is_not_done(tmp_path: Path) -> None:
    outcome = iter([ValueError("first time"), None])

    def shaky(_: StageContext) -> dict[str, Any]:
        error = next(outcome)
        if error is not None:
            raise error
        return {}

    stages, clock = [Stage("shaky", (), (), shaky)], StageTimer()
    with pytest.raises(ValueError, match="first time"):
        run_stages(context(tmp_path), stages, clock)
    assert run_stages(context(tmp_path), stages, clock) == ["shaky"]
    assert clock.done["shaky"].attempts == 2


def test_facts_have_no_number_that_json_lacks() -> None:
    given = {"a": np.array([1.0, np.nan]), "b": (np.int64(2), float("inf"))}
    assert to_json_values(given) == {"a": [1.0, None], "b": [2, None]}


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> scored_days.Days:
    out = tmp_path_factory.mktemp("days")
    small = replace(SMOKE, days=8, blocks=4, embargo=0, elsewhere=())
    given = replace(context(out, small), name="days", key="0" * 16)
    facts = scored_days.make_days(given)
    assert facts["leaks"] == []
    return scored_days.read_days(given.folder / small.market)


def test_the_grid_lies_within_what_is_listed(timeline: scored_days.Days) -> None:
    assert np.nanmin(timeline.T) < scored_days.MATURITIES[0]
    assert np.nanmax(timeline.T) > scored_days.MATURITIES[-1]
    assert timeline.calls.shape == (8, scored_days.MATURITIES.size, scored_days.KAPPA.size)
    assert (np.diff(timeline.calls, axis=1) > 0.0).all()  # the oracle's calls rise in T


def test_a_day_that_is_copied_into_training_is_found(timeline: scored_days.Days) -> None:
    fold = scored_days.make_folds(replace(SMOKE, days=8, blocks=4, embargo=0))[0]
    assert scored_days.find_fold_leaks(fold, timeline) == []
    late = timeline.quotes[int(fold.test[-1])]
    planted = replace(timeline, quotes=(late, *timeline.quotes[1:]))
    assert {leak.kind for leak in scored_days.find_fold_leaks(fold, planted)} == {"copy"}


def test_profiles_are_what_the_command_offers() -> None:
    assert set(PROFILES) == {"smoke", "paper", "full"}
    assert SMOKE.days < PAPER.days < FULL.days
    assert FULL.full is not None
    assert PAPER.full is None
    with pytest.raises(ValueError, match="not one of smoke, paper, full"):
        find_profile("large")
    with pytest.raises(ValueError, match="blocks = 3"):
        replace(SMOKE, blocks=3)
    with pytest.raises(ValueError, match="the base run"):
        replace(SMOKE, rates=(2.0,))
    json.dumps(FULL.to_dict(), allow_nan=False)


def test_levels_of_stress_keep_both_ends() -> None:
    assert select_severities((0.0, 1.0, 2.0, 4.0, 8.0), 3) == [0.0, 2.0, 8.0]
    assert select_severities((0.0, 1.0, 2.0), 9) == [0.0, 1.0, 2.0]


def run_with(value: float | None, ends: tuple[float, float] | None = None) -> dict[str, Any]:
    reasons = {"NAS": "it was not run"} if value is None else {}
    return {"NAS": value, "reason": reasons, "intervals": {} if ends is None else {"NAS": ends}}


def test_verdicts_say_what_the_numbers_say() -> None:
    claim = claims.find_table_1_claim("NAS")
    assert claim is not None
    best = judge_claim(claim, run_with(1.0, (1.0, 1.0)))
    assert best == (ClaimVerdict.CORRECTED, "ours is the best possible value")
    assert judge_claim(claim, run_with(0.98)) == (
        ClaimVerdict.FAILS,
        "ours is worse than the paper's",
    )
    inside = judge_claim(claim, run_with(0.99, (0.98, 0.995)))
    assert inside == (ClaimVerdict.HOLDS, "our interval contains the paper's value")
    assert judge_claim(claim, run_with(None)) == (
        ClaimVerdict.UNTESTABLE, "not measured: it was not run"
    )  # fmt: skip
    hidden = replace(claim, untestable="its market is not published")
    assert judge_claim(hidden, run_with(0.98)) == (
        ClaimVerdict.UNTESTABLE, "its market is not published; ours is below the paper's"
    )  # fmt: skip


def test_a_difference_counts_after_holm_only() -> None:
    rng = np.random.default_rng(3)
    base = 5.0 + rng.standard_normal(60)
    daily = {
        "ours": base,
        "worse": base + 1.0 + 0.3 * rng.standard_normal(60),
        "same": base + 0.3 * rng.standard_normal(60),
        "broken": np.where(np.arange(60) == 7, np.nan, base),
    }
    tests = compare_with_others("ours", daily, ["worse", "same", "broken"])
    assert describe_paired_test(tests, "worse").startswith("lower error")
    assert describe_paired_test(tests, "same").startswith("no difference")
    assert "no error on 1 of 60 days" in describe_paired_test(tests, "broken")
    assert describe_ablation(tests, "worse").startswith("worse (Holm p")
    assert describe_ablation(tests, "same").startswith("no difference shown")
    assert describe_paired_test(tests, "absent") == "not tested: it is missing"


def test_scores_are_rounded_down() -> None:
    assert format_score(1.0) == "1"
    assert format_score(0.9999999) == "0.99999"
    assert format_percent(0.99999) == "99.99 %"
    assert format_percent(1.0) == "100 %"
    assert format_score(None) == format_percent(None) == "–"


def test_tables_are_escaped() -> None:
    grid = TextTable("t", "50 % of A_B", ("a", "b"), [("x|y", "1 & 2 → {3}")], "note_1")
    assert r"x\|y" in grid.markdown()
    assert r"1 \& 2 $\to$ \{3\}" in grid.latex()
    assert escape_latex("50 % of A_B") == r"50 \% of A\_B"
    with pytest.raises(ValueError, match="a row of 1 under 2 heads"):
        TextTable("t", "", ("a", "b"), [("x",)])


def test_claims_carry_their_source() -> None:
    every = [*claims.TABLE_1, *claims.TABLE_1_VALIDATION, *claims.STRESS, *claims.DIMENSIONS,
             *claims.MONITORS, *claims.EXTERNAL, *claims.CONTRACTION,
             *(c for some in claims.ABLATIONS.values() for c in some)]  # fmt: skip
    assert all(900 < claim.line < 1200 and claim.where for claim in every)
    printed = [c for c in claims.TABLE_1 if c.low is not None and c.high is not None]
    ends = {c.what: (c.low or 0.0, c.high or 0.0) for c in printed}
    outside = [c.what for c in printed if not ends[c.what][0] <= c.value <= ends[c.what][1]]
    assert outside == ["DualGap", "GenGap_p95"]  # the paper's own, and each says so


def test_claims_are_on_the_lines_that_they_name(data_dir: Path) -> None:
    source = data_dir.parent / "paper" / "arbiter.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not beside the data")
    lines = source.read_text(encoding="utf-8").splitlines()
    for claim in (*claims.TABLE_1, *claims.MONITORS, *claims.STRESS, *claims.DIMENSIONS):
        digits = f"{claim.value:.10f}".rstrip("0").rstrip(".")
        assert digits in lines[claim.line - 1], claim


def test_intervals_of_independent_days_hold_what_they_say() -> None:
    found = sweep_stage.simulate_interval_coverage(days=80, series=200)
    assert abs(found["cosine"][0] - 0.95) < 0.05
    assert found["paper"][-1] < 0.7  # the paper's lag is too short for persistent days


def test_progress_is_told_in_lines_where_there_is_no_terminal() -> None:
    stream, ticks = io.StringIO(), count(0.0, 20.0)
    with Display(2, stream=stream, clock=lambda: next(ticks)) as display:
        display.announce_stage("days", False)
        for done in range(4):
            display.tell("timeline", done, 4)
        display.announce_stage("train", True)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "stage 1 of 2, days: begins"
    assert lines[-1] == "stage 2 of 2, train: done already"
    assert 1 <= sum("timeline" in line for line in lines) < 4
    silent = io.StringIO()
    Display(1, stream=silent, silent=True).announce_stage("days", False)
    assert silent.getvalue() == ""


def test_several_workers_give_what_one_gives() -> None:
    heard: list[int] = []
    parts = [(3,), (1,), (2,)]
    assert run_in_order(math.factorial, parts, 2, heard.append) == [6, 1, 2]
    assert heard[0] == 0
    assert heard[-1] == 3
    assert run_in_order(math.factorial, parts, 1, heard.append) == [6, 1, 2]
    with pytest.raises(ValueError, match="factorial"):
        run_in_order(math.factorial, [(1,), (-1,)], 1, heard.append)


def test_an_interrupted_training_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = TrainingOutcome(Ending.INTERRUPTED, 3, 3, 0.0, {}, tmp_path)
    monkeypatch.setattr(training_stage, "train", lambda *_, **__: ended)
    with pytest.raises(KeyboardInterrupt):
        training_stage.ensure_trained(
            tmp_path / "run", SMOKE.small, tmp_path, training_stage.SilentDisplay(8)
        )


@pytest.mark.parametrize(
    ("ended", "again"),
    [("interrupted", True), ("", True), ("time", True), ("budget", False), ("converged", False)],
)
def test_only_a_training_that_ended_by_itself_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str, again: bool
) -> None:
    trained: list[Path] = []

    def train(_: object, place: Path, *__: object, **___: object) -> TrainingOutcome:
        trained.append(place)
        return TrainingOutcome(Ending.BUDGET, 8, 8, 0.0, {}, place)

    monkeypatch.setattr(training_stage, "train", train)
    monkeypatch.setattr(training_stage, "read_settings", lambda _: SMOKE.small)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"ended": ended}))
    training_stage.ensure_trained(
        tmp_path / "run", SMOKE.small, tmp_path, training_stage.SilentDisplay(8)
    )
    assert bool(trained) == again


def test_full_size_networks_are_left_with_their_checksums(tmp_path: Path) -> None:
    budget = replace(SMOKE.small, pool=8, held_out=6, steps=2, decay=1, measure_every=2)
    hours = replace(SMOKE, full=budget, ablations=("icnn",), baselines=("gru",))
    given = replace(context(tmp_path, hours), name="checkpoints", key="0" * 16)
    facts = full_size_stage.make_checkpoints(given)
    assert set(facts["runs"]) == {"matched", "icnn", "gru"}
    found = {entry.name: entry for entry in list_checkpointed(given.checkpoints)}
    there = {name for name, entry in found.items() if not entry.missing}
    assert there == {"matched", "icnn", "icnn_unprojected", "gru"}
    assert given.checkpoints.collect_checksums().keys() == {"operator", "matched", "icnn", "gru"}
    assert [found[name].promises for name in ("matched", "icnn", "gru")] == [True, True, False]
    quotes = heston_case(0).quotes
    for name in there:
        model = found[name].method().solve([quotes])[0]
        assert model.iv(np.array(0.0), np.array(0.5)).shape == ()
    assert full_size_stage.make_checkpoints(context(tmp_path))["runs"] == {}


def test_a_network_at_full_size_that_diverges_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(_: object, place: Path, *__: object, **___: object) -> TrainingOutcome:
        if place.name == "matched":
            raise FloatingPointError("a loss was not finite")
        (place / "step-0000002").mkdir(parents=True)
        (place / "step-0000002" / WEIGHTS_FILE).write_bytes(b"weights")
        return TrainingOutcome(Ending.BUDGET, 2, 2, 0.0, {}, place)

    monkeypatch.setattr(training_stage, "train", train)
    hours = replace(SMOKE, full=SMOKE.small, ablations=("icnn",), baselines=())
    given = replace(context(tmp_path, hours), name="checkpoints", key="0" * 16)
    runs = full_size_stage.make_checkpoints(given)["runs"]
    assert runs["matched"]["reason"] == "its training diverged: a loss was not finite"
    assert "sha256" in runs["icnn"]
    assert given.checkpoints.files.keys() == {"icnn"}


def test_external_validity_without_a_model_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_stage, "select_entries", lambda *_: [])
    monkeypatch.setattr(StageContext, "folder_of", lambda given, stage: given.out / stage)
    found = external_stage.make_external(replace(context(tmp_path), name="external"))
    assert found["timelines"] == found["benchmarks"] == {}
    assert found["chains"]["rows"] == []


def test_a_training_that_diverges_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object, **__: object) -> TrainingOutcome:
        raise FloatingPointError("a loss was not finite")

    monkeypatch.setattr(training_stage, "train", train)
    found = training_stage.train_small(tmp_path / "run", SMOKE.small, tmp_path)
    assert found["reason"] == "its training diverged: a loss was not finite"
    few = replace(SMOKE.small, pool=8, held_out=6)
    sizes = replace(SMOKE, small=few, ablations=(), baselines=(), budgets=())
    given = replace(context(tmp_path, sizes), name="train", key="0" * 16)
    every = training_stage.make_trainings(given)["runs"]
    assert all(run["diverged"] for run in every.values())  # the base too: nothing stops
