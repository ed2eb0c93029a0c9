"""The whole protocol at its smallest: it ends, goes on, and repeats itself to the byte."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from arbiter import example_chain
from arbiter.cli import app
from arbiter_lab.protocol.manifest import check_manifest
from arbiter_lab.protocol.results_file import FIELDS, read_results
from arbiter_lab.reproduction import metrics_stage, publication
from arbiter_lab.reproduction.check_results import check
from arbiter_lab.reproduction.models import (
    Checkpoints,
    list_checkpointed,
    write_checkpoint_manifest,
)
from arbiter_lab.reproduction.paper_page import NO_RUN_TEXT, fill_page, find_requested_results
from arbiter_lab.reproduction.profiles import BASELINES, SMOKE
from arbiter_lab.reproduction.publication import publish
from arbiter_lab.reproduction.query_models import solve_chains
from arbiter_lab.reproduction.result_files import CAPTIONS
from arbiter_lab.reproduction.run_protocol import STAGE_NAMES, STAGES, reproduce
from arbiter_lab.reproduction.stages import read_record
from arbiter_lab.reproduction.stated_claims import list_sections
from arbiter_lab.training import loop
from arbiter_lab.training.settings import ABLATIONS

DOCS = Path(__file__).parents[3] / "docs"

TINY = replace(
    SMOKE,
    days=8,
    elsewhere_days=1,
    embargo=0,
    judge_every=4,
    small=replace(SMOKE.small, pool=8, held_out=6, steps=4, decay=1, measure_every=1, save_every=4),
    ablations=("gate_off", "icnn", "representer"),
    baselines=("gru",),
    seeds=(0,),
    rates=(1.0,),
    budgets=(),
    methods=("operator", "fit", "ssvi"),
    stress_axes=("noise", "coverage"),
    stress_levels=2,
    stress_cases=1,
    heston=1,
    unseen=0,
    windows=2,
    paths=48,
    series=20,
)

NONE = Checkpoints(Path("nowhere"))  # as if nothing at full size had been trained


@pytest.fixture(scope="module", autouse=True)
def _one_revision() -> Iterator[None]:
    """A commit between two runs is another revision in the ledger, and no other difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "find_revision", lambda: "test")
        yield


class _KilledError(Exception):
    pass


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from nothing to the end."""
    out = tmp_path_factory.mktemp("straight") / "results"
    outcome = reproduce(TINY, out, checkpoints=NONE, workers=1)
    assert outcome.complete
    assert outcome.ran == STAGE_NAMES
    return out


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was ended after a stage, killed in another, and gone on with."""
    out = tmp_path_factory.mktemp("resumed") / "results"
    first = reproduce(TINY, out, checkpoints=NONE, last="train", workers=1)
    assert first.ran == ("days", "train")
    assert not first.complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics_stage, "compare", _killed)
        with pytest.raises(_KilledError):
            reproduce(TINY, out, checkpoints=NONE, workers=1)
    assert read_record(out, "evaluate") is not None
    assert read_record(out, "measure") is None
    last = reproduce(TINY, out, checkpoints=NONE, workers=1)
    assert last.ran == STAGE_NAMES[STAGE_NAMES.index("measure") :]
    return out


def _killed(*_: Any, **__: Any) -> None:
    raise _KilledError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *(str(argument) for argument in arguments)])


def test_a_resumed_run_gives_the_same_bytes(straight: Path, resumed: Path) -> None:
    for path in sorted(straight.rglob("*")):
        inside = path.relative_to(straight)
        if path.is_file() and inside.parts[0] != ".cache" and path.name != "replicate.json":
            assert path.read_bytes() == (resumed / inside).read_bytes(), inside
    first = json.loads((straight / "replicate.json").read_text())
    second = json.loads((resumed / "replicate.json").read_text())
    assert first["first_try"]
    assert not second["first_try"]
    assert second["stages"]["measure"]["attempts"] == 2


def test_every_run_has_every_field_or_a_reason(straight: Path) -> None:
    runs = read_results(straight / "results.json")
    for name, values in runs.items():
        for field in FIELDS:
            assert values[field] is not None or values["reason"][field], (name, field)
    assert runs["operator"]["NAS"] == 1.0
    assert runs["small"]["spec_guard_hits"] >= 0
    for name in ("spec_guard_hits", "max_rho_dt", "Stability", "NI_invariance"):
        assert runs["operator"][name] is not None, name
    assert 0.0 < runs["fit"]["NI_invariance"] <= 1.0
    assert runs["fit"]["inside_bid_ask_unseen"] > 0.5
    assert runs["small_icnn"]["NAS"] == 1.0  # after its projection
    assert "small_icnn_unprojected" in runs
    beside = runs["fit"]["about"]["intervals_paper"]["iv_rmse_bp"]
    assert beside != runs["fit"]["intervals"]["iv_rmse_bp"]
    assert runs["operator"]["iv_rmse_bp"] < runs["ssvi"]["iv_rmse_bp"]


def test_models_that_are_not_there_are_named_and_not_made_up(straight: Path) -> None:
    runs = read_results(straight / "results.json")
    told = json.loads((straight / "stages" / "evaluate.json").read_text())["models"]
    absent = [name for name, about in told.items() if "reason" in about]
    assert {"gate_off", "transformer", "mfm"} <= set(absent)
    page = (straight / "report.html").read_text(encoding="utf-8")
    for name in absent:
        assert runs[name]["NAS"] is None
        assert (
            "checkpoint" in runs[name]["reason"]["NAS"] or "not in" in runs[name]["reason"]["NAS"]
        )
        assert runs[name]["about"]["missing"]
    assert "no checkpoint of" in page


def test_every_network_of_the_protocol_ships_and_answers() -> None:
    shipped = list_checkpointed(Checkpoints())
    assert [entry.name for entry in shipped if entry.missing] == []
    assert {entry.name for entry in shipped} >= {"matched", *ABLATIONS, *BASELINES}
    quotes = example_chain().quotes()
    few = quotes.select(quotes.expiry < 3)
    for entry in shipped:
        (model,) = solve_chains(entry.method(), [few])
        assert not isinstance(model, str), f"{entry.name}: {model}"


def test_a_finished_run_is_not_run_again(straight: Path) -> None:
    before = (straight / "manifest.json").read_bytes()
    again = reproduce(TINY, straight, checkpoints=NONE, last="portrait", workers=1)
    assert again.ran == ()
    assert (straight / "manifest.json").read_bytes() == before


def test_what_a_reader_opens_is_whole(straight: Path) -> None:
    page = (straight / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']\s*(https?:|//)""", page)
    assert page.count("data:image/png;base64,") == len(CAPTIONS)
    for name in CAPTIONS:
        assert (straight / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for name in ("table1", "models", "ablations", "stress"):
        assert (straight / "tables" / f"{name}.md").stat().st_size > 200
        assert "\\begin{table}" in (straight / "tables" / f"{name}.tex").read_text()
    ledger = (straight / "sweeps.csv").read_text(encoding="utf-8").splitlines()
    assert "seconds" not in ledger[0].split(",")
    assert len(ledger) > 4


def test_a_run_is_kept_with_its_page(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = (tmp_path / "paper.md", tmp_path / "notebook" / "paper.md")
    for page in pages:
        page.parent.mkdir(exist_ok=True)
        shutil.copy(DOCS / page.relative_to(tmp_path), page)
    kept = publish(straight, tmp_path / "results", pages)
    assert check(kept).passed
    text = pages[0].read_text(encoding="utf-8")
    assert fill_page(text, kept) == text
    sections = [name.split(" ")[1] for name in find_requested_results(text) if " " in name]
    assert sections == list(list_sections())
    text = pages[1].read_text(encoding="utf-8")
    assert NO_RUN_TEXT not in text
    assert fill_page(text, kept, "../results") == text
    assert "![Error by maturity and moneyness](../results/figures/error-by-cell.png)" in text
    assert (kept / "tables" / "table1.md").read_text().splitlines()[2] in text
    assert {name for name in find_requested_results(text) if " " not in name} == {
        "run", *(path.stem for path in (kept / "tables").glob("*.md"))
    }  # fmt: skip
    assert publish(straight, kept, pages) == kept  # again, in its place
    monkeypatch.setattr(publication, "MAX_TOTAL_BYTES", 1_000)
    with pytest.raises(ValueError, match=r"1,000 are allowed: the largest is report\.html"):
        publish(straight, kept, pages)
    (kept / "note.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not as it was written"):
        publish(kept, tmp_path / "again", pages)
    with pytest.raises(ValueError, match=r"absent\.md is not there"):
        fill_page("<!-- results: absent -->\n<!-- end of results -->", kept)


def test_the_page_of_the_paper_has_the_numbers_of_the_run_that_is_kept() -> None:
    kept = DOCS / "results"
    assert check(kept).passed
    for name, link in (("paper.md", "results"), ("notebook/paper.md", "../results")):
        text = (DOCS / name).read_text(encoding="utf-8")
        assert fill_page(text, kept, link) == text
        assert NO_RUN_TEXT in fill_page(text, None)
    folders = (DOCS.parent / "tests", DOCS.parent / "lab" / "tests")
    files = [path for folder in folders for path in folder.rglob("test_*.py")]
    tests = "\n".join(path.read_text("utf-8") for path in files)
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_tampering_is_found(straight: Path, tmp_path: Path) -> None:
    assert check(straight).passed
    copy = tmp_path / "copy"
    shutil.copytree(straight, copy, ignore=shutil.ignore_patterns(".cache"))
    assert check(copy).passed
    text = (copy / "results.json").read_text(encoding="utf-8")
    (copy / "results.json").write_text(text.replace('"NAS": 1.0', '"NAS": 0.99', 1))
    (copy / "tables" / "models.md").unlink()
    (copy / "note.txt").write_text("mine")
    kinds = {found.path: found.kind for found in check(copy).files}
    assert kinds == {"results.json": "changed", "tables/models.md": "missing", "note.txt": "extra"}
    shown = run("--check", copy)
    assert shown.exit_code == 1
    assert "results.json is changed" in shown.output


def test_a_second_run_is_compared_within_the_intervals(
    straight: Path, resumed: Path, tmp_path: Path
) -> None:
    same = check(straight, resumed)
    assert same.passed
    assert same.same_bytes
    assert same.compared > 100
    other = tmp_path / "other"
    other.mkdir()
    whole = json.loads((straight / "results.json").read_text(encoding="utf-8"))
    values = whole["runs"]["operator"]
    low, high = values["intervals"]["iv_rmse_bp"]
    values["iv_rmse_bp"] = 0.5 * (low + high)
    values["intervals"].pop("iv_rmse_bp")
    (other / "results.json").write_text(json.dumps(whole))
    inside = check(straight, other)
    assert inside.passed
    assert inside.same_bytes is False
    values["iv_rmse_bp"] = 2.0 * high
    (other / "results.json").write_text(json.dumps(whole))
    found = check(straight, other).differences
    assert [(d.run, d.name) for d in found] == [("operator", "iv_rmse_bp")]


def test_a_damaged_stage_is_made_again(resumed: Path) -> None:
    path = resumed / "stages" / "portrait.json"
    sound = path.read_bytes()
    path.write_text("{}")
    outcome = reproduce(TINY, resumed, checkpoints=NONE, workers=1)
    assert outcome.ran == ("portrait",)
    assert path.read_bytes() == sound
    assert check_manifest(resumed) == []


def test_a_folder_of_another_profile_is_refused(straight: Path) -> None:
    with pytest.raises(ValueError, match="profile 'smoke', not 'other'"):
        reproduce(replace(TINY, name="other"), straight)


def test_a_checkpoint_takes_its_place(straight: Path, tmp_path: Path) -> None:
    facts = json.loads((straight / "stages" / "train.json").read_text())["runs"]["small_gate_off"]
    weights = next((straight / ".cache" / "train").glob(f"*/small_gate_off/{facts['weights']}"))
    shutil.copy(weights, tmp_path / "gate_off.safetensors")
    write_checkpoint_manifest(tmp_path, ["gate_off"])
    found = {entry.name: entry for entry in list_checkpointed(Checkpoints(tmp_path))}
    assert not found["gate_off"].missing
    assert found["gate_off"].method().promises
    assert found["mfm"].missing
    with pytest.raises(ValueError, match="mfm is missing: no checkpoint"):
        found["mfm"].method()
    with (tmp_path / "gate_off.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="checksum differs"):
        list_checkpointed(Checkpoints(tmp_path))


def test_the_command_refuses_what_makes_no_sense(straight: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (("--profile", "tiny", "--out", tmp_path / "a"), "profile 'tiny' is not one of"),
        (("--profile", "smoke", "--stage", "bake", "--out", tmp_path / "b"), "stage 'bake' is not"),
        (("--check", tmp_path / "c"), "is not a folder"),
        (("--check", tmp_path), "manifest.json is not there"),
        (("--check", straight, "--out", straight), "is the folder that is checked"),
        (("--check", straight, "--stage", "days"), "leave it out"),
        (("--check", straight, "--out", tmp_path / "d", "--profile", "full"), "profile 'smoke'"),
        (("--checkpoints", tmp_path / "e"), "is not a folder"),
    ):
        shown = run(*arguments)
        assert shown.exit_code == 2, arguments
        assert said in shown.output
    shown = run("--check", straight, "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["passed"]


def test_stages_come_after_what_they_need() -> None:
    seen: set[str] = set()
    for stage in STAGES:
        assert set(stage.needs) <= seen, stage.name
        seen.add(stage.name)
