"""Makes a case that fails smaller: verbs and pipelines are left out as long as it still fails."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace

from fuzz_case import Case
from fuzz_check import check
from fuzz_ways import Different, Effort


def shrink(case: Case, effort: Effort, seconds: float = 20.0) -> tuple[Case, str]:
    """A smaller case that fails as well, and what it says."""
    what, found = _fails(case, effort) or ("", "(it did not fail again)")
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller and time.monotonic() < deadline:
        smaller = False
        for tree in case.tree.smaller():
            less = replace(case, tree=tree)
            said = _fails(less, effort)
            if said is not None and said[0] == what:
                case, found, smaller = less, said[1], True
                break
            if time.monotonic() > deadline:
                break
    return case, found


def _fails(case: Case, effort: Effort) -> tuple[str, str] | None:
    try:
        case.build()
    except Exception:  # noqa: BLE001  a verb was left out that others need
        return None
    try:
        for _ in range(2):
            check(case, effort)
    except Different as error:
        return error.what, str(error)
    except Exception as error:  # noqa: BLE001  whatever it is, it is what a smaller one must raise
        return type(error).__name__, traceback.format_exc()
    return None
