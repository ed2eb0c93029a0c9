"""Every metric has a page, and what the pages say is what the code does."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from arbiter_lab.metrics.catalogue import DEFINITIONS, Definition
from arbiter_lab.metrics.metric import Metric
from trivial import scores

DOCS = Path(__file__).parents[3] / "docs" / "metrics"
PAGES = sorted(DOCS.glob("*.md"))
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")


def number(value: float, digits: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0.0 else "−∞"
    # variances of equal numbers leave rounding
    return "0" if abs(value) < 1e-8 else f"{value:.{digits}g}".replace("-", "−")


def row_of(known: Definition) -> str:
    low, high = number(known.low, 4), number(known.high, 4)
    left, right = "(" if math.isinf(known.low) else "[", ")" if math.isinf(known.high) else "]"
    perfect = "–" if known.perfect is None else number(known.perfect, 4)
    return (
        f"| [`{known.name}`]({known.page}.md) | {known.section or 'ours'} | {known.better} | "
        f"{left}{low}, {high}{right} | {perfect} |"
    )


def test_the_index_lists_every_metric_as_the_catalogue_has_it() -> None:
    rows = [line for line in INDEX.splitlines() if line.startswith("| [`")]
    assert rows == [row_of(known) for known in DEFINITIONS.values()]


def test_every_metric_has_a_page_that_names_it() -> None:
    for known in DEFINITIONS.values():
        text = (DOCS / f"{known.page}.md").read_text(encoding="utf-8")
        bare = re.sub(r"_(quoted|unquoted|centred|features|features_centred)$", "", known.name)
        assert f"`{bare}`" in text, f"{known.page}.md does not name {known.name}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "index"], ids=lambda p: p.stem)
def test_a_page_says_range_perfect_trivial_undefined_and_defects(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for said in ("| range |", "| perfect |", "| trivial |", "| undefined |", "**Known defects.**"):
        assert said in text, f"{page.name} does not say {said}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_examples_of_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert bool(blocks) == (page.stem == "index")
    exec(compile("\n".join(blocks), page.name, "exec"), {})


def cell(metric: Metric) -> str:
    return "–" if metric.value is None else number(metric.value, 3)


def test_trivial_models_score_what_the_index_says() -> None:
    found = scores()
    for name in found["truth"]:
        cells = " | ".join(cell(model[name]) for model in found.values())
        assert f"| `{name}` | {cells} |" in INDEX


def test_the_truth_is_perfect_and_ranges_hold() -> None:
    for model, metrics in scores().items():
        for name, metric in metrics.items():
            known = DEFINITIONS.get(name.removeprefix("worst_day_"))
            assert known is not None
            if metric.value is None:
                assert metric.reason
                continue
            assert known.low - 1e-9 <= metric.value <= known.high + 1e-9
            if model == "truth" and known.perfect is not None:
                assert metric.value == pytest.approx(known.perfect, abs=1e-8)


def test_errors_tell_trivial_models_from_the_truth_and_arbitrage_does_not() -> None:
    found = scores()
    for name in ("NAS", "CNAS", "NAS_inequalities"):
        assert {model[name].value for model in found.values()} == {1.0}
    for name in ("iv_rmse_bp", "relative_entropy", "cvar_alignment", "GenGap_p95"):
        for model in ("one volatility", "first day"):
            value = found[model][name].value
            assert value is not None
            assert value > 1e-3
