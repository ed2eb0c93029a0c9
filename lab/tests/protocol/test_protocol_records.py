"""Results have the paper's fields, nulls a reason, files a checksum, and times one place."""

import json
import math
import platform
import re
import sys
from itertools import count as ticks
from pathlib import Path
from typing import Any

import pytest

from arbiter_lab.metrics.metric import Metric
from arbiter_lab.protocol.machine import (
    StageTimer,
    describe_machine,
    peak_memory,
    read_replicate,
    versions,
    write_replicate,
)
from arbiter_lab.protocol.manifest import (
    Discrepancy,
    check_manifest,
    read_manifest,
    sha256,
    write_manifest,
)
from arbiter_lab.protocol.results_file import (
    FIELDS,
    Difference,
    RecordError,
    as_run,
    check_run,
    find_differences,
    read_results,
    write_results,
)

# The reproducibility appendix of the paper, verbatim but for its backslashes.
APPENDIX = (
    "NAS, NI, CNAS, DualGap, Stability, SurfaceWasserstein, GenGap_p95, spec_guard_hits, "
    "projection_distance, max_rho_dt, ratio_log, enter_representer_at_step, coverage_min, "
    "coverage_mean, coverage_at_trigger, mfm_mse, martingale_residual, novik_to_kazamaki_rate, "
    "lambda_lip_before, lambda_lip_after, filter_rate, cnas_frozen_drop"
)


@pytest.fixture
def run() -> dict[str, Any]:
    """A run with two nulls, a variant, an interval."""
    measured = [Metric(name, 0.5) for name in FIELDS if name not in ("mfm_mse", "spec_guard_hits")]
    measured = [m for m in measured if m.name != "enter_representer_at_step"]
    return as_run(
        [*measured, Metric("spec_guard_hits", 69.0), Metric("NAS_inequalities", 1.0)],
        missing={
            "mfm_mse": "trained by the saddle route",
            "enter_representer_at_step": "coverage stayed above 0.75",
        },
        intervals={"NI": (0.25, 0.75)},
        about={"kind": "model", "seed": 3, "widths": [8, 16]},
    )


def test_fields_are_the_appendixs() -> None:
    assert ", ".join(FIELDS) == APPENDIX


def test_a_run_has_every_field_in_order_and_survives_the_file(
    run: dict[str, Any], tmp_path: Path
) -> None:
    assert tuple(run)[: len(FIELDS)] == FIELDS
    assert run["spec_guard_hits"] == 69
    assert isinstance(run["spec_guard_hits"], int)
    assert run["reason"]["mfm_mse"] == "trained by the saddle route"
    path = write_results(tmp_path / "results.json", {"operator": run, "fit": run})
    assert read_results(path) == {"operator": run, "fit": run}
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written beside it


def test_same_runs_same_bytes(run: dict[str, Any], tmp_path: Path) -> None:
    first = write_results(tmp_path / "a.json", {"operator": run}).read_bytes()
    again = write_results(tmp_path / "b.json", {"operator": json.loads(json.dumps(run))})
    assert first == again.read_bytes()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"NAS": None}, "NAS is null without a reason"),
        ({"NAS": math.nan}, "NAS is nan: give a finite number, or null and a reason"),
        ({"NAS": "0.98"}, "NAS is '0.98': give a finite number"),
        ({"NAS": True}, "NAS is True: give a finite number"),
        ({"NAS": 1.2}, "NAS is 1.2, outside [0, 1], where its definition puts it"),
        ({"coverage_min": -0.1}, "coverage_min is -0.1, outside [0, 1]"),
        ({"spec_guard_hits": 2.5}, "spec_guard_hits is 2.5: it is a whole number"),
        ({"nas": 0.98}, "nas is no field"),
        ({"CNAS_Convolved": 0.9}, "is it CNAS_convolved?"),
        ({"train_seconds": 3.0}, "train_seconds is a time: times belong to replicate.json"),
        ({"mfm_mse": 0.1}, "mfm_mse is 0.1 and has a reason to be null: drop the reason"),
        ({"intervals": {"NI": (0.6, 0.7)}}, "NI is 0.5, outside its own interval [0.6, 0.7]"),
        ({"intervals": {"NI": [0.6]}}, "the interval of NI is [0.6]: give two finite ends"),
        ({"intervals": {"mfm_mse": [0.0, 1.0]}}, "mfm_mse has an interval and no value"),
        ({"reason": {"mfm_mse": " "}}, "mfm_mse is null without a reason"),
        ({"about": {"stage": {"wall": 3}}}, "about.stage.wall is a time"),
        ({"about": {"rate": math.inf}}, "about.rate is inf: JSON has finite numbers only"),
        ({"about": {"path": [Path()]}}, "about.path[0] is PosixPath: give plain JSON values"),
        ({"reason": []}, "reason is []: give a mapping"),
    ],
)
def test_planted_faults_are_named(
    run: dict[str, Any], change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RecordError, match=re.escape(problem)):
        check_run("operator", {**run, **change})


def test_absent_field_is_named(run: dict[str, Any]) -> None:
    del run["ratio_log"]
    with pytest.raises(RecordError, match="ratio_log is absent: give its value, or null and a rea"):
        check_run("operator", run)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(RecordError) as caught:
        check_run("empty", {})
    assert len(caught.value.problems) == len(FIELDS)
    assert "and 14 more" in str(caught.value)


def test_a_field_is_measured_or_missing() -> None:
    with pytest.raises(RecordError, match=r"NAS is 1\.0 and missing"):
        as_run([Metric("NAS", 1.0)], missing={"NAS": "why"})


def test_variants_and_worst_days_are_known(run: dict[str, Any]) -> None:
    more = {"worst_day_iv_rmse_bp": 9.0, "NAS_as_printed": 0.98, "lambda_lip_after_float32": 0.7}
    check_run("operator", {**run, **more})


def test_nothing_is_written_if_a_run_is_wrong(run: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with pytest.raises(RecordError, match="broken: 1 problems"):
        write_results(path, {"fine": run, "broken": {**run, "NAS": 2.0}})
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1", "it is not JSON"),
        ("{}", "does not say that its format"),
        ('{"format": "arbiter-results", "version": 9}', "reads up to 1"),
        ('{"format": "arbiter-results", "version": 1, "runs": {}}', "it has no runs"),
        ('{"format": "arbiter-results", "version": 1, "runs": {"a": 3}}', "run 'a'"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_results(path)


def test_second_run_is_compared_within_intervals(run: dict[str, Any]) -> None:
    assert find_differences({"a": run}, {"a": run}) == []
    within = {**run, "NI": 0.7}
    assert find_differences({"a": run}, {"a": within}) == []
    beyond = {**run, "NI": 0.8, "CNAS": 0.5 + 1e-15, "mfm_mse": 0.1}
    assert find_differences({"a": run}, {"a": beyond}) == [
        Difference("a", "NI", 0.5, 0.8),
        Difference("a", "CNAS", 0.5, 0.5 + 1e-15),
        Difference("a", "mfm_mse", None, 0.1),
    ]
    assert len(find_differences({"a": run}, {})) == len(FIELDS) + 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "figures").mkdir()
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / "figures" / "core.png").write_bytes(b"\x89PNG")
    (tmp_path / "replicate.json").write_text("1 second")
    write_manifest(tmp_path, commands=["arbiter reproduce --profile smoke"])
    return tmp_path


def test_manifest_names_every_file_and_command(folder: Path) -> None:
    whole = read_manifest(folder)
    assert list(whole["files"]) == ["figures/core.png", "results.json"]
    # of the two bytes {}, by coreutils' sha256sum
    known = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert whole["files"]["results.json"] == {"sha256": known, "bytes": 2}
    assert sha256(folder / "results.json") == known
    assert whole["commands"] == ["arbiter reproduce --profile smoke"]
    assert whole["varies"] == ["replicate.json"]
    assert check_manifest(folder) == []


def test_times_may_differ_and_nothing_else(folder: Path) -> None:
    (folder / "replicate.json").write_text("2 seconds")
    assert check_manifest(folder) == []
    before = (folder / "manifest.json").read_bytes()
    write_manifest(folder, commands=["arbiter reproduce --profile smoke"])
    assert (folder / "manifest.json").read_bytes() == before


def test_planted_changes_are_found(folder: Path) -> None:
    (folder / "results.json").write_text("{ }")
    (folder / "figures" / "core.png").unlink()
    (folder / "notes.txt").write_text("mine")
    (folder / "replicate.json").unlink()
    assert check_manifest(folder) == [
        Discrepancy("figures/core.png", "missing"),
        Discrepancy("notes.txt", "extra"),
        Discrepancy("replicate.json", "missing"),
        Discrepancy("results.json", "changed"),
    ]


def test_folders_without_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no files"):
        write_manifest(tmp_path)
    with pytest.raises(ValueError, match=r"manifest\.json is not there"):
        check_manifest(tmp_path)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match=r"replicate\.json is said to vary and is not there"):
        write_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="does not say that its format"):
        check_manifest(tmp_path)


def test_replicate_says_where_with_what_and_how_long(tmp_path: Path) -> None:
    clock = ticks(10)
    stages = StageTimer(clock=lambda: float(next(clock)))
    with stages.time_stage("simulate"):
        pass
    with stages.time_stage("train"):
        next(clock)
    fold = {"fold": 2, "train": [0, 9], "validate": [10, 19], "windows": [[20, 29]]}
    path = write_replicate(
        tmp_path / "replicate.json", stages, seeds={"data": 0, "training": 1}, splits=[fold]
    )
    whole = read_replicate(path)
    assert whole["stages"]["simulate"].seconds == 1.0
    assert whole["stages"]["train"].seconds == 2.0
    assert whole["seconds"] == 3.0
    assert whole["first_try"] is True
    assert whole["seeds"] == {"data": 0, "training": 1}
    assert whole["splits"] == [fold]
    assert whole["hardware"]["cpu"]
    assert whole["packages"]["numpy"]
    assert "OMP_NUM_THREADS" in whole["environment"]


def test_a_stage_that_failed_is_not_a_first_try(tmp_path: Path) -> None:
    stages = StageTimer()
    with pytest.raises(RuntimeError), stages.time_stage("train"):
        raise RuntimeError("out of memory")
    assert not stages.done["train"].finished
    assert not stages.first_try
    path = write_replicate(tmp_path / "replicate.json", stages, seeds={})
    resumed = StageTimer(read_replicate(path)["stages"])
    with resumed.time_stage("train"):
        pass
    assert (resumed.done["train"].attempts, resumed.done["train"].finished) == (2, True)
    assert not resumed.first_try
    assert not StageTimer().first_try  # nothing was tried


def test_replicate_names_no_person_and_no_place() -> None:
    text = json.dumps(describe_machine())
    assert str(Path(__file__).parent) not in text
    assert platform.node() == "" or f'"{platform.node()}"' not in text


def test_a_machine_without_torch_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert describe_machine()["hardware"]["gpu"] == []


def test_versions_are_those_that_run_here() -> None:
    import numpy as np

    assert versions()["numpy"] == np.__version__
    assert "pytest" not in versions()


def test_peak_memory_is_in_bytes() -> None:
    found = peak_memory()
    assert found is None or found > 10_000_000


def test_values_that_are_not_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be plain JSON values"):
        write_replicate(tmp_path / "r.json", StageTimer(), seeds={}, protocol={"x": Path()})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "r.json").write_text("no")
    with pytest.raises(ValueError, match="no file of the format"):
        read_replicate(tmp_path / "r.json")
