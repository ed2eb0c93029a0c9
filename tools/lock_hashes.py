"""SHA-256 of every file that `make` installs on the machine this version is developed on.

    python tools/lock_hashes.py          write hashes.txt from constraints.txt, by pip's own report
    python tools/lock_hashes.py --fits   exit code 0 if hashes.txt is for this Python and system

Other systems take other files, whose hashes are not known here: they install the same versions.
PyTorch is left out: its builds for a CPU and for a GPU have one version and different files.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "hashes.txt"
UNHASHED = ("torch",)
HEADER = """\
# Files of the versions in constraints.txt, for {system}. Written by tools/lock_hashes.py.
# Not listed: {unhashed}, whose file depends on the registry, with or without a GPU.
"""


def name_system() -> str:
    """Python and system, as far as they decide which file of a version is installed."""
    python = f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}"
    library = " ".join(part for part in platform.libc_ver()[:1] if part)
    return f"{python}, {sysconfig.get_platform()} {library}".strip()


def normalise_name(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_versions(path: Path) -> dict[str, str]:
    """Version by normalised name of the lines `name==version` of a file."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {normalise_name(name): version for name, version in found}


def list_hashes(report: Mapping[str, Any]) -> list[str]:
    """A line for each package of pip's report, without hosts and paths."""
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if normalise_name(name) in UNHASHED:
            continue
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    return sorted(lines, key=str.lower)


def ask_pip() -> dict[str, Any]:
    """What pip would install, with the hash of every file."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--report", "-", "-r", str(CONSTRAINTS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="hashes of what make installs")
    parser.add_argument("--fits", action="store_true", help="whether hashes.txt is for this system")
    if parser.parse_args().fits:
        first = HASHES.read_text(encoding="utf-8").partition("\n")[0]
        return 0 if f"for {name_system()}. " in first else 1
    header = HEADER.format(system=name_system(), unhashed=", ".join(UNHASHED))
    HASHES.write_text(header + "\n".join(list_hashes(ask_pip())) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
