"""Code of the README and the pages runs as shown, and their tables hold what was measured."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

import sentences
from measured_tables import list_faults, write_pages

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLAIN = [ROOT / "README.md", ROOT / "docs" / "index.md", *(ROOT / "docs" / "guides").glob("*.md")]


def examples(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


def run_examples(text: str, name: str) -> list[str]:
    """Run the blocks of a page in order; return where a text block after one is not its output."""
    found: list[str] = []
    names: dict[str, object] = {}
    blocks = re.finditer(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    for code, shown in (block.groups() for block in blocks):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), names)
        if shown is not None and shown.strip() != printed.getvalue().strip():
            found.append(
                f"{name} shows {shown.strip()!r} and prints {printed.getvalue().strip()!r}"
            )
    return found


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if examples(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_examples(page.read_text(), page.name) == []


def test_output_that_is_not_printed_is_found() -> None:
    block = "```python\nprint(1 + 1)\n```\n\n```text\n{}\n```\n"
    assert run_examples(block.format(2), "page") == []
    assert run_examples(block.format(3), "page") == ["page shows '3' and prints '2'"]


def test_the_readme_keeps_its_ten_lines() -> None:
    lines = [line for line in examples(ROOT / "README.md").splitlines() if line.strip()]
    assert 0 < len(lines) <= 10


def test_the_readme_is_short() -> None:
    text = re.sub(r"```.*?```", " ", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert sentences.count_words(text) < 700


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    words = {
        sentence: sentences.count_words(sentence) for sentence in sentences.list_sentences(page)
    }
    assert max(words.values()) <= 35, max(words, key=lambda text: words[text])
    assert sum(words.values()) / len(words) <= 18


def test_measured_tables_are_those_of_the_results() -> None:
    assert list_faults(ROOT) == []


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A project with one measured table that its page shows."""
    table = {"command": "measure", "data": "all", "columns": ["day", "bp"], "rows": [["1", "2.5"]]}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "measured.json").write_text(json.dumps({"errors": table}))
    (tmp_path / "README.md").write_text("# Title\n")
    page = "# Page\n\n<!-- measured: errors -->\n<!-- end of measured -->\n"
    (tmp_path / "docs" / "page.md").write_text(page)
    write_pages(tmp_path)
    assert "| 1 | 2.5 |" in (tmp_path / "docs" / "page.md").read_text()
    assert list_faults(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("2.5", "2.4", "the table errors is not that of"),  # a number typed by hand
        ("measured: errors", "measured: speed", "has no table 'speed'"),
        ("<!-- end of measured -->", "", "does not end"),
    ],
)
def test_page_that_departs_from_the_results_is_found(
    measured: Path, before: str, after: str, fault: str
) -> None:
    page = measured / "docs" / "page.md"
    page.write_text(page.read_text().replace(before, after))
    assert fault in list_faults(measured)[0]


def test_measured_table_that_no_page_shows_is_found(measured: Path) -> None:
    (measured / "docs" / "page.md").write_text("# Page\n")
    (fault,) = list_faults(measured)
    assert fault.endswith("no page shows errors.")


def test_measured_table_with_a_cell_missing_is_refused(measured: Path) -> None:
    path = measured / "docs" / "measured.json"
    path.write_text(path.read_text().replace('["1", "2.5"]', '["1"]'))
    with pytest.raises(ValueError, match="row of 1 cells"):
        list_faults(measured)


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
