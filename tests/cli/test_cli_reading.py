"""Options that say how a chain is read: its calendar, and expiries that are left out."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter.cli import app
from arbiter.data import example_chain_path
from arbiter.pricing import black

CHAIN = example_chain_path()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200"})


def fit_to(out: Path, *arguments: str) -> dict[str, Any]:
    done = invoke("fit", "--no-report", "--out", str(out), *arguments)
    assert done.exit_code == 0, done.output
    told = json.loads((out / "fit.json").read_text())
    assert isinstance(told, dict)
    return told | {"printed": done.stdout}


@pytest.fixture(scope="module")
def quotes() -> ab.Quotes:
    return ab.read_chain(CHAIN).quotes()


def test_dropped_expiries_are_left_out_and_said_to_be(quotes: ab.Quotes, tmp_path: Path) -> None:
    gone = [quotes.labels[1], quotes.labels[3]]
    told = fit_to(tmp_path / "out", str(CHAIN), "--drop", gone[0], "--drop", gone[1])
    dropped = [one for one in told["expiries_left_out"] if one["ending"] == "dropped"]
    assert [one["label"] for one in dropped] == gone
    assert told["exclusions"]["dropped"] == sum(one["quotes"] for one in dropped)
    assert f"dropped: {gone[0]}, {gone[1]}" in told["printed"]
    surface = ab.Surface.load(tmp_path / "out" / "surface.npz")
    assert [one.label for one in surface.expiries] == [x for x in quotes.labels if x not in gone]
    assert np.array_equal(surface.slopes, ab.fit(quotes, drop=gone).slopes)
    # the control: nothing is dropped unless it is asked for
    whole = fit_to(tmp_path / "whole", str(CHAIN))
    assert all(one["ending"] != "dropped" for one in whole["expiries_left_out"])
    assert whole["run"] != told["run"]


def test_chains_of_a_folder_drop_too_and_one_that_has_no_such_expiry_is_refused(
    quotes: ab.Quotes, tmp_path: Path
) -> None:
    folder, out, label = tmp_path / "chains", tmp_path / "out", quotes.labels[2]
    folder.mkdir()
    shutil.copy(CHAIN, folder / "whole.csv")
    code = label[2:10].replace("-", "")
    lines = CHAIN.read_text().splitlines(keepends=True)
    (folder / "without.csv").write_text("".join(x for x in lines if f"{code}C" not in x))
    done = invoke("fit", str(folder), "--no-report", "--out", str(out), "--drop", label)
    assert done.exit_code == 2
    assert f"drop has '{label}', which is no listed expiry" in " ".join(done.output.split())
    with (out / "summary.csv").open(newline="") as file:
        rows = {row["chain"]: row for row in csv.DictReader(file)}
    assert rows["whole.csv"]["status"] == "converged"
    assert rows["without.csv"]["status"] == "refused"
    told = json.loads((out / "whole" / "fit.json").read_text())
    assert label in [one["label"] for one in told["expiries_left_out"]]


def test_a_calendar_says_when_there_are_quotes(tmp_path: Path) -> None:
    evening = ("--as-of", "2026-10-15T20:30")
    said = {
        name: fit_to(tmp_path / name[:2], str(CHAIN), *evening, "--calendar", name)
        for name in ("NYSE", "CME", "24/7")
    }
    assert {told["as_of"] for told in said.values()} == {evening[1]}
    outside = {
        name: any("outside of the quoting hours of NYSE" in text for text in told["warnings"])
        for name, told in said.items()
    }
    assert outside == {"NYSE": True, "CME": False, "24/7": False}
    day = fit_to(tmp_path / "day", str(CHAIN), "--as-of", "2026-10-15", "--calendar", "CME")
    assert day["as_of"] == "2026-10-15T17:00"


def test_the_index_has_a_calendar_too() -> None:
    found = []
    for options in ((), ("--as-of", "2026-10-15", "--calendar", "CME")):
        done = invoke("vix", str(CHAIN), *options, "--json")
        found.append(json.loads(done.stdout)["minutes"])
    assert [a - b for a, b in zip(*found, strict=True)] == [45.0, 45.0]  # from 16:15 to 17:00


@pytest.mark.parametrize("command", ["fit", "vix"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--calendar", "LSE"], "--calendar LSE is not known: give NYSE, CME, 24/7"),
        (["--calendar", "24/7", "--as-of", "2026-10-15"], "(here: --as-of 2026-10-15T16:00)"),
    ],
)
def test_a_calendar_that_cannot_be_meant_is_refused(
    command: str, options: list[str], said: str, tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "out")] if command == "fit" else []
    done = invoke(command, str(CHAIN), *options, *out)
    assert done.exit_code == 2
    assert said in done.stderr


def write_event_chain(path: Path, move: float) -> list[str]:
    """A listed chain with an event of ±``move`` before all expiries but the first; their dates."""
    rows = ["expiry,root,strike,side,bid,ask"]
    days = {"2026-10-19": 4, "2026-10-26": 11, "2026-11-20": 36, "2027-01-15": 92}
    for place, (date, count) in enumerate(days.items()):
        v, up = 0.13 * np.sqrt(count / 365.0), np.exp(move)
        outcomes = {1.0: 1.0} if place == 0 else {float(up): 0.5, 2.0 - float(up): 0.5}
        K = np.arange(4000.0, 6000.0, 20.0)
        kappa = K / 5000.0
        call = np.zeros(K.size)
        for level, weight in outcomes.items():
            k = np.log(kappa / level)
            call += weight * level * black.call(k, np.full(K.size, v))
        for side, price in (("call", call), ("put", call - 1.0 + kappa)):
            mid = 5000.0 * np.maximum(price, 0.0)
            half = 0.05 + 0.01 * np.minimum(mid, 60.0)
            bid, ask = np.floor((mid - half) / 0.05) * 0.05, np.ceil((mid + half) / 0.05) * 0.05
            rows += [
                f"{date},SPXW,{strike:g},{side},{low:.2f},{high:.2f}"
                for strike, low, high in zip(K, np.maximum(bid, 0.0), ask, strict=True)
            ]
    path.write_text("\n".join(rows) + "\n")
    return list(days)


@pytest.mark.parametrize(
    ("move", "fitted"), [(0.01, True), (0.02, True), (0.03, True), (0.04, False), (0.08, False)]
)
def test_a_mild_event_is_fitted_and_a_strong_one_is_said(
    move: float, fitted: bool, tmp_path: Path
) -> None:
    """Two lobes are a shape that ordered slopes lack where they part."""
    dates = write_event_chain(tmp_path / "event.csv", move)
    told = fit_to(tmp_path / "out", str(tmp_path / "event.csv"), "--as-of", "2026-10-15T16:15")
    inside, worst = (told["score"][name] for name in ("inside_bid_ask", "worst_half_spreads"))
    print(f"±{move:.0%}: {inside:.1%} inside, {worst:.1f} outside, {told['verdict']}")
    missed = [text for text in told["warnings"] if "an event with two outcomes" in text]
    if fitted:
        assert inside == 1.0
        assert missed == []
        return
    assert len(missed) == 1
    assert dates[1] in missed[0]
    assert dates[0] not in missed[0]  # the control: the expiry before the event is explained
    assert " ".join(missed[0].split()) in " ".join(told["printed"].split())
    assert dates[1] in str(told["verdict"]["missed"])
