"""A loop: the steps of a turn are repeated on a row until a condition holds.

    turn = sv.requests("question", "log").derive(said=model.generate("{question}{log}"), …)
    agent.derive(turns=sv.loop(turn, until=…, at_most=5))

A turn is a pipeline of requests. Its first request is the row; each later one is the row with the
columns that the turn before has written. `turns.py` runs the turns, of many rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silva.arguments import as_step
from silva.columns import Column, Values
from silva.errors import PlanError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.plan.arguments import duration, explains, natural, positive
from silva.plan.choice import OP as CHOICE
from silva.plan.expr import Call, Col, Expr
from silva.plan.function import Function, Stateful
from silva.plan.open import chooses
from silva.plan.operator import RowErrors, operator
from silva.plan.schema import columns
from silva.plan.turn import UNTIL, Turn, every_part
from silva.serve.loop.turns import Progress, runner
from silva.serve.requests import source_of

_ONE_TO_ONE = (logical.Source, logical.Derive, logical.Select, logical.Rename, logical.Options)
"""The nodes that make one row of one."""


@chooses
@explains
def loop(
    step: Pipeline,
    *,
    until: Any,
    at_most: int,
    seconds: float | None = None,
    tokens: int | None = None,
    money: float | None = None,
) -> Expr:
    """The turns of a loop, as a list of dicts: `derive(turns=sv.loop(step, until=…, at_most=5))`.

    `step` is what one turn does, a pipeline that begins with `sv.requests(…)`: it reads these
    columns of the row, in later turns as the turn before has left them. The loop ends when `until`,
    an expression or a function of the columns after a turn, is true, or after `at_most` turns. Each
    turn is recorded as a dict of the columns that it wrote.

    No turn begins once the loop has taken more than so many `seconds`, or the answers of its models
    more than so many `tokens` or so much `money`, by their prices: the row then fails.

    >>> import silva as sv
    >>> half = sv.requests("x").derive(x=lambda x: x // 2)
    >>> halves = sv.requests("x").derive(turns=sv.loop(half, until=sv.col("x") < 2, at_most=9))
    >>> halves.ask(x=5)
    {'x': 5, 'turns': [{'x': 2}, {'x': 1}]}
    """
    if not isinstance(step, Pipeline):
        raise PlanError(
            'loop takes what one turn does, a pipeline such as sv.requests("x").derive(x=…), not '
            f"{step!r}"
        )
    reads, after = source_of(step.plan).names, columns(step.plan)
    _check(step.plan)
    if not isinstance(until, Expr | Stateful) and not callable(until):
        raise PlanError(
            "loop(until=…) takes an expression such as sv.col('done') or a function of columns, "
            f"not {until!r}"
        )
    turn = Turn(
        logical.Derive(step.plan, as_step(step.plan, until, None), (_free(after),), UNTIL),
        reads,
        _written(step.plan),
        natural("loop(at_most=…)", at_most, least=1),
        None if seconds is None else duration("loop(seconds=…)", seconds),
        None if tokens is None else natural("loop(tokens=…)", tokens, least=1),
        None if money is None else positive("loop(money=…)", money),
    )
    op = "loop.draws" if _draws(turn.plan) else "loop.turns"
    return Expr(Call(op, tuple(map(Col, reads)), (("turn", turn),)))


def _best_rows(params: Mapping[str, Any]) -> int:
    """As many rows as the models of a turn should get at once."""
    steps = [node.runs for node in logical.walk(params["turn"].plan) if node.runs is not None]
    calls = [part for step in steps for part in every_part(step) if isinstance(part, Call)]
    wishes = [(operator(call.op).best_rows, call) for call in calls if call.op != CHOICE]
    return max((wish(dict(call.params)) for wish, call in wishes if wish is not None), default=1)


@column_operator("loop.turns", by_row=True, releases_gil=False, best_rows=_best_rows)
def turns(given: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    """The turns of each row. With one column more, how far each row has come (None for one that
    begins): one more turn."""
    turn: Turn = params["turn"]
    rows = [column.rows() for column in given]
    steps = len(given) > len(turn.reads)
    begun = rows.pop() if steps else [None] * len(draw.ids)
    progress = [
        Progress.begin(dict(zip(turn.reads, values, strict=True))) if before is None else before
        for before, values in zip(begun, zip(*rows, strict=True), strict=True)
    ]
    errors: dict[int, Exception] = {}
    while any(not one.is_over for one in progress):
        errors |= runner(turn).take(progress, draw)
        if steps:
            break
    made = Values(progress if steps else [one.turns for one in progress])
    if errors:
        raise RowErrors(errors, made)
    return made


@column_operator("loop.draws", by_row=True, random=True, releases_gil=False, best_rows=_best_rows)
def draws(given: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    """The same of a turn that draws random numbers."""
    return turns(given, params, draw)


def _check(plan: logical.Node) -> None:
    """Refuses steps that are not about one row alone, or read tables."""
    for node in logical.walk(plan):
        if not isinstance(node, _ONE_TO_ONE):
            raise PlanError(
                f"`{node.verb}` in a turn of a loop, which makes one row of one, by derive, select "
                f"and rename: write {node.verb} before or after the loop"
            )
        for part in () if node.runs is None else every_part(node.runs):
            if isinstance(part, Function) and part.marks.batch_size is not None:
                raise PlanError(
                    f"{part.name} in a turn of a loop works on {part.marks.batch_size} rows at a "
                    "time, but rows leave a loop one by one: mark it @sv.batched without a size"
                )
            if isinstance(part, Call) and part.op.startswith("join."):
                raise PlanError("a join in a turn of a loop: join the table before the loop")


def _draws(plan: logical.Node) -> bool:
    """Whether a turn draws random numbers, by some value of its choices."""
    steps = (node.runs for node in logical.walk(plan) if node.runs is not None)
    parts = (part for step in steps for part in every_part(step))
    return any(
        part.takes_rng
        if isinstance(part, Function)
        else isinstance(part, Call) and part.op != CHOICE and operator(part.op).random
        for part in parts
    )


def _written(plan: logical.Node) -> tuple[str, ...]:
    """The columns that the steps of a turn have written, as far as they are kept."""
    written: set[str] = set()
    for node in logical.walk(plan):
        if isinstance(node, logical.Rename):
            new = dict(node.names)
            written = {new.get(name, name) for name in written} | set(new.values())
        written |= set(node.writes)
    names = tuple(name for name in columns(plan) if name in written)
    if not names:
        raise PlanError("loop takes a pipeline that derives columns, or every turn is the same")
    return names


def _free(names: tuple[str, ...]) -> str:
    """A name for the column that says whether a loop ends."""
    name = UNTIL
    while name in names:
        name += "?"
    return name
