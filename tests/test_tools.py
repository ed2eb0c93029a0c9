"""The documentation's own checks find what they are there to find."""

from pathlib import Path

import pytest

from check_site import faults
from docs_math import mathml

CONFIG = '[project]\nnav = [{ "Home" = "index.md" }, { "Part" = [{ "Theory" = "theory.md" }] }]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A built site without a fault."""
    (tmp_path / "zensical.toml").write_text(CONFIG, encoding="utf-8")
    for folder in ("docs", "site"):
        (tmp_path / folder).mkdir()
    for page in ("index", "theory"):
        (tmp_path / "docs" / f"{page}.md").write_text("# Title\n", encoding="utf-8")
        (tmp_path / "site" / f"{page}.html").write_text(
            '<script src="./local.js"></script><a href="https://example.org">elsewhere</a>',
            encoding="utf-8",
        )
    return tmp_path


def test_sound_site_has_no_fault(project: Path) -> None:
    assert faults(project) == []


def test_navigation_to_a_missing_page_is_found(project: Path) -> None:
    (project / "docs" / "theory.md").unlink()
    assert faults(project) == ["theory.md is in the navigation but not in docs/"]


def test_page_outside_the_navigation_is_found(project: Path) -> None:
    (project / "docs" / "results").mkdir()
    (project / "docs" / "results" / "table.md").write_text("| a |\n", encoding="utf-8")
    assert faults(project) == []  # tables of a run are no pages
    (project / "docs" / "orphan.md").write_text("# Orphan\n", encoding="utf-8")
    assert faults(project) == ["docs/orphan.md is not in the navigation"]


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example.org/math.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/inter.css">',
        '<img src="http://example.org/smile.png">',
    ],
)
def test_page_that_needs_a_network_is_found(project: Path, tag: str) -> None:
    (project / "site" / "index.html").write_text(tag, encoding="utf-8")
    (fault,) = faults(project)
    assert fault.startswith("index.html loads ")


def test_formula_becomes_mathml() -> None:
    formula = mathml(r"c(\kappa) < 1", "inline")
    assert formula.tag == "math"
    assert formula.get("display") == "inline"


def test_unknown_tex_command_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\\nonsense is not known"):
        mathml(r"\nonsense{x}", "block")
