"""Keep a run with the source: docs/results/ (5 MB at the most) and the numbers of its pages.

The pages are docs/paper.md and docs/notebook/paper.md. With ``--rewrite`` the tables and the report
of the kept run are written again in the words of today's code; no number is computed again.

Usage: python tools/publish_results.py [RESULTS]
       python tools/publish_results.py --rewrite
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from arbiter_lab.reproduction.publication import publish, rewrite

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = (DOCS / "paper.md", DOCS / "notebook" / "paper.md")


def main() -> None:
    parser = argparse.ArgumentParser(description="Keep a run with the source.")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--rewrite", action="store_true", help="write the kept tables again")
    options = parser.parse_args()
    try:
        if options.rewrite:
            kept = rewrite(DOCS / "results", PAGES)
        else:
            kept = publish(options.results, DOCS / "results", PAGES)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    names = " and ".join(str(page.relative_to(DOCS.parent)) for page in PAGES)
    print(f"{kept}: {size:,} bytes; {names} have its numbers")


if __name__ == "__main__":
    main()
