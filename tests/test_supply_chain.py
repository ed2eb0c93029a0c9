"""What is installed is what was looked at: versions, hashes and licence notices agree."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import lock_hashes
from lock_hashes import CONSTRAINTS, HASHES, UNHASHED, list_hashes, normalise_name, read_versions

ROOT = Path(__file__).resolve().parent.parent
NOTICES = ROOT / "THIRD_PARTY_NOTICES.md"
OURS = {"arbiter-vol", "arbiter-lab"}
OTHER_NAMES = {"pytorch": "torch"}
HASH_LINE = re.compile(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+")


def read_notices(text: str) -> set[str]:
    """Packages that the notices name: their links, and the last column of the second table."""
    linked = re.findall(r"\[([^\]]+)\]\(http", text)
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|$", text, re.MULTILINE)
    listed = [part.split()[0] for row in rows for part in row.split(",") if part.strip(" -")]
    names = {normalise_name(name.rstrip(",")) for name in (*linked, *listed)} - {
        "packages",
        "which",
    }
    return {OTHER_NAMES.get(name, name) for name in names}


def list_installed() -> set[str]:
    """What the two distributions install, all the way down, without what only checks need."""
    todo, seen = [("arbiter-vol", "report"), ("arbiter-lab", "")], set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # of another system
            continue
        for one in needed:
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                todo += [(normalise_name(one.name), more) for more in ("", *one.extras)]
    return {name for name, _ in seen} - OURS


def test_every_version_but_one_has_a_hash() -> None:
    pinned, hashed = read_versions(CONSTRAINTS), read_versions(HASHES)
    assert {name: pinned[name] for name in pinned if name not in UNHASHED} == hashed
    lines = HASHES.read_text(encoding="utf-8").splitlines()
    assert all(HASH_LINE.fullmatch(line) for line in lines if not line.startswith("#"))


def test_notices_name_what_is_installed_and_nothing_else() -> None:
    named = read_notices(NOTICES.read_text(encoding="utf-8"))
    pinned = set(read_versions(CONSTRAINTS))
    assert named <= pinned
    assert list_installed() <= named


def test_a_package_without_notice_or_version_would_be_seen() -> None:
    """Negative control."""
    text = NOTICES.read_text(encoding="utf-8")
    assert "shellingham" in list_installed()
    assert "shellingham" not in read_notices(text.replace("shellingham", "nothing"))
    assert not read_notices(text + "\n| MIT | leftpad |\n") <= set(read_versions(CONSTRAINTS))


def test_reports_of_pip_become_lines_without_places() -> None:
    def report(*names: str, digest: str = "ab" * 32) -> dict[str, Any]:
        info = {"url": "file:///somewhere/w.whl", "archive_info": {"hashes": {"sha256": digest}}}
        rows = [{"metadata": {"name": name, "version": "1.0"}} for name in names]
        return {"install": [{**row, "download_info": info} for row in rows]}

    other = "cd" * 32
    lines = list_hashes([report("zeta", "Alpha_b", "torch"), report("Alpha_b", digest=other)])
    first, last = (f"--hash=sha256:{digest}" for digest in ("ab" * 32, other))
    assert lines == [f"alpha-b==1.0 {first} {last}", f"zeta==1.0 {first}"]


@pytest.mark.parametrize(
    ("system", "code"),
    [
        (("3.11", "Linux x86_64"), 0),
        (("3.13", "Darwin arm64"), 0),
        (("3.14", "Linux x86_64"), 1),
        (("3.11", "Linux riscv64"), 1),
        (("", "Linux x86_64"), 1),  # another Python, or another C library
    ],
)
def test_hashes_are_used_where_they_are_known(
    system: tuple[str, str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["lock_hashes.py", "--fits"])
    monkeypatch.setattr(lock_hashes, "name_system", lambda: system)
    assert lock_hashes.main() == code


def test_the_build_backend_is_pinned_and_installed_before_it_builds() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert recipe.count("--no-build-isolation") == recipe.count(
        "-c constraints.txt hatchling editables"
    )
    assert {"hatchling", "editables"} <= set(read_versions(CONSTRAINTS))
