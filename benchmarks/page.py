"""One self-contained page of a JSON result: `python -m benchmarks.page results.json page.html`.

Nothing is loaded from elsewhere, and nothing runs: bars are boxes with a width.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.plot import WIDE, is_silva
from benchmarks.table import in_units

_HEADS = {"rate": "rows/s", "first": "seconds to the first batch", "peak": "peak MiB"}
_OTHERS = (("first", "first s"), ("cpu_row", "CPU µs/row"), ("peak", "peak MiB"))

_STYLE = """
:root { color-scheme: light dark; --silva: #2f7d4f; --limit: #a8a8a8; --other: #8fa7c4; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2.5rem 0 .3rem }
p, footer { color: color-mix(in srgb, currentColor 65%, transparent); margin: .3rem 0 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { font-weight: 500; text-align: right } th:first-child, td:first-child { text-align: left }
td, th { padding: .15rem .5rem; text-align: right; white-space: nowrap }
td.bar { width: 45%; padding: 0 }
.track { position: relative; height: 1.1rem }
.fill { position: absolute; inset: 0 auto 0 0; background: var(--other); border-radius: 2px }
.silva .fill { background: var(--silva) } .limit .fill { background: var(--limit) }
.silva td:first-child { font-weight: 600 }
.spread { position: absolute; top: 50%; height: 0; border-top: 1.5px solid; min-width: 1px }
.line { position: absolute; top: -.15rem; bottom: -.15rem; border-left: 2px dashed #c2410c }
.missing td { opacity: .6 }
.reached { color: var(--silva) } .not { color: #c2410c }
@media (max-width: 50rem) { .more { display: none } }
"""


def page(result: dict[str, Any]) -> str:
    machine = result["machine"]
    facts = (
        f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}, {result['date']}"
    )
    sections = "\n".join(_section(workload) for workload in result["workloads"])
    quick = "<p><b>A quick run: says little.</b></p>" if result["quick"] else ""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>silva and its peers</title><style>{_STYLE}</style>
<h1>silva and its peers, side by side</h1>
<p>Medians of interleaved runs, each in a new process; the thin line is the spread from the lowest
to the highest, the dashed one the limit: what is written by hand for this one job.</p>{quick}
{sections}
<footer><p>{escape(facts)}. Made by <code>make bench</code>.</p></footer>
</html>
"""


def _section(workload: dict[str, Any]) -> str:
    metric = workload["metric"]
    values = {c["name"]: _values(c, metric) for c in workload["contestants"]}
    found = [x for runs in values.values() for x in runs]
    if not found:
        return f"<h2>{escape(workload['title'])}</h2><p>nothing was measured</p>"
    place = _scale(found)
    limits = [values[c["name"]] for c in workload["contestants"] if c["limit"]]
    line = place(statistics.median(limits[0])) if limits and limits[0] else None
    rows = "".join(_row(c, values[c["name"]], metric, place, line) for c in workload["contestants"])
    words = [workload.get("remarks"), workload.get("data"), _how(found)]
    text = "; ".join(escape(x) for x in words if x)
    others = "".join(f'<th class="more">{name}</th>' for key, name in _OTHERS if key != metric)
    return f"""<section><h2>{escape(workload["title"])}</h2><p>{text}</p>
<table><tr><th></th><th></th><th>{_HEADS[metric]}</th>{others}</tr>{rows}</table>
{_targets(workload["targets"])}</section>"""


def _row(
    contestant: dict[str, Any], values: list[float], metric: Any, place: Any, line: float | None
) -> str:
    name = escape(contestant["name"])
    if not values:
        why = "not installed" if contestant.get("missing") else "failed"
        return f'<tr class="missing"><td>{name}</td><td class="bar"></td><td>{why}</td></tr>'
    kind = "limit" if contestant["limit"] else "silva" if is_silva(contestant["name"]) else ""
    low, high = place(min(values)), place(max(values))
    marks = f'<div class="fill" style="width:{place(statistics.median(values)):.2f}%"></div>'
    marks += f'<div class="spread" style="left:{low:.2f}%;width:{high - low:.2f}%"></div>'
    if line is not None:
        marks += f'<div class="line" style="left:{line:.2f}%"></div>'
    shown = f"<td>{in_units(metric, statistics.median(values))}</td>"
    for key, _ in _OTHERS:
        if key != metric:
            more = _values(contestant, key)
            text = in_units(key, statistics.median(more)) if more else "–"  # type: ignore[arg-type]
            shown += f'<td class="more">{text}</td>'
    return (
        f'<tr class="{kind}"><td>{name}{" (limit)" if contestant["limit"] else ""}</td>'
        f'<td class="bar"><div class="track">{marks}</div></td>{shown}</tr>'
    )


def _targets(targets: list[dict[str, Any]]) -> str:
    lines = []
    for target in targets:
        shown = target["shown"] or "not measured"
        kind, word = ("reached", "reached") if target["reached"] else ("not", "not reached")
        lines.append(
            f"<li>{escape(target['target'])}: {escape(shown)}, wanted {escape(target['wanted'])}: "
            f'<span class="{kind}">{word}</span></li>'
        )
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _values(contestant: dict[str, Any], metric: str) -> list[float]:
    return [run[metric] for run in contestant["runs"] if run and metric in run]


def _scale(values: list[float]) -> Any:
    """From a value to per cent of the width; by its logarithm where values lie far apart."""
    low, high = min(values), max(values)
    if high > WIDE * low > 0:
        bottom, top = math.log(low / 3), math.log(high)
        return lambda value: 100 * (math.log(value) - bottom) / (top - bottom)
    return lambda value: 100 * value / high if high else 0.0


def _how(values: list[float]) -> str:
    return "logarithmic" if max(values) > WIDE * min(values) > 0 else ""


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(json.loads(Path(sys.argv[1]).read_text())))
