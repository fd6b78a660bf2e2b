"""`python -m benchmarks.serving [claims…] [--quick] [--json FILE]`."""

from __future__ import annotations

import sys

from benchmarks.claims import Claims
from benchmarks.serving.claims import CLAIMS, FULL, QUICK, SHORT

if __name__ == "__main__":
    sys.exit(Claims("serving", "Requests over HTTP", CLAIMS, FULL, QUICK, SHORT).main())
