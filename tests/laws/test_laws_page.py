"""The page about laws lists the laws that there are."""

from __future__ import annotations

from pathlib import Path

import silva as sv

PAGE = Path(__file__).parents[2] / "docs" / "laws.md"


def lines() -> list[str]:
    """What the page must say, a line a law."""
    built_in = [law for law in sv.laws() if law.rewrite.__module__.startswith("silva.")]
    return [
        "| law | equation | kind | where it does not hold |",
        "| --- | --- | --- | --- |",
        *(f"| `{law.name}` | `{law.equation}` | {law.kind} | {law.fails} |" for law in built_in),
        *(f"- `{law.name}`: {law.bound}" for law in built_in if law.bound is not None),
    ]


def test_the_page_lists_every_law_with_what_the_law_itself_says():
    page = PAGE.read_text().splitlines()
    wanted = lines()
    missing = [line for line in wanted if line not in page]
    assert not missing, "add to docs/laws.md:\n" + "\n".join(missing)
    listed = [line for line in page if line.startswith("| `")]
    unknown = [line for line in listed if line not in wanted]
    assert not unknown, "remove from docs/laws.md:\n" + "\n".join(unknown)
