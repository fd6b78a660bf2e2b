"""`python -m benchmarks.planner [claims…] [--quick] [--json FILE]`."""

from __future__ import annotations

import sys

from benchmarks.claims import Claims
from benchmarks.planner.claims import CLAIMS, FULL, QUICK, SHORT

if __name__ == "__main__":
    sys.exit(Claims("planner", "The planner's claims", CLAIMS, FULL, QUICK, SHORT).main())
