"""A line over time as SVG, drawn by hand: no script, no network."""

from __future__ import annotations

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 960, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 24


def line_chart(points: Sequence[tuple[float, float]], *, css: str, percent: bool = False) -> str:
    """The points (seconds, value) as a filled line with a few labelled grid lines.

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
