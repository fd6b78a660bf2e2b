"""Parts of pages that stand in somebody else's page: a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from silva.insight.style import FRAGMENT


def fragment(body: str) -> str:
    """The body with its own style around it."""
    return f'<style>{FRAGMENT}</style><div class="silva">{body}</div>'


def bar(share: float) -> str:
    """A share as a bar.

    >>> bar(0.5)
    '<div class="track"><div class="fill" style="width:50.0%"></div></div>'
    """
    width = min(max(share, 0.0), 1.0) * 100
    return f'<div class="track"><div class="fill" style="width:{width:.1f}%"></div></div>'


def rows_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already: a text, a bar, and numbers."""
    top = "".join(f"<th{_css(i)}>{escape(name)}</th>" for i, name in enumerate(head))
    body = "".join(
        f"<tr>{''.join(f'<td{_css(i)}>{cell}</td>' for i, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f'<table class="measured"><tr>{top}</tr>{body}</table>'


def _css(column: int) -> str:
    return "" if column == 0 else ' class="bar"' if column == 1 else ' class="number"'
