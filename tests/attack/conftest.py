"""Hostile inputs: each case names the promise of `docs/promises.md` that it attacks.

A case is a test marked `@pytest.mark.attacks("Data is never code")`. `make attack` runs them
all, also those marked rest, and prints how many cases attack each promise.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "promises.md"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    promises = set(re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        marks = [mark.args[0] for mark in item.iter_markers("attacks")]
        if not marks:
            raise pytest.UsageError(f"{item.nodeid} does not name the promise that it attacks")
        if unknown := set(marks) - promises:
            raise pytest.UsageError(f"{item.nodeid} attacks {unknown}, which is no promise")
        item.user_properties += [("attacks", promise) for promise in marks]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        if isinstance(report, pytest.TestReport):
            counts.update(value for name, value in report.user_properties if name == "attacks")
    if counts:
        terminalreporter.section("promises attacked")
        for promise, count in counts.most_common():
            terminalreporter.line(f"{count:5} {promise}")
