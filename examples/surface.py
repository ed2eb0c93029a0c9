"""Decode and certify the built-in example, and write what a user would keep."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import arbiter as ab


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    surface = ab.example()
    print(surface)
    certificate = surface.certificate()
    print(certificate)

    surface.save(out / "surface.npz")
    (out / "certificate.json").write_text(certificate.to_json(indent=1))
    surface.to_frame().write_csv(out / "surface.csv")
    surface.plot(out / "surface.png")
    for name in ("surface.npz", "certificate.json", "surface.csv", "surface.png"):
        print(f"wrote {out / name}")
    return 0 if certificate.passed else 1


if __name__ == "__main__":
    sys.exit(main())
