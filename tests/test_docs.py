"""The code that the README and the pages show runs as it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples(page)], ids=lambda page: page.name
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(examples(page), page.name, "exec"), {})


def test_the_readme_keeps_its_ten_lines() -> None:
    lines = [line for line in examples(ROOT / "README.md").splitlines() if line.strip()]
    assert 0 < len(lines) <= 10


def test_errata_name_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "errata.md").read_text()))
    sources = "\n".join(
        path.read_text()
        for folder in (ROOT / "tests", ROOT / "lab" / "tests")
        for path in folder.rglob("test_*.py")
    )
    written = set(re.findall(r"def (test_\w+)\(", sources))
    assert len(named) > 40
    assert named <= written, named - written
