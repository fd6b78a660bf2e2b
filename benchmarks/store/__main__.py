"""`python -m benchmarks.store [claims…] [--quick] [--json FILE]`."""

from __future__ import annotations

import sys

from benchmarks.claims import Claims
from benchmarks.store.claims import CLAIMS, SHORT
from benchmarks.store.setting import FULL, QUICK

if __name__ == "__main__":
    sys.exit(Claims("store", "The store's claims", CLAIMS, FULL, QUICK, SHORT).main())
