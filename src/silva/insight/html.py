"""The pieces of pages: a style sheet, cards, panels, tables, bars and charts.

A page loads nothing, and a fragment for a notebook styles nothing outside itself. Everything that
comes from a plan, a row or a file is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from silva.facts.formatting import wrapped

_COLUMN = 54
"""Characters that fit into half of a page, or into the first column of a table."""
_WIDTH, _HEIGHT = 960, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 24
"""Pixels of a chart, and of its margins."""
_MEASURED = ' class="measured"'


# Pieces.


def page(title: str, body: str) -> str:
    """A whole page that loads nothing else."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE}</style></head>"
        f'<body><main class="silva">{body}</main></body></html>\n'
    )


def header(label: str, title: str) -> str:
    return f"<header><p>{escape(label)}</p><h1>{with_code(title)}</h1></header>"


def fragment(body: str) -> str:
    """A part of another page, such as a notebook, with its own style."""
    return f'<style>{FRAGMENT}</style><div class="silva">{body}</div>'


def with_code(text: str) -> str:
    """Text in which `backquotes` are code.

    >>> with_code("step `a < b` is slow")
    'step <code>a &lt; b</code> is slow'
    """
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def cards(values: Sequence[tuple[str, str]]) -> str:
    """Numbers, each with its meaning below it."""
    each = (f"<b>{escape(value)}</b><span>{escape(name)}</span>" for name, value in values)
    inner = "".join(f'<div class="card">{one}</div>' for one in each)
    return f'<div class="cards">{inner}</div>'


def panel(title: str, body: str, subtitle: str = "") -> str:
    return f'<div class="panel"><h3>{escape(title)}</h3>{note(subtitle)}{body}</div>'


def note(text: str) -> str:
    return f'<p class="note">{with_code(text)}</p>' if text else ""


def pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def bar(share: float) -> str:
    """A share as a bar.

    >>> bar(0.5)
    '<div class="track"><div class="fill" style="width:50.0%"></div></div>'
    """
    width = min(max(share, 0.0), 1.0) * 100
    return f'<div class="track"><div class="fill" style="width:{width:.1f}%"></div></div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], measured: bool = False) -> str:
    """A table of cells that are HTML already; if `measured`, of a text, a bar, and numbers."""
    css = [""] * len(head)
    if measured:
        css[1:] = [' class="bar"', *[' class="number"'] * (len(head) - 2)]
    lines = [_line("th", map(escape, head), css), *(_line("td", row, css) for row in rows)]
    return f"<table{_MEASURED if measured else ''}>{''.join(lines)}</table>"


def _line(tag: str, cells: Iterable[str], css: Sequence[str]) -> str:
    inner = (f"<{tag}{c}>{cell}</{tag}>" for cell, c in zip(cells, css, strict=True))
    return f"<tr>{''.join(inner)}</tr>"


def code(text: str) -> str:
    """Code in lines that fit; a long chain gets a line per call."""
    return f"<code>{escape(chr(10).join(wrapped(text, width=_COLUMN)))}</code>"


# A line over time as SVG, without a script.


def line_chart(points: Sequence[tuple[float, float]], *, css: str, percent: bool = False) -> str:
    """The points (seconds, value) as a filled line with labelled grid lines.

    >>> line_chart([], css="speed")
    ''
    """
    if len(points) < 2:
        return ""
    last = points[-1][0] or 1.0
    top = 1.0 if percent else _round_up(max(v for _, v in points))
    xy = [(_x(t, last), _y(v, top)) for t, v in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in xy)
    base = _y(0, top)
    area = f"{xy[0][0]:.1f},{base:.1f} {path} {xy[-1][0]:.1f},{base:.1f}"
    grid = "".join(_grid(top * i / 2, top, percent) for i in range(3))
    times = "".join(
        f'<text x="{_x(last * i / 4, last):.0f}" y="{_HEIGHT - 6}" text-anchor="{_anchor(i)}">'
        f"{last * i / 4:.{0 if last >= 8 else 1}f} s</text>"
        for i in range(5)
    )
    return (
        f'<svg class="chart {css}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'{grid}{times}<polygon points="{area}"/><polyline points="{path}"/></svg>'
    )


def _x(t: float, last: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * t / last


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(value / top, 1.0)


def _anchor(i: int) -> str:
    return "start" if i == 0 else "end" if i == 4 else "middle"


def _grid(value: float, top: float, percent: bool) -> str:
    y = _y(value, top)
    label = f"{value:.0%}" if percent else f"{value:,.0f}"
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 10, 20, …"""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next((m * unit for m in (1, 2, 4, 5) if m * unit >= value), 10 * unit)


# The style sheet: light or dark by the reader's setting.

_LIGHT = """
  --paper: #fbfbf9; --card: #ffffff; --ink: #1c2421; --soft: #5d6b66; --line: #e3e7e3;
  --leaf: #2f7d4f; --leaf-soft: #dcefe2; --amber: #b4690e; --amber-soft: #f8e8d0; --red: #b3372f;
"""
_DARK = """
  --paper: #121715; --card: #1a211e; --ink: #e6ece8; --soft: #93a29b; --line: #2b3530;
  --leaf: #67c58b; --leaf-soft: #1f3a2a; --amber: #e2a24a; --amber-soft: #3a2d17; --red: #ef8078;
"""
_PIECES = """
h3 { margin: 0 0 8px; font-size: 14.5px; font-weight: 620; color: var(--ink); }
code, pre {
  font: 12.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: none; color: inherit; padding: 0; }
pre { margin: 8px 0 0; max-height: 320px; overflow: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; }
.card, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 9px; }
.card { padding: 12px 14px; }
.card b { display: block; font-size: 20px; font-weight: 620; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.panel { padding: 14px 16px; margin: 10px 0; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 10px; }
.two .panel { margin: 0; min-width: 0; }
.note { margin: 4px 0; color: var(--soft); font-size: 13.5px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; color: var(--ink); }
tr, th, td { background: none; }
th { text-align: left; font-weight: 560; color: var(--soft); }
th, td { padding: 6px 11px 6px 0; border-top: 1px solid var(--line); vertical-align: top;
  text-align: left; }
tr:first-child > * { border-top: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; }
.measured .bar { width: 12%; }
.measured .operator { padding-left: 18px; color: var(--soft); }
.track { height: 8px; margin-top: 7px; border-radius: 5px; background: var(--leaf-soft); }
.fill { height: 8px; border-radius: 5px; background: var(--leaf); min-width: 2px; }
.plan, .plan ul, .decisions, .decisions ul { list-style: none; margin: 0; padding: 0; }
.plan li { padding: 2px 0; overflow-wrap: anywhere; }
.plan code { white-space: pre-wrap; }
.plan .stage { margin: 4px 0; padding: 6px 10px; border-left: 3px solid var(--leaf);
  background: var(--leaf-soft); border-radius: 0 6px 6px 0; }
.plan .branch { margin: 4px 0 4px 10px; padding-left: 10px; border-left: 1px solid var(--line); }
.plan s { color: var(--soft); text-decoration-color: var(--red); }
.plan .moved::after { content: "moved"; margin-left: 8px; padding: 0 6px; border-radius: 8px;
  background: var(--leaf); color: var(--card); font: 11px/1.5 system-ui, sans-serif; }
.decisions > li { padding: 4px 0; }
.decisions ul { padding-left: 16px; color: var(--soft); font-size: 13px; }
.decisions .gain { color: var(--leaf); font-weight: 560; }
.decisions .unused { color: var(--amber); }
"""
"""The pieces that pages and fragments share."""

_PAGE_PIECES = """
header p { margin: 0; color: var(--soft); font-size: 13px; letter-spacing: .04em; }
h1 { margin: 6px 0 26px; font-size: 25px; line-height: 1.3; font-weight: 620; max-width: 44em; }
h1 code { font-size: .84em; background: var(--leaf-soft); padding: 1px 6px; border-radius: 5px; }
h2 { margin: 36px 0 12px; font-size: 17px; font-weight: 620; }
.error { color: var(--red); }
summary { cursor: pointer; color: var(--soft); font-size: 13px; }
.chart { width: 100%; height: auto; display: block; margin-top: 8px; }
.chart line { stroke: var(--line); }
.chart text { fill: var(--soft); font-size: 11.5px; font-family: inherit; }
.chart polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart polygon { stroke: none; }
.speed polyline { stroke: var(--leaf); } .speed polygon { fill: var(--leaf-soft); }
.wait polyline { stroke: var(--amber); } .wait polygon { fill: var(--amber-soft); }
footer { margin-top: 44px; color: var(--soft); font-size: 12.5px; }
"""


def _scoped(sheet: str) -> str:
    """A style sheet with rules that apply only inside of an element of class `silva`.

    >>> _scoped("a, b { x: y; }").strip()
    '.silva a, .silva b { x: y; }'
    """
    rules = []
    for rule in sheet.split("}"):
        names, brace, body = rule.partition("{")
        if brace:
            scoped = ", ".join(f".silva {name.strip()}" for name in names.split(","))
            rules.append(f"{scoped} {{{body}}}")
    return "\n".join(rules)


FRAGMENT = f"""
.silva {{ color-scheme: light dark; {_LIGHT} color: var(--ink); max-width: 1080px;
  font: 14.5px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
@media (prefers-color-scheme: dark) {{ .silva {{ {_DARK} }} }}
{_scoped(_PIECES)}
"""
"""The style of a fragment: nothing outside of it is touched."""

PAGE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
body {{ margin: 0; background: var(--paper); }}
main {{ margin: 0 auto; padding: 40px 28px 72px; }}
* {{ box-sizing: border-box; }}
{FRAGMENT}
{_scoped(_PAGE_PIECES)}
"""
"""The style of a whole page."""
