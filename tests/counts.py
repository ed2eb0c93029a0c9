"""How many cases a test runs: the stated number under `make verify`, fewer under `make test`."""

import os

FULL = os.environ.get("ARBITER_VERIFY") == "1"


def count(full: int, reduced: int) -> int:
    """Return the stated count `full` when ARBITER_VERIFY=1, else `reduced`."""
    return full if FULL else reduced
