"""The README's chart: silva, the hand-written limit and the fastest peers on four workloads.

`python -m benchmarks.readme` draws it from the last results. It is an SVG with a background of its
own, whose colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import statistics
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.plot import is_silva

PANELS = {
    "simclr": "Photos: decode, crop, jitter, blur",
    "text": "Text: tokenize, pad, embed",
    "audio": "Speech: resample, mel spectrogram",
    "recsys": "Parquet: hash lists, clip, log",
}
"""The workloads that are drawn, one for each kind of data, with a title that fits."""
PEERS = 4
"""Peers in a panel: DataLoader, and the fastest of the others."""
BY_HAND, DATA_LOADER = "by hand", "DataLoader"

WIDTH, MARGIN, GAP = 800, 16, 24  # pixels, as all that follow
LABEL, VALUE, TITLE, LINE, BAR = 122, 66, 26, 22, 15

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328; font: 12px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 13px } .value { font-variant-numeric: tabular-nums }
  rect.silva { fill: #2f8f5b } rect.limit { fill: #b3b9c0 } rect.peer { fill: #86a3c7 }
  text.silva { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #30363d } text { fill: #e6edf3 }
    rect.silva { fill: #3fb950 } rect.limit { fill: #6e7681 } rect.peer { fill: #5b7aa5 }
  }"""


def rates(workload: dict[str, Any]) -> list[tuple[str, float]]:
    """Names and median rows per second: silva, the limit, then DataLoader and the fastest other
    peers, each in its fastest configuration."""
    best: dict[str, float] = {}
    for contestant in workload["contestants"]:
        runs = [run["rate"] for run in contestant["runs"] if run]
        if not runs:
            continue
        name = contestant["name"].partition(",")[0]
        name = "silva" if is_silva(name) else BY_HAND if contestant["limit"] else name
        best[name] = max(best.get(name, 0.0), statistics.median(runs))
    ours = [(name, best.pop(name)) for name in ("silva", BY_HAND)]
    others = sorted(best, key=lambda name: (name != DATA_LOADER, -best[name]))[:PEERS]
    return ours + sorted(((name, best[name]) for name in others), key=lambda pair: -pair[1])


def draw(results: dict[str, Any]) -> str:
    """The chart as the text of an SVG file."""
    found = {workload["name"]: workload for workload in results["workloads"]}
    panel = (WIDTH - 2 * MARGIN - GAP) // 2
    tall = TITLE + (PEERS + 2) * LINE
    height = 2 * MARGIN + 2 * tall + 12 + 24
    parts = [
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'
    ]
    for number, (name, title) in enumerate(PANELS.items()):
        left = MARGIN + number % 2 * (panel + GAP)
        top = MARGIN + number // 2 * (tall + 12)
        parts += _panel(title, rates(found[name]), left, top, panel)
    machine = results["machine"]
    note = (
        "Rows per second (longer is better), each peer in its fastest configuration; "
        f"{machine['cpus']} cores of an {machine['cpu']}, {results['date']}"
    )
    parts.append(f'<text x="{MARGIN}" y="{height - 14}">{escape(note)}</text>')
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(note)}">'
    )
    return "\n".join([opening, f"<style>{STYLE}\n</style>", *parts, "</svg>", ""])


def _panel(title: str, bars: list[tuple[str, float]], left: int, top: int, width: int) -> list[str]:
    longest = max(rate for _, rate in bars)
    parts = [f'<text class="title" x="{left}" y="{top + 13}">{escape(title)}</text>']
    for place, (name, rate) in enumerate(bars):
        middle = top + TITLE + place * LINE + BAR // 2
        kind = {"silva": "silva", BY_HAND: "limit"}.get(name, "peer")
        start = left + LABEL + 8
        length = (width - LABEL - 8 - VALUE) * rate / longest
        parts += [
            f'<text class="{kind}" x="{left + LABEL}" y="{middle + 4}" text-anchor="end">'
            f"{escape(name)}</text>",
            f'<rect class="{kind}" x="{start}" y="{middle - BAR // 2}" width="{length:.1f}" '
            f'height="{BAR}" rx="2"/>',
            f'<text class="value" x="{start + length + 6:.1f}" y="{middle + 4}">{rate:,.0f}</text>',
        ]
    return parts
