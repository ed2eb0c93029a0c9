"""The clock and its events on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from arbiter.chains import read_chain
from arbiter.cli import app
from arbiter.cli.clock_options import clock_lines, parse_clock
from arbiter.report.tables import event_table
from arbiter.timing.clock import Clock, Event


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def test_clocks_are_read_by_name_or_weight() -> None:
    assert parse_clock(None, None) is None
    assert parse_clock("trading", []) == Clock.trading()
    assert parse_clock("calendar", None) == Clock()
    assert parse_clock("weekend=0.1,overnight=0.5", None) == Clock(overnight=0.5, weekend=0.1)


def test_events_are_read_from_words_and_files(tmp_path: Path) -> None:
    dates = tmp_path / "dates.csv"
    dates.write_text("when,name,variance\n2023-03-22T14:00,FOMC,\n2023-03-14 08:30,CPI,0.0001\n")
    clock = parse_clock("trading", [str(dates), "2023-04-07T08:30=payrolls:0.00002"])
    assert clock == Clock.trading(
        Event("2023-03-14T08:30", "CPI", 1e-4),
        Event("2023-03-22T14:00", "FOMC"),
        Event("2023-04-07T08:30", "payrolls", 2e-5),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--clock", "fast"], "give calendar, trading, implied, or weights such as"),
        (["--clock", "weekend=0.001"], "must be a weight from 0.01 to 100"),
        (["--event", "soon"], "give 2026-12-09T14:00=FOMC, or a CSV file"),
        (["--event", "2026-12-09=FOMC"], "give New York time"),
        (["--event", "2026-12-09T14:00=FOMC:much"], "could not convert string to float"),
        (["--event", "1999-01-04T14:00=FOMC"], "is not after the quotes"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: list[str], said: str, tmp_path: Path) -> None:
    done = invoke("fit", "--no-report", "--out", str(tmp_path / "out"), *options)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_fit_says_what_events_are_worth(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(
        *("fit", "--no-report", "--out", str(out), "--clock", "trading"),
        *("--event", "2026-10-28T14:00=FOMC"),
    )
    assert done.exit_code == 0, done.output
    assert "FOMC, 2026-10-28 14:00" in " ".join(done.stdout.split())
    told = json.loads((out / "fit.json").read_text())["clock"]
    assert told["events"][0]["error"] > 0.0
    assert clock_lines(None) == []


def test_implied_weights_are_those_of_the_quotes(data_dir: Path, tmp_path: Path) -> None:
    chain, out = data_dir / "chains" / "spx_2023-12-08_close.csv", tmp_path / "out"
    done = invoke("fit", str(chain), "--no-report", "--out", str(out), "--clock", "implied")
    assert done.exit_code == 0, done.output
    clock = Clock.from_dict(json.loads((out / "fit.json").read_text())["clock"])
    assert clock == read_chain(chain).quotes().implied_clock()
    assert clock != Clock.trading()  # the control
    assert f"overnight {clock.overnight:.3g}" in " ".join(done.stdout.split())


def test_the_report_has_the_implied_moves() -> None:
    clock = Clock.trading(
        Event("2026-10-28T14:00", "FOMC", 1e-4, 1e-5), Event("2026-12-09T14:00", "x", 4e-4)
    )
    table = event_table(clock.to_dict())
    assert table is not None
    assert table.rows[0][:3] == ["FOMC", "2026-10-28 14:00", "1.00\u00a0%"]
    assert table.rows[1][3] == "given"
    odd = Clock.trading(Event("2026-10-28T14:00", "FOMC", 0.010156**2))
    rounded = event_table(odd.to_dict())
    assert rounded is not None
    assert rounded.rows[0][2] == "1.02\u00a0%"  # as on the screen, not rounded down
    assert ": 1.02%" in clock_lines(odd.to_dict())[1][1]
    assert event_table(None) is None
