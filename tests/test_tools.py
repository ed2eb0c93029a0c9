"""The documentation's own checks find what they are there to find."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import api_pages
import arbiter as ab
from check_site import faults, pages_in
from docs_math import mathml
from docstrings import parse_docstring

ROOT = Path(__file__).parents[1]
CONFIG = '[project]\nnav = [{ "Home" = "index.md" }, { "Part" = [{ "Theory" = "theory.md" }] }]\n'

WORKER, BUNDLE = "javascripts/iframe-worker.js", "assets/javascripts/bundle.1a.min.js"
PAGE = (
    f'<script src="./{WORKER}"></script><script src="{BUNDLE}"></script>'
    '<a href="https://example.org">elsewhere</a>'
)
INDEX = {"items": [{"location": "index.html", "title": "Home"}]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A built site without a fault."""
    (tmp_path / "zensical.toml").write_text(CONFIG, encoding="utf-8")
    for folder in ("docs", "site"):
        (tmp_path / folder).mkdir()
    for page in ("index", "theory"):
        (tmp_path / "docs" / f"{page}.md").write_text("# Title\n", encoding="utf-8")
        (tmp_path / "site" / f"{page}.html").write_text(PAGE, encoding="utf-8")
    for script in (WORKER, BUNDLE):
        (tmp_path / "site" / script).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / script).write_text("", encoding="utf-8")
    write_index(tmp_path, INDEX, INDEX)
    return tmp_path


def write_index(project: Path, script: object, plain: object) -> None:
    (project / "site" / "search.js").write_text(f"var __index = {json.dumps(script)}")
    (project / "site" / "search.json").write_text(json.dumps(plain))


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


def test_missing_resource_is_found(project: Path) -> None:
    (project / "site" / "index.html").write_text('<img src="smile.png">', encoding="utf-8")
    assert faults(project) == ["index.html loads smile.png, which is not there"]


@pytest.mark.parametrize(
    "page",
    [
        f'<script src="{BUNDLE}"></script>',
        f'<script src="{BUNDLE}"></script><script src="{WORKER}"></script>',
    ],
    ids=["without", "too late"],
)
def test_page_whose_search_needs_a_server_is_found(project: Path, page: str) -> None:
    (project / "site" / "index.html").write_text(page, encoding="utf-8")
    (fault,) = faults(project)
    assert "before its search" in fault


def test_search_without_its_index_as_a_script_is_found(project: Path) -> None:
    write_index(project, {"items": []}, INDEX)
    assert faults(project) == ["search.js is not the index of search.json"]
    (project / "site" / "search.js").unlink()
    (fault,) = faults(project)
    assert fault.startswith("search.js is not there")


def test_formula_becomes_mathml() -> None:
    formula = mathml(r"c(\kappa) < 1", "inline")
    assert formula.tag == "math"
    assert formula.get("display") == "inline"


def test_unknown_tex_command_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\\nonsense is not known"):
        mathml(r"\nonsense{x}", "block")


def test_every_public_name_has_a_page_in_the_navigation(tmp_path: Path) -> None:
    assert api_pages.list_group_faults() == []
    pages = {page.name for page in api_pages.write_pages(tmp_path)}
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for name in set(ab.__all__) - {"__version__", "markets"}:
        assert f"{name}.md" in pages, name
    for name in ab.markets.__all__:
        assert f"markets-{name}.md" in pages, name
    assert all(f"ab.{name}" in index for name in ab.__all__)
    with (ROOT / "zensical.toml").open("rb") as file:
        nav = set(pages_in(tomllib.load(file)["project"]["nav"]))
    assert {f"api/{page}" for page in pages} == {page for page in nav if page.startswith("api/")}


def test_public_name_without_a_page_is_found() -> None:
    first = replace(api_pages.GROUPS[0], names=api_pages.GROUPS[0].names[1:])
    gone = api_pages.GROUPS[0].names[0]
    found = api_pages.list_group_faults((first, *api_pages.GROUPS[1:]))
    assert found == [f"{gone} is public and in no group."]
    more = replace(api_pages.GROUPS[0], names=(*api_pages.GROUPS[0].names, "nothing"))
    found = api_pages.list_group_faults((more, *api_pages.GROUPS[1:]))
    assert found == ["nothing is in a group and not public."]


def test_page_of_a_name_says_what_its_docstring_says() -> None:
    page = api_pages.format_page("fit", next(g for g in api_pages.GROUPS if "fit" in g.names))
    parsed = parse_docstring(ab.fit.__doc__)
    assert parsed.summary in page
    assert "-> FittedSurface" in page
    for name, _ in parsed.entries["Args"]:
        assert f"| `{name}` |" in page
    for part in ("**Returns**", "**Raises**", "`ValueError`", "```pycon"):
        assert part in page
    surface = api_pages.format_page("Surface", api_pages.GROUPS[2])
    assert "### iv\n" in surface
    assert "### _" not in surface  # nothing private


def test_docstring_is_taken_apart() -> None:
    parsed = parse_docstring("""Price it.

    More on it.

    Args:
        strike: In currency,
            at least zero.
        T: Years.

    Returns:
        The price.

    Raises:
        ValueError: If not.

    Example:
        >>> 1
        1
    """)
    assert (parsed.summary, parsed.description) == ("Price it.", "More on it.")
    assert parsed.entries["Args"] == [("strike", "In currency, at least zero."), ("T", "Years.")]
    assert parsed.texts["Returns"] == "The price."
    assert parsed.entries["Raises"] == [("ValueError", "If not.")]
    assert parsed.example == ">>> 1\n1"


def test_docstring_with_a_section_that_has_no_names_is_refused() -> None:
    with pytest.raises(ValueError, match="without 'name: text'"):
        parse_docstring("Price it.\n\nArgs:\n    whatever comes\n")
