"""Keep a run with the source: docs/results/ (5 MB at the most) and the numbers of docs/paper.md.

Usage: python tools/publish_results.py [RESULTS]
"""

from __future__ import annotations

import sys
from pathlib import Path

from arbiter_lab.reproduction.publication import publish

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results")
    try:
        kept = publish(source, DOCS / "results", DOCS / "paper.md")
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    print(f"{kept}: {size:,} bytes; {DOCS / 'paper.md'} has its numbers")


if __name__ == "__main__":
    main()
