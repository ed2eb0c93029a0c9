"""The page of the paper: four verdicts, one line a claim, links that lead somewhere."""

from __future__ import annotations

import re
import shutil
import unicodedata
from pathlib import Path

import pytest

from arbiter_lab.protocol.results_file import read_results
from arbiter_lab.reproduction import headlines
from arbiter_lab.reproduction.check_results import check
from arbiter_lab.reproduction.claims import ABLATIONS
from arbiter_lab.reproduction.kept_run import read_paired_tests
from arbiter_lab.reproduction.paper_tables import (
    tabulate_training_routes,
)
from arbiter_lab.reproduction.publication import rewrite
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.stated_claims import (
    HEADS,
    StatedClaim,
    format_claims,
    list_sections,
    read_stated_claims,
)
from arbiter_lab.reproduction.tables import tabulate_paired_tests
from arbiter_lab.reproduction.text_tables import read_markdown_rows
from arbiter_lab.reproduction.verdicts import ClaimVerdict, judge_collapse

DOCS = Path(__file__).parents[3] / "docs"
KEPT = DOCS / "results"
PAGES = (DOCS / "paper.md", DOCS / "notebook" / "paper.md")
LONGEST_CLAIM = 90  # characters
POWERS_OF_TEN = ("0.001", "0.000387")  # printed as powers of ten in the source


def find_faults(page: str) -> list[str]:
    """Faults of the tables of claims of a page: an unknown verdict, no link, a long claim."""
    faults = []
    for row in read_claim_rows(page):
        if row["verdict"] not in list(ClaimVerdict):
            faults.append(f"{row['claim']}: verdict {row['verdict']!r}")
        if not re.fullmatch(r"\[[^]]+\]\([^)]+#[^)]+\)", row["detail"]):
            faults.append(f"{row['claim']}: no link")
        if not row["line"].isdigit() or len(row["claim"]) > LONGEST_CLAIM:
            faults.append(f"{row['claim']}: not one line")
    return faults


def read_claim_rows(page: str) -> list[dict[str, str]]:
    tables = [table for table in re.split(r"\n\n+", page) if table.startswith("| claim |")]
    return [row for table in tables for row in read_markdown_rows(table)]


def slugify(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def test_every_claim_of_the_page_has_one_of_four_verdicts_and_a_link() -> None:
    page = PAGES[0].read_text(encoding="utf-8")
    assert find_faults(page) == []
    rows = read_claim_rows(page)
    assert len(rows) == len(read_stated_claims()) > 100
    assert {row["verdict"] for row in rows} == set(ClaimVerdict)
    assert len({(row["claim"], row["line"]) for row in rows}) == len(rows)


def test_faults_of_a_page_are_found() -> None:
    head = "| claim | line | verdict | detail |\n| --- | --- | --- | --- |\n"
    link = "[errata 7](errata.md#7-x)"
    assert find_faults(f"{head}| a | 1 | holds | {link} |") == []
    assert find_faults(f"{head}| a | 1 | false as stated | {link} |") == [
        "a: verdict 'false as stated'"
    ]
    assert find_faults(f"{head}| a | 1 | holds, mostly | {link} |") != []
    assert find_faults(f"{head}| a | 1 | holds | errata 7 |") == ["a: no link"]
    assert find_faults(f"{head}| a | 1 to 9 | holds | {link} |") != []


def test_links_of_the_claims_lead_to_headings() -> None:
    anchors = {
        path: {
            slugify(line.lstrip("#"))
            for line in (DOCS / path).read_text(encoding="utf-8").splitlines()
            if line.startswith("#")
        }
        for path in {claim.detail.partition("#")[0] for claim in read_stated_claims()}
    }
    lost = [c.detail for c in read_stated_claims() if c.detail.partition("#")[2] not in
            anchors[c.detail.partition("#")[0]]]  # fmt: skip
    assert lost == []


def test_a_measured_claim_has_the_verdict_of_its_row() -> None:
    measured = [claim for claim in read_stated_claims() if claim.measured]
    assert len(measured) > 20
    for claim in measured:
        (row,) = claim.find_rows(KEPT / "tables")
        assert claim.find_verdict(KEPT / "tables") == row["verdict"], claim
    absent = StatedClaim("results", "", 1, None, ("table1", "no such metric"), "")
    assert absent.find_verdict(KEPT / "tables") is ClaimVerdict.UNTESTABLE
    twice = StatedClaim("results", "", 1, None, ("table1", "NAS"), "")
    with pytest.raises(ValueError, match="2 rows"):
        twice.find_verdict(KEPT / "tables")
    with pytest.raises(ValueError, match="'eleven' is not one of abstract"):
        format_claims("eleven", KEPT / "tables")


def test_every_verdict_of_the_tables_is_one_of_four() -> None:
    found = set()
    for path in (KEPT / "tables").glob("*.md"):
        rows = read_markdown_rows(path.read_text(encoding="utf-8"))
        found |= {row["verdict"] for row in rows if "verdict" in row}
    assert found == {*ClaimVerdict, "–"}  # a dash where the paper has no claim


def test_claims_name_lines_of_the_source(data_dir: Path) -> None:
    source = data_dir.parent / "paper" / "arbiter.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not beside the data")
    lines = source.read_text(encoding="utf-8").splitlines()
    named = {"Lemma": "{lemma}", "Proposition": "{proposition}", "Theorem": "{theorem}"}
    for claim in read_stated_claims():
        text = lines[claim.line - 1]
        assert text.strip(), claim
        kind = next((end for start, end in named.items() if claim.claim.startswith(start)), "")
        assert kind in text, claim
        printed = re.findall(r"\d+\.\d{2,}", claim.claim) if claim.section == "results" else []
        assert all(number in text for number in printed if number not in POWERS_OF_TEN), claim
    assert list_sections()[0] == "abstract"
    assert HEADS == ("claim", "line", "verdict", "detail")


def test_paired_tests_are_read_back_from_their_table() -> None:
    text = (KEPT / "tables" / "pairs.md").read_text(encoding="utf-8")
    runs = read_results(KEPT / "results.json")
    again = tabulate_paired_tests({"pairs": read_paired_tests(text, runs)})
    assert again.markdown() == text
    with pytest.raises(ValueError, match="not a row"):
        read_paired_tests(text.replace("Holm p", "some p", 1), runs)


def test_a_kept_run_is_written_again_without_a_change(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(KEPT, docs / "results")
    (docs / "notebook").mkdir()
    pages = [Path(shutil.copy(page, docs / page.relative_to(DOCS))) for page in PAGES]
    rewrite(docs / "results", pages)
    assert check(docs / "results").passed
    for path in KEPT.rglob("*"):
        if path.is_file():
            assert (docs / path.relative_to(DOCS)).read_bytes() == path.read_bytes(), path
    assert [page.read_bytes() for page in pages] == [page.read_bytes() for page in PAGES]
    (docs / "results" / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="is not as it was written"):
        rewrite(docs / "results", pages)


def test_collapse_is_judged_by_the_score_without_the_part() -> None:
    (claim, *_) = ABLATIONS["gate_off"]
    judged = {value: judge_collapse(claim, {"NAS": value}).verdict for value in (1.0, 0.95, 0.5)}
    assert judged == {1.0: ClaimVerdict.FAILS, 0.95: ClaimVerdict.FAILS, 0.5: ClaimVerdict.HOLDS}
    assert judge_collapse(claim, {}).verdict is ClaimVerdict.UNTESTABLE


def test_routes_are_equal_where_both_intervals_overlap() -> None:
    def run(entropy: tuple[float, float], cvar: tuple[float, float]) -> dict[str, object]:
        intervals = {"relative_entropy": entropy, "cvar_alignment": cvar}
        values = {name: sum(ends) / 2.0 for name, ends in intervals.items()}
        return {**values, "intervals": intervals, "reason": {}, "about": {}}

    base, near, far = run((1, 2), (3, 4)), run((1.5, 3), (2, 3.5)), run((1, 2), (5, 6))
    heads = tabulate_training_routes({}).heads
    for other, verdict in ((near, ClaimVerdict.HOLDS), (far, ClaimVerdict.FAILS)):
        rows = tabulate_training_routes({"small": base, "small_mfm": other}).rows
        cells = [dict(zip(heads, row, strict=True)) for row in rows]
        (found,) = [row for row in cells if row["model"] == "MFM route (small)"]
        assert found["verdict"] == verdict
    assert "CVaR error higher" in found["reason"]


def test_a_model_that_beats_some_baselines_holds_in_a_corrected_form() -> None:
    def test(mean: float, p: float) -> dict[str, object]:
        return {
            "difference": {"mean": mean}, "holm_p_value": p, "holm_flip_p_value": p, "blocks": 99
        }  # fmt: skip

    runs = {name: {"about": {"kind": "peer"}, "iv_rmse_bp": 3.0} for name in ("svi", "ssvi")}
    runs["operator"] = {"about": {"kind": "operator"}, "iv_rmse_bp": 2.0}
    facts: dict[str, Facts] = {"stress": {"axes": {}}, "measure": {}}
    better, worse, unclear = test(-1.0, 1e-4), test(1.0, 1e-4), test(-1.0, 0.5)
    for tests, verdict in (
        ((better, better), ClaimVerdict.HOLDS),
        ((better, unclear), ClaimVerdict.CORRECTED),
        ((better, worse), ClaimVerdict.FAILS),
        ((unclear, unclear), ClaimVerdict.FAILS),
    ):
        pairs = {"tests": dict(zip(("svi", "ssvi"), tests, strict=True)), "left_out": {}}
        facts["measure"] = {"pairs": {"operator": pairs}}
        table = headlines.tabulate_headlines(runs, facts)
        assert table.rows[-1][2] == verdict, table.rows[-1]
        assert table.rows[0][2] == ClaimVerdict.UNTESTABLE  # nothing was scored
