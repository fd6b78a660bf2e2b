"""The outcome of a workload as two tables: the contestants, and the targets."""

from __future__ import annotations

import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Outcome
from benchmarks.workload import Metric, Target

_METRICS: dict[Metric, str] = {
    "rate": "rows/s",
    "first": "first s",
    "peak": "peak MiB",
    "cpu_row": "CPU µs/row",
}
_OF_WHAT: dict[Metric, str] = {"rate": "", "first": "", "peak": ": memory", "cpu_row": ": CPU"}
_BUSY = 0.1
"""With more of the CPUs in other hands, ratios say little."""
_UNITS: dict[Metric, str] = {"rate": "/s", "first": "s", "peak": "MiB", "cpu_row": "µs"}


def show(outcome: Outcome, console: Console, *, quick: bool) -> None:
    console.print()
    console.print(contestants_table(outcome))
    if outcome.workload.targets:
        console.print(targets_table(outcome))
    for text in (outcome.workload.remarks, outcome.data):
        if text:
            console.print(f"[dim]{text}[/]", highlight=False)
    busy = outcome.other_load > _BUSY
    advice = "[bold yellow]too much: measure again on a quiet machine[/]" if busy else ""
    console.print(f"[dim]others used {outcome.other_load:.0%} of the CPUs meanwhile[/] {advice}")
    if quick:
        console.print(
            "[dim]a quick run: start-up weighs too much for the targets to mean anything[/]"
        )
    for name, reason in outcome.missing.items():
        console.print(f"[yellow]not installed:[/] {name}: {reason}", highlight=False)
    for error in outcome.errors:
        console.print(f"[bold red]wrong:[/] {error}", highlight=False)


def contestants_table(outcome: Outcome) -> Table:
    workload = outcome.workload
    table = Table(title=workload.title, title_justify="left", title_style="bold")
    table.add_column("contestant", no_wrap=True)
    others = [m for m in _METRICS if m != workload.metric]
    if workload.metric == "first":
        others.remove("rate")
    for name in (_METRICS[workload.metric], "lowest – highest", *map(_METRICS.__getitem__, others)):
        table.add_column(name, justify="right", no_wrap=True)
    if workload.metric == "rate":
        table.add_column("steady/s", justify="right", no_wrap=True)
    for contestant in workload.contestants:
        name = f"{contestant.name} [dim](limit)[/]" if contestant.limit else contestant.name
        values = outcome.known(contestant.name, workload.metric)
        if not values:
            missing = contestant.name in outcome.missing
            table.add_row(name, "not installed" if missing else "failed")
            continue
        low, median, high = (
            in_units(workload.metric, f(values)) for f in (min, statistics.median, max)
        )
        shown = [in_units(m, statistics.median(outcome.known(contestant.name, m))) for m in others]
        if workload.metric == "rate":
            steady = statistics.median(outcome.known(contestant.name, "steady"))
            shown.append(in_units("rate", steady) if steady else "–")
        table.add_row(name, median, f"{low} – {high}", *shown)
    return table


def targets_table(outcome: Outcome) -> Table:
    table = Table()
    table.add_column("target", no_wrap=True)
    for name in ("wanted", "median", "lowest – highest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for target in outcome.workload.targets:
        values = outcome.of_target(target)
        if not values:
            table.add_row(describe(target, outcome), wanted(target), "–", "–", "[red]not measured")
            continue
        median = statistics.median(values)
        table.add_row(
            describe(target, outcome),
            wanted(target),
            amount(target, median),
            f"{amount(target, min(values))} – {amount(target, max(values))}",
            "[green]reached" if target.reached(median) else "[bold red]not reached",
        )
    return table


def describe(target: Target, outcome: Outcome) -> str:
    """`silva lambdas / plain loop`."""
    text = target.who
    if target.minus is not None:
        text += f" − {target.minus}"
    if target.of is not None:
        text += f" / {outcome.best_of(target.of, target.metric)}"
    if isinstance(target.of, tuple):
        text += f" (best of {len(target.of)})"
    return text + _OF_WHAT[target.metric]


def wanted(target: Target) -> str:
    if target.at_least is not None:
        return f"≥ {amount(target, target.at_least)}"
    assert target.at_most is not None
    return f"≤ {amount(target, target.at_most)}"


def amount(target: Target, value: float) -> str:
    if target.of is not None:
        return f"{value:.2f}×"
    return f"{in_units(target.metric, value)} {_UNITS[target.metric]}"


def in_units(metric: Metric, value: float) -> str:
    """Three digits or so: `7.42 M` rows a second, `0.046` seconds, `264` MiB."""
    if metric == "peak":
        return f"{value / 2**20:,.0f}"
    if metric == "first":
        return f"{value:.3f}"
    if metric == "cpu_row":
        return f"{value * 1e6:,.{2 if value < 1e-5 else 0}f}"
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:#.3g}{name}".replace(". ", " ")
    return f"{value:.3g}"
