"""Keeps the small part of a run with the source, with checksums, and fills the pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from os import PathLike
from os.path import relpath
from pathlib import Path

from arbiter.files import write_whole
from arbiter_lab.protocol.machine import REPLICATE_FILE
from arbiter_lab.protocol.manifest import MANIFEST_FILE as MANIFEST
from arbiter_lab.protocol.manifest import write_manifest
from arbiter_lab.protocol.results_file import RESULTS_FILE
from arbiter_lab.reproduction.check_results import check
from arbiter_lab.reproduction.kept_run import rewrite_kept_tables
from arbiter_lab.reproduction.paper_page import fill_page

MAX_TOTAL_BYTES = 5_000_000
"""Largest total size of the kept files, in bytes."""

KEPT_FILES = (RESULTS_FILE, REPLICATE_FILE, "sweeps.csv", "report.html")
KEPT_FOLDERS = {"tables": ("*.md", "*.tex"), "figures": ("*.png",)}
KEPT_STAGES = ("days", "evaluate", "sweeps", "stress", "external", "monitors")
"""Stages whose facts are kept; those of the others are long, and tables hold what is read."""


def publish(
    results: str | PathLike[str],
    place: str | PathLike[str],
    pages: Sequence[str | PathLike[str]],
) -> Path:
    """Copy the kept files of a run, and update the numbers of the pages.

    Args:
        results: Folder of a complete, unchanged run.
        place: Folder of the kept files; it is replaced.
        pages: Markdown pages with numbers of the run.

    Returns:
        The folder of the kept files.

    Raises:
        ValueError: If the run is incomplete or changed, or the kept files are too large.
    """
    source, target = Path(results), Path(place)
    _require_unchanged(source)
    kept = [source / name for name in KEPT_FILES]
    kept += [
        p for name, ends in KEPT_FOLDERS.items() for end in ends for p in (source / name).glob(end)
    ]
    kept += [source / "stages" / f"{name}.json" for name in KEPT_STAGES]
    size = sum(path.stat().st_size for path in kept)
    if size > MAX_TOTAL_BYTES:
        largest = max(kept, key=lambda path: path.stat().st_size)
        raise ValueError(
            f"{size:,} bytes are to be kept, {MAX_TOTAL_BYTES:,} are allowed: the largest is "
            f"{largest.relative_to(source)}"
        )
    if target.exists() and not (target / MANIFEST).is_file():
        raise ValueError(f"{target} is no folder of results: name another one, or remove it")
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(kept):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    commands = json.loads((source / MANIFEST).read_text(encoding="utf-8"))["commands"]
    write_manifest(target, commands=commands)
    _fill_pages(target, pages)
    return target


def rewrite(place: str | PathLike[str], pages: Sequence[str | PathLike[str]]) -> Path:
    """Write tables and report of a kept run again, in today's words, and update the pages.

    Args:
        place: Folder of the kept files; results, facts, figures and ledger stay as they are.
        pages: Markdown pages with numbers of the run.

    Returns:
        The folder of the kept files.

    Raises:
        ValueError: If the kept run is incomplete or changed.
    """
    target = Path(place)
    _require_unchanged(target)
    rewrite_kept_tables(target)
    _fill_pages(target, pages)
    return target


def _require_unchanged(folder: Path) -> None:
    found = check(folder)
    if not found.passed:
        raise ValueError(
            f"{folder} is not as it was written: {'; '.join(found.problem_sentences()[:3])}"
        )


def _fill_pages(results: Path, pages: Sequence[str | PathLike[str]]) -> None:
    for page in map(Path, pages):
        link = Path(relpath(results, page.parent)).as_posix()
        write_whole(page, fill_page(page.read_text(encoding="utf-8"), results, link))
