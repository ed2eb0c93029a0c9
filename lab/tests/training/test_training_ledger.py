"""Runs are recorded once, whole and replayable; progress is shown to people and not to pipes."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arbiter_lab.training import ledger as ledger_module
from arbiter_lab.training.display import Display
from arbiter_lab.training.journal import (
    COLUMNS,
    Journal,
    digest_journal,
    fingerprint,
    fingerprint_tensors,
    read_steps,
)
from arbiter_lab.training.ledger import LEDGER_COLUMNS, Ledger, LedgerEntry, read_revision


def finished(name: str = "first", **changes: object) -> LedgerEntry:
    given = {
        "run": name,
        "config": {"width": 64, "modes": ["extra"]},
        "seed": 2**63 + 5,
        "revision": "0123abc",
        "data_hash": "feed",
        "ended": "converged",
        "steps": 1200,
        "counters": {"DualGap": 0.06, "spec_guard_hits": 3, "ratio_log": math.nan},
        "metrics": {"iv_rmse_bp": 4.9},
        "seconds": 12.5,
    }
    return LedgerEntry(**{**given, **changes})  # type: ignore[arg-type]


def test_table_and_database_hold_the_same_rows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "runs")
    assert ledger.runs() == []
    ledger.add(finished("first"))
    ledger.add(finished("second", ended="budget"))
    rows = list(csv.DictReader(io.StringIO(ledger.text.read_text())))
    with sqlite3.connect(ledger.database) as connection:
        stored = connection.execute("SELECT * FROM sweeps ORDER BY rowid").fetchall()
    connection.close()
    assert tuple(rows[0]) == LEDGER_COLUMNS
    texts = [["" if value is None else str(value) for value in row] for row in stored]
    assert [list(row.values()) for row in rows] == texts
    assert [row["ended"] for row in rows] == ["converged", "budget"]


def test_row_holds_what_a_replay_needs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add(finished())
    (row,) = ledger.runs()
    assert row["config"] == {"width": 64, "modes": ["extra"]}
    assert (row["seed"], row["revision"], row["data_hash"]) == (2**63 + 5, "0123abc", "feed")
    assert (row["DualGap"], row["spec_guard_hits"]) == (0.06, 3.0)
    assert row["ratio_log"] is None  # was not a number
    assert row["metrics"] == {"iv_rmse_bp": 4.9}


def test_counters_of_the_paper_are_columns() -> None:
    """The names are those of the paper's section 3.4 and its reproducibility appendix."""
    assert set(LEDGER_COLUMNS) >= {
        *("lambda_lip_before", "lambda_lip_after", "spec_guard_hits", "projection_distance"),
        *("max_rho_dt", "ratio_log", "DualGap", "dual_residual", "martingale_residual"),
        *("mfm_mse", "enter_representer_at_step", "coverage_min", "coverage_mean"),
        "coverage_at_trigger",
    }


def test_run_is_recorded_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add(finished())
    before = ledger.text.read_bytes()
    with pytest.raises(ValueError, match=r"'first' is in .* already"):
        ledger.add(finished(seconds=1.0))
    assert ledger.text.read_bytes() == before
    assert len(ledger.runs()) == 1


def test_row_that_cannot_be_written_as_text_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path)
    ledger.add(finished())

    def full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "write_whole", full)
        with pytest.raises(OSError, match="disk full"):
            ledger.add(finished("second"))
    assert [row["run"] for row in ledger.runs()] == ["first"]
    ledger.add(finished("second"))
    assert [row["run"] for row in ledger.runs()] == ["first", "second"]


def test_runs_that_end_together_all_arrive(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: Ledger(tmp_path).add(finished(f"run-{i}")), range(24)))
    names = {row["run"] for row in Ledger(tmp_path).runs()}
    assert names == {f"run-{i}" for i in range(24)}
    assert len((tmp_path / "sweeps.csv").read_text().splitlines()) == 25


def test_foreign_files_in_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sweeps.csv").write_text("something,else\n")
    with pytest.raises(ValueError, match=r"without sweeps\.sqlite"):
        Ledger(tmp_path).add(finished())
    (tmp_path / "sweeps.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match="cannot be used"):
        Ledger(tmp_path).add(finished())
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / "sweeps.sqlite") as connection:
        connection.execute("CREATE TABLE sweeps (a TEXT)")
    connection.close()
    with pytest.raises(ValueError, match="other columns"):
        Ledger(other).add(finished())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": "../up"}, "letters, digits"),
        ({"run": ""}, "letters, digits"),
        ({"counters": {"speed": 1.0}}, r"\['speed'\] are no columns: put them into metrics"),
        ({"config": {"a": math.inf}}, "config must hold plain JSON"),
        ({"metrics": {"a": torch.zeros(1)}}, "metrics must hold plain JSON"),
    ],
)
def test_mistakes_in_a_run_are_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Ledger(tmp_path).add(finished(**change))  # type: ignore[arg-type]


def test_revision_is_that_of_git_and_says_when_files_differ(tmp_path: Path) -> None:
    assert read_revision(tmp_path / "nowhere" / "file") == "unknown"

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments], capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-qm", "first", "--no-gpg-sign")
    commit = git("rev-parse", "HEAD")
    assert read_revision(tmp_path / "file") == commit
    (tmp_path / "file").write_text("two")
    assert read_revision(tmp_path / "file") == f"{commit}-dirty"
    # installed inside the folder of that repository, which does not track it
    installed = tmp_path / "environment" / "package.py"
    installed.parent.mkdir()
    installed.write_text("pass")
    assert read_revision(installed) == "unknown"


def written(path: Path, steps: range, *, resume_at: int = 0, slow: float = 1.0) -> Path:
    with Journal(path, resume_at=resume_at, flush_every=7) as journal:
        for step in steps:
            loss = torch.tensor(1.0 / step)
            journal.add(step, loss=loss, lr=1e-3, spec_guard_hits=step, seconds=slow * step)
    return path


def test_journal_gives_back_what_was_added(tmp_path: Path) -> None:
    steps = read_steps(written(tmp_path / "steps.jsonl", range(1, 20)))
    assert steps["step"] == list(range(1, 20))
    assert steps["spec_guard_hits"] == list(range(1, 20))
    third = steps["loss"][2]
    assert third is not None
    assert torch.tensor(third) == torch.tensor(1.0 / 3.0)  # nine digits are all of float32
    assert set(steps["DualGap"]) == {None}
    assert tuple(steps) == ("step", *COLUMNS, "seconds")


def test_resumed_journal_is_that_of_a_run_that_never_stopped(tmp_path: Path) -> None:
    straight = written(tmp_path / "straight.jsonl", range(1, 31))
    # It went on to step 20 after the checkpoint at 12, and the last line was cut.
    broken = written(tmp_path / "resumed.jsonl", range(1, 21))
    broken.write_bytes(broken.read_bytes()[:-9])
    written(broken, range(13, 31), resume_at=12)
    assert broken.read_bytes() == straight.read_bytes()


def test_digest_leaves_out_the_time_and_nothing_else(tmp_path: Path) -> None:
    one = written(tmp_path / "one.jsonl", range(1, 20))
    slower = written(tmp_path / "two.jsonl", range(1, 20), slow=2.0)
    assert one.read_bytes() != slower.read_bytes()
    assert digest_journal(one) == digest_journal(slower)
    changed = tmp_path / "three.jsonl"
    changed.write_text(one.read_text().replace("0.333333343", "0.333333373"))
    assert digest_journal(changed) != digest_journal(one)


def test_only_a_broken_last_line_is_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "steps.jsonl", range(1, 10))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:5]]))
    assert read_steps(path)["step"] == list(range(1, 9))
    path.write_text("\n".join([*lines[:4], lines[4][:5], *lines[5:], ""]))
    with pytest.raises(ValueError, match="line 5 is broken"):
        read_steps(path)


def test_mistakes_with_a_journal_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "steps.jsonl", range(1, 4))
    with pytest.raises(ValueError, match="there already: resume"):
        Journal(path)
    with pytest.raises(ValueError, match="only be resumed with its journal"):
        Journal(tmp_path / "none.jsonl", resume_at=3)
    with pytest.raises(ValueError, match="other columns"):
        Journal(path, resume_at=3, columns=["loss"])
    with pytest.raises(ValueError, match="must differ"):
        Journal(tmp_path / "twice.jsonl", columns=["step"])
    journal = Journal(path, resume_at=3)
    with pytest.raises(ValueError, match="3 after 3"):
        journal.add(3)
    with pytest.raises(ValueError, match=r"no column is called \['los'\]"):
        journal.add(4, los=1.0)
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(ValueError, match="no journal of steps"):
        read_steps(tmp_path / "text.jsonl")


def test_tensor_that_is_overwritten_later_keeps_its_value(tmp_path: Path) -> None:
    buffer = torch.zeros(())
    with Journal(tmp_path / "steps.jsonl") as journal:
        for step in (1, 2):
            buffer.fill_(step)
            journal.add(step, loss=buffer)
    assert read_steps(tmp_path / "steps.jsonl")["loss"] == [1.0, 2.0]


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        max_size=4,
    )
)
def test_fingerprint_is_of_the_values_and_not_of_their_order(values: dict[str, float]) -> None:
    backwards = dict(reversed(values.items()))
    assert fingerprint(values) == fingerprint(backwards)
    assert fingerprint({**values, "another": 1}) != fingerprint(values)


def test_fingerprint_of_tensors_sees_every_part() -> None:
    base = {"a": torch.zeros(2, 3), "b": torch.ones(2)}
    others = [
        {**base, "b": torch.tensor([1.0, 1.0 + 1e-6])},
        {**base, "b": torch.ones(2, 1)},
        {**base, "b": torch.ones(2, dtype=torch.float64)},
        {"a": base["a"], "c": base["b"]},
    ]
    assert fingerprint_tensors(dict(reversed(base.items()))) == fingerprint_tensors(base)
    assert len({fingerprint_tensors(x) for x in [base, *others]}) == 5


class Clock:
    """A clock that tests set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_pipe_gets_a_plain_line_now_and_then() -> None:
    stream, clock = io.StringIO(), Clock()
    with Display(1000, stream=stream, every=30.0, clock=clock) as display:
        for step in range(1, 101):
            clock.now += 1.0
            hits = 2 if step > 50 else None
            display.update(step, loss=1.5 / step, guard_hits=hits, lipschitz_after=3.9)
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["30/1,000", "60/1,000", "90/1,000", "100/1,000"]
    assert lines[1] == ("step 60/1,000  loss 0.025  guard 2  Lipschitz 3.9  1 steps/s  15:40 left")


def test_silence_can_be_asked_for() -> None:
    stream, clock = io.StringIO(), Clock()
    with Display(10, stream=stream, every=math.inf, clock=clock) as display:
        clock.now = 1e9
        display.update(5, loss=1.0)
    assert stream.getvalue() == ""


def test_terminal_gets_a_live_line_with_everything() -> None:
    stream, clock = Terminal(), Clock()
    with Display(8000, done=4000, stream=stream, clock=clock) as display:
        clock.now = 10.0
        display.update(
            4100, loss=0.5, gap=0.06, guard_hits=7, lipschitz_before=5.25, lipschitz_after=3.9
        )
        assert display.live is not None
        display.live[0].refresh()
    shown = " ".join(stream.getvalue().split())
    for part in (
        "step 4,100/8,000",
        "loss 0.5",
        "gap 0.06",
        "guard 7",
        "5.25 → 3.9",
        "10 steps/s",
        "6:30",
    ):
        assert part in shown


def test_display_on_a_pipe_does_not_need_rich() -> None:
    program = (
        "import io, sys\n"
        "from arbiter_lab.training.display import Display\n"
        "with Display(1, stream=io.StringIO()) as d: d.update(1, loss=0.0)\n"
        "import arbiter_lab.training.ledger, arbiter_lab.training.saddle\n"
        "import arbiter_lab.training.duality\n"
        "import arbiter_lab.training.stopping_rule, arbiter_lab.training.martingale_test\n"
        "import arbiter.operators.checkpoint\n"
        "sys.exit(any(m in sys.modules for m in ('rich', 'polars', 'safetensors', 'typer')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_header_of_the_journal_is_json(tmp_path: Path) -> None:
    path = written(tmp_path / "steps.jsonl", range(1, 3))
    header = json.loads(path.read_text().splitlines()[0])
    assert header["format"] == "arbiter-steps"
