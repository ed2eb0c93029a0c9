"""Whether a folder of results is as it was written, and whether a second run agrees with it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from arbiter_lab.protocol.machine import read_replicate
from arbiter_lab.protocol.manifest import Discrepancy, check_manifest
from arbiter_lab.protocol.results_file import (
    Difference,
    RecordError,
    find_differences,
    read_results,
)

RESULTS, REPLICATE = "results.json", "replicate.json"


@dataclass(frozen=True)
class ResultsCheck:
    """What was found.

    Attributes:
        folder: That was checked.
        files: Files that are missing, changed or extra.
        problems: What is wrong with the results file, a sentence each.
        differences: Numbers that a second run does not repeat; empty where there was none.
        compared: How many numbers of the second run were compared.
        same_bytes: Whether the results file of the second run has the same bytes; None without one.
    """

    folder: Path
    files: list[Discrepancy]
    problems: list[str]
    differences: list[Difference]
    compared: int
    same_bytes: bool | None

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not (self.files or self.problems or self.differences)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
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
        """What is wrong, each with what to do."""
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
    """Verify checksums and schema; compare a second run within the first one's intervals.

    Args:
        folder: The results.
        again: Folder of a second run.

    Raises:
        ValueError: If there is no manifest in the folder, or the second run has no results.
    """
    place = Path(folder)
    files = check_manifest(place)
    problems: list[str] = []
    first: dict[str, dict[str, Any]] = {}
    try:
        first = read_results(place / RESULTS)
    except RecordError as error:
        problems = list(error.problems)
    except OSError:
        problems = [f"{place / RESULTS} cannot be read"]
    if again is None or problems:
        return ResultsCheck(place, files, problems, [], 0, None)
    other = Path(again) / RESULTS
    if not other.is_file():
        raise ValueError(f"{other} is not there: run the reproduction into {again} first")
    found = find_differences(first, read_results(other))
    compared = sum(len(run) - 3 for run in first.values())  # reason, intervals and about aside
    same = other.read_bytes() == (place / RESULTS).read_bytes()
    return ResultsCheck(place, files, [], found, compared, same)


def read_profile_name(folder: str | PathLike[str]) -> str:
    """Name of the profile that made a folder of results."""
    found = read_replicate(Path(folder) / REPLICATE)
    return str(found["protocol"]["profile"]["name"])
