"""Formats numbers with their units, places in files, and lines of at most 100 characters."""

from __future__ import annotations

import re

from silva.facts.defaults import without_defaults

WIDTH = 100
_PLACE = re.compile(r"\[[^\[\]\n]*[/\\]([^/\\\[\]\n]+:\d+)\]")
_CALL = re.compile(r"(?<=\))(?=\.\w+\()")
_FRACTION = re.compile(r"\d+\.\d{8,}")
_DRAWN = " │├└─·"


def tidy(text: str) -> str:
    """Shortens `[/long/path/file.py:12]` to `[file.py:12]`, and long fractions to four digits, and
    leaves out arguments of operators that have their default values.

    >>> tidy("label = lambda(path)  [/home/me/train.py:12]")
    'label = lambda(path)  [train.py:12]'
    >>> tidy("x.scale(ratio=1.3333333333333333)")
    'x.scale(ratio=1.333)'
    """
    short = _PLACE.sub(r"[\1]", without_defaults(text))
    return _FRACTION.sub(lambda found: f"{float(found[0]):.4g}", short)


def wrapped(text: str, first: str = "", rest: str = "    ", width: int = WIDTH) -> list[str]:
    """Breaks text into lines of at most `width`; a chain that does not fit gets a line per call.

    >>> print("\\n".join(wrapped("y = x.decode(mode='rgb').resize(height=8).flip()", width=30)))
    y = x.decode(mode='rgb')
        .resize(height=8)
        .flip()
    """
    if len(first) + len(text) <= width:
        return [first + text]
    lines: list[str] = []
    start = first
    for part in _CALL.split(text):
        line = start
        for word in re.findall(r"\s*\S+", part):
            if len(line) + len(word) > width and line.strip(_DRAWN):
                lines.append(line)
                line, word = rest + "  " * (start == rest), word.lstrip()
            line += word
            while len(line) > width:
                lines.append(line[:width])
                line = rest + line[width:]
        lines.append(line)
        start = rest
    return lines


def shortened(text: str, width: int) -> str:
    """Text as one line of at most `width` characters.

    >>> shortened("a function with a long name", 12)
    'a function …'
    """
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def seconds(value: float) -> str:
    """A duration with its unit.

    >>> seconds(0.0042), seconds(2.5), seconds(130), seconds(2e-7)
    ('4.2 ms', '2.5 s', '130 s', '<1 µs')
    """
    if 0 < value < 5e-7:
        return "<1 µs"
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 or value == 0 else f"{value * 1e6:.0f} µs"


def size(count: float) -> str:
    """A number of bytes with its unit.

    >>> size(900), size(3 << 20)
    ('900 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("not reached")


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.034), percent(0.0004)
    ('3 %', '<1 %')
    """
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun in singular or plural.

    >>> plural(1, "row"), plural(1200, "row"), plural(3, "batch")
    ('1 row', '1,200 rows', '3 batches')
    """
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def times(factor: float) -> str:
    """A factor, as in "2.6 times as fast".

    >>> times(2.613), times(14.2)
    ('2.6×', '14×')
    """
    return f"{factor:.1f}×" if factor < 9.95 else f"{factor:,.0f}×"


def rate(rows_per_second: float) -> str:
    """A throughput with its unit.

    >>> rate(3.14159), rate(12345.6)
    ('3.1 rows/s', '12,346 rows/s')
    """
    digits = 1 if rows_per_second < 99.5 else 0
    return f"{rows_per_second:,.{digits}f} rows/s"


def error(share: float) -> str:
    """How far a prediction was from the measurement.

    >>> error(0.12), error(-0.3), error(0.001)
    ('12 % too high', '30 % too low', 'right')
    """
    if abs(share) < 0.005:
        return "right"
    return f"{abs(share) * 100:.0f} % too {'high' if share > 0 else 'low'}"
