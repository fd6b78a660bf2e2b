"""Runs the turns of a loop: one turn of many rows at once, each of which may be at another turn.

A row in a loop draws random numbers by its identity and its turn, as a part of an exploded row
does. What its models' answers cost counts whether they were asked for or kept, so a bound on money
or tokens does not depend on who has asked before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.columns import Values
from silva.errors import SilvaError
from silva.order.draws import Draw
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, Failure
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Call, CallColumns, Evaluate, Project, RowStep
from silva.plan import node as logical
from silva.plan.choice import resolve
from silva.plan.function import Function
from silva.plan.schema import columns
from silva.plan.turn import Turn
from silva.serve.models.ledger import Ledger, ledger

_FOLD = np.uint64(0x100000001B3)
"""Spreads the place of a row and its turn over 64 bits, as an explode does."""


class TurnError(SilvaError):
    """A step failed in a turn of a loop. `__cause__` is what it raised."""


class LoopBoundError(SilvaError):
    """A loop has taken more time, tokens or money than it may."""


@dataclass(eq=False)
class Progress:
    """How far a row has come in a loop."""

    columns: dict[str, Any]
    """What the next turn reads."""
    began: float
    turns: list[Any] = field(default_factory=list)
    """What each turn has written."""
    tokens: int = 0
    money: float = 0.0
    is_over: bool = False

    @staticmethod
    def begin(columns: dict[str, Any]) -> Progress:
        return Progress(columns, time.monotonic())


class Runner:
    """The steps of a turn, as they run in this process."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._steps = _steps_of(turn.plan)
        *_, self._until = columns(turn.plan)
        self._local = threading.local()

    def take(self, progress: Sequence[Progress], draw: Draw) -> dict[int, Exception]:
        """Runs one turn of all rows that are not over. Returns the errors of those that fail, which
        are over then."""
        active = np.array([i for i, one in enumerate(progress) if not one.is_over], dtype=np.int64)
        rows = self._rows([progress[i] for i in active], active, draw)
        given = list(zip(rows.ids.tolist(), _list(rows.places), strict=True))
        with Ledger().applies() as book:
            for step in self._steps:
                step.apply(rows, self._worker())
        errors: dict[int, Exception] = {}
        for failure in rows.failures:
            number = int(active[failure.row])
            errors[number] = _turn_error(failure, len(progress[number].turns) + 1)
        for i, key in zip(active.tolist(), given, strict=True):
            tokens, money = book.of(key)
            progress[i].tokens += tokens
            progress[i].money += money
        self._tell_outer(draw, active, [book.of(key) for key in given])
        errors |= self._note(progress, active, rows)
        for number in errors:
            progress[number].is_over = True
        return errors

    def _rows(self, progress: list[Progress], active: np.ndarray, draw: Draw) -> Rows:
        given = {
            name: Values([one.columns[name] for one in progress]).settled()
            for name in self._turn.reads
        }
        places = np.zeros(len(active), np.uint64) if draw.places is None else draw.places[active]
        turns = np.array([len(one.turns) for one in progress], dtype=np.uint64)
        context = Context(draw.key[0], draw.key[1], "skip")
        places = places * _FOLD + turns + np.uint64(1)
        return Rows(context, given, draw.ids[active], places, len(active))

    def _note(
        self, progress: Sequence[Progress], active: np.ndarray, rows: Rows
    ) -> dict[int, Exception]:
        """Writes down what the turn has made of each row, and which rows it ends."""
        made = {name: column.rows() for name, column in rows.columns.items()}
        origin = active if rows.origin is None else active[rows.origin]
        errors: dict[int, Exception] = {}
        for k, i in enumerate(origin.tolist()):
            one = progress[i]
            after = {name: values[k] for name, values in made.items()}
            one.turns.append({name: after[name] for name in self._turn.records})
            one.columns.update((n, after[n]) for n in self._turn.reads if n in after)
            try:
                one.is_over = bool(after[self._until]) or len(one.turns) >= self._turn.at_most
                if not one.is_over:
                    self._check_bounds(one)
            except Exception as error:  # noqa: BLE001  until= is the user's: it is that row's error
                errors[i] = error
        return errors

    def _check_bounds(self, one: Progress) -> None:
        turn, count = self._turn, len(one.turns)
        seconds = time.monotonic() - one.began
        for name, unit, used, most in (
            ("seconds", " seconds", seconds, turn.seconds),
            ("tokens", " tokens", one.tokens, turn.tokens),
            ("money", " of money", one.money, turn.money),
        ):
            if most is not None and used > most:
                raise LoopBoundError(
                    f"the loop has taken {used:.6g}{unit} in {count} turn(s), more than {name}="
                    f"{most:.6g}, and is not at its end: raise the bound, or let until= hold before"
                )

    def _tell_outer(
        self, draw: Draw, active: np.ndarray, spent: Sequence[tuple[int, float]]
    ) -> None:
        """Counts for the loop around this one, if there is one."""
        outer = ledger()
        if outer is not None:
            places = None if draw.places is None else draw.places[active]
            keys = zip(draw.ids[active].tolist(), _list(places, len(active)), strict=True)
            outer.note(dict(zip(keys, spent, strict=True)))

    def _worker(self) -> Worker:
        """One for each thread: objects of stateful classes are not shared."""
        found: Worker | None = getattr(self._local, "worker", None)
        if found is None:
            found = self._local.worker = Worker(shares_generators=False)
        return found


def runner(turn: Turn) -> Runner:
    """What runs a turn in this process; it lives as long as the turn."""
    found = vars(turn).get("_runner")
    if not isinstance(found, Runner):
        found = vars(turn)["_runner"] = Runner(turn)
    return found


def _steps_of(plan: logical.Node) -> list[RowStep]:
    """The steps of a turn, one after the other."""
    steps: list[RowStep] = []
    for node in logical.walk(resolve(plan)):
        match node:
            case logical.Derive():
                steps.append(_step_of(node))
            case logical.Select():
                steps.append(Project.of(node.names))
            case logical.Rename():
                new = dict(node.names)
                names = tuple((name, new.get(name, name)) for name in columns(node.input))
                steps.append(Project(names))
    return steps


def _step_of(node: logical.Derive) -> RowStep:
    if not isinstance(node.step, Function):
        return Evaluate(node.step, node.into, node.id)
    kind = CallColumns if node.step.marks.batched else Call
    return kind(node.step, node.into, node.id)


def _turn_error(failure: Failure, turn: int) -> Exception:
    """The failure of a step in a turn, with the frames of the user's function."""
    error = TurnError(f"turn {turn}: `{failure.step}` failed: {failure.error}")
    error.__cause__ = failure.cause
    return error.with_traceback(None if failure.cause is None else failure.cause.__traceback__)


def _list(places: np.ndarray | None, count: int = 0) -> list[int]:
    return [0] * count if places is None else places.tolist()
