"""A plan as text: the candidates side by side, and what is sharded how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from silva.facts.formatting import percent, plural, seconds, size, times
from silva.train.planning.price import Price

if TYPE_CHECKING:
    from silva.train.plan import Plan

_SHOWN = 6
"""Candidates that are shown beside the chosen one and the defaults."""
_WEIGHTS = 12
"""Weights that are shown with the reason why they are whole."""


def explain(plan: Plan) -> str:
    """What was chosen and why, what else there was, and how the module is spread."""
    module = plan.module
    lines = [f"Plan: {plan.choice}, on {plural(len(plan.topology), 'device')}"]
    if plan.decision is not None:
        gain = plan.decision.predicted_gain
        faster = f": {times(gain)} as fast as the default" if gain is not None and gain > 1 else ""
        lines.append(f"  {plan.decision.why}{faster}")
    lines += [f"  a step has {plural(plan.recipe.global_rows, 'row')} over all devices", ""]
    if plan.prices or plan.defaults:
        lines += ["Candidates", *_table(plan), ""]
    if module.why_not is not None:
        lines.append(
            f"Only data parallelism is possible: the module does not export, since {module.why_not}"
        )
        return "\n".join(lines)
    lines += _stages(plan)
    lines += _sharded(plan)
    return "\n".join(lines)


def _table(plan: Plan) -> list[str]:
    chosen = plan.price
    shown: list[tuple[Price, str]] = [(chosen, "chosen")] if chosen is not None else []
    plain = [one for one in plan.defaults if one.choice != plan.choice]
    shown += [(one, "default; " + _why_not(one, chosen)) for one in plain]
    others = [p for p in plan.prices if p.choice not in {one.choice for one, _ in shown}]
    shown += [(one, _why_not(one, chosen)) for one in others[:_SHOWN]]
    rows = [("", "step", "memory", "sent", "bubble", "")]
    for one, why in shown:
        timed = plan.module.why_not is None
        rows.append(
            (
                str(one.choice),
                seconds(one.seconds) if timed else "–",
                size(one.memory),
                size(one.traffic) if timed else "–",
                percent(one.bubble) if timed else "–",
                why,
            )
        )
    lines = _aligned(rows)
    more = len(others) - _SHOWN
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _why_not(one: Price, chosen: Price | None) -> str:
    if not one.fits:
        return f"needs {size(one.memory)} of {size(one.limit or 0)}"
    if chosen is None or one.seconds <= chosen.seconds:
        return "not a tenth faster than the default"
    return f"{times(one.seconds / chosen.seconds)} as long"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(
            cell.ljust(width) if i in (0, len(row) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]  # fmt: skip


def _stages(plan: Plan) -> list[str]:
    if plan.choice.stages == 1:
        return []
    lines = ["Stages"]
    for number, cut in enumerate(plan.recipe.chosen_cuts(), 1):
        lines.append(
            f"  stage {number} begins at {cut.before}: {plural(cut.values, 'tensor')}, "
            f"{size(cut.nbytes)} for the example batch"
        )
    return [*lines, ""]


def _sharded(plan: Plan) -> list[str]:
    module, tp = plan.module, plan.choice.tp
    lines = []
    if tp > 1 and module.traced is not None:
        found = module.groups[tp]
        lines.append(f"Sharded over {tp} devices")
        for group in found.groups:
            producers = ", ".join(module.traced.states[p.weight.name] for p in group.producers)
            frontiers = ", ".join(module.traced.states[p.weight.name] for p in group.frontiers)
            lines.append(f"  {producers} by output → {frontiers} by input")
        whole = list(found.why_not.items())
        lines += [f"  {name} is whole: {why}" for name, why in whole[:_WEIGHTS]]
        if len(whole) > _WEIGHTS:
            lines.append(f"  and {len(whole) - _WEIGHTS} more")
        lines.append("")
    if plan.choice.fsdp > 1:
        lines.append(
            f"Every parameter is divided among {plan.choice.fsdp} devices, and gathered where it "
            "is used"
        )
    if module.traced is not None and module.traced.tied:
        tied = ", ".join(f"{a} = {b}" for a, b in module.traced.tied.items())
        lines.append(f"Tied parameters, whose gradients are added up: {tied}")
    return lines
