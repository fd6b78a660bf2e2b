"""Whether all ranks take the same number of steps, as far as a plan tells."""

from __future__ import annotations

from silva.errors import PlanError
from silva.order.length import plan_rows
from silva.plan import node as logical


def check_equal_steps(plan: logical.Node, world: int, agree: bool) -> None:
    """Raises where ranks might take different numbers of steps; `agree`: they ask each other."""
    batch = next((n for n in logical.walk(plan) if isinstance(n, logical.Batch)), None)
    if batch is None or batch.size is None:
        if not agree:
            raise PlanError(
                f"with world={world}, ranks must take the same number of steps: use "
                "batch(n, drop_last=True), steps=…, group=…, or eval=True"
            )
        return
    rows = plan_rows(batch.input)
    if rows is None:
        if not agree:
            raise PlanError(
                f"with world={world}, the number of rows after filters is not known "
                "beforehand: give steps=…, or group='auto' to agree over torch.distributed"
            )
    elif not batch.drop_last and rows % batch.size:
        raise PlanError(
            f"with world={world}, {rows} rows do not fill batches of {batch.size}, and "
            "the last would be uneven: use batch(n, drop_last=True), or eval=True to pad it"
        )
