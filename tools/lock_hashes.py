"""SHA-256 of every file that `make` installs, for each Python and system of the table below.

    python tools/lock_hashes.py          write hashes.txt from constraints.txt, by pip's own reports
    python tools/lock_hashes.py --fits   exit code 0 if hashes.txt is for this Python and system

Other systems install the same versions without hashes. PyTorch is left out, and what it installs
for a GPU: its builds for a CPU and for a GPU have one version and different files.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "hashes.txt"
UNHASHED = ("torch",)
PYTHONS = ("3.11.9", "3.12.9", "3.13.3")  # any version of these three: files are by the first two
# Names of systems as Python gives them, and the platforms of wheels that pip is asked about.
SYSTEMS = {
    "Linux x86_64": [
        f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_24", "2014", "1")
    ],
    "Linux aarch64": [f"manylinux{name}_aarch64" for name in ("_2_28", "_2_27", "_2_24", "2014")],
    "Darwin arm64": ["macosx_14_0_arm64"],
    "Windows AMD64": ["win_amd64"],
}
HEADER = """\
# Files of the versions in constraints.txt. Written by tools/lock_hashes.py.
# Not listed: {unhashed}, whose file depends on the registry, with or without a GPU.
# For CPython {pythons} on {systems}.
"""


def name_system() -> tuple[str, str]:
    """Python and system, as far as they decide which file of a version is installed."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    known = platform.python_implementation() == "CPython"
    if platform.system() == "Linux":
        known &= platform.libc_ver()[0] == "glibc"
    return python if known else "", f"{platform.system()} {platform.machine()}"


def normalise_name(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_versions(path: Path) -> dict[str, str]:
    """Version by normalised name of the lines `name==version` of a file."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {normalise_name(name): version for name, version in found}


def list_hashes(reports: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each package of pip's reports, with the hashes of all, and no host or path."""
    found: dict[str, set[str]] = {}
    for item in (item for report in reports for item in report["install"]):
        name, version = normalise_name(item["metadata"]["name"]), item["metadata"]["version"]
        if name not in UNHASHED:
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            found.setdefault(f"{name}=={version}", set()).add(f"--hash=sha256:{digest}")
    return [" ".join((name, *sorted(hashes))) for name, hashes in sorted(found.items())]


def ask_pip(python: str, platforms: Sequence[str]) -> dict[str, Any]:
    """What pip would install there, with the hash of every file."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--report", "-", "--python-version", python]
    for name in platforms:
        command += ["--platform", name]
    pinned = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    kept = [line for line in pinned if "==" in line and line.split("==")[0] not in UNHASHED]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--target", folder, *kept]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="hashes of what make installs")
    parser.add_argument("--fits", action="store_true", help="whether hashes.txt is for this system")
    pythons = [python.rpartition(".")[0] for python in PYTHONS]
    if parser.parse_args().fits:
        python, system = name_system()
        return 0 if python in pythons and system in SYSTEMS else 1
    reports = [ask_pip(python, names) for names in SYSTEMS.values() for python in PYTHONS]
    names = {"unhashed": UNHASHED, "pythons": pythons, "systems": SYSTEMS}
    header = HEADER.format(**{key: ", ".join(values) for key, values in names.items()})
    HASHES.write_text(header + "\n".join(list_hashes(reports)) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
