"""Install the built wheel in an empty environment and use it from outside the source tree.

Usage: check_wheel.py DIST CONSTRAINTS
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROBE = """
import sys
from pathlib import Path

import arbiter

package = Path(arbiter.__file__).resolve().parent
prefix = Path(sys.prefix).resolve()
if not package.is_relative_to(prefix):
    sys.exit(f"arbiter was imported from {package}, not from the environment {prefix}")
if not (package / "py.typed").is_file():
    sys.exit(f"py.typed is missing from {package}: type checkers would ignore the package")
for name in getattr(arbiter, "__all__", ()):
    getattr(arbiter, name)
print(f"arbiter imports from {package.relative_to(prefix)}, with py.typed")
"""


def check_wheel(wheel: Path, constraints: Path, folder: Path) -> None:
    """Install `wheel` with its core dependencies under `folder` and try its import and commands."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path) -> None:
        subprocess.run(command, cwd=folder, env=environment, check=True)

    venv.create(folder / "env", with_pip=True)
    scripts = folder / "env" / "bin"
    python = scripts / "python"
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "-c", constraints, wheel)
    run(python, "-m", "pip", "check")
    run(python, "-I", "-c", PROBE)
    run(scripts / "arbiter", "--help")
    # the shipped chain, the page's template and every core dependency take part in this
    run(scripts / "arbiter", "fit", "--out", folder / "out")
    # and the shipped weights in this
    run(scripts / "arbiter", "fit", "--method", "both", "--no-report", "--out", folder / "both")


def main() -> None:
    dist, constraints = (Path(argument).resolve() for argument in sys.argv[1:])
    wheels = list(dist.glob("arbiter_vol-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"expected one arbiter_vol wheel in {dist}, found {len(wheels)}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_wheel(wheels[0], constraints, Path(folder))
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd[:3]))
            sys.exit(f"{wheels[0].name} failed its check at: {command} (exit {error.returncode})")
    print(f"{wheels[0].name} works in an empty environment")


if __name__ == "__main__":
    main()
