"""One picture of a JSON result: `python -m benchmarks.plot results.json picture.png`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

_AXES = {
    "rate": ("rows a second", 1.0),
    "first": ("seconds to the first batch", 1.0),
    "peak": ("peak MiB", 2.0**20),
}
_SILVA, _LIMIT, _OTHER = "#2f7d4f", "#c9c9c9", "#8fa7c4"
WIDE = 30
"""Where the longest bar is so many times the shortest, the axis is logarithmic."""


def is_silva(name: str) -> bool:
    return "silva" in name


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    workloads = result["workloads"]
    heights = [len(w["contestants"]) + 2 for w in workloads]
    figure, axes = plt.subplots(
        len(workloads), 1, figsize=(9, 0.32 * sum(heights) + 0.5), squeeze=False,
        height_ratios=heights, layout="constrained",
    )  # fmt: skip
    for axis, workload in zip(axes[:, 0], workloads, strict=True):
        _bars(axis, workload)
    machine = result["machine"]
    figure.text(
        1, 0,
        f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}, {result['date']}"
        + (", quick run: says little" if result["quick"] else ""),
        ha="right", va="top", fontsize=7, color="gray",
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def _bars(axis: Any, workload: dict[str, Any]) -> None:
    label, unit = _AXES[workload["metric"]]
    names, medians, spreads, colours = [], [], [], []
    limit = None
    for contestant in workload["contestants"]:
        values = [run[workload["metric"]] / unit for run in contestant["runs"] if run]
        if not values:
            continue
        median = statistics.median(values)
        if contestant["limit"] and limit is None and workload["name"] != "memory":
            limit = median
        names.append(contestant["name"])
        medians.append(median)
        spreads.append((median - min(values), max(values) - median))
        ours = is_silva(contestant["name"]) or workload["name"] == "memory"
        colours.append(_LIMIT if contestant["limit"] else _SILVA if ours else _OTHER)
    if not names:
        return
    whiskers = [list(side) for side in zip(*spreads, strict=True)]
    axis.barh(
        names, medians, xerr=whiskers, color=colours, height=0.7,
        error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
    )  # fmt: skip
    reach = [m + s[1] for m, s in zip(medians, spreads, strict=True)]
    for name, median, end in zip(names, medians, reach, strict=True):
        text = f" {median:,.0f}" if median >= 100 else f" {median:.3g}"
        axis.text(end, name, text, va="center", fontsize=8)
    if max(medians) > WIDE * min(medians):
        axis.set_xscale("log")
        axis.set_xlim(min(medians) / 3, max(reach) * 5)
    else:
        axis.set_xlim(0, max(reach) * 1.15)
    if limit is not None:
        axis.axvline(limit, color="#c2410c", linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axis.invert_yaxis()
    axis.set_title(workload["title"], loc="left", fontsize=9, fontweight="bold")
    axis.set_xlabel(label, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
