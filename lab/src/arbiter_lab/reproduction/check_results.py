"""Checks of a results folder: checksums, schema, and agreement with a second run."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from arbiter_lab.protocol.machine import REPLICATE_FILE, read_replicate
from arbiter_lab.protocol.manifest import Discrepancy, check_manifest
from arbiter_lab.protocol.results_file import (
    RESULTS_FILE,
    Difference,
    RecordError,
    find_differences,
    read_results,
)


@dataclass(frozen=True)
class ResultsCheck:
    """Findings of a check of a results folder.

    Attributes:
        folder: The folder that was checked.
        files: Files that are missing, changed or extra.
        problems: Problems of the results file, one sentence each.
        differences: Numbers that the second run does not repeat; empty without a second run.
        compared: How many numbers of the second run were compared.
        same_bytes: Whether both results files are byte-identical; None without a second run.
    """

    folder: Path
    files: list[Discrepancy]
    problems: list[str]
    differences: list[Difference]
    compared: int
    same_bytes: bool | None

    @property
    def passed(self) -> bool:
        """Whether the check found no problem."""
        return not (self.files or self.problems or self.differences)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain JSON values."""
        return {
            "folder": str(self.folder),
            "passed": self.passed,
            "files": [{"path": found.path, "kind": found.kind} for found in self.files],
            "problems": self.problems,
            "differences": [found._asdict() for found in self.differences],
            "compared": self.compared,
            "same_bytes": self.same_bytes,
        }

    def problem_sentences(self) -> list[str]:
        """Return one sentence per finding; those about files state the remedy."""
        told = [
            f"{found.path} is {found.kind}: restore it, or run the reproduction again"
            for found in self.files
        ]
        told += self.problems
        told += [
            f"{found.run}, {found.name}: {found.first} here, {found.second} in the second run, "
            "outside the interval"
            for found in self.differences
        ]
        return told


def check(folder: str | PathLike[str], again: str | PathLike[str] | None = None) -> ResultsCheck:
    """Verify checksums and schema, and compare a second run within the first one's intervals.

    Args:
        folder: Folder of the results.
        again: Folder of a second run; no comparison if left out.

    Raises:
        ValueError: If the folder has no manifest, or the second run has no results.
    """
    place = Path(folder)
    files = check_manifest(place)
    problems: list[str] = []
    first: dict[str, dict[str, Any]] = {}
    try:
        first = read_results(place / RESULTS_FILE)
    except RecordError as error:
        problems = list(error.problems)
    except OSError:
        problems = [f"{place / RESULTS_FILE} cannot be read"]
    if again is None or problems:
        return ResultsCheck(place, files, problems, [], 0, None)
    other = Path(again) / RESULTS_FILE
    if not other.is_file():
        raise ValueError(f"{other} is not there: run the reproduction into {again} first")
    found = find_differences(first, read_results(other))
    compared = sum(len(run) - 3 for run in first.values())  # reason, intervals and about aside
    same = other.read_bytes() == (place / RESULTS_FILE).read_bytes()
    return ResultsCheck(place, files, [], found, compared, same)


def read_profile_name(folder: str | PathLike[str]) -> str:
    """Return the name of the profile that made a results folder."""
    found = read_replicate(Path(folder) / REPLICATE_FILE)
    return str(found["protocol"]["profile"]["name"])
